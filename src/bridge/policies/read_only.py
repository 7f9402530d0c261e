"""Leaves only reading tools declared while the user asks for nothing but reading (RO)."""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from bridge.canonical.content import Text, ToolChange, ToolResult, ToolUse
from bridge.canonical.request import ToolChoice
from bridge.policies.intent import reading_tools, wants_only_to_read
from bridge.policies.reduction import reduced
from bridge.policies.reminders import without_reminders

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bridge.canonical.content import Block
    from bridge.canonical.request import Request, Turn


def keep_reading_tools(request: Request, more: tuple[str, ...] = ()) -> Request:
    """The request with only the built-in reading tools and those that match `more`, if reading is all it asks for."""
    if not wants_only_to_read(latest_user_text(request)):
        return request
    allowed = (*reading_tools(), *more)

    def without_additions(turn: Turn) -> Iterable[Block | None]:
        return [None if _adds_other_tool(block, allowed) else block for block in turn.content]

    return _with_allowed_tools(reduced(request, without_additions), allowed)


def only_reads(name: str, allowed: Iterable[str] | None = None) -> bool:
    """True if a tool's name is on the list, which holds globs."""
    return any(fnmatchcase(name, glob) for glob in (reading_tools() if allowed is None else allowed))


def latest_user_text(request: Request) -> str:
    """What the user said last, without reminders."""
    for turn in reversed(request.turns):
        if turn.role != "user":
            continue
        texts = [without_reminders(block.text) for block in turn.content if isinstance(block, Text)]
        if said := "\n".join(text for text in texts if text.strip()):
            return said
    return ""


def _with_allowed_tools(request: Request, allowed: tuple[str, ...]) -> Request:
    kept = tuple(tool for tool in request.tools if only_reads(tool.name, allowed))
    if len(kept) == len(request.tools):
        return request
    if kept or not _has_tool_history(request):
        choice = _relaxed(request.tool_choice, {tool.name for tool in kept})
        return replace(request, tools=kept, tool_choice=choice)
    if request.tool_choice is not None and request.tool_choice.mode == "none":
        return request
    return replace(request, tool_choice=ToolChoice("none"))  # providers refuse a history of calls without any tool


def _relaxed(choice: ToolChoice | None, names: set[str]) -> ToolChoice | None:
    if choice is None or not names:
        return None
    if choice.mode == "tool" and choice.name not in names:
        return replace(choice, mode="auto", name=None)
    return choice


def _adds_other_tool(block: Block, allowed: tuple[str, ...]) -> bool:
    return isinstance(block, ToolChange) and block.definition is not None and not only_reads(block.tool_name, allowed)


def _has_tool_history(request: Request) -> bool:
    return any(isinstance(block, ToolUse | ToolResult) for turn in request.turns for block in turn.content)
