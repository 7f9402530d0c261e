"""The scripted upstream: a model provider on a real socket that does what a script says."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from threading import Thread
from typing import TYPE_CHECKING, Self

from scripted.connection import Connection, Tally
from scripted.control import answer_control
from scripted.script import error, load

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from scripted.received import Received
    from scripted.script import Script, ScriptSource
    from scripted.wire import Response


class ScriptedUpstream:
    """Serves a script; `received` holds the newest requests, `keep` of them at most."""

    def __init__(
        self,
        script: ScriptSource,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        control: bool = False,
        keep: int = 1000,
    ) -> None:
        self.received: list[Received] = []
        self.host = host
        self.port = port
        self._script = load(script)
        self._control = control
        self._keep = keep
        self._tally = Tally()
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        """Where it listens, without a trailing slash."""
        return f"http://{self.host}:{self.port}"

    @property
    def script(self) -> Script:
        """The script in use; setting another starts its counts anew."""
        return self._script

    @script.setter
    def script(self, source: ScriptSource) -> None:
        self._script = load(source)

    @property
    def open_connections(self) -> int:
        """Connections open now."""
        return len(self._tally.open)

    @property
    def accepted_connections(self) -> int:
        """Connections accepted so far."""
        return self._tally.accepted

    @property
    def disconnects(self) -> int:
        """Clients that went away before their response was complete."""
        return self._tally.disconnects

    async def start(self) -> None:
        """Listen; a port of 0 becomes the one that was free."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(
            lambda: Connection(self._answer, self._tally), self.host, self.port, backlog=512
        )
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Stop listening and end every connection."""
        if self._server is None:
            return
        # A connection accepted a moment ago takes asyncio some turns to make. A server that closes before
        # leaks it, so accepting ends first.
        for listener in self._server.sockets:
            asyncio.get_running_loop().remove_reader(listener.fileno())
        for _ in range(3):
            await asyncio.sleep(0)
        self._server.close()
        ending = list(self._tally.open)
        for connection in ending:
            connection.shut()
        await asyncio.gather(*(connection.task for connection in ending), return_exceptions=True)
        await self._server.wait_closed()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def _answer(self, received: Received) -> Response:
        if self._control and (response := answer_control(self, received)):
            return response
        self.received.append(received)
        del self.received[: -self._keep or None]
        try:
            return self._script.answer(received)
        except Exception as failure:  # noqa: BLE001 - a script may hold any function; its failure is an answer
            return error(500, f"the script failed: {failure!r}")


@contextmanager
def serving(script: ScriptSource, host: str = "127.0.0.1", port: int = 0) -> Iterator[ScriptedUpstream]:
    """A scripted upstream on a thread of its own, for code that is not asynchronous."""
    upstream = ScriptedUpstream(script, host, port)
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, name="scripted-upstream", daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(upstream.start(), loop).result()
        try:
            yield upstream
        finally:
            asyncio.run_coroutine_threadsafe(upstream.stop(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
