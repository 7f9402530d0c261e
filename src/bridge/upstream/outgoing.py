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
_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(rb"(?:[^\x00-\x20\x7f](?:[^\x00-\x08\x0a-\x1f\x7f]*[^\x00-\x20\x7f])?)?")
_TARGET = re.compile(rb"[\x21-\x7e]+")


@dataclass(frozen=True, slots=True)
class Outgoing:
    """What to write: pieces that are at hand, and those of a body that is still being made."""

    method: str
    whole: tuple[bytes, ...]
    rest: AsyncIterator[bytes] | None = None


def outgoing(method: str, url: httpx2.URL, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> Outgoing:
    """A request with all of its body; a small one goes out together with its head."""
    head = _head(method, url, headers)
    return Outgoing(method, (head, body) if len(body) > JOINED_BYTES else (head + body,))


def outgoing_of(request: httpx2.Request) -> Outgoing:
    """A request of httpx2's, whose body may be a stream."""
    stream, method = request.stream, request.method
    if isinstance(stream, httpx2.ByteStream):
        return outgoing(method, request.url, request.headers.raw, b"".join(stream))
    if not isinstance(stream, httpx2.AsyncByteStream):
        raise httpx2.LocalProtocolError("the body is not one that can be read asynchronously")
    head = _head(method, request.url, request.headers.raw)
    return Outgoing(method, (head,), _framed(stream) if "transfer-encoding" in request.headers else aiter(stream))


def _head(method: str, url: httpx2.URL, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Request line and headers; LocalProtocolError if one of them would end early or begin another."""
    verb, target = method.encode("ascii"), url.raw_path
    if not _is_token(verb) or not _TARGET.fullmatch(target):
        raise httpx2.LocalProtocolError("the request line holds what it may not")
    lines = [b"%b %b HTTP/1.1\r\n" % (verb, target)]
    for name, value in headers:
        if not _is_token(name) or not _VALUE.fullmatch(value):
            shown = name.decode("ascii", "replace")
            raise httpx2.LocalProtocolError(f"header {shown!r} holds what a header may not")
        lines.append(b"%b: %b\r\n" % (name, value))
    lines.append(b"\r\n")
    return b"".join(lines)


@lru_cache(maxsize=256)
def _is_token(name: bytes) -> bool:
    return _TOKEN.fullmatch(name) is not None


async def _framed(stream: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    async for piece in stream:
        if piece:
            yield b"%x\r\n%b\r\n" % (len(piece), piece)
    yield b"0\r\n\r\n"
