"""The transport under the HTTP client: a pool of HTTP/1.1 connections, parsed by httptools."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple

import httpx2

from bridge.upstream.addresses import is_metadata
from bridge.upstream.connecting import connect, default_context
from bridge.upstream.http1 import Connection
from bridge.upstream.incoming import Incoming, Limits, exchange_by
from bridge.upstream.outgoing import outgoing, outgoing_of
from bridge.upstream.proxies import Proxies

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Callable, Sequence

    from bridge.upstream.addresses import Address
    from bridge.upstream.outgoing import Outgoing

READ_BYTES = 64 * 1024
IDLE_SECONDS = 60.0
MAX_IDLE = 64
_DEFAULT_PORTS = {"http": 80, "https": 443}


class Origin(NamedTuple):
    scheme: str
    host: str
    port: int


class HttpTransport(httpx2.AsyncBaseTransport):
    """Keeps connections per origin. `refuses` says which addresses are not to be called, whatever name leads there."""

    def __init__(
        self,
        *,
        refuses: Callable[[Address], bool] = is_metadata,
        context: ssl.SSLContext | None = None,
        proxies: Proxies | None = None,
        idle_seconds: float = IDLE_SECONDS,
        max_idle: int = MAX_IDLE,
    ) -> None:
        self._refuses, self._context = refuses, context
        self._idle_seconds, self._max_idle = idle_seconds, max_idle
        self._proxies = proxies or Proxies()
        self._buffer = bytearray(READ_BYTES)
        self._open: set[Connection] = set()
        self._idle: dict[Origin, list[Connection]] = {}
        self._sweeping: asyncio.TimerHandle | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Serve a client of httpx2's."""
        proxied = self._proxies.transport_for(request.url)
        if proxied is not None:
            return await proxied.handle_async_request(request)
        limits = Limits(**{name: request.extensions.get("timeout", {}).get(name) for name in Limits._fields})
        incoming = await self._exchange(request.url, outgoing_of(request), limits)
        said = {"http_version": b"HTTP/" + incoming.version.encode(), "reason_phrase": incoming.reason}
        return httpx2.Response(incoming.status, headers=incoming.headers, stream=incoming, extensions=said)

    async def exchange(
        self, method: str, url: httpx2.URL, headers: Sequence[tuple[str, str]], body: bytes, limits: Limits
    ) -> Incoming:
        """The same for whoever wants neither httpx2's requests nor its responses, which take longer to make."""
        if self._proxies.transport_for(url) is not None:
            return await exchange_by(self, method, url, headers, body, limits)
        return await self._exchange(url, outgoing(method, url, headers, body), limits)

    async def _exchange(self, url: httpx2.URL, request: Outgoing, limits: Limits) -> Received:
        origin = _origin(url)
        kept = self._kept(origin)
        if kept is not None:
            try:
                return await self._answered(kept, origin, request, limits)
            except (httpx2.ReadError, httpx2.RemoteProtocolError):
                # It ended while it was idle, and nobody could know. The request has not been answered.
                if kept.heard or request.rest is not None:
                    raise
        fresh = await self._connect(origin, limits.connect)
        return await self._answered(fresh, origin, request, limits)

    async def aclose(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        self._idle.clear()
        ending = [connection.lost for connection in self._open]
        for connection in list(self._open):
            connection.drop()
        if ending:
            await asyncio.wait(ending)
        await self._proxies.aclose()

    async def _answered(self, connection: Connection, origin: Origin, request: Outgoing, limits: Limits) -> Received:
        try:
            await connection.send(request, limits.write)
            await connection.answer(limits.read)
        except BaseException:
            connection.drop()
            raise
        return Received(self, connection, origin, limits.read)

    async def _connect(self, origin: Origin, seconds: float | None) -> Connection:
        if origin.scheme == "https" and self._context is None:
            self._context = default_context()
        context = self._context if origin.scheme == "https" else None
        connection = await connect(
            origin.host, origin.port, lambda: Connection(self._buffer), self._refuses, context, seconds
        )
        self._open.add(connection)
        connection.lost.add_done_callback(lambda _: self._open.discard(connection))
        return connection

    def _kept(self, origin: Origin) -> Connection | None:
        """The connection that was used last, if it still stands."""
        idle = self._idle.get(origin, [])
        oldest = asyncio.get_running_loop().time() - self._idle_seconds
        while idle:
            connection = idle.pop()
            if connection.idle_since > oldest and connection.is_fresh():
                return connection
            connection.drop()
        return None

    def release(self, connection: Connection, origin: Origin) -> None:
        """Take a connection back after its exchange, or drop it."""
        if not connection.rest():
            return
        idle = self._idle.setdefault(origin, [])
        idle.append(connection)
        if len(idle) > self._max_idle:
            idle.pop(0).drop()
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(self._idle_seconds, self._sweep)

    def _sweep(self) -> None:
        """Close what nobody has used for long."""
        loop = asyncio.get_running_loop()
        oldest, self._sweeping = loop.time() - self._idle_seconds, None
        for idle in self._idle.values():
            while idle and idle[0].idle_since <= oldest:
                idle.pop(0).drop()
        if any(self._idle.values()):
            self._sweeping = loop.call_later(self._idle_seconds, self._sweep)


class Received(Incoming):
    """An answer on one of the pool's connections."""

    def __init__(self, pool: HttpTransport, connection: Connection, origin: Origin, seconds: float | None) -> None:
        self._pool, self._origin, self._seconds = pool, origin, seconds
        self._connection: Connection | None = connection
        self.status, self.headers = connection.status, connection.headers
        self.version, self.reason = connection.version, connection.reason

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        if self._connection is None:
            raise StopAsyncIteration
        try:
            piece = await self._connection.piece(self._seconds)
        except BaseException:
            await self.aclose()
            raise
        if not piece:
            await self.aclose()
            raise StopAsyncIteration
        return piece

    async def aclose(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._pool.release(connection, self._origin)


def _origin(url: httpx2.URL) -> Origin:
    if url.scheme not in _DEFAULT_PORTS or not url.raw_host:
        raise httpx2.UnsupportedProtocol(f"not a URL for HTTP: {url.scheme}://")
    port = url.port or _DEFAULT_PORTS[url.scheme]
    if port > 0xFFFF:
        raise httpx2.InvalidURL(f"no such port: {port}")
    return Origin(url.scheme, url.raw_host.decode("ascii"), port)
