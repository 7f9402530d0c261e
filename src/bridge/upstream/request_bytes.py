"""A request as the bytes of HTTP/1.1."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import httpx2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

JOINED_BYTES = 64 * 1024
_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VALUE = re.compile(rb"(?:[^\x00-\x20\x7f](?:[^\x00-\x08\x0a-\x1f\x7f]*[^\x00-\x20\x7f])?)?")
_TARGET = re.compile(rb"[\x21-\x7e]+")


def request_head(request: httpx2.Request) -> bytes:
    """Request line and headers; LocalProtocolError if one of them would end early or begin another."""
    method, target = request.method.encode("ascii"), request.url.raw_path
    if not _TOKEN.fullmatch(method) or not _TARGET.fullmatch(target):
        raise httpx2.LocalProtocolError("the request line holds what it may not")
    lines = [b"%b %b HTTP/1.1\r\n" % (method, target)]
    for name, value in request.headers.raw:
        if not _TOKEN.fullmatch(name) or not _VALUE.fullmatch(value):
            shown = name.decode("ascii", "replace")
            raise httpx2.LocalProtocolError(f"header {shown!r} holds what a header may not")
        lines.append(b"%b: %b\r\n" % (name, value))
    lines.append(b"\r\n")
    return b"".join(lines)


async def request_bytes(head: bytes, request: httpx2.Request) -> AsyncIterator[bytes]:
    """What to write, piece by piece; a small body goes out together with its head."""
    if not isinstance(request.stream, httpx2.AsyncByteStream):
        raise httpx2.LocalProtocolError("the body is not one that can be read asynchronously")
    chunked = "transfer-encoding" in request.headers
    async for piece in request.stream:
        if not piece:
            continue
        data = b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece
        if head and len(data) > JOINED_BYTES:
            yield head
            head = b""
        yield head + data if head else data
        head = b""
    end = head + (b"0\r\n\r\n" if chunked else b"")
    if end:
        yield end
