"""Errors as Anthropic tells them, to clients and from itself."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import orjson

from bridge.canonical.quoting import MAX_QUOTED_CHARACTERS, plain_text
from bridge.errors import BridgeError, ErrorKind, broken_upstream, kind_for_status

if TYPE_CHECKING:
    from bridge.canonical.json import JsonObject, JsonValue

MAX_DETAIL_CHARACTERS = 100

_TYPE_NAMES = {
    ErrorKind.INVALID_REQUEST: "invalid_request_error",
    ErrorKind.AUTHENTICATION: "authentication_error",
    ErrorKind.BILLING: "billing_error",
    ErrorKind.PERMISSION: "permission_error",
    ErrorKind.NOT_FOUND: "not_found_error",
    ErrorKind.METHOD_NOT_ALLOWED: "invalid_request_error",
    ErrorKind.TOO_LARGE: "request_too_large",
    ErrorKind.RATE_LIMIT: "rate_limit_error",
    ErrorKind.API: "api_error",
    ErrorKind.TIMEOUT: "timeout_error",
    ErrorKind.OVERLOADED: "overloaded_error",
}
_STATUS_BY_TYPE = {name: kind.value for kind, name in _TYPE_NAMES.items()} | {
    "invalid_request_error": 400,
    "conflict_error": 409,
}
# What a status of a provider becomes: 408 and 503 have no place in Anthropic's table.
_STATUS = {408: 504, 422: 400, 503: 529}
_CONFLICT = 409
_SPENT = frozenset({"enforced_spend_limit_reached", "ramp_limit_exceeded"})
_TOO_LONG = re.compile(r"prompt is too long|exceed context limit|exceeds? the (?:model's )?context window", re.I)
TOO_LONG_CODE = "context_length_exceeded"


def render_error(error: BridgeError) -> tuple[int, JsonObject]:
    """Status and body as an Anthropic client expects them."""
    details: JsonObject = {
        "type": _TYPE_NAMES[error.kind],
        "message": error.message,
        "retryable": error.retryable,
    }
    if error.provider_details is not None:
        details["provider_details"] = error.provider_details
    if error.code is not None:
        details["details"] = {"error_code": error.code}
    return error.status, {"type": "error", "error": details}


def parse_error(status: int, body: bytes, provider: str, retry_after: str | None = None) -> BridgeError:
    """Anthropic's refusal: its own words, bounded, whatever form they came in."""
    if status < 400:
        return broken_upstream(f"it answered {status}, a redirect; check the base URL", provider)
    parsed = _loads(body)
    error = _error_of(parsed)
    message = _message_of(error) if error is not None else plain_text(body)
    told = f"{provider} answered {status}: {message or 'no further explanation'}"
    said = _STATUS_BY_TYPE.get(str(error.get("type"))) if isinstance(error, dict) and status >= 500 else None
    return _error(said or _STATUS.get(status, status), told, provider, _details_of(parsed, error), retry_after)


def error_in_event(event: JsonObject, provider: str) -> BridgeError:
    """An error where an answer should be: inside a stream, or as the body of a 200."""
    error = _error_of(event)
    if error is None:
        return broken_upstream("the answer does not have the shape of a message", provider)
    status = _STATUS_BY_TYPE.get(str(error.get("type")), 502) if isinstance(error, dict) else 502
    told = f"{provider}: {_message_of(error) or 'an error without explanation'}"
    return _error(status, told, provider, _details_of(event, error), None)


def error_in_document(body: bytes, provider: str) -> BridgeError:
    """A document that came where a stream was announced."""
    parsed = _loads(body)
    if isinstance(parsed, dict) and _error_of(parsed) is not None:
        return error_in_event(parsed, provider)
    return broken_upstream(f"instead of a stream it sent {plain_text(body)[:200]!r}", provider)


def _error(status: int, told: str, provider: str, details: JsonObject, retry_after: str | None) -> BridgeError:
    retryable = True if status == _CONFLICT else False if details.get("error_code") in _SPENT else None
    return BridgeError(
        kind_for_status(status),
        told,
        status=status,
        provider=provider,
        provider_details=details or None,
        retry_after=retry_after,
        retryable=retryable,
        code=TOO_LONG_CODE if status == 400 and _TOO_LONG.search(told) else None,
    )


def _loads(body: bytes) -> JsonValue:
    try:
        parsed: JsonValue = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    return parsed


def _error_of(parsed: JsonValue) -> JsonValue:
    """The error inside a body: as Anthropic wraps it, or bare as gateways before it do."""
    match parsed:
        case {"error": error} if error:
            return error
        case {"message": str()}:
            return parsed
        case {"detail": detail} if detail:
            return detail
    return None


def _message_of(error: JsonValue) -> str:
    if isinstance(error, dict):
        message = error.get("message") or error.get("detail") or ""
        return str(message)[:MAX_QUOTED_CHARACTERS]
    text = error if isinstance(error, str) else orjson.dumps(error).decode()
    return text[:MAX_QUOTED_CHARACTERS]


def _details_of(parsed: JsonValue, error: JsonValue) -> JsonObject:
    """What a program can go by: the type, the code, and the id under which Anthropic knows the request."""
    found: JsonObject = {}
    if isinstance(error, dict):
        details = error.get("details")
        code = details.get("error_code") if isinstance(details, dict) else None
        found |= {"type": error.get("type"), "error_code": code}
    if isinstance(parsed, dict):
        found["request_id"] = parsed.get("request_id")
    return {name: value[:MAX_DETAIL_CHARACTERS] for name, value in found.items() if isinstance(value, str) and value}
