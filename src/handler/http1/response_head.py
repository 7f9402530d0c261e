"""The head of an HTTP/1.1 response: written from what an ASGI app says, with the framing that its body gets."""

from __future__ import annotations

import time
from email.utils import formatdate
from enum import Enum, auto
from http import HTTPStatus
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from handler.http1.request_head import Header, RefusedError

_NAME_CHARACTERS = b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
_VALUE_CHARACTERS = b"\t" + bytes(range(0x20, 0x7F)) + bytes(range(0x80, 0x100))
_OF_THE_CONNECTION = frozenset({b"connection", b"transfer-encoding"})
_BODILESS = frozenset({204, 304})
_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}


class Framing(Enum):
    """How the client knows where the body ends."""

    CHUNKED = auto()
    SIZED = auto()
    UNTIL_CLOSE = auto()
    NO_BODY = auto()


_CHUNKED, _UNTIL_CLOSE = Framing.CHUNKED, Framing.UNTIL_CLOSE


class Dates:
    """The date header, made once a second."""

    __slots__ = ("_line", "_second")

    def __init__(self) -> None:
        self._second, self._line = 0, b""

    def line(self) -> bytes:
        second = int(time.time())
        if second != self._second:
            self._second, self._line = second, f"date: {formatdate(second, usegmt=True)}\r\n".encode()
        return self._line


def response_head(
    status: int, pairs: Iterable[Header], dates: Dates, keep_alive: bool, to_head: bool = False, is_old: bool = False
) -> tuple[bytes, Framing, int, bool]:
    """The head, how its body is framed and how long it is, and whether the connection stays.

    `to_head` is for the method HEAD, `is_old` for HTTP/1.0. RuntimeError for a head that cannot be written.
    """
    headers = list(pairs)
    named = dict(headers)
    if b"".join(named).translate(None, _NAME_CHARACTERS) or not _OF_THE_CONNECTION.isdisjoint(named):
        keep_alive = keep_alive and not _says_close(headers)
        headers = _tidied(headers)
        named = dict(headers)
    lines = b"\r\n".join(map(b": ".join, headers))
    # What is left without the ordinary characters must be the ends of lines that were put there.
    if lines.translate(None, _VALUE_CHARACTERS) != b"\r\n" * (len(headers) - 1) or b"" in named:
        raise RuntimeError("a response header is not valid")
    framing, size = _framing(status, named.get(b"content-length"), to_head, is_old)
    keep_alive = keep_alive and framing is not _UNTIL_CLOSE
    wire = (
        _STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status,
        b"" if b"date" in named else dates.line(),
        b"transfer-encoding: chunked\r\n" if framing is _CHUNKED else b"",
        b"" if keep_alive else b"connection: close\r\n",
        lines,
        b"\r\n\r\n" if headers else b"\r\n",
    )
    return b"".join(wire), framing, size, keep_alive


def refusal(refused: RefusedError, dates: Dates, to_head: bool = False) -> bytes:
    """A whole response in plain text, after which the connection is closed."""
    body = refused.text.encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(body))]
    head, *_ = response_head(refused.status, headers, dates, keep_alive=False)
    return head if to_head else head + body


def _says_close(headers: list[Header]) -> bool:
    said = b",".join(value for name, value in headers if name.lower() == b"connection")
    return b"close" in [token.strip() for token in said.lower().split(b",")]


def _tidied(headers: list[Header]) -> list[Header]:
    """Names in lower case, and without what the server itself has to say."""
    tidied = [(name.lower(), value) for name, value in headers if name.lower() not in _OF_THE_CONNECTION]
    if b"".join(name for name, _ in tidied).translate(None, _NAME_CHARACTERS):
        raise RuntimeError("the name of a response header is not valid")
    return tidied


def _framing(status: int, length: bytes | None, to_head: bool, is_old: bool) -> tuple[Framing, int]:
    if not 200 <= status <= 999:
        raise RuntimeError(f"{status} is not the status of a whole response")
    if length is not None and not length.isdigit():
        raise RuntimeError("the Content-Length of a response is not a number")
    if to_head or status in _BODILESS:
        return Framing.NO_BODY, 0
    if length is not None:
        return Framing.SIZED, int(length)
    return (_UNTIL_CLOSE if is_old else _CHUNKED), 0
