"""Who a request belongs to, and which key of the client's own may go upstream."""

from __future__ import annotations

import hmac
from hashlib import sha256
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bridge.errors import BridgeError, ErrorKind
from bridge.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from handler.request import HttpRequest


@dataclass(frozen=True, slots=True)
class Identity:
    """The principal's name, and the client's own provider key if it sent one."""

    principal: str
    credential: str | None


_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
NOBODY = Identity("local", None)


def identify(headers: Mapping[str, str], tokens: Mapping[str, str]) -> Identity:
    """Authenticate a request; with no tokens configured everyone is let in under the hash of their credential."""
    credentials = [headers.get("x-api-key", ""), _bearer(headers.get("authorization", ""))]
    if not "".join(credentials).isascii():
        raise BridgeError(ErrorKind.AUTHENTICATION, "the key holds characters that no key has", retryable=False)
    if not tokens:
        own = next((value for value in credentials if value), None)
        return Identity(_principal_of(own), own)
    for candidate in (headers.get("x-worker-token", ""), *credentials):
        name = _token_name(candidate, tokens) if candidate else None
        if name is not None:
            others = [value for value in credentials if value and value != candidate]
            return Identity(name, next((value for value in others if _token_name(value, tokens) is None), None))
    named = any(":" in value for value in (headers.get("x-worker-token", ""), *credentials))
    raise BridgeError(
        ErrorKind.AUTHENTICATION,
        "the bridge's token is missing or wrong: send it as x-api-key, Authorization: Bearer or x-worker-token"
        + (", only the part after the colon, without the name" if named else ""),
        retryable=False,
    )


def refuse_other_sites(request: HttpRequest, allowed: Collection[str]) -> None:
    """Where no token is wanted, pages of other sites must not spend what the bridge holds: browsers say who asks."""
    origin = request.headers.get("origin", "")
    if not origin or origin in allowed or "*" in allowed:
        return
    host = urlsplit(origin).hostname or ""
    if host in _LOOPBACK and urlsplit(f"//{request.headers.get('host', '')}").hostname == host:
        return
    raise BridgeError(
        ErrorKind.PERMISSION, f"pages of {origin[:100]} may not use this bridge (ALLOW_ORIGINS)", retryable=False
    )


def _bearer(authorization: str) -> str:
    scheme, _, value = authorization.partition(" ")
    return value.strip() if scheme.lower() == "bearer" else ""


def _principal_of(credential: str | None) -> str:
    if credential is None:
        return "local"
    return "key-" + sha256(b"toolbridge principal\0" + credential.encode()).hexdigest()[:32]


def _token_name(candidate: str, tokens: Mapping[str, str]) -> str | None:
    """Compares with every token, so that the time taken tells nothing."""
    found = None
    for token, name in tokens.items():
        if hmac.compare_digest(candidate.encode(), token.encode()):
            found = name
    return found
