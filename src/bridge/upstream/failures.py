"""Every way a connection can fail, said once in the bridge's own terms."""

from __future__ import annotations

import httpx2

from bridge.errors import BridgeError, ErrorKind
from bridge.upstream.connecting import ForbiddenAddressError, UntrustedCertificateError
from bridge.upstream.timeouts import Limit, Timeouts, timeout_message
from bridge.values import dataclass


class NoAnswerError(BridgeError):
    """No answer began: the connection could not be made, or it ended first. Another attempt may go better."""


@dataclass(frozen=True, slots=True)
class _Failure:
    says: str
    passing: bool = True
    """False where another attempt would fail the same way."""


_FAILURES: tuple[tuple[type[Exception], _Failure], ...] = (
    (
        ForbiddenAddressError,
        _Failure("its name leads to a link-local or cloud metadata address, which is never called", passing=False),
    ),
    (
        UntrustedCertificateError,
        _Failure("its certificate cannot be verified ({error}); SSL_CERT_FILE can name others to trust", passing=False),
    ),
    (httpx2.ConnectError, _Failure("cannot be reached; check the base URL and that it is running")),
    (httpx2.LocalProtocolError, _Failure("the request cannot be sent: {error}", passing=False)),
    (httpx2.UnsupportedProtocol, _Failure("the base URL is not a valid URL", passing=False)),
    (httpx2.InvalidURL, _Failure("the base URL is not a valid URL", passing=False)),
    (httpx2.TransportError, _Failure("the connection ended before an answer")),
)


def failure_before_answer(error: Exception, provider: str, timeouts: Timeouts) -> BridgeError:
    """What it means that a call brought no answer."""
    if isinstance(error, httpx2.ConnectTimeout):
        message = timeout_message(provider, Limit.CONNECT, timeouts)
        return NoAnswerError(ErrorKind.TIMEOUT, message, provider=provider)
    failure = _failure(error)
    kind = NoAnswerError if failure.passing else BridgeError
    return kind(
        ErrorKind.API,
        f"{provider}: {failure.says.format(error=error)}",
        status=502,
        provider=provider,
        retryable=failure.passing,
    )


def failure_within_answer(error: Exception, provider: str) -> BridgeError:
    """What it means that an answer broke off."""
    says = "the answer's compression is broken"
    if not isinstance(error, httpx2.DecodingError):
        says = "the connection broke in the middle of the answer"
    return BridgeError(ErrorKind.API, f"{provider}: {says}", status=502, provider=provider)


def _failure(error: Exception) -> _Failure:
    for kind, failure in _FAILURES:
        if isinstance(error, kind):
            return failure
    raise error
