"""An HTTP request as ASGI hands it over."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bridge.errors import BridgeError, ErrorKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from handler.asgi import Receive, Scope


@dataclass(slots=True)
class HttpRequest:
    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    deadline: float | None
    id: str = field(default_factory=lambda: f"req_{secrets.token_hex(12)}")
    parameter: str = ""
    body: bytes = b""

    @classmethod
    def of(cls, scope: Scope) -> HttpRequest:
        invocation = scope.get("extensions", {}).get("toolbridge.invocation", {})
        headers: dict[str, str] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1").lower(), value.decode("latin-1"))
        path: str = scope["path"]
        return cls(
            method=scope["method"],
            path=path.rstrip("/") or "/",
            query=scope.get("query_string", b"").decode("latin-1"),
            headers=headers,
            deadline=invocation.get("deadline"),
        )


async def read_request(request: HttpRequest, receive: Receive, limit: int) -> None:
    """Fill in the body; BridgeError if it is larger than the bridge takes."""
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise _too_large(limit)
    pieces: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise BridgeError(ErrorKind.INVALID_REQUEST, "the client went away before its request was complete")
        piece: bytes = message.get("body", b"")
        size += len(piece)
        if size > limit:
            raise _too_large(limit)
        pieces.append(piece)
        if not message.get("more_body", False):
            request.body = b"".join(pieces)
            return


def _too_large(limit: int) -> BridgeError:
    return BridgeError(ErrorKind.TOO_LARGE, f"the request body is larger than {limit} bytes (MAX_BODY_BYTES)")
