"""Errors of OpenAI-style providers, and errors told to OpenAI clients."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from bridge.errors import BridgeError, ErrorKind, kind_for_status

if TYPE_CHECKING:
    from bridge.canonical.json import JsonObject, JsonValue

MAX_QUOTED_CHARACTERS = 500

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
        "code": None,
        "retryable": error.retryable,
    }
    if error.provider_details is not None:
        details["provider_details"] = error.provider_details
    return (503 if error.status == 529 else error.status), {"error": details}


def parse_error(status: int, body: bytes, provider: str, retry_after: str | None = None) -> BridgeError:
    """The provider's refusal: its own words, bounded, whatever form they came in."""
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        parsed = None
    if isinstance(parsed, list) and parsed:  # Gemini wraps its errors in a list
        parsed = parsed[0]
    error = parsed.get("error", parsed) if isinstance(parsed, dict) else None
    message, details = _message_of(error) if error else (_plain_text(body), None)
    return BridgeError(
        kind_for_status(status),
        f"{provider} answered {status}: {message or 'no further explanation'}",
        status=status if status < 500 or status == 529 else 502,
        provider=provider,
        provider_details=details,
        retry_after=retry_after,
    )


def parse_error_object(error: JsonValue, provider: str) -> BridgeError:
    """An error that came inside an answer which began well."""
    code = error.get("code") if isinstance(error, dict) else None
    status = code if isinstance(code, int) and 400 <= code <= 599 else 502
    message, details = _message_of(error)
    return BridgeError(
        kind_for_status(status),
        f"{provider}: {message or 'an error without explanation'}",
        status=status,
        provider=provider,
        provider_details=details,
    )


def _message_of(error: JsonValue) -> tuple[str, JsonValue]:
    if not isinstance(error, dict):
        return str(error)[:MAX_QUOTED_CHARACTERS], None
    message = error.get("message") or error.get("detail") or ""
    details = {
        key: value for key in ("type", "code", "param", "status") if isinstance(value := error.get(key), str | int)
    }
    return str(message)[:MAX_QUOTED_CHARACTERS], dict(details) or None


def _plain_text(body: bytes) -> str:
    text = body[: MAX_QUOTED_CHARACTERS * 4].decode("utf-8", "replace").strip()
    if text.startswith("<"):
        return "an HTML page instead of an API answer; check the base URL"
    return text[:MAX_QUOTED_CHARACTERS]
