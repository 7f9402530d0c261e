"""An HTTP request as ASGI hands it over, within bounds."""

from __future__ import annotations

import secrets
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bridge.errors import BridgeError, ErrorKind, invalid_request
from handler.asgi import CLIENT_GONE
from handler.auth import NOBODY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from handler.asgi import Receive, Scope, TellOfLeaving
    from handler.auth import Identity

MAX_HEADERS = 200
MAX_HEADER_BYTES = 16 * 1024
MAX_ALL_HEADERS_BYTES = 64 * 1024
MAX_PATH_BYTES = 2 * 1024
MAX_QUERY_BYTES = 8 * 1024

_NO_INVOCATION: Mapping[str, float] = {}
_PLAIN = frozenset({"", "identity"})
_GZIP = frozenset({"gzip", "x-gzip"})
_READABLE = _PLAIN | _GZIP
_GZIP_FORMAT = 16 + zlib.MAX_WBITS


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
    identity: Identity = NOBODY
    refusal: BridgeError | None = None
    """Why the request is not read any further: its head is too large."""
    on_client_gone: TellOfLeaving | None = None
    """Tells of the client's leaving, where the server can."""

    @classmethod
    def of(cls, scope: Scope) -> HttpRequest:
        extensions = scope.get("extensions", {})
        pairs: list[tuple[bytes, bytes]] = list(scope["headers"])
        headers = {  # of one that comes several times, the first
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in reversed(pairs)
        }
        path: str = scope["path"]
        return cls(
            method=scope["method"],
            path=path.rstrip("/") or "/",
            query=scope.get("query_string", b"").decode("latin-1"),
            headers=headers,
            deadline=extensions.get("toolbridge.invocation", _NO_INVOCATION).get("deadline"),
            refusal=_head_refusal(scope, pairs),
            on_client_gone=extensions.get(CLIENT_GONE),
        )


async def read_request(request: HttpRequest, receive: Receive, limit: int) -> None:
    """Fill in the body, decompressed; BridgeError if the request is larger than the bridge takes."""
    if request.refusal is not None:
        raise request.refusal
    encoding = _encoding_of(request)
    if _declared_size(request) > limit:
        raise _too_large(limit)
    body = await _read_body(receive, limit)
    request.body = _inflated(body, limit) if body and encoding in _GZIP else body


async def _read_body(receive: Receive, limit: int) -> bytes:
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
            return b"".join(pieces)


def _head_refusal(scope: Scope, headers: list[tuple[bytes, bytes]]) -> BridgeError | None:
    """What is wrong with the size of the path, the query or the headers."""
    if len(headers) > MAX_HEADERS:
        return invalid_request(f"headers: {len(headers)} were sent, at most {MAX_HEADERS} are taken")
    path, query = len(scope.get("raw_path") or scope["path"].encode()), len(scope.get("query_string", b""))
    together = sum([len(name) + len(value) for name, value in headers])
    if path <= MAX_PATH_BYTES and query <= MAX_QUERY_BYTES and together <= MAX_HEADER_BYTES:
        return None
    sizes = [
        ("the path", path, MAX_PATH_BYTES),
        ("the query", query, MAX_QUERY_BYTES),
        ("all headers together", together, MAX_ALL_HEADERS_BYTES),
        *(
            (f"the header {name[:64].decode('latin-1')}", len(name) + len(value), MAX_HEADER_BYTES)
            for name, value in headers
        ),
    ]
    for what, size, largest in sizes:
        if size > largest:
            return BridgeError(ErrorKind.TOO_LARGE, f"{what}: {size} bytes, at most {largest} are taken")
    return None


def _declared_size(request: HttpRequest) -> int:
    declared = request.headers.get("content-length", "")
    return int(declared[:20]) if declared.isascii() and declared.isdigit() else 0


def _encoding_of(request: HttpRequest) -> str:
    encoding = request.headers.get("content-encoding", "").strip().lower()
    if encoding not in _READABLE:
        raise invalid_request(f"content-encoding: {encoding[:64]!r} is not taken; send the body plain or as gzip")
    return encoding


def _inflated(body: bytes, limit: int) -> bytes:
    """What a gzip body holds; it is never inflated beyond the limit, whatever it would grow to."""
    inflater = zlib.decompressobj(_GZIP_FORMAT)
    try:
        inflated = inflater.decompress(body, limit + 1)
    except zlib.error:
        raise invalid_request("content-encoding: the body is not valid gzip") from None
    if len(inflated) > limit:
        raise _too_large(limit, " when inflated")
    if not inflater.eof:
        raise invalid_request("content-encoding: the gzip body ends too early")
    if inflater.unused_data:
        raise invalid_request("content-encoding: there is more after the end of the gzip body")
    return inflated


def _too_large(limit: int, when: str = "") -> BridgeError:
    return BridgeError(ErrorKind.TOO_LARGE, f"the request body is larger than {limit} bytes{when} (MAX_BODY_BYTES)")
