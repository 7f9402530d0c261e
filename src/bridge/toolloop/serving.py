"""Tools that the bridge runs, made ready for one request: those it declares itself, those of its MCP servers."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from bridge.canonical.request import ServerTool
from bridge.errors import BridgeError, invalid_request
from bridge.state.keys import partition_key
from bridge.toolloop.execution import Claim, dump_output, load_output
from bridge.toolloop.mcp_request import parse_servers, wants_mcp
from bridge.toolloop.runner import ToolLoop
from bridge.toolloop.toolbox import FETCH_TYPES, Toolbox
from bridge.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bridge.canonical.request import Request
    from bridge.conversation import Conversation
    from bridge.limits import Limiter
    from bridge.ports import DocumentStore
    from bridge.toolloop.execution import ExecutionLog
    from bridge.toolloop.mcp import McpBridge
    from bridge.toolloop.tools import BridgeTool, ToolOutput
    from bridge.toolloop.web_fetch import WebFetch


@dataclass(frozen=True, slots=True)
class OpenTools:
    """The tools of one request; `request` declares them as functions."""

    box: Toolbox
    log: ExecutionLog
    stack: AsyncExitStack

    @property
    def request(self) -> Request:
        return self.box.request

    def loop(
        self, principal: str, talk: Conversation, headers: Mapping[str, str], *, again: bool = False
    ) -> ToolLoop | None:
        """The loop that runs them; None where there is nothing to run. `again`: another model was asked before.

        A request that names no conversation is known again only if its client says that it is a retry: the same words
        in a new conversation are a new wish.
        """
        if not self.box:
            return None
        if not talk.is_new:
            return ToolLoop(self.box.tools, self.log, partition_key(principal, talk.token))
        scope = partition_key(principal, headers.get("idempotency-key", ""))
        log = self.log if again or _is_retry(headers) else BegunAnew(self.log)
        return ToolLoop(self.box.tools, log, scope)

    async def aclose(self) -> None:
        await self.stack.aclose()


@dataclass(frozen=True, slots=True)
class BridgeTools:
    """What the bridge may run; None is switched off."""

    log: ExecutionLog
    fetch: WebFetch | None = None
    fetch_limiter: Limiter | None = None
    mcp: McpBridge | None = None
    watch: Callable[[BridgeTool], BridgeTool] | None = None
    """Puts something around each tool, such as a span of a trace."""

    async def open(self, request: Request, principal: str) -> OpenTools:
        """Make the tools of a request ready; BridgeError if one of its MCP servers cannot be had."""
        stack = AsyncExitStack()
        try:
            return OpenTools(await self._box(request, principal, stack), self.log, stack)
        except BaseException:
            await stack.aclose()
            raise

    async def _box(self, request: Request, principal: str, stack: AsyncExitStack) -> Toolbox:
        connections = None
        if wants_mcp(request):
            if self.mcp is None:
                raise invalid_request(
                    "mcp_servers: this bridge does not call MCP servers. Set MCP_BRIDGE_MODE=http-sse, route the model "
                    "to Anthropic (SERVER_TOOLS_MODE=enforceAnthropic does so by itself), or leave them out."
                )
            plan = parse_servers(request)
            request, connections = plan.request, self.mcp.connections(plan.servers)
            await stack.enter_async_context(connections)
        box = Toolbox(request)
        if self.fetch is not None and any(_is_fetch(tool) for tool in request.tools):
            box = box.with_fetch(self.fetch, lambda: self._admits(principal))
        if connections is not None:
            box = await box.with_mcp(connections)
        if self.watch is not None:
            box = replace(box, tools={name: self.watch(tool) for name, tool in box.tools.items()})
        return box.restored()

    async def _admits(self, principal: str) -> bool:
        if self.fetch_limiter is None:
            return True
        try:
            await self.fetch_limiter.admit(f"fetch:{principal}")
        except BridgeError:
            return False
        return True


def _is_fetch(tool: object) -> bool:
    return isinstance(tool, ServerTool) and tool.type.startswith(FETCH_TYPES)


def _is_retry(headers: Mapping[str, str]) -> bool:
    return headers.get("x-stainless-retry-count", "0") not in ("", "0") or "idempotency-key" in headers


@dataclass(frozen=True, slots=True)
class BegunAnew:
    """A record in which nothing is found, but everything kept."""

    log: ExecutionLog

    async def claim(self, key: str) -> ToolOutput | Claim:
        await self.log.begin(key)
        return Claim.OURS

    async def begin(self, key: str) -> None:
        await self.log.begin(key)

    async def record(self, key: str, output: ToolOutput) -> None:
        await self.log.record(key, output)


@dataclass(frozen=True, slots=True)
class StoredExecutionLog:
    """The record of calls in the store, so that a retry in another process finds it."""

    store: DocumentStore

    async def begin(self, key: str) -> None:
        await self.store.put(f"exec#{key}", b"")

    async def claim(self, key: str) -> ToolOutput | Claim:
        name = f"exec#{key}"
        if await self.store.put_new(name, b""):
            return Claim.OURS
        recorded = (await self.store.get([name])).get(name)
        return load_output(recorded) if recorded else Claim.BEGUN

    async def record(self, key: str, output: ToolOutput) -> None:
        await self.store.put(f"exec#{key}", dump_output(output))
