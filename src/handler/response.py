"""One answer on its way out: its head, its bytes, and signs of life while there are none."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from handler.redaction import MAX_LOGGED_BYTES

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from bridge.exchange import Answer, StreamBody
    from handler.asgi import Send
    from handler.endpoints import Edge
    from handler.request import HttpRequest

_ENDS_OF_EVENTS = (b"\n\n", b"\r\n\r\n", b"\r\r")
_LONGEST_END = 4
_ALWAYS = {"x-content-type-options": "nosniff", "cache-control": "no-store"}
_EVENT_STREAM = {"cache-control": "no-cache", "x-accel-buffering": "no"}


class Response:
    """Sends one answer, and knows how much of it is out. A timer, not a task, watches for silence: it seldom comes."""

    def __init__(self, edge: Edge, request: HttpRequest, send: Send) -> None:
        self._edge = edge
        self._request = request
        self._send = send
        self._loop = asyncio.get_running_loop()
        self.status = 0
        self.sent_bytes = 0
        self.first_byte_at: float | None = None
        self.last_byte_at: float | None = None
        self.copy = bytearray() if edge.observer.samples_bodies() else None
        self._last_bytes = b"\n\n"
        self._silent_since = self._loop.time()
        self._begin: Callable[[], Answer | None] | None = None
        self._heartbeat = b""
        self._timer: asyncio.TimerHandle | None = None
        self._beating: asyncio.Task[None] | None = None

    def watch(self, begin: Callable[[], Answer | None]) -> None:
        """From now on silence is broken. `begin` says how an answer begins that is not known yet; None if it cannot."""
        self._begin = begin
        self._timer = self._loop.call_later(self._edge.heartbeat_seconds, self._look)

    @property
    def began_early(self) -> bool:
        """True if the client was given a sign of life before there is an answer. For whoever is about to send it."""
        return self._beating is not None

    async def whole(self, answer: Answer) -> None:
        body = answer.body if isinstance(answer.body, bytes) else b""
        self.rest()
        await self._start(answer, {"content-length": str(len(body))} if answer.status != 204 else {})
        await self._body(b"" if self._request.method == "HEAD" else body, more=False)

    async def streamed(self, answer: Answer) -> None:
        body = answer.body
        if isinstance(body, bytes):
            raise TypeError("an answer that is not a stream")
        if self._beating is None:
            self._heartbeat = answer.heartbeat
            try:
                await self._start(answer, _EVENT_STREAM)
            except BaseException:
                await _abandon(body)
                raise
        if self._timer is None and self._heartbeat:
            self._timer = self._loop.call_later(self._edge.heartbeat_seconds, self._look)
        await body(self._body)
        await self.finish()

    async def finish(self) -> None:
        await self._beaten()
        self.rest()
        await self._body(b"", more=False)

    def rest(self) -> None:
        """No more signs of life."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._beating is not None:
            self._beating.cancel()

    def _look(self) -> None:
        """The timer's moment: speak up if it has been silent, so that whoever is in between does not think it dead."""
        interval = self._edge.heartbeat_seconds
        silence = self._loop.time() - self._silent_since
        self._timer = None
        if silence >= interval and self._is_between_events():
            if not self._speak_up():
                return
            silence = 0.0
        self._timer = self._loop.call_later(max(interval - silence, interval / 10), self._look)

    def _is_between_events(self) -> bool:
        return self._last_bytes.endswith(_ENDS_OF_EVENTS)

    def _is_beating(self) -> bool:
        return self._beating is not None and not self._beating.done()

    def _speak_up(self) -> bool:
        if self._is_beating():
            return True  # the client does not read
        if self.status == 0:
            answer = self._begin() if self._begin is not None else None
            if answer is None:
                return False
            self._heartbeat = answer.heartbeat
            self._beating = self._loop.create_task(self._beat(answer))
        elif self._heartbeat:
            self._beating = self._loop.create_task(self._beat(None))
        return bool(self._heartbeat)

    async def _beat(self, beginning: Answer | None) -> None:
        with suppress(OSError):  # the client is gone: whoever writes next is told
            if beginning is not None:
                await self._start(beginning, _EVENT_STREAM)
            if self._is_between_events():  # a read may have come since the timer's moment
                await self._write(self._heartbeat)

    async def _start(self, answer: Answer, extra: Mapping[str, str]) -> None:
        self.status = answer.status
        self.first_byte_at = self.last_byte_at = self._silent_since = self._loop.time()
        headers = {"request-id": self._request.id, **_ALWAYS, **answer.headers, **extra, **self._cors()}
        if headers["request-id"] != self._request.id:  # a provider's own, passed through
            headers["x-bridge-request-id"] = self._request.id
        pairs = [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": answer.status, "headers": pairs})

    def _body(self, data: bytes, more: bool = True) -> Awaitable[None]:
        """Write a piece, after a sign of life that is under way: it may wait for the client to read."""
        if self._beating is not None and not self._beating.done():
            return self._write_after_beat(data, more)
        return self._write(data, more)

    async def _write_after_beat(self, data: bytes, more: bool) -> None:
        await self._beaten()
        await self._write(data, more)

    async def _beaten(self) -> None:
        """Wait for a sign of life that is under way."""
        while self._beating is not None and not self._beating.done():
            await asyncio.wait({self._beating})

    def _write(self, data: bytes, more: bool = True) -> Awaitable[None]:
        self.sent_bytes += len(data)
        self.last_byte_at = self._silent_since = self._loop.time()
        if len(data) >= _LONGEST_END:
            self._last_bytes = data
        else:
            self._last_bytes = (self._last_bytes + data)[-_LONGEST_END:]
        if self.copy is not None and len(self.copy) < MAX_LOGGED_BYTES:
            self.copy += data
        return self._send({"type": "http.response.body", "body": data, "more_body": more})

    def _cors(self) -> dict[str, str]:
        allowed = self._edge.allow_origins
        if not allowed:
            return {}
        origin = self._request.headers.get("origin", "")
        vary = {"vary": "origin"}
        if not origin or not (origin in allowed or "*" in allowed):
            return vary
        return vary | {
            "access-control-allow-origin": origin,
            "access-control-allow-methods": "GET, POST, DELETE, OPTIONS",
            "access-control-allow-headers": self._request.headers.get("access-control-request-headers", "*"),
            "access-control-expose-headers": "request-id, x-conversation-id, x-bridge-losses, retry-after",
            "access-control-max-age": "600",
        }


async def _abandon(body: StreamBody) -> None:
    """Let a body that nobody will hear begin and be cancelled, so that it gives back what it holds."""

    async def to_nobody(_data: bytes) -> None:
        pass

    speaking = asyncio.ensure_future(body(to_nobody))
    await asyncio.sleep(0)
    speaking.cancel()
    await asyncio.wait({speaking})
