"""Tools and tool choice -> function tools, as far as both of OpenAI's protocols say them alike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, assert_never

from bridge.canonical.declared import RUN_BY_CLIENTS, declared_tools
from bridge.canonical.request import ServerTool
from bridge.errors import invalid_request
from bridge.schemas.said import said_schema
from bridge.values import dataclass

if TYPE_CHECKING:
    from bridge.canonical.json import JsonObject, JsonValue
    from bridge.canonical.losses import Losses
    from bridge.canonical.renaming import Renaming
    from bridge.canonical.request import Request, Tool, ToolChoice
    from bridge.traits import Traits


@dataclass(frozen=True, slots=True)
class ToolRenderer(ABC):
    """Renders the tools of one request."""

    traits: Traits
    names: Renaming
    losses: Losses

    @abstractmethod
    def _function(self, name: str, tool: Tool, parameters: JsonObject, *, strict: bool) -> JsonObject:
        """One tool."""

    @abstractmethod
    def _chosen(self, name: str) -> JsonObject:
        """The choice of one tool by name."""

    def render(self, request: Request) -> JsonObject:
        if request.tools:
            self._refuse_server_tools(request)
        tools = declared_tools(request)
        if not tools:
            if request.tool_choice is not None and request.tool_choice.mode in ("any", "tool"):
                raise invalid_request("tool_choice: a tool is demanded, but none is declared")
            return {}
        if self.traits.tool_limit is not None and len(tools) > self.traits.tool_limit:
            raise invalid_request(f"tools: {len(tools)} of them; this upstream takes {self.traits.tool_limit} at most")
        said: JsonObject = {"tools": [self._tool(tool) for tool in tools]}
        if request.tool_choice is not None:
            said |= self._choice(request.tool_choice, tools)
        return said

    def _tool(self, tool: Tool) -> JsonValue:
        parameters, strict = said_schema(tool.input_schema, self.traits, self.losses, wants_strict=bool(tool.strict))
        if tool.cache is not None and not self.traits.cache_control:
            self.losses.add("cache_control: this upstream caches by itself or not at all")
        return self._function(self.names(tool.name), tool, parameters, strict=strict)

    def _choice(self, choice: ToolChoice, tools: list[Tool]) -> JsonObject:
        said: JsonObject = {"tool_choice": self._mode(choice, tools)}
        if not choice.parallel:
            if "parallel_tool_calls" in self.traits.unsupported:
                self.losses.add("disable_parallel_tool_use: this upstream decides by itself")
            else:
                said["parallel_tool_calls"] = False
        return said

    def _mode(self, choice: ToolChoice, tools: list[Tool]) -> JsonValue:
        match choice.mode:
            case "auto" | "none":
                return choice.mode
            case "any":
                return "required"
            case "tool":
                if all(tool.name != choice.name for tool in tools):
                    raise invalid_request(f"tool_choice.name: there is no tool {choice.name!r}")
                return self._chosen(self.names(choice.name or ""))
            case _:
                assert_never(choice.mode)

    def _refuse_server_tools(self, request: Request) -> None:
        """Tools that only Anthropic knows by their type: BridgeError, unless the client can do without."""
        tools = [tool for tool in request.tools if isinstance(tool, ServerTool)]
        for tool in tools:
            if tool.optional:
                self.losses.add(f"{tool.name}: this upstream cannot run it")
        found = sorted({tool.type for tool in tools if not tool.optional})
        if found and all(name.startswith(RUN_BY_CLIENTS) for name in found):
            raise invalid_request(
                f"tools: {', '.join(found)}: only Claude knows these by their type. "
                "Declare them as custom tools with an input_schema, or route the model to Anthropic."
            )
        if found:
            raise invalid_request(
                f"tools: {', '.join(found)}: Anthropic runs these itself, this upstream cannot. "
                "Leave them out, route the model to Anthropic (SERVER_TOOLS_MODE=enforceAnthropic does so by itself), "
                "or set SERVER_TOOLS_MODE=emulate for what can be emulated."
            )
