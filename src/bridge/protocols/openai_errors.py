"""Errors of OpenAI-style providers, and errors told to OpenAI clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from bridge.canonical.quoting import MAX_QUOTED_CHARACTERS, plain_text
from bridge.errors import BridgeError, ErrorKind, broken_upstream, kind_for_status
from bridge.protocols.openai_overflow import context_overflow

if TYPE_CHECKING:
    from bridge.canonical.json import JsonObject, JsonValue


# What a status of a provider becomes: 408 and 503 have no place in Anthropic's table.
_STATUS = {408: 504, 422: 400, 503: 529}

_STATUS_BY_NAME = {
    "authentication_error": 401,
    "context_length_exceeded": 400,
    "insufficient_quota": 429,
    "content_policy_violation": 400,
    "invalid_api_key": 401,
    "invalid_prompt": 400,
    "server_error": 500,
    "invalid_request_error": 400,
    "model_not_found": 404,
    "overloaded_error": 529,
    "permission_error": 403,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "RESOURCE_EXHAUSTED": 429,
}

_TYPE_NAMES = {
    ErrorKind.INVALID_REQUEST: "invalid_request_error",
    ErrorKind.AUTHENTICATION: "authentication_error",
    ErrorKind.BILLING: "insufficient_quota",
    ErrorKind.PERMISSION: "permission_error",
    ErrorKind.NOT_FOUND: "not_found_error",
    ErrorKind.METHOD_NOT_ALLOWED: "invalid_request_error",
    ErrorKind.TOO_LARGE: "invalid_request_error",
    ErrorKind.RATE_LIMIT: "rate_limit_error",
    ErrorKind.API: "server_error",
    ErrorKind.TIMEOUT: "timeout_error",
    ErrorKind.OVERLOADED: "server_error",
}


def render_error(error: BridgeError) -> tuple[int, JsonObject]:
    """Status and body as an OpenAI client expects them; it does not know 529."""
    details: JsonObject = {
        "message": error.message,
        "type": _TYPE_NAMES[error.kind],
        "param": None,
        "code": error.code,
        "retryable": error.retryable,
    }
    if error.provider_details is not None:
        details["provider_details"] = error.provider_details
    return (503 if error.status == 529 else error.status), {"error": details}


def parse_error(status: int, body: bytes, provider: str, retry_after: str | None = None) -> BridgeError:
    """The provider's refusal: its own words, bounded, whatever form they came in."""
    if status < 400:
        return broken_upstream(f"it answered {status}, a redirect; check the base URL", provider)
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        parsed = None
    error = _error_of(parsed)
    message, details = _message_of(error) if error is not None else (plain_text(body), None)
    told = f"{provider} answered {status}: {message or 'no further explanation'}"
    return _error(_STATUS.get(status, status), message, told, provider, details, retry_after)


def error_in_chunk(chunk: JsonObject, provider: str, expected: str = "a chat completion") -> BridgeError:
    """An error where an answer should be: inside a stream, or as the body of a 200."""
    error = _error_of(chunk)
    if error is None:
        return broken_upstream(f"the answer does not have the shape of {expected}", provider)
    status = _status_in(error)
    message, details = _message_of(error)
    told = f"{provider}: {message or 'an error without explanation'}"
    return _error(_STATUS.get(status, status), message, told, provider, details, None)


def error_in_document(body: bytes, provider: str) -> BridgeError:
    """A document that came where a stream was announced."""
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        parsed = None
    if isinstance(parsed, dict) and _error_of(parsed) is not None:
        return error_in_chunk(parsed, provider)
    return broken_upstream(f"instead of a stream it sent {plain_text(body)[:200]!r}", provider)


def _status_in(error: JsonValue) -> int:
    """The status that an error inside an answer stands for, by its code or type."""
    if not isinstance(error, dict):
        return 502
    for told in (error.get("code"), error.get("type"), error.get("status")):
        number = int(told) if isinstance(told, str) and told.isdigit() else told
        if isinstance(number, int) and 400 <= number <= 599:
            return number
        if isinstance(told, str) and told in _STATUS_BY_NAME:
            return _STATUS_BY_NAME[told]
    return 502


def _error(
    status: int, message: str, told: str, provider: str, details: JsonValue, retry_after: str | None
) -> BridgeError:
    kind = kind_for_status(status)
    overflow = context_overflow(message, details) if status in (400, 413, 422, 500, 502) else None
    if overflow is not None:
        kind, status, told = ErrorKind.INVALID_REQUEST, 400, f"{overflow} ({told})"
    hopeless = isinstance(details, dict) and "insufficient_quota" in (details.get("code"), details.get("type"))
    return BridgeError(
        kind,
        told,
        status=status,
        provider=provider,
        provider_details=details,
        retry_after=retry_after,
        retryable=False if hopeless else None,
    )


def _error_of(parsed: JsonValue) -> JsonValue:
    """The error inside a body: wrapped, in a list (Gemini), bare (Mistral, vLLM), or under `detail`."""
    match parsed:
        case [first, *_]:
            return _error_of(first)
        case {"error": error} if error:
            return error
        case {"object": "error"} | {"message": str()}:
            return parsed
        case {"detail": detail} if detail:
            return detail
    return None


def _message_of(error: JsonValue) -> tuple[str, JsonValue]:
    if not isinstance(error, dict):
        text = error if isinstance(error, str) else orjson.dumps(error).decode()
        return text[:MAX_QUOTED_CHARACTERS], None
    message = error.get("message") or error.get("detail") or ""
    details: JsonObject = {
        key: value for key in ("type", "code", "param", "status") if isinstance(value := error.get(key), str | int)
    }
    metadata = error.get("metadata")
    if isinstance(metadata, dict) and metadata.get("raw"):  # what OpenRouter's provider said
        message = f"{message}: {metadata['raw']}"
    return str(message)[:MAX_QUOTED_CHARACTERS], details or None
