"""The tools of one request that the bridge runs, and the request as the model's provider shall see it."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING

from bridge.canonical.request import ServerTool
from bridge.toolloop.restore import restore_bridge_calls
from bridge.toolloop.tools import McpCall
from bridge.toolloop.web_fetch import NAME, fetch_tool, unsaid_options
from bridge.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from bridge.canonical.request import Request, Tool
    from bridge.toolloop.mcp import McpConnections
    from bridge.toolloop.tools import BridgeTool
    from bridge.toolloop.web_fetch import WebFetch

FETCH_TYPES = "web_fetch_"


@dataclass(frozen=True, slots=True)
class Toolbox:
    """`request` declares the tools as functions; `tools` runs them, by the names they bear there."""

    request: Request
    tools: Mapping[str, BridgeTool] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.tools)

    def with_tools(self, tools: Sequence[BridgeTool]) -> Toolbox:
        """These tools too, declared after the client's own."""
        declared = (*self.request.tools, *(tool.definition for tool in tools))
        added = {tool.definition.name: tool for tool in tools}
        return Toolbox(replace(self.request, tools=declared), {**self.tools, **added})

    async def with_mcp(self, connections: McpConnections) -> Toolbox:
        """The tools of MCP servers too; BridgeError if one cannot be asked for its tools."""
        return self.with_tools(await connections.tools(taken={tool.name for tool in self.request.tools}))

    def with_fetch(self, fetcher: WebFetch, admit: Callable[[], Awaitable[bool]]) -> Toolbox:
        """The client's `web_fetch_…` declarations taken over by the bridge's own tool."""
        declared: list[Tool | ServerTool] = []
        taken: dict[str, BridgeTool] = {}
        unsaid: list[str] = []
        for tool in self.request.tools:
            if isinstance(tool, ServerTool) and tool.type.startswith(FETCH_TYPES):
                own = fetch_tool(tool, fetcher, admit)
                taken[own.definition.name] = own
                unsaid += unsaid_options(tool)
                declared.append(own.definition)
            else:
                declared.append(tool)
        request = replace(self.request, tools=tuple(declared), unread=(*self.request.unread, *unsaid))
        return Toolbox(request, {**self.tools, **taken})

    def restored(self) -> Toolbox:
        """With the calls that the bridge ran earlier in the history put back as tool calls."""
        names = {
            (tool.shape.server, tool.shape.tool): name
            for name, tool in self.tools.items()
            if isinstance(tool.shape, McpCall)
        }
        return replace(self, request=restore_bridge_calls(self.request, frozenset({NAME}), names))
