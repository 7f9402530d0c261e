"""A history cut into rounds: one assistant turn, then everything until the next, every result with its call.

Protocols differ in how they say a round, not in what it is: results belong to the calls right before them, one that
has no call there is an error, an id that repeats within a turn names several calls.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from bridge.canonical.content import ToolResult, ToolUse
from bridge.errors import invalid_request

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bridge.canonical.content import Block
    from bridge.canonical.request import Turn


@dataclass(slots=True)
class Round:
    """What the assistant said, its calls under ids of their own, and what followed."""

    assistant: list[Block] = field(default_factory=list)
    followers: list[Turn] = field(default_factory=list)
    results: dict[str, list[ToolResult]] = field(default_factory=dict)
    """Results by the id of their call, in the order of the calls; an empty list where none was recorded."""

    @property
    def calls(self) -> list[ToolUse]:
        return [block for block in self.assistant if isinstance(block, ToolUse)]


def rounds(turns: Iterable[Turn]) -> list[Round]:
    """The rounds of a history; BridgeError if a result stands where its call is not."""
    cut = [Round()]
    for turn in turns:
        if turn.role != "assistant":
            cut[-1].followers.append(turn)
            continue
        if cut[-1].followers:
            cut.append(Round())
        cut[-1].assistant += turn.content
    for one_round in cut:
        _pair(one_round)
    return cut


def _pair(one_round: Round) -> None:
    found: dict[str, list[ToolResult]] = {}
    for turn in one_round.followers:
        for block in turn.content:
            if isinstance(block, ToolResult):
                found.setdefault(block.tool_use_id, []).append(block)
    calls = one_round.calls
    if not calls and not found:
        return
    named = {call.id for call in calls}
    for tool_use_id in found.keys() - named:
        raise invalid_request(
            f"messages: tool_result for {tool_use_id!r}: the turn before it has no tool_use with this id"
        )
    if len(named) == len(calls):
        one_round.results = {call.id: found.get(call.id, []) for call in calls}
    else:
        _pair_repeated(one_round, found)


def _pair_repeated(one_round: Round, found: dict[str, list[ToolResult]]) -> None:
    """An id that stands on several calls: each has the next of its results, the last all that are left."""
    repeats = Counter(call.id for call in one_round.calls)
    seen: Counter[str] = Counter()
    for position, block in enumerate(one_round.assistant):
        if not isinstance(block, ToolUse):
            continue
        seen[block.id] += 1
        given = found.get(block.id, [])
        if seen[block.id] < repeats[block.id]:  # the same id again later: one result each
            given = given[:1]
        found[block.id] = found.get(block.id, [])[len(given) :]
        unique = block.id if seen[block.id] == 1 else f"{block.id}#{seen[block.id]}"
        one_round.assistant[position] = block if unique == block.id else replace(block, id=unique)
        one_round.results[unique] = given
