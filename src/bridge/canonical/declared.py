"""Which tools of a request the model may know."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.canonical import content as canonical
from bridge.canonical.request import Tool

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bridge.canonical.json import JsonObject
    from bridge.canonical.request import Request


# Types of tools that Anthropic names and clients run; the others it runs itself.
_TELLING = frozenset({canonical.ToolResult, canonical.ToolUse, canonical.ToolChange, canonical.ServerBlock})
RUN_BY_CLIENTS = ("bash_", "text_editor_", "memory_", "computer_", "browser_toolset_")


def declared_tools(request: Request) -> list[Tool]:
    """The tools that the model may know now: deferred ones only once something referred to them."""
    if not request.tools and canonical.ToolChange not in request.kinds:
        return []
    removed, wanted, added = _changes(request)
    tools = [tool for tool in request.tools if isinstance(tool, Tool)]
    known = {tool.name for tool in tools}
    tools += [tool for tool in added if tool.name not in known]
    return [tool for tool in tools if tool.name not in removed and (not tool.deferred or tool.name in wanted)]


def _changes(request: Request) -> tuple[set[str], set[str], list[Tool]]:
    removed: set[str] = set()
    wanted: set[str] = {request.tool_choice.name} if request.tool_choice and request.tool_choice.name else set()
    added: list[Tool] = []
    if request.kinds.isdisjoint(_TELLING):
        return removed, wanted, added
    for block in (block for turn in request.turns for block in turn.content if block.__class__ in _TELLING):
        match block:
            case canonical.ToolResult(content=content):
                wanted.update(part.tool_name for part in content if isinstance(part, canonical.ToolReference))
            case canonical.ToolUse(name=name):
                wanted.add(name)
            case canonical.ToolChange("add", name, definition):
                wanted.add(name)
                removed.discard(name)
                added += [definition] if definition else []
            case canonical.ToolChange("remove", name):
                removed.add(name)
            case canonical.ServerBlock("tool_search_tool_result", raw):
                wanted.update(_found_by_search(raw))
    return removed, wanted, added


def _found_by_search(raw: JsonObject) -> Iterable[str]:
    match raw:
        case {"content": {"tool_references": [*references]}}:
            return [str(reference.get("tool_name")) for reference in references if isinstance(reference, dict)]
    return ()
