"""An HTTP/1.1 server for an ASGI app: accepts connections, tells the app of start and end, and ends gracefully."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import threading
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from handler.http1.connection import Connection, Limits, Service

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from handler.asgi import ASGIApp, Message

BACKLOG = 1024
CANCEL_SECONDS = 1.0
"""How long requests that were cancelled may take to end."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_DEFAULT_LIMITS = Limits()

_logger = logging.getLogger("toolbridge")


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; OSError if it cannot."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio turns off Nagle only then, and a first token would wait 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


class StartError(RuntimeError):
    """The app said that it cannot start."""


class HttpServer:
    """Serves once, until SIGINT, SIGTERM or `stop`. Whoever is served then has `grace_seconds` left."""

    def __init__(
        self, app: ASGIApp, *, grace_seconds: float = 2.0, lifespan: bool = True, limits: Limits = _DEFAULT_LIMITS
    ) -> None:
        self._app, self._has_lifespan = app, lifespan
        self._grace_seconds, self._limits = grace_seconds, limits
        self._stops = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = asyncio.Event()

    async def serve(self, listener: socket.socket) -> None:
        """Serve; the listener is closed at the end. A signal that ended it is raised again then."""
        self._loop = asyncio.get_running_loop()
        if self._stops:
            self._stopped.set()
        with _signals_to(self.stop):
            if not self._has_lifespan:
                await self._serve(listener)
                return
            async with _lifespan(self._app, lambda: self._is_forced):
                await self._serve(listener)

    def stop(self) -> None:
        """End gracefully, or at once if told twice; from any thread."""
        self._stops += 1
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stopped.set)

    @property
    def _is_forced(self) -> bool:
        return self._stops > 1

    async def _serve(self, listener: socket.socket) -> None:
        service = Service(self._app)
        server = await service.loop.create_server(lambda: Connection(service), sock=listener, backlog=BACKLOG)
        sweeping = asyncio.create_task(self._sweep(service))
        try:
            await self._stopped.wait()
        finally:
            sweeping.cancel()
            server.close()
            await self._end(service)

    async def _sweep(self, service: Service) -> None:
        """One clock for all connections: a timer for each request would cost more than it is worth."""
        while True:
            await asyncio.sleep(self._limits.sweep_seconds)
            for connection in list(service.connections):
                connection.check(self._limits)

    async def _end(self, service: Service) -> None:
        for connection in list(service.connections):
            connection.shut()
        if not await self._quiet(service, self._grace_seconds):
            for exchange in list(service.exchanges):
                exchange.task.cancel()
            await self._quiet(service, CANCEL_SECONDS)
        for connection in list(service.connections):
            connection.abort()

    async def _quiet(self, service: Service, seconds: float) -> bool:
        """Wait until nothing is left; False if that takes too long or is not waited for."""
        deadline = service.loop.time() + seconds
        while service.exchanges or service.connections:
            if self._is_forced or service.loop.time() > deadline:
                return False
            await asyncio.sleep(0.01)
        return True


@contextmanager
def _signals_to(stop: Callable[[], None]) -> Iterator[None]:
    """Have signals stop the server; the last one is raised again when the old handlers are back."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    caught: list[int] = []

    def handle(number: int, _frame: object) -> None:
        caught.append(number)
        stop()

    before = {number: signal.signal(number, handle) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if caught:
        signal.raise_signal(caught[-1])


@asynccontextmanager
async def _lifespan(app: ASGIApp, is_forced: Callable[[], bool]) -> AsyncIterator[None]:
    """Tell the app of start and end; StartError if it cannot start."""
    events: asyncio.Queue[Message] = asyncio.Queue()
    replies: asyncio.Queue[Message] = asyncio.Queue()
    scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}}
    task = asyncio.ensure_future(app(scope, events.get, replies.put))

    async def tell(kind: str) -> str:
        """What is wrong; empty if nothing is."""
        events.put_nowait({"type": f"lifespan.{kind}"})
        reply = asyncio.create_task(replies.get())
        await asyncio.wait({reply, task}, return_when=asyncio.FIRST_COMPLETED)
        if not reply.done():
            reply.cancel()
            return f"it ended during {kind}: {'' if task.cancelled() else task.exception()!r}"
        message = reply.result()
        return "" if message["type"] == f"lifespan.{kind}.complete" else str(message.get("message", ""))[:500] or kind

    try:
        if problem := await tell("startup"):
            raise StartError(f"the app did not start: {problem}")
        try:
            yield
        finally:
            if not is_forced() and (problem := await tell("shutdown")):
                _logger.error("the app did not shut down: %s", problem)
    finally:
        task.cancel()
        await asyncio.wait({task})
