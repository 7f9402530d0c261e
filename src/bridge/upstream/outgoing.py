"""A request as the bytes of HTTP/1.1."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

import httpx2

from bridge.values import dataclass

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Iterable

JOINED_BYTES = 64 * 1024
LAST_CHUNK = b"0\r\n\r\n"
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(r"(?:[\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?)?")
_TARGET = re.compile(rb"[\x21-\x7e]+")


@dataclass(frozen=True, slots=True)
class Outgoing:
    """What to write: pieces that are at hand, and those of a body that is still being made."""

    method: str
    whole: tuple[bytes, ...]
    rest: AsyncIterator[bytes] | None = None


def outgoing(method: str, url: httpx2.URL, headers: Iterable[tuple[str, str]], body: bytes) -> Outgoing:
    """A request with all of its body; a small one goes out together with its head."""
    head = _head(method, url, headers)
    return Outgoing(method, (head, body) if len(body) > JOINED_BYTES else (head + body,))


def outgoing_of(request: httpx2.Request) -> Outgoing:
    """A request of httpx2's, whose body may be a stream."""
    stream, method = request.stream, request.method
    is_chunked = "transfer-encoding" in request.headers
    if isinstance(stream, httpx2.ByteStream):
        body = b"".join(stream)
        framed = (_chunk(body) if body else b"") + LAST_CHUNK if is_chunked else body
        return outgoing(method, request.url, _readable(request.headers), framed)
    if not isinstance(stream, httpx2.AsyncByteStream):
        raise httpx2.LocalProtocolError("the body is not one that can be read asynchronously")
    head = _head(method, request.url, _readable(request.headers))
    return Outgoing(method, (head,), _framed(stream) if is_chunked else aiter(stream))


def _readable(headers: httpx2.Headers) -> list[tuple[str, str]]:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers.raw]


def _head(method: str, url: httpx2.URL, headers: Iterable[tuple[str, str]]) -> bytes:
    """Request line and headers; LocalProtocolError if one of them would end early or begin another."""
    lines = [_request_line(method, url.raw_path)]
    for name, value in headers:
        if not _is_token(name) or not _is_value(value):
            raise httpx2.LocalProtocolError(f"header {name!a} holds what a header may not")
        lines.append(f"{name}: {value}\r\n")
    lines.append("\r\n")
    return "".join(lines).encode("latin-1")


def _request_line(method: str, target: bytes) -> str:
    if not _is_token(method) or not _TARGET.fullmatch(target):
        raise httpx2.LocalProtocolError("the request line holds what it may not")
    return f"{method} {target.decode('ascii')} HTTP/1.1\r\n"


@lru_cache(maxsize=256)
def _is_token(name: str) -> bool:
    return _TOKEN.fullmatch(name) is not None


def _is_value(value: str) -> bool:
    """True for what a header may hold; nearly every one is seen to be so without a pattern."""
    if value.isascii() and value.isprintable() and value[:1] != " " != value[-1:]:
        return True
    return _VALUE.fullmatch(value) is not None


async def _framed(stream: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    async for piece in stream:
        if piece:
            yield _chunk(piece)
    yield LAST_CHUNK


def _chunk(piece: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(piece), piece)
