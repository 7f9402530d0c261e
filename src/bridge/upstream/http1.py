"""One HTTP/1.1 connection: a request out, its answer in, however the network splits it.

The parser runs where the bytes arrive, and the task that reads is woken once per read of the socket. What has
arrived and is not taken yet is bounded: above HIGH_WATER bytes the socket is not read.
"""

from __future__ import annotations

import asyncio
import select
from enum import Enum, auto
from typing import TYPE_CHECKING

import httptools
import httpx2

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from bridge.upstream.outgoing import Outgoing

HIGH_WATER = 128 * 1024
MAX_FRAMING_BYTES = 100 * 1024
MAX_HEADERS = 256


class Phase(Enum):
    """Where an exchange is. DONE goes back to IDLE if the connection can serve another."""

    IDLE = auto()
    HEAD = auto()
    BODY = auto()
    DONE = auto()


class Connection(asyncio.BufferedProtocol):
    """The protocol of one socket. One task at a time uses it; the buffer may be shared within a loop."""

    _transport: asyncio.Transport
    _parser: httptools.HttpResponseParser

    def __init__(self, buffer: bytearray) -> None:
        self._buffer = memoryview(buffer)  # TLS fills slices of it, and a slice of a bytearray is a copy
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._writable = True
        self._phase = Phase.IDLE
        self._failure: Exception | None = None
        self._pieces: list[bytes] = []
        self._is_paused = self._reusable = self._request_is_out = False
        self.headers: list[tuple[bytes, bytes]] = []
        self.lost: asyncio.Future[None] = self._loop.create_future()
        self.idle_since = 0.0

    # For the pool

    def is_fresh(self) -> bool:
        """True for an idle connection on which nothing has arrived, not even its end."""
        if self._phase is not Phase.IDLE or self._failure or self._transport.is_closing():
            return False
        return not _is_readable(self._transport.get_extra_info("socket").fileno())

    def rest(self) -> bool:
        """End the exchange; True if the connection can serve another, else it is dropped."""
        clean = self._phase is Phase.DONE and self._reusable and self._request_is_out and not self._pieces
        if not clean or self._transport.is_closing() or self._transport.get_write_buffer_size():
            self.drop()
            return False
        self._phase, self.idle_since = Phase.IDLE, self._loop.time()
        return True

    def drop(self) -> None:
        """Close the socket now, whatever is going on."""
        self._fail(httpx2.ReadError("the connection was closed on this side"))

    # One exchange, by the task that wants it

    async def send(self, request: Outgoing, seconds: float | None) -> None:
        """Write a request; an answer or an end that comes while it is being written stops the writing."""
        self._begin(request.method)
        for piece in request.whole:
            if not await self._write(piece, seconds):
                return
        if request.rest is not None:
            async for piece in request.rest:
                if not await self._write(piece, seconds):
                    return
        self._request_is_out = True

    async def _write(self, piece: bytes, seconds: float | None) -> bool:
        """Write a piece when there is room; True if the writing may go on."""
        self._transport.write(piece)
        while not self._writable and self._phase is Phase.HEAD and not self._failure:
            await self._change(seconds, httpx2.WriteTimeout)
        return self._phase is Phase.HEAD and not self._failure

    async def answer(self, seconds: float | None) -> None:
        """Wait for the head of the answer: `status`, `reason` and `headers`."""
        while self._phase is Phase.HEAD:
            if self._failure:
                raise self._failure
            await self._change(seconds, httpx2.ReadTimeout)

    async def piece(self, seconds: float | None) -> bytes:
        """What has arrived of the body since the last time; empty at its end."""
        while not self._pieces:
            if self._phase is Phase.DONE:
                return b""
            if self._failure:
                raise self._failure
            await self._change(seconds, httpx2.ReadTimeout)
        pieces, self._pieces, self._waiting_bytes = self._pieces, [], 0
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _begin(self, method: str) -> None:
        self._method = method
        self.status, self.reason, self.version = 0, b"", "1.1"
        self.headers, self._pieces = [], []
        self.heard = False
        self._waiting_bytes = self._framing_bytes = 0
        self._is_paused = self._reusable = self._request_is_out = False
        self._parser = httptools.HttpResponseParser(self)
        self._phase = Phase.HEAD

    def _change(self, seconds: float | None, too_late: type[httpx2.TimeoutException]) -> Awaitable[None]:
        """What is waited on for the next thing to happen."""
        waiter = self._waiter = self._loop.create_future()
        return waiter if seconds is None else _within(seconds, waiter, too_late)

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def _fail(self, failure: Exception) -> None:
        """End the connection; whoever waits is told why, after what had arrived before."""
        self._failure = self._failure or failure
        self._transport.abort()
        self._wake()

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        if self._failure:
            return
        if self._phase is Phase.IDLE:
            self._fail(httpx2.RemoteProtocolError("data that nothing asked for"))
            return
        self.heard = True
        self._framing_bytes += nbytes
        try:
            self._parser.feed_data(self._buffer[:nbytes])
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._break(str(error))
        if self._framing_bytes > MAX_FRAMING_BYTES:
            self._break("headers, trailers or chunk extensions are too long")
        if self._waiting_bytes > HIGH_WATER and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> None:
        self._end(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc)
        if not self.lost.done():
            self.lost.set_result(None)

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        self._wake()

    def _end(self, reason: Exception | None) -> None:
        if self._phase is Phase.BODY and reason is None and not self._failure and self._lasts_until_close():
            self._phase = Phase.DONE
        elif reason is not None:
            self._fail(httpx2.ReadError(str(reason)))
        elif self._phase is Phase.BODY:
            self._fail(httpx2.RemoteProtocolError("the connection ended before the body was complete"))
        else:
            self._fail(httpx2.RemoteProtocolError("the connection ended without an answer"))
        self._wake()

    def _break(self, problem: str) -> None:
        """The server breaks the rules; after a whole answer that only costs the connection."""
        if self._phase is Phase.DONE:
            self._reusable = False
        else:
            self._fail(httpx2.RemoteProtocolError(f"not an HTTP/1.1 answer: {problem}"))

    def _lasts_until_close(self) -> bool:
        named = {name.lower(): value for name, value in self.headers}
        chunked = named.get(b"transfer-encoding", b"").lower().rstrip().endswith(b"chunked")
        return b"content-length" not in named and not chunked

    # What the parser calls

    def on_message_begin(self) -> None:
        if self._phase is Phase.HEAD:  # the first, or the one after an interim answer
            self.headers, self.reason = [], b""
        else:
            self._reusable = False

    def on_status(self, reason: bytes) -> None:
        if self._phase is Phase.HEAD:
            self.reason += reason

    def on_header(self, name: bytes, value: bytes | None) -> None:
        if self._phase is not Phase.HEAD:
            return  # a trailer
        self.headers.append((name, value or b""))
        if len(self.headers) > MAX_HEADERS:
            self._break("too many headers")

    def on_headers_complete(self) -> None:
        status, self.version = self._parser.get_status_code(), self._parser.get_http_version()
        if self._phase is not Phase.HEAD or self._failure:
            return
        if self.version not in ("1.0", "1.1") or status == 101:
            self._break(f"HTTP/{self.version} {status}")
        elif status >= 200:
            self.status, self._phase, self._framing_bytes = status, Phase.BODY, 0
            if self._method == "HEAD":
                self.on_message_complete()

    def on_body(self, data: bytes) -> None:
        if self._phase is not Phase.BODY:
            self._reusable = False  # a body where there is none
            return
        self._pieces.append(data)
        self._waiting_bytes += len(data)
        self._framing_bytes = 0

    def on_message_complete(self) -> None:
        if self._phase is Phase.BODY:
            self._reusable = self._parser.should_keep_alive()
            self._phase, self._framing_bytes = Phase.DONE, 0


async def _within(seconds: float, waiter: asyncio.Future[None], too_late: type[httpx2.TimeoutException]) -> None:
    try:
        async with asyncio.timeout(seconds):
            await waiter
    except TimeoutError:
        raise too_late(f"nothing happened for {seconds:g} s") from None


def _is_readable(descriptor: int) -> bool:
    if not hasattr(select, "poll"):
        return bool(select.select([descriptor], [], [], 0)[0])
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
