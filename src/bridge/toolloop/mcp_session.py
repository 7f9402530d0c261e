"""One connection to one MCP server, by the official SDK, which is imported when the first one is opened.

The SDK's task groups must be left by the task that entered them, so a task of its own holds the connection open. Calls
may come from any task, and at the same time.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import field
from typing import TYPE_CHECKING, Any

import httpx2

from bridge.toolloop.mcp_request import ToolSpec
from bridge.toolloop.mcp_results import output_of, without
from bridge.toolloop.pinned import ForbiddenAddressError, PinnedTransport, TooLargeError
from bridge.toolloop.tools import failed
from bridge.values import dataclass

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from mcp import Client

    from bridge.canonical.json import JsonObject
    from bridge.toolloop.mcp_request import McpServer
    from bridge.toolloop.tools import ToolOutput

CLOSE_SECONDS = 2.0
MAX_PAGES = 20
MAX_TOOLS = 512
MAX_ERROR_CHARACTERS = 1000
_OLD_TRANSPORT_STATUSES = (400, 404, 405)
"""With these a server that only knows the old SSE transport answers a POST."""


class McpError(Exception):
    """The server cannot be used; the message names neither its URL nor its token."""


@dataclass(frozen=True, slots=True)
class McpTimeouts:
    connect: float = 10.0
    list: float = 15.0
    call: float = 60.0


@dataclass(slots=True)
class McpSession:
    """A connection that is opened at its first use and lives until `aclose`."""

    server: McpServer
    transport: Callable[[], PinnedTransport]
    timeouts: McpTimeouts = field(default_factory=McpTimeouts)
    old_transport: bool = False
    """The server is known to speak only HTTP with SSE."""
    _statuses: list[int] = field(default_factory=list)
    _causes: list[Exception] = field(default_factory=list)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _client: Client | None = None
    _holder: asyncio.Task[None] | None = None
    _closing: asyncio.Event = field(default_factory=asyncio.Event)

    async def tools(self) -> tuple[ToolSpec, ...]:
        """The tools that the server lists, page by page."""
        client = await self._connected()
        seen = len(self._causes)
        try:
            async with asyncio.timeout(self.timeouts.list):
                return await _listed(client)
        except Exception as error:  # noqa: BLE001  (the SDK raises many kinds; all mean the same here)
            raise self._failure(error, "cannot list its tools", seen) from None

    async def call(self, tool: str, arguments: JsonObject) -> ToolOutput:
        """What a tool brings; whatever fails becomes an output that says so."""
        try:
            client = await self._connected()
        except McpError as error:
            return failed(str(error))
        seen = len(self._causes)
        try:
            async with asyncio.timeout(self.timeouts.call):
                return output_of(await client.call_tool(tool, dict(arguments)), self.server.secrets)
        except Exception as error:  # noqa: BLE001  (the model is told, and the answer goes on)
            return failed(str(self._failure(error, f"{tool} failed", seen)))

    async def aclose(self) -> None:
        self._closing.set()
        holder, self._holder, self._client = self._holder, None, None
        if holder is None:
            return
        try:
            await asyncio.wait({holder}, timeout=CLOSE_SECONDS)
        finally:
            holder.cancel()
        await asyncio.wait({holder})

    async def _connected(self) -> Client:
        async with self._lock:
            if self._client is None or self._holder is None or self._holder.done():
                self._client = await self._connect()
            return self._client

    async def _connect(self) -> Client:
        """Streamable HTTP first; where that is not spoken, the transport that came before it."""
        try:
            return await self._open()
        except McpError:
            speaks_neither = self.old_transport or not self._statuses
            if speaks_neither or self._statuses[-1] not in _OLD_TRANSPORT_STATUSES:
                raise
            self.old_transport = True
        try:
            return await self._open()
        except McpError:
            self.old_transport = False
            raise

    async def _open(self) -> Client:
        loop = asyncio.get_running_loop()
        opened: asyncio.Future[Client] = loop.create_future()
        self._statuses.clear()
        self._causes.clear()
        self._holder = loop.create_task(self._hold(opened))
        try:
            async with asyncio.timeout(self.timeouts.connect):
                return await asyncio.shield(opened)
        except BaseException as error:
            self._holder.cancel()
            await asyncio.gather(self._holder, return_exceptions=True)
            self._holder = None
            if not isinstance(error, Exception):
                raise
            raise self._failure(error, "cannot be reached") from None

    async def _hold(self, opened: asyncio.Future[Client]) -> None:
        try:
            from mcp import Client

            async with self._streams() as transport, Client(transport, cache=None) as client:
                opened.set_result(client)
                await self._closing.wait()
        except Exception as error:  # noqa: BLE001  (given to whoever waits; after that nobody is left to hear it)
            if not opened.done():
                opened.set_exception(error)
        finally:
            opened.cancel()

    @asynccontextmanager
    async def _streams(self) -> AsyncIterator[Any]:
        """The SDK's transport over the bridge's own, so that the rules for addresses hold."""
        from mcp.client.sse import sse_client
        from mcp.client.streamable_http import streamable_http_client

        if self.old_transport:
            yield sse_client(self.server.url, httpx_client_factory=self._client_for, timeout=self.timeouts.connect)
            return
        async with self._client_for() as client:
            yield streamable_http_client(self.server.url, http_client=client)

    def _client_for(
        self,
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        said = {**(headers or {}), "user-agent": "toolbridge"}
        if self.server.token:
            said["authorization"] = f"Bearer {self.server.token}"
        return httpx2.AsyncClient(
            transport=_Watched(self.transport(), self._statuses, self._causes, self.old_transport),
            headers=said,
            timeout=timeout or httpx2.Timeout(self.timeouts.connect, read=self.timeouts.call),
            auth=auth,
            trust_env=False,
        )

    def _failure(self, error: Exception, what: str, seen: int = 0) -> McpError:
        """The failure in words; `seen` failures of the connection were there before."""
        return McpError(f"MCP server {self.server.name}: {what}: {self._why(error, self._causes[seen:])}")

    def _why(self, error: Exception, causes: list[Exception]) -> str:
        if causes:
            return _said(causes[-1])
        if self._statuses and self._statuses[-1] >= 400:
            status = self._statuses[-1]
            return f"HTTP {status}, its authorization_token is refused" if status in (401, 403) else f"HTTP {status}"
        return without(_said(error), self.server.secrets)[:MAX_ERROR_CHARACTERS]


class _Watched(httpx2.AsyncBaseTransport):
    """Remembers how HTTP calls went: the SDK tells its callers less than they need to know."""

    def __init__(self, inner: PinnedTransport, statuses: list[int], causes: list[Exception], counts_all: bool) -> None:
        self._inner, self._statuses, self._causes, self._counts_all = inner, statuses, causes, counts_all

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            response = await self._inner.handle_async_request(request)
        except httpx2.HTTPError as error:
            self._causes.append(error)
            raise
        if request.method == "POST" or self._counts_all:
            self._statuses.append(response.status_code)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


async def _listed(client: Client) -> tuple[ToolSpec, ...]:
    tools: list[ToolSpec] = []
    cursor: str | None = None
    for _ in range(MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        for tool in page.tools:
            read_only = bool(tool.annotations and tool.annotations.read_only_hint)
            tools.append(ToolSpec(tool.name, tool.input_schema, tool.description, read_only))
        cursor = page.next_cursor
        if cursor is None or len(tools) >= MAX_TOOLS:
            break
    return tuple(tools[:MAX_TOOLS])


def _said(error: Exception) -> str:
    """An error in words of the bridge's own where it is one of the connection's."""
    inner = error
    while isinstance(inner, ExceptionGroup):
        inner = inner.exceptions[0]
    match inner:
        case ImportError():
            return "the bridge is installed without its mcp extra"
        case TimeoutError() | httpx2.TimeoutException():
            return "no answer in time"
        case ForbiddenAddressError():
            return "its name leads to an address that is not public"
        case TooLargeError():
            return "its answer is too large"
        case httpx2.HTTPError():
            return f"the connection failed ({type(inner).__name__})"
    return str(inner) or type(inner).__name__
