"""The connection of one client: requests in, one after another, each answered by the app before the next.

The parser runs where the bytes arrive. What has arrived and is not used yet is bounded: a head by MAX_HEAD_BYTES, a
body by HIGH_WATER and one read of the socket, requests that came before their turn by one read.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from contextlib import suppress
from enum import Enum, auto
from typing import TYPE_CHECKING

import httptools

from bridge.values import dataclass
from handler.asgi import CLIENT_GONE
from handler.http1.exchange import HIGH_WATER, Exchange
from handler.http1.request_head import (
    MAX_HEAD_BYTES,
    RefusedError,
    check_head,
    check_size,
    http_scope,
    too_long,
    without_upgrade,
)
from handler.http1.response_head import Dates, refusal

if TYPE_CHECKING:
    from handler.asgi import ASGIApp, Scope
    from handler.http1.request_head import Header

READ_BYTES = 64 * 1024
LINGER_SECONDS = 2.0
_RESET = struct.pack("ii", 1, 0)  # linger for no time: what is not out is dropped, and the client gets an error


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a client may take."""

    # Longer than load balancers (60 s) and most clients keep a connection in their pools: if the server is the first
    # to close, a request may meet a connection that has just ended.
    idle_seconds: float = 75.0
    head_seconds: float = 30.0
    body_seconds: float = 60.0

    @property
    def sweep_seconds(self) -> float:
        return min(self.idle_seconds, self.head_seconds, self.body_seconds) / 6


class Service:
    """What the connections of a server share."""

    __slots__ = ("app", "buffer", "connections", "dates", "exchanges", "loop")

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self.loop = asyncio.get_running_loop()
        self.buffer = memoryview(bytearray(READ_BYTES))
        self.dates = Dates()
        self.connections: set[Connection] = set()
        self.exchanges: set[Exchange] = set()


class Phase(Enum):
    """What the next bytes are."""

    IDLE = auto()  # of a request that has not begun
    HEAD = auto()
    BODY = auto()
    OVER = auto()  # nothing that is wanted


# A lookup in an Enum costs as much as a call.
_IDLE, _HEAD, _BODY, _OVER = Phase.IDLE, Phase.HEAD, Phase.BODY, Phase.OVER


class Connection(asyncio.BufferedProtocol):
    """The protocol of one socket."""

    __slots__ = (
        "_arriving",
        "_buffer",
        "_client",
        "_framing_bytes",
        "_headers",
        "_parser",
        "_phase",
        "_queue",
        "_refused",
        "_replay",
        "_server",
        "_service",
        "_serving",
        "_since",
        "_transport",
        "_url",
        "_waiters",
        "dates",
        "is_full",
        "loop",
    )
    _transport: asyncio.Transport
    _server: tuple[str, int]
    _client: tuple[str, int]

    def __init__(self, service: Service) -> None:
        self._service, self.loop, self.dates = service, service.loop, service.dates
        self._buffer = service.buffer
        self._parser = httptools.HttpRequestParser(self)
        self._phase, self._since = _IDLE, self.loop.time()
        self._url, self._replay = b"", b""
        self._headers: list[Header] = []
        self._framing_bytes = 0
        self._arriving: Exchange | None = None
        self._serving: Exchange | None = None
        self._queue: deque[tuple[Exchange, Scope]] = deque()
        self._refused: RefusedError | None = None
        self._waiters: list[asyncio.Future[None]] = []
        self.is_full = False

    # For the server

    def shut(self) -> None:
        """Take nothing more: an idle connection ends now, another one after the answer under way."""
        if self._serving is None:
            self._transport.close()
        else:
            self._serving.keep_alive = False

    def abort(self) -> None:
        self._transport.abort()

    def check(self, limits: Limits) -> None:
        """End what has taken too long."""
        quiet = self.loop.time() - self._since
        if self._phase is _BODY:
            if quiet > limits.body_seconds and self._is_owed_a_body():
                self._refuse(RefusedError(408, "the request body did not arrive"))
        elif self._serving is not None:
            return
        elif self._phase is _HEAD and quiet > limits.head_seconds:
            self._refuse(RefusedError(408, "the request did not arrive"))
        elif self._phase is _IDLE and quiet > limits.idle_seconds:
            self._transport.close()

    def _is_owed_a_body(self) -> bool:
        waits_for_us = self._arriving is not None and self._arriving.waits_for_us
        return self._transport.is_reading() and not waits_for_us

    # For an exchange

    async def news(self) -> None:
        """Wait for the next thing to happen on this connection."""
        waiter = self.loop.create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            self._waiters.remove(waiter)

    async def drained(self) -> None:
        while self.is_full:
            await self.news()

    def resume(self) -> None:
        """Read on, unless there are requests to serve first."""
        if not self._queue:
            self._transport.resume_reading()

    def answered(self, exchange: Exchange) -> None:
        """An answer is written: the next request has its turn, or the connection ends."""
        self._serving, self._since = None, self.loop.time()
        if self._waiters:
            self._ring()
        if not exchange.keep_alive:
            self._leave(is_clean=self._arriving is None and not self._queue and self._refused is None)
        elif self._queue:
            self._serve(*self._queue.popleft())
            self.resume()
        elif self._refused is not None:
            self._say(self._refused)
        elif self._arriving is exchange:
            self._transport.resume_reading()  # what is left of its body is thrown away

    def break_off(self, *, is_hard: bool) -> None:
        """End without a proper end. Where a body lasts until the close, a close is a proper end."""
        self._phase, self._serving = _OVER, None
        if is_hard:
            self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._transport.abort()
        else:
            self._transport.close()

    def forget(self, exchange: Exchange) -> None:
        self._service.exchanges.discard(exchange)

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._server = transport.get_extra_info("sockname")[:2]
        self._client = transport.get_extra_info("peername")[:2]
        self._service.connections.add(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._phase is _OVER:
            return
        if self._phase is not _HEAD:  # a head is given its time as a whole
            self._since = self.loop.time()
            if self._phase is _IDLE:
                self._phase = _HEAD
        self._framing_bytes += nbytes
        try:
            self._feed(self._buffer[:nbytes])
        except httptools.HttpParserError as error:
            self._complain(error)
        if self._framing_bytes > MAX_HEAD_BYTES and self._phase is not _OVER:
            self._refuse(too_long())
        if self._queue or (self._arriving is not None and self._arriving.unread > HIGH_WATER):
            self._transport.pause_reading()
        if self._waiters:
            self._ring()

    def pause_writing(self) -> None:
        self.is_full = True

    def resume_writing(self) -> None:
        self.is_full = False
        self._ring()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._service.connections.discard(self)
        self._phase, self._arriving, self.is_full = _OVER, None, False
        self._queue.clear()
        if self._serving is not None:
            self._serving.lose()
            self._serving = None
        self._ring()
        del self._parser  # it holds this object, and both would wait for the garbage collector

    # What the parser calls

    def on_url(self, url: bytes) -> None:
        self._url += url
        if self._phase is _IDLE:
            self._phase = _HEAD

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        parser, headers, url = self._parser, self._headers, self._url
        self._headers, self._url = [], b""
        if self._phase is _OVER:
            return
        named, version, method = dict(headers), parser.get_http_version(), parser.get_method().decode()
        check_head(named, headers, version)
        if self._framing_bytes > MAX_HEAD_BYTES:  # with what follows the head in this read
            check_size(url, headers)
        if parser.should_upgrade():
            self._replay = without_upgrade(method, url, version, headers)
            return
        is_old, scope = version == "1.0", http_scope(method, url, version, headers)
        exchange = Exchange(self, self._transport, method, is_old, not is_old and parser.should_keep_alive())
        if b"content-length" in named or b"transfer-encoding" in named:
            exchange.to_come = int(named[b"content-length"]) if b"content-length" in named else None
            exchange.waits_for_us = not is_old and named.get(b"expect", b"").lower() == b"100-continue"
        self._arriving, self._phase, self._framing_bytes = exchange, _BODY, 0
        self._accept(exchange, scope)

    def on_body(self, data: bytes) -> None:
        self._framing_bytes = 0
        if self._arriving is not None:
            self._arriving.body_arrived(data)

    def on_message_complete(self) -> None:
        exchange, self._arriving = self._arriving, None
        if exchange is None:
            return  # it is over, or begins again without its upgrade
        exchange.body_completed()
        self._framing_bytes = 0
        if self._headers:
            self._headers = []  # trailers
        self._phase = _IDLE if exchange.keep_alive else _OVER

    # How requests come in, and go out refused

    def _feed(self, data: memoryview) -> None:
        """Parse. A request that asks for an upgrade is read again as one that does not, and then its body."""
        while True:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as upgrade:
                self._parser = httptools.HttpRequestParser(self)
                self._parser.feed_data(self._replay)
                data = data[upgrade.args[0] :]
            else:
                return

    def _accept(self, exchange: Exchange, scope: Scope) -> None:
        scope["server"], scope["client"] = self._server, self._client
        scope["extensions"] = {CLIENT_GONE: exchange.on_client_gone}
        if self._serving is None:
            self._serve(exchange, scope)
        else:
            self._queue.append((exchange, scope))

    def _serve(self, exchange: Exchange, scope: Scope) -> None:
        self._serving = exchange
        self._service.exchanges.add(exchange)
        exchange.task = self.loop.create_task(exchange.run(self._service.app, scope))

    def _ring(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _complain(self, error: httptools.HttpParserError) -> None:
        if self._phase is not _OVER:  # else it is about what comes after the last request
            cause = error.__context__
            self._refuse(
                cause if isinstance(cause, RefusedError) else RefusedError(400, "not a valid HTTP/1.1 request")
            )

    def _refuse(self, refused: RefusedError) -> None:
        """Answer in the app's place, after the requests that came before; nothing more is taken."""
        broken, self._arriving = self._arriving, None
        self._phase, self._refused = _OVER, refused
        if broken is not None and self._serving is None:
            self._leave(is_clean=False)  # it has its answer already
            return
        if broken is not None and broken is self._serving:
            self._serving = None
            if not broken.lose():
                self.break_off(is_hard=False)
                return
        elif broken is not None and self._queue:
            self._queue.pop()
        if self._serving is None:
            self._say(refused)
        self._ring()

    def _say(self, refused: RefusedError) -> None:
        self._transport.write(refusal(refused, self.dates))
        self._leave(is_clean=False)

    def _leave(self, *, is_clean: bool) -> None:
        """Say no more. While a client may still be sending, a close would reset what it has yet to read."""
        self._phase = _OVER
        if is_clean:
            self._transport.close()
            return
        self._queue.clear()
        self._transport.resume_reading()
        with suppress(OSError):
            self._transport.write_eof()
        self.loop.call_later(LINGER_SECONDS, self._transport.abort)
