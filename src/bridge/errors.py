"""One error type for everything that can go wrong, and its kinds. Each protocol has its own table to say them."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bridge.canonical.json import JsonValue


class ErrorKind(Enum):
    """What went wrong, with the HTTP status that says so when nobody gave a better one."""

    INVALID_REQUEST = 400
    AUTHENTICATION = 401
    BILLING = 402
    PERMISSION = 403
    NOT_FOUND = 404
    METHOD_NOT_ALLOWED = 405
    TOO_LARGE = 413
    RATE_LIMIT = 429
    API = 500
    TIMEOUT = 504
    OVERLOADED = 529


_KIND_BY_STATUS = {kind.value: kind for kind in ErrorKind} | {
    408: ErrorKind.TIMEOUT,
    422: ErrorKind.INVALID_REQUEST,
    503: ErrorKind.OVERLOADED,
}
_RETRYABLE = frozenset({ErrorKind.RATE_LIMIT, ErrorKind.API, ErrorKind.TIMEOUT, ErrorKind.OVERLOADED})


def kind_for_status(status: int) -> ErrorKind:
    """The kind that an HTTP status stands for."""
    known = _KIND_BY_STATUS.get(status)
    if known is not None:
        return known
    return ErrorKind.API if status >= 500 else ErrorKind.INVALID_REQUEST


class BridgeError(Exception):
    """A failure that the client is told about: truthfully, with what it can do."""

    def __init__(
        self,
        kind: ErrorKind,
        message: str,
        *,
        status: int | None = None,
        provider: str | None = None,
        provider_details: JsonValue = None,
        retry_after: str | None = None,
        retryable: bool | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.status = kind.value if status is None else status
        self.provider = provider
        self.provider_details = provider_details
        self.retry_after = retry_after
        self.code = code
        self.headers: dict[str, str] = {}
        """What else the client is told, in headers."""
        self.retryable = kind in _RETRYABLE if retryable is None else retryable


class DeadlineError(BridgeError):
    """The time of an invocation ran out."""

    def __init__(self) -> None:
        text = "the time of this invocation ran out before the answer was complete; try again"
        super().__init__(ErrorKind.TIMEOUT, text)


class LocalProtocolError(RuntimeError):
    """The bridge tried to say something that a client's protocol does not allow there."""


def invalid_request(message: str) -> BridgeError:
    """A 400: the client has to change its request."""
    return BridgeError(ErrorKind.INVALID_REQUEST, message)


def broken_upstream(message: str, provider: str) -> BridgeError:
    """The provider broke its own protocol or went away in the middle of an answer."""
    return BridgeError(ErrorKind.API, f"{provider}: {message}", status=502, provider=provider)
