"""Canonical request -> chat completion request, with what could not be said."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

import orjson

from bridge.canonical import content as canonical
from bridge.canonical.request import ServerTool, Tool
from bridge.errors import invalid_request

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bridge.canonical.json import JsonObject, JsonValue
    from bridge.canonical.request import Request, ToolChoice, Turn

TOOL_ERROR_PREFIX = "[tool error] "


@dataclass(frozen=True, slots=True)
class RenderedRequest:
    body: JsonObject
    losses: tuple[str, ...]


def render_request(request: Request, wire_model: str) -> RenderedRequest:
    """The request as a chat completion; content that cannot be said is refused, settings that cannot are losses."""
    losses: list[str] = [f"{name}: not part of chat completions" for name in request.extras]
    messages: list[JsonValue] = [*_system_message(request)]
    for turn in request.turns:
        messages += _messages(turn, losses)
    body: JsonObject = {"model": wire_model, "messages": messages}
    if request.max_tokens is not None:
        body["max_tokens"] = request.max_tokens
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.top_p is not None:
        body["top_p"] = request.top_p
    if request.stop_sequences:
        body["stop"] = list(request.stop_sequences)
    if request.top_k is not None:
        losses.append("top_k: not part of chat completions")
    body |= _tools(request)
    if request.stream:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    return RenderedRequest(body, tuple(losses))


def _system_message(request: Request) -> Iterable[JsonObject]:
    text = "\n\n".join(block.text for block in request.system if block.text)
    return [{"role": "system", "content": text}] if text else []


def _messages(turn: Turn, losses: list[str]) -> Iterable[JsonObject]:
    match turn.role:
        case "assistant":
            return [_assistant_message(turn, losses)]
        case "user":
            return _user_messages(turn)
        case "system":
            text = "\n\n".join(block.text for block in turn.content if isinstance(block, canonical.Text))
            return [{"role": "system", "content": text}]
        case _:
            assert_never(turn.role)


def _assistant_message(turn: Turn, losses: list[str]) -> JsonObject:
    texts: list[str] = []
    calls: list[JsonValue] = []
    for block in turn.content:
        match block:
            case canonical.Text(text):
                texts.append(text)
            case canonical.ToolUse(tool_id, name, arguments):
                function: JsonObject = {"name": name, "arguments": orjson.dumps(arguments).decode()}
                calls.append({"id": tool_id, "type": "function", "function": function})
            case canonical.Thinking() | canonical.RedactedThinking():
                losses.append("thinking: only its own provider can read it")
            case _:
                raise _unsayable(block, "an assistant turn")
    message: JsonObject = {"role": "assistant", "content": "".join(texts) or None}
    if calls:
        message["tool_calls"] = calls
    return message


def _user_messages(turn: Turn) -> Iterable[JsonObject]:
    """Tool messages first: providers want every call answered before anything else is said (R6)."""
    results: list[JsonObject] = []
    texts: list[str] = []
    for block in turn.content:
        match block:
            case canonical.ToolResult():
                results.append(_tool_message(block))
            case canonical.Text(text):
                texts.append(text)
            case _:
                raise _unsayable(block, "a user turn")
    if texts:
        results.append({"role": "user", "content": "\n\n".join(texts)})
    return results


def _tool_message(result: canonical.ToolResult) -> JsonObject:
    texts: list[str] = []
    for part in result.content:
        if not isinstance(part, canonical.Text):
            raise _unsayable(part, "a tool result")
        texts.append(part.text)
    text = "\n".join(texts)
    return {
        "role": "tool",
        "tool_call_id": result.tool_use_id,
        "content": TOOL_ERROR_PREFIX + text if result.is_error else text,
    }


def _tools(request: Request) -> JsonObject:
    tools = [_tool(tool) for tool in request.tools]
    if not tools:
        return {}
    said: JsonObject = {"tools": list(tools)}
    choice = request.tool_choice
    if choice is not None:
        said["tool_choice"] = _tool_choice(choice)
        if not choice.parallel:
            said["parallel_tool_calls"] = False
    return said


def _tool(tool: Tool | ServerTool) -> JsonObject:
    if isinstance(tool, ServerTool):
        raise invalid_request(f"tools: the server tool {tool.type!r} cannot run on this upstream")
    function: JsonObject = {"name": tool.name, "parameters": tool.input_schema}
    if tool.description:
        function["description"] = tool.description
    return {"type": "function", "function": function}


def _tool_choice(choice: ToolChoice) -> JsonValue:
    match choice.mode:
        case "auto" | "none":
            return choice.mode
        case "any":
            return "required"
        case "tool":
            return {"type": "function", "function": {"name": choice.name}}
        case _:
            assert_never(choice.mode)


def _unsayable(block: object, place: str) -> Exception:
    kind = block.__class__.__name__
    return invalid_request(f"messages: a {kind} block in {place} cannot be sent to this upstream")
