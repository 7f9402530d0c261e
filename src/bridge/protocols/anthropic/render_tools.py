"""Tools and tool choice as Anthropic takes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.canonical.request import ServerTool, Tool
from bridge.errors import invalid_request
from bridge.protocols.anthropic.render_blocks import marked
from bridge.schemas.anthropic import adapt_enforced, adapt_input
from bridge.values import dataclass

if TYPE_CHECKING:
    from bridge.canonical.json import JsonObject, JsonValue
    from bridge.canonical.losses import Losses
    from bridge.canonical.renaming import Renaming
    from bridge.canonical.request import Request, ToolChoice
    from bridge.protocols.anthropic.claude import Claude

FORCED = ("any", "tool")


@dataclass(frozen=True, slots=True)
class ToolRenderer:
    """Renders the tools of one request, deferred ones and Anthropic's own among them."""

    claude: Claude
    names: Renaming
    losses: Losses

    def name(self, original: str) -> str:
        return self.names(original)

    def render(self, request: Request) -> JsonObject:
        for tool in request.tools:
            if isinstance(tool, ServerTool) and tool.name:  # Anthropic's: no other tool may get it by renaming
                self.name(tool.name)
        choice = request.tool_choice
        if not request.tools:
            if choice is not None and choice.mode in FORCED:
                raise invalid_request("tool_choice: a tool is demanded, but none is declared")
            return {}
        said: JsonObject = {"tools": [self._any_tool(tool) for tool in request.tools]}
        if choice is not None:
            said["tool_choice"] = self._choice(choice, {tool.name for tool in request.tools})
        return said

    def render_tool(self, tool: Tool) -> JsonObject:
        said: JsonObject = {"name": self.name(tool.name)}
        if tool.description:
            said["description"] = tool.description
        said["input_schema"], enforced = self._schema(tool)
        if tool.strict is not None:
            said["strict"] = enforced
        if tool.deferred:
            said["defer_loading"] = True
        return marked(said, tool.cache)

    def _any_tool(self, tool: Tool | ServerTool) -> JsonValue:
        if isinstance(tool, Tool):
            return self.render_tool(tool)
        named: JsonObject = {"name": tool.name} if tool.name else {}
        return {"type": tool.type, **named, **tool.options}

    def _schema(self, tool: Tool) -> tuple[JsonObject, bool]:
        """The schema, and whether Claude is held to it: only where it means the same then."""
        if tool.strict and self.claude.enforces_schemas:
            enforced, misfits = adapt_enforced(tool.input_schema)
            if enforced is not None and not misfits:
                return enforced, True
            for misfit in misfits:
                self.losses.add(f"strict: not used: {misfit}")
        elif tool.strict:
            self.losses.add("strict: this model does not enforce schemas")
        schema, changes = adapt_input(tool.input_schema)
        for change in changes:
            self.losses.add(change)
        return schema, False

    def _choice(self, choice: ToolChoice, declared: set[str]) -> JsonObject:
        if choice.mode == "none":
            return {"type": "none"}
        said: JsonObject = {"type": choice.mode}
        if choice.mode == "tool":
            if choice.name not in declared:
                raise invalid_request(f"tool_choice.name: there is no tool {choice.name!r}")
            said["name"] = self.name(choice.name or "")
        if choice.mode in FORCED and self.claude.without_thinking == "impossible":
            self.losses.add("tool_choice: this model always thinks and then cannot be forced; it decides by itself")
            said = {"type": "auto"}
        return said if choice.parallel else said | {"disable_parallel_tool_use": True}
