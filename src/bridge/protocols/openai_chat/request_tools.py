"""Tools and tool choice of a chat request, in the shapes of OpenAI, of Anthropic, and in between."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bridge.canonical.request import ServerTool, Tool, ToolChoice
from bridge.errors import invalid_request
from bridge.protocols.openai_chat.custom_tools import input_schema
from bridge.protocols.openai_chat.request_content import cache_of

if TYPE_CHECKING:
    from typing import Literal

    from bridge.canonical.json import JsonObject, JsonValue
    from bridge.protocols.openai_chat import request_wire as wire

_MODES: dict[JsonValue, Literal["auto", "any", "none"]] = {
    "auto": "auto",
    "none": "none",
    "required": "any",
    "any": "any",
}


def tools_of(request: wire.ChatRequest) -> tuple[Tool | ServerTool, ...]:
    """The declared tools; where only some are allowed, those."""
    tools = [_tool(tool, f"tools.{index}") for index, tool in enumerate(request.tools or ())]
    for index, function in enumerate(request.functions or ()):
        tools.append(_function_tool(function, function, f"functions.{index}"))
    allowed = _allowed(request.tool_choice)
    if allowed is None:
        return tuple(tools)
    names = _allowed_names(allowed)
    missing = names - {tool.name for tool in tools}
    if missing:
        raise invalid_request(f"tool_choice.allowed_tools.tools: {min(missing)!r} is not among the declared tools")
    return tuple(tool for tool in tools if tool.name in names)


def choice_of(request: wire.ChatRequest) -> ToolChoice | None:
    """What the client asks of the model's tool use; calls come one at a time where it wants or knows no other way."""
    choice = _tool_choice(request.tool_choice) or _legacy_choice(request.function_call)
    one_at_a_time = request.parallel_tool_calls is False or is_legacy(request)
    if one_at_a_time and (choice is not None or request.tools or request.functions):
        return replace(choice or ToolChoice("auto"), parallel=False)
    return choice


def is_legacy(request: wire.ChatRequest) -> bool:
    """True if the client speaks of functions, not of tools, and wants to be answered so."""
    return bool(request.functions) and not request.tools


def custom_tools(request: wire.ChatRequest) -> list[str]:
    """Names of the tools that take free text."""
    return [_name(tool, tool.custom or tool, "tools") for tool in request.tools or () if _takes_text(tool)]


def _tool(tool: wire.Tool, path: str) -> Tool | ServerTool:
    if _takes_text(tool):
        return _custom_tool(tool, tool.custom or tool, path)
    if tool.type in (None, "function", "custom"):
        return _function_tool(tool, tool.function or tool, path)
    return ServerTool(
        tool.type, tool.name or "", tool.model_dump(mode="json", exclude={"type", "name"}, exclude_unset=True)
    )


def _takes_text(tool: wire.Tool) -> bool:
    """True for OpenAI's custom tools; Anthropic's have the same type, and a schema."""
    return tool.type == "custom" and all(part is None for part in (tool.function, tool.input_schema, tool.parameters))


def _function_tool(tool: wire.Tool, function: wire.Function, path: str) -> Tool:
    schema = function.parameters or function.input_schema or tool.parameters or tool.input_schema
    strict = function.strict if function.strict is not None else tool.strict
    return Tool(
        name=_name(tool, function, path),
        input_schema=schema or {"type": "object", "properties": {}},
        description=function.description or tool.description,
        strict=strict,
        deferred=bool(tool.defer_loading),
        cache=cache_of(tool) or cache_of(function),
    )


def _custom_tool(tool: wire.Tool, custom: wire.Function, path: str) -> Tool:
    """A tool that takes free text, as a function whose one argument is that text."""
    return Tool(_name(tool, custom, path), input_schema(), custom.description or tool.description, cache=cache_of(tool))


def _name(tool: wire.Tool, inner: wire.Function, path: str) -> str:
    name = inner.name or tool.name
    if name:
        return name
    kind = "" if inner is tool else ".custom" if inner is tool.custom else ".function"
    raise invalid_request(f"{path}{kind}.name: Field required")


def _tool_choice(choice: JsonValue) -> ToolChoice | None:
    match choice:
        case None:
            return None
        case str() if choice in _MODES:
            return ToolChoice(_MODES[choice])
        case {"type": "function", "function": {"name": str(name)}} | {"type": "custom", "custom": {"name": str(name)}}:
            return ToolChoice("tool", _demanded(name))
        case {"type": "function" | "tool" | "custom", "name": str(name)}:
            return ToolChoice("tool", _demanded(name), _parallel(choice))
        case {"type": "allowed_tools"}:
            return ToolChoice(_MODES[_allowed_mode(choice)])
        case {"type": str(kind)} if kind in _MODES:
            return ToolChoice(_MODES[kind], None, _parallel(choice))
    raise invalid_request(
        "tool_choice: must be none, auto, required, or an object that names a function, or allowed_tools"
    )


def _demanded(name: str) -> str:
    if not name:
        raise invalid_request("tool_choice: the name of the tool is empty")
    return name


def _parallel(choice: JsonValue) -> bool:
    return not (isinstance(choice, dict) and choice.get("disable_parallel_tool_use") is True)


def _allowed(choice: JsonValue) -> JsonObject | None:
    """Which tools are allowed; some clients leave out the inner object."""
    if not isinstance(choice, dict) or choice.get("type") != "allowed_tools":
        return None
    inner = choice.get("allowed_tools")
    return inner if isinstance(inner, dict) else choice


def _allowed_mode(choice: JsonValue) -> str:
    mode = (_allowed(choice) or {}).get("mode", "auto")
    if mode not in ("auto", "required"):
        raise invalid_request("tool_choice.allowed_tools.mode: must be auto or required")
    return str(mode)


def _allowed_names(allowed: JsonObject) -> set[str]:
    names: set[str] = set()
    tools = allowed.get("tools")
    for tool in tools if isinstance(tools, list) else [None]:
        match tool:
            case {"function": {"name": str(name)}} | {"custom": {"name": str(name)}} | {"name": str(name)}:
                names.add(name)
            case _:
                raise invalid_request("tool_choice.allowed_tools.tools: must be a list of tools by name")
    return names


def _legacy_choice(choice: JsonValue) -> ToolChoice | None:
    match choice:
        case None:
            return None
        case "auto" | "none":
            return ToolChoice(_MODES[choice])
        case {"name": str(name)} if name:
            return ToolChoice("tool", name)
    raise invalid_request("function_call: must be none, auto, or an object with the name of a function")
