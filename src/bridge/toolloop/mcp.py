"""The MCP bridge: tools of the servers that a request names, for models whose provider cannot call them."""

from __future__ import annotations

import asyncio
import time
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING

from bridge.canonical.request import Tool
from bridge.errors import invalid_request
from bridge.toolloop.mcp_names import unique_names
from bridge.toolloop.mcp_session import McpError, McpSession, McpTimeouts
from bridge.toolloop.pinned import PinnedTransport, resolve_name
from bridge.toolloop.tools import BridgeTool, McpCall
from bridge.toolloop.urls import LOOPBACK_HOSTS, UrlRefusedError
from bridge.upstream.addresses import is_public
from bridge.values import dataclass

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Collection, Sequence

    from bridge.toolloop.mcp_request import McpServer, ToolSpec
    from bridge.toolloop.pinned import Resolve
    from bridge.toolloop.urls import AllowList
    from bridge.upstream.addresses import Address

MAX_RESPONSE_BYTES = 32 * 1024 * 1024
LISTING_SECONDS = 300.0
MAX_LISTINGS = 256


@dataclass(frozen=True, slots=True)
class Listing:
    """The tools of a server, and how it is spoken to."""

    tools: tuple[ToolSpec, ...]
    old_transport: bool
    expires_at: float


@dataclass(slots=True)
class Listings:
    """Tool lists that were fetched lately, by the digest of URL and token."""

    seconds: float = LISTING_SECONDS
    clock: Callable[[], float] = time.monotonic
    _kept: dict[str, Listing] = field(default_factory=dict, repr=False)

    def get(self, server: McpServer) -> Listing | None:
        found = self._kept.get(server.identity)
        return found if found is not None and found.expires_at > self.clock() else None

    def put(self, server: McpServer, tools: tuple[ToolSpec, ...], *, old_transport: bool) -> None:
        self._kept.pop(server.identity, None)
        if len(self._kept) >= MAX_LISTINGS:
            del self._kept[next(iter(self._kept))]
        self._kept[server.identity] = Listing(tools, old_transport, self.clock() + self.seconds)


@dataclass(frozen=True, slots=True)
class McpBridge:
    """What all requests share. `allows`, `resolve` and `context` are for tests."""

    allowed: AllowList
    timeouts: McpTimeouts = field(default_factory=McpTimeouts)
    listings: Listings = field(default_factory=Listings)
    allows: Callable[[Address], bool] = is_public
    resolve: Resolve = resolve_name
    context: ssl.SSLContext | None = field(default=None, repr=False)

    def connections(self, servers: Sequence[McpServer]) -> McpConnections:
        """Connections for one request, to be used with `async with`; BridgeError if a server may not be called."""
        return McpConnections(self, tuple(self._session(server) for server in servers))

    def _session(self, server: McpServer) -> McpSession:
        try:
            url = self.allowed.check(server.url)
        except UrlRefusedError as error:
            raise invalid_request(f"mcp_servers: {server.name!r}: {error}") from None
        is_local = self.allowed.loopback and url.host in LOOPBACK_HOSTS
        allows: Callable[[Address], bool] = _is_loopback if is_local else self.allows
        known = self.listings.get(server)
        transport = partial(
            PinnedTransport,
            allows=allows,
            resolve=self.resolve,
            context=self.context,
            max_bytes=MAX_RESPONSE_BYTES,
            keeps_connections=True,
        )
        return McpSession(server, transport, self.timeouts, old_transport=bool(known and known.old_transport))


@dataclass(frozen=True, slots=True)
class McpConnections:
    """The servers of one request. Leaving it closes what was opened."""

    bridge: McpBridge
    sessions: tuple[McpSession, ...]

    async def __aenter__(self) -> McpConnections:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await asyncio.gather(*(session.aclose() for session in self.sessions))

    async def tools(self, taken: Collection[str] = ()) -> tuple[BridgeTool, ...]:
        """The tools that the model may have, under names that are not taken; BridgeError if a list is not to be had."""
        listings = await asyncio.gather(*map(self._listing, self.sessions), return_exceptions=True)
        offered: list[tuple[McpSession, ToolSpec]] = []
        for session, listing in zip(self.sessions, listings, strict=True):
            if isinstance(listing, BaseException):
                raise listing
            offered += [(session, spec) for spec in listing if session.server.offers(spec.name)]
        names = unique_names(((session.server.name, spec.name) for session, spec in offered), taken)
        return tuple(_tool(session, spec, names[session.server.name, spec.name]) for session, spec in offered)

    async def _listing(self, session: McpSession) -> tuple[ToolSpec, ...]:
        if session.server.listed is not None:
            return session.server.listed
        known = self.bridge.listings.get(session.server)
        if known is not None:
            return known.tools
        try:
            tools = await session.tools()
        except McpError as error:
            raise invalid_request(f"mcp_servers: {error}") from None
        self.bridge.listings.put(session.server, tools, old_transport=session.old_transport)
        return tools


def _tool(session: McpSession, spec: ToolSpec, name: str) -> BridgeTool:
    definition = Tool(name, dict(spec.input_schema), spec.description)  # type: ignore[arg-type]
    shape = McpCall(session.server.name, spec.name)
    return BridgeTool(definition, shape, partial(session.call, spec.name), repeatable=spec.read_only)


def _is_loopback(address: Address) -> bool:
    return address.is_loopback
