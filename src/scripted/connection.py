"""One client connection: HTTP/1.1 requests in, the steps of their responses out."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import assert_never

import httptools

from scripted.received import Received
from scripted.script import error
from scripted.wire import Cut, Pause, Response

LINGER_ZERO = struct.pack("ii", 1, 0)
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
Answer = Callable[[Received], Response]


@dataclass(slots=True)
class Tally:
    """What is known of all connections of a server."""

    open: set[Connection] = field(default_factory=set)
    accepted: int = 0
    disconnects: int = 0


class Connection(asyncio.Protocol):
    """Answers the requests of one connection in their order."""

    _transport: asyncio.Transport

    def __init__(self, answer: Answer, tally: Tally) -> None:
        self._answer = answer
        self._tally = tally
        self._parser = httptools.HttpRequestParser(self)
        self._requests: asyncio.Queue[tuple[Received, bool]] = asyncio.Queue()
        self._flushed = asyncio.Event()
        self._responding = False
        self._url = b""
        self._headers: dict[str, str] = {}
        self._body = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - what a TCP server gives
        # A limit of nothing makes `_flushed` mean that the kernel has every byte.
        transport.set_write_buffer_limits(high=0)
        self._transport = transport
        self._flushed.set()
        self._tally.open.add(self)
        self._tally.accepted += 1
        self.task = asyncio.get_running_loop().create_task(self._serve())

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._tally.open.discard(self)
        self._tally.disconnects += self._responding
        self.task.cancel()

    def pause_writing(self) -> None:
        self._flushed.clear()

    def resume_writing(self) -> None:
        self._flushed.set()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as failure:
            self._responding = False
            for step in error(400, f"not an HTTP/1.1 request: {failure}").steps:
                if isinstance(step, bytes):
                    self._transport.write(step)
            self._transport.close()

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        key, text = name.decode("latin-1").lower(), value.decode("latin-1")
        self._headers[key] = f"{self._headers[key]}, {text}" if key in self._headers else text

    def on_headers_complete(self) -> None:
        if self._headers.get("expect", "").lower() == "100-continue":
            self._transport.write(CONTINUE)

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        received = Received(
            self._parser.get_method().decode(),
            self._url.decode("latin-1"),
            self._headers,
            bytes(self._body),
            time.monotonic(),
        )
        self._requests.put_nowait((received, self._parser.should_keep_alive()))
        self._url, self._headers, self._body = b"", {}, bytearray()

    def shut(self) -> None:
        """End the connection from this side, whatever is going on."""
        self._responding = False
        self._transport.abort()

    async def _serve(self) -> None:
        keep = True
        while keep:
            received, keep_alive = await self._requests.get()
            self._responding = True
            response = self._answer(received)
            if not await self._send(response):
                return
            self._responding = False
            keep = keep_alive and not response.close
        self._transport.close()

    async def _send(self, response: Response) -> bool:
        """Carry out the steps; False when the connection is over."""
        transport, flushed = self._transport, self._flushed
        for step in response.steps:
            match step:
                case bytes():
                    if transport.is_closing():
                        return False
                    transport.write(step)
                    if not flushed.is_set():
                        await flushed.wait()
                case Pause(seconds):
                    await asyncio.sleep(seconds)
                case Cut(reset):
                    self._cut(reset=reset)
                    return False
                case _:
                    assert_never(step)
        return True

    def _cut(self, *, reset: bool) -> None:
        self._responding = False
        if reset:
            connection: socket.socket = self._transport.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_ZERO)
        self._transport.close()
