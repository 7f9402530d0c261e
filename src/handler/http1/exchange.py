"""One request and its answer: the `receive` and `send` of an ASGI app, on a client's connection.

The head of an answer waits for the first piece of its body: if that comes in the same turn of the event loop, both
leave in one write. Nothing here waits, unless the client does not read or has not sent its body yet.
"""

from __future__ import annotations

import asyncio
import logging
from enum import Enum, auto
from typing import TYPE_CHECKING

from handler.http1.request_head import RefusedError
from handler.http1.response_head import Framing, refusal, response_head

if TYPE_CHECKING:
    from collections.abc import Callable

    from handler.asgi import ASGIApp, Message, Scope
    from handler.http1.connection import Connection

HIGH_WATER = 64 * 1024
"""Bytes of a request's body that wait for the app; above that the socket is not read."""
MAX_DRAINED_BYTES = 64 * 1024
"""What is read of a body that the app did not want, so that the connection serves another request."""

_logger = logging.getLogger("toolbridge")


class Answer(Enum):
    """How far an answer is."""

    AWAITED = auto()
    HELD = auto()  # its head waits for the first piece
    CHUNKED = auto()  # pieces are written as chunks
    UNCHUNKED = auto()  # pieces are written as they are
    COMPLETE = auto()
    UNWANTED = auto()  # the client is gone


class Body(Enum):
    """How far a request's body is."""

    ARRIVING = auto()
    COMPLETE = auto()
    TAKEN = auto()


# A lookup in an Enum costs as much as a call, and these are looked at for every request or piece.
_AWAITED, _HELD, _CHUNKED, _UNCHUNKED = Answer.AWAITED, Answer.HELD, Answer.CHUNKED, Answer.UNCHUNKED
_COMPLETE, _UNWANTED = Answer.COMPLETE, Answer.UNWANTED
_ARRIVING, _ARRIVED = Body.ARRIVING, Body.COMPLETE
_CHUNKS = Framing.CHUNKED


class Exchange:
    """Belongs to one task, which runs the app; other tasks of the app may send too."""

    __slots__ = (
        "_answer",
        "_body",
        "_connection",
        "_framing",
        "_head",
        "_is_old",
        "_left",
        "_method",
        "_on_gone",
        "_pieces",
        "_transport",
        "keep_alive",
        "task",
        "to_come",
        "unread",
        "waits_for_us",
    )
    task: asyncio.Task[None]
    _framing: Framing
    _left: int

    def __init__(
        self, connection: Connection, transport: asyncio.Transport, method: str, is_old: bool, keep_alive: bool
    ) -> None:
        self._connection, self._transport = connection, transport
        self._method, self._is_old, self.keep_alive = method, is_old, keep_alive
        self.waits_for_us = False
        """True for a client that sends its body when it is asked for it."""
        self.to_come: int | None = 0
        """Bytes of the body that have not arrived; None if nobody knows."""
        self.unread = 0
        self._pieces: list[bytes] = []
        self._body, self._answer, self._head = _ARRIVING, _AWAITED, b""
        self._on_gone: Callable[[], None] | None = None

    # For the connection

    async def run(self, app: ASGIApp, scope: Scope) -> None:
        """Let the app answer; whatever it does, the client gets an answer or notices that it is not whole."""
        try:
            await app(scope, self.receive, self.send)
        except asyncio.CancelledError:
            self._fail(503, "Service Unavailable")
        except Exception:
            _logger.exception("the ASGI app failed")
            self._fail(500, "Internal Server Error")
        else:
            if self._answer is not _COMPLETE and self._answer is not _UNWANTED:
                _logger.error("the ASGI app returned without completing its response")
                self._fail(500, "Internal Server Error")
        finally:
            self._connection.forget(self)

    def body_arrived(self, data: bytes) -> None:
        if self.to_come is not None:
            self.to_come -= len(data)
        if self._answer is not _COMPLETE:  # else nobody will ask for it
            self._pieces.append(data)
            self.unread += len(data)

    def body_completed(self) -> None:
        self._body = _ARRIVED

    def lose(self) -> bool:
        """The client is gone, or cannot be understood; True if nothing of the answer has left yet."""
        is_unheard = self._answer is _AWAITED or self._answer is _HELD
        if self._answer is not _COMPLETE:
            self._answer, self._head = _UNWANTED, b""
            on_gone, self._on_gone = self._on_gone, None
            if on_gone is not None:
                on_gone()
        return is_unheard

    # For the app

    def on_client_gone(self, callback: Callable[[], None] | None) -> None:
        """Have it called if the client leaves before its answer is complete; None takes it back."""
        if self._answer is _UNWANTED and callback is not None:
            callback()
        elif self._answer is not _COMPLETE:
            self._on_gone = callback

    async def receive(self) -> Message:
        """The body as it arrives; after it, the client's leaving or the answer's end."""
        while True:
            if self._answer is _COMPLETE or self._answer is _UNWANTED:
                return {"type": "http.disconnect"}
            if self._pieces or self._body is _ARRIVED:
                return self._taken()
            if self.waits_for_us and self._answer is _AWAITED:
                self.waits_for_us = False
                self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            await self._connection.news()

    async def send(self, message: Message) -> None:
        """Write a piece; waits while the client does not read. Without a client it does nothing, as in ASGI 2.3."""
        if self._answer is _CHUNKED and message["type"] == "http.response.body" and message.get("more_body"):
            if body := message.get("body"):
                self._transport.write(b"%x\r\n%b\r\n" % (len(body), body))
        else:
            self._advance(message)
        if self._connection.is_full:
            await self._connection.drained()

    def _taken(self) -> Message:
        pieces, self._pieces = self._pieces, []
        if self.unread > HIGH_WATER:
            self._connection.resume()
        self.unread = 0
        is_last = self._body is _ARRIVED
        if is_last:
            self._body = Body.TAKEN
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        return {"type": "http.request", "body": body, "more_body": not is_last}

    def _advance(self, message: Message) -> None:
        """Begin the answer, or go on with it."""
        kind, answer = message["type"], self._answer
        if kind == "http.response.body" and (answer is _HELD or answer is _CHUNKED or answer is _UNCHUNKED):
            self._write(message.get("body", b""), message.get("more_body", False))
        elif kind == "http.response.start" and answer is _AWAITED:
            self._begin(message)
        elif answer is not _UNWANTED:
            raise RuntimeError(f"ASGI message {kind!r} came when the answer was {answer.name}")

    def _begin(self, message: Message) -> None:
        self._head, self._framing, self._left, self.keep_alive = response_head(
            message["status"],
            message.get("headers", ()),
            self._connection.dates,
            self.keep_alive and self._can_go_on(),
            self._method == "HEAD",
            self._is_old,
        )
        self._answer = _HELD
        self._connection.loop.call_soon(self._let_go)

    def _can_go_on(self) -> bool:
        """True if the connection can serve another request even if the app reads nothing more of this one."""
        if self._body is not _ARRIVING:
            return True
        return not self.waits_for_us and self.to_come is not None and self.to_come <= MAX_DRAINED_BYTES

    def _let_go(self) -> None:
        """The turn is over: a head that is still held leaves alone."""
        if self._answer is _HELD:
            self._transport.write(self._out(b""))

    def _out(self, data: bytes) -> bytes:
        """The head that was held, and what follows it."""
        head, self._head = self._head, b""
        self._answer = _CHUNKED if self._framing is _CHUNKS else _UNCHUNKED
        return head + data

    def _write(self, body: bytes, more: bool) -> None:
        data = self._framed(body, more)
        if self._answer is _HELD and (data or not more):
            data = self._out(data)
        if data:
            self._transport.write(data)
        if not more:
            self._end()

    def _framed(self, body: bytes, more: bool) -> bytes:
        if self._framing is _CHUNKS:
            chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            return chunk if more else chunk + b"0\r\n\r\n"
        if self._framing is Framing.NO_BODY:
            if body and self._method != "HEAD":
                raise RuntimeError("the response has a body, and its status says that it has none")
            return b""
        if self._framing is Framing.SIZED:
            self._left -= len(body)
            if self._left < 0 or (self._left and not more):
                raise RuntimeError(f"the response is {'longer' if self._left < 0 else 'shorter'} than it says")
        return body

    def _end(self) -> None:
        self._answer, self._on_gone = _COMPLETE, None
        self._pieces, self.unread = [], 0
        self._connection.answered(self)

    def _fail(self, status: int, text: str) -> None:
        """The app gave up: say so if nothing has left, else break off so that the client notices."""
        match self._answer:
            case Answer.AWAITED | Answer.HELD:
                self.keep_alive, self._head = False, b""
                answer = refusal(RefusedError(status, text), self._connection.dates, self._method == "HEAD")
                self._transport.write(answer)
                self._end()
            case Answer.CHUNKED | Answer.UNCHUNKED:
                self._answer = _UNWANTED
                self._connection.break_off(is_hard=self._framing is Framing.UNTIL_CLOSE)
            case Answer.COMPLETE | Answer.UNWANTED:
                pass
