"""Tools and tool choice of a Responses request -> canonical tools under flat names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, assert_never

from bridge.canonical.request import ServerTool, Tool, ToolChoice
from bridge.errors import invalid_request
from bridge.protocols.openai_responses import tool_wire as wire
from bridge.protocols.openai_responses.call_forms import (
    CUSTOM_INPUT,
    LOCAL_SHELL,
    TOOL_SEARCH,
    WEB_SEARCH,
    CallForm,
    flat_name,
)
from bridge.protocols.openai_responses.request_wire import ToolChoice as WireChoice

if TYPE_CHECKING:
    from bridge.canonical.json import JsonObject, JsonValue
    from bridge.errors import BridgeError
    from bridge.protocols.openai_responses.request_wire import ResponsesRequest

WEB_SEARCH_TYPE = "web_search_20250305"
_STRINGS: JsonObject = {"type": "array", "items": {"type": "string"}}
_SHELL_SCHEMA: JsonObject = {
    "type": "object",
    "properties": {
        "command": {**_STRINGS, "description": "The program and its arguments, one string each."},
        "working_directory": {"type": "string"},
        "timeout_ms": {"type": "integer"},
        "env": {"type": "object", "additionalProperties": {"type": "string"}},
    },
    "required": ["command"],
}
_QUERY_SCHEMA: JsonObject = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
_SILENT = frozenset({"allowed_callers"})
"""Fields that say what is so anyway."""


@dataclass(slots=True)
class Toolbox:
    """The tools of one request under the names that a model may know them by."""

    unread: dict[str, None]
    tools: dict[str, Tool | ServerTool] = field(default_factory=dict)
    forms: dict[str, CallForm] = field(default_factory=dict)

    def declare(self, tools: list[wire.AnyTool], path: str) -> None:
        for index, tool in enumerate(tools):
            self._add(tool, f"{path}.{index}")

    def load(self, tools: list[wire.AnyTool], path: str) -> list[str]:
        """Tools that came up in the conversation, some of them more than once; their names."""
        found = Toolbox(self.unread)
        found.declare(tools, path)
        self.tools |= found.tools
        self.forms |= found.forms
        return list(found.tools)

    def _add(self, tool: wire.AnyTool, path: str) -> None:
        match tool:
            case wire.FunctionTool() | wire.CustomTool():
                self._add_called(tool, path)
            case wire.NamespaceTool():
                for index, inner in enumerate(tool.tools):
                    if isinstance(inner, wire.OtherTool):
                        raise _not_served(inner.type, f"{path}.tools.{index}")
                    self._add_called(inner, f"{path}.tools.{index}", tool)
            case wire.WebSearchTool():
                self._add_web_search(tool, path)
            case wire.LocalShellTool():
                shell = Tool(LOCAL_SHELL, _SHELL_SCHEMA, "Runs a command on the user's machine.")
                self._keep(shell, CallForm("local_shell", LOCAL_SHELL), path)
            case wire.ToolSearchTool():
                self._add_tool_search(tool, path)
            case wire.OtherTool():
                raise _not_served(tool.type, path)
            case _:
                assert_never(tool)
        self._note(tool)

    def _add_called(
        self, tool: wire.FunctionTool | wire.CustomTool, path: str, space: wire.NamespaceTool | None = None
    ) -> None:
        namespace = space.name if space else None
        name = flat_name(namespace, tool.name)
        about = f"Part of {space.name}: {space.description}" if space and space.description else None
        if isinstance(tool, wire.FunctionTool):
            description = _paragraphs(tool.description, about)
            canonical = Tool(name, _object_schema(tool.parameters), description, tool.strict)
            self._keep(canonical, CallForm("function", tool.name, namespace), path)
        else:
            description = _paragraphs(tool.description, _format_words(tool.format), about)
            canonical = Tool(name, _input_schema(), description)
            self._keep(canonical, CallForm("custom", tool.name, namespace), path)
        if space is not None:
            self._note(tool)

    def _add_tool_search(self, tool: wire.ToolSearchTool, path: str) -> None:
        """A search that the client runs is a function; a provider's own is not needed: every tool is declared."""
        if tool.execution == "client":
            schema = _object_schema(tool.parameters) if tool.parameters else _QUERY_SCHEMA
            self._keep(Tool(TOOL_SEARCH, schema, tool.description), CallForm("tool_search", TOOL_SEARCH), path)

    def _add_web_search(self, tool: wire.WebSearchTool, path: str) -> None:
        if tool.external_web_access is False:
            self.unread[f"{tool.type} without external_web_access"] = None
            return
        options: JsonObject = {}
        if tool.filters is not None:
            domains = (
                ("allowed_domains", tool.filters.allowed_domains),
                ("blocked_domains", tool.filters.blocked_domains),
            )
            options |= {name: list(given) for name, given in domains if given}
            self.unread |= dict.fromkeys(f"{tool.type}.filters.{name}" for name in tool.filters.model_extra or ())
        location = {key: value for key, value in (tool.user_location or {}).items() if value is not None}
        if location.keys() - {"type"}:
            options["user_location"] = {"type": "approximate", **location}
        if tool.search_context_size:
            options["search_context_size"] = tool.search_context_size
        self._keep(
            ServerTool(WEB_SEARCH_TYPE, WEB_SEARCH, options, optional=True), CallForm("function", WEB_SEARCH), path
        )

    def _keep(self, tool: Tool | ServerTool, form: CallForm, path: str) -> None:
        if tool.name in self.tools:
            raise invalid_request(f"{path}.name: there is another tool {tool.name!r}")
        self.tools[tool.name], self.forms[tool.name] = tool, form

    def _note(self, tool: wire.AnyTool) -> None:
        extra = tool.model_extra or {}
        told = [name for name, value in extra.items() if value is not None and value is not False]
        self.unread |= dict.fromkeys(f"tools.{tool.type}.{name}" for name in told if name not in _SILENT)


def parse_tool_choice(request: ResponsesRequest, toolbox: Toolbox) -> ToolChoice | None:
    """The choice in canonical terms; a choice among some of the tools takes the others out of the box."""
    parallel = request.parallel_tool_calls is not False
    choice = request.tool_choice
    if isinstance(choice, WireChoice):
        return _named_choice(choice, toolbox, parallel=parallel)
    if choice == "required":
        return ToolChoice("any", None, parallel)
    if not toolbox.tools or (choice is None and parallel):
        return None
    return ToolChoice("none" if choice == "none" else "auto", None, parallel)


def _named_choice(choice: WireChoice, toolbox: Toolbox, *, parallel: bool) -> ToolChoice:
    if choice.type == "allowed_tools":
        allowed = {name for index, tool in enumerate(choice.tools or ()) for name in _allowed(tool, toolbox, index)}
        for name in toolbox.tools.keys() - allowed:
            del toolbox.tools[name]
        return ToolChoice("any" if choice.mode == "required" else "auto", None, parallel)
    if choice.type in ("function", "custom"):
        if not choice.name:
            raise invalid_request("tool_choice.name: Field required")
        name = flat_name(choice.namespace, choice.name)
    else:
        name = _hosted_name(choice.type, "tool_choice.type")
    if name not in toolbox.tools:
        raise invalid_request(f"tool_choice.name: there is no tool {name!r}")
    return ToolChoice("tool", name, parallel)


def _allowed(tool: JsonObject, toolbox: Toolbox, index: int) -> list[str]:
    path = f"tool_choice.tools.{index}"
    match tool:
        case {"type": "namespace", "name": str(space)}:
            names = [name for name, form in toolbox.forms.items() if form.namespace == space]
        case {"type": "function" | "custom", "name": str(name)}:
            space_given: JsonValue = tool.get("namespace")
            names = [flat_name(space_given if isinstance(space_given, str) else None, name)]
        case {"type": str(kind)}:
            names = [_hosted_name(kind, f"{path}.type")]
        case _:
            raise invalid_request(f"{path}.type: Field required")
    if not names or any(name not in toolbox.tools for name in names):
        raise invalid_request(f"{path}: there is no such tool")
    return names


def _hosted_name(kind: str, path: str) -> str:
    if kind.startswith("web_search"):
        return WEB_SEARCH
    if kind in (LOCAL_SHELL, TOOL_SEARCH):
        return kind
    raise invalid_request(f"{path}: {kind!r} is not served here")


def _not_served(kind: str, path: str) -> BridgeError:
    return invalid_request(f"{path}.type: {kind!r}: OpenAI runs this tool itself; it is not served here")


def _object_schema(parameters: JsonObject | None) -> JsonObject:
    schema: JsonObject = {"type": "object", **(parameters or {})}
    return schema if parameters else {**schema, "properties": {}}


def _input_schema() -> JsonObject:
    text: JsonObject = {"type": "string", "description": "The whole input of the tool, as plain text."}
    return {
        "type": "object",
        "properties": {CUSTOM_INPUT: text},
        "required": [CUSTOM_INPUT],
        "additionalProperties": False,
    }


def _format_words(given: wire.ToolFormat | None) -> str | None:
    if given is None or given.type == "text" or not given.definition:
        return None
    kind = f"{given.syntax} grammar" if given.syntax else "grammar"
    return f"The input has to follow this {kind}:\n{given.definition}"


def _paragraphs(*parts: str | None) -> str | None:
    return "\n\n".join(part for part in parts if part) or None
