"""Mends a history whose tool calls were trimmed away: pure, request in, request out (S5).

A result without its call gets the call back, from its stored name and arguments, in the assistant turn before it. If
there is none, that turn is made; and if the history would then begin with it, a neutral user turn goes first.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bridge.canonical.content import Text, ToolResult, ToolUse
from bridge.canonical.fold import parse_arguments
from bridge.canonical.request import Turn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.canonical.request import Request
    from bridge.state.records import ToolRecord

NEUTRAL_USER_TEXT = "(Earlier messages are not shown.)"


def orphan_results(request: Request) -> list[str]:
    """Ids of results whose call is nowhere in the history, in order, each once."""
    calls = {block.id for turn in request.turns for block in turn.content if isinstance(block, ToolUse)}
    results = [block.tool_use_id for turn in request.turns for block in turn.content if isinstance(block, ToolResult)]
    return list(dict.fromkeys(tool_id for tool_id in results if tool_id not in calls))


def restore_calls(request: Request, records: Mapping[str, ToolRecord]) -> Request:
    """The request with the calls of its orphan results put back."""
    orphans = set(orphan_results(request)) & records.keys()
    if not orphans:
        return request
    turns: list[Turn] = []
    for turn in request.turns:
        ids = dict.fromkeys(block.tool_use_id for block in turn.content if isinstance(block, ToolResult))
        missing = tuple(_rebuilt(records[tool_id]) for tool_id in ids if tool_id in orphans)
        orphans -= ids.keys()
        if missing:
            _put_before(turns, missing)
        turns.append(turn)
    return replace(request, turns=tuple(turns))


def _put_before(turns: list[Turn], calls: tuple[ToolUse, ...]) -> None:
    if turns and turns[-1].role == "assistant":
        turns[-1] = Turn("assistant", turns[-1].content + calls)
        return
    if not any(turn.role == "user" for turn in turns):
        turns.append(Turn("user", (Text(NEUTRAL_USER_TEXT),)))
    turns.append(Turn("assistant", calls))


def _rebuilt(record: ToolRecord) -> ToolUse:
    return ToolUse(record.id, record.name, parse_arguments(record.arguments))
