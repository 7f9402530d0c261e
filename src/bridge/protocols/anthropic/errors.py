"""Errors as Anthropic tells them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.errors import ErrorKind

if TYPE_CHECKING:
    from bridge.canonical.json import JsonObject
    from bridge.errors import BridgeError

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
