"""Calls that the bridge ran, as a client sends them back, put into the form that any model knows.

A client keeps one assistant turn of several rounds: text, calls, their results, text, more calls. A model that is not
Claude knows calls and results as turns of their own, so the turn is cut after every run of results:

    assistant [text, call A, call B, result A, result B, text, call C, client's call D, result C]  user [result D]
    assistant [text, A, B]  user [A, B]  assistant [text, C, D]  user [C, D]
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bridge.canonical.content import Base64Source, CacheMark, Document, ServerBlock, Text, ToolResult, ToolUse
from bridge.canonical.request import Turn
from bridge.canonical.words import NO_RESULT, server_block_text
from bridge.toolloop.blocks import SOURCE, model_id
from bridge.toolloop.mcp_names import tool_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from bridge.canonical.content import Block
    from bridge.canonical.json import JsonObject, JsonValue
    from bridge.canonical.request import Request

RESTORED_SERVER_TOOLS = frozenset({"web_fetch"})


def restore_bridge_calls(
    request: Request,
    server_tools: frozenset[str] = RESTORED_SERVER_TOOLS,
    mcp_names: Mapping[tuple[str, str], str] | None = None,
) -> Request:
    """The request with MCP calls and these server tools as tool calls with results, in the right order.

    `mcp_names` has the names that tools of MCP servers bear towards the model, where these are not the usual ones.
    """
    history = _History(server_tools, mcp_names or {})
    history.learn(block for turn in request.turns for block in turn.content)
    if not history.calls:
        return request
    for turn in request.turns:
        history.add(turn)
    history.settle()
    return replace(request, turns=tuple(history.turns))


class _History:
    """Turns in the making; results wait until the turn is known that they belong to."""

    def __init__(self, server_tools: frozenset[str], mcp_names: Mapping[tuple[str, str], str]) -> None:
        self._server_tools = server_tools
        self._mcp_names = mcp_names
        self._results: dict[str, ToolResult] = {}
        self._waiting: tuple[ToolResult, ...] = ()
        self.calls: dict[str, ToolUse] = {}
        self.turns: list[Turn] = []

    def learn(self, blocks: Iterable[Block]) -> None:
        """Find the calls, and the results that belong to them."""
        found = [block for block in blocks if isinstance(block, ServerBlock)]
        for block in found:
            if call := self._call(block):
                self.calls[str(block.raw["id"])] = call
        for block in found:
            shown = str(block.raw.get("tool_use_id"))
            if shown in self.calls and block.type.endswith("_tool_result"):
                self._results[shown] = replace(_result(self.calls[shown].id, block), cache=_cache(block))

    def add(self, turn: Turn) -> None:
        if turn.role == "assistant":
            for segment in self._segments(turn.content):
                self._add_segment(segment)
        elif turn.role == "user":
            waiting, self._waiting = self._waiting, ()
            self.turns.append(Turn("user", (*waiting, *turn.content)))
        else:
            self.settle()
            self.turns.append(turn)

    def settle(self) -> None:
        """Say the results that wait, in a turn of their own."""
        if self._waiting:
            self.turns.append(Turn("user", self._waiting))
            self._waiting = ()

    def _segments(self, content: Iterable[Block]) -> Iterable[tuple[Block, ...]]:
        """The blocks between runs of results, without the results."""
        segment: list[Block] = []
        ended = False
        for block in content:
            if self._is_result(block):
                ended = True
                continue
            if ended and segment:
                yield tuple(segment)
                segment = []
            ended = False
            segment.append(block)
        if segment:
            yield tuple(segment)

    def _is_result(self, block: Block) -> bool:
        if not isinstance(block, ServerBlock) or not block.type.endswith("_tool_result"):
            return False
        return str(block.raw.get("tool_use_id")) in self.calls

    def _add_segment(self, segment: tuple[Block, ...]) -> None:
        self.settle()
        ours: list[ToolResult] = []
        content: list[Block] = []
        for block in segment:
            shown = str(block.raw.get("id")) if isinstance(block, ServerBlock) else ""
            call = self.calls.get(shown)
            content.append(call or block)
            if call:
                ours.append(self._results.get(shown) or _no_result(call))
        self.turns.append(Turn("assistant", tuple(content)))
        self._waiting = tuple(ours)

    def _call(self, block: ServerBlock) -> ToolUse | None:
        match block.type, block.raw:
            case "server_tool_use", {"id": str(shown), "name": str(name), "input": dict(arguments)}:
                if name not in self._server_tools:
                    return None
                return ToolUse(model_id(shown), name, arguments, _cache(block))
            case "mcp_tool_use", {"id": str(shown), "name": str(tool), "server_name": str(server), "input": dict(said)}:
                name = self._mcp_names.get((server, tool)) or tool_name(server, tool)
                return ToolUse(model_id(shown), name, said, _cache(block))
        return None


def _cache(block: ServerBlock) -> CacheMark | None:
    match block.raw.get("cache_control"):
        case {"ttl": str(ttl)}:
            return CacheMark(ttl)
        case dict():
            return CacheMark()
    return None


def _no_result(call: ToolUse) -> ToolResult:
    return ToolResult(call.id, (Text(NO_RESULT),), is_error=True)


def _result(tool_use_id: str, block: ServerBlock) -> ToolResult:
    match block.raw:
        case {"content": {"error_code": code}}:
            return ToolResult(tool_use_id, (Text(str(code)),), is_error=True)
        case {"content": {"type": "web_fetch_result", "url": url, "content": dict(document)}}:
            return ToolResult(tool_use_id, (_document(str(url), document),))
        case {"type": "mcp_tool_result", "content": content}:
            return ToolResult(tool_use_id, _texts(content), is_error=block.raw.get("is_error") is True)
    return ToolResult(tool_use_id, (Text(server_block_text(block)),))


def _document(url: str, document: JsonObject) -> Document:
    title = document.get("title")
    named = title if isinstance(title, str) else None
    match document.get("source"):
        case {"type": "base64", "media_type": str(media_type), "data": str(data)}:
            return Document(Base64Source(media_type, data), named, SOURCE + url)
        case {"data": str(text)}:
            return Document((Text(text),), named, SOURCE + url)
    return Document((Text(""),), named, SOURCE + url)


def _texts(content: JsonValue) -> tuple[Text, ...]:
    if isinstance(content, str):
        return (Text(content),)
    parts = content if isinstance(content, list) else []
    return tuple(Text(str(part.get("text", ""))) for part in parts if isinstance(part, dict))
