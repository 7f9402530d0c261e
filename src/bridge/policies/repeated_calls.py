"""Notices an answer that repeats a tool call whose result is already there, and words the hint against it (ST)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from bridge.canonical.content import Text, ToolResult, ToolUse
from bridge.canonical.request import Turn
from bridge.policies.read_only import only_reads
from bridge.policies.reminders import without_reminders

if TYPE_CHECKING:
    from bridge.canonical.fold import Message
    from bridge.canonical.request import Request

_HINT = (
    "The result of calling {names} with these same arguments is already in this conversation, and nothing since then "
    "could have changed it. Do not repeat the call: use that result and answer the user."
)


def repeated_calls(request: Request, message: Message) -> tuple[str, ...]:
    """Names of the answer's tool calls that are identical to one whose result still holds, each once."""
    calls = [block for block in message.content if isinstance(block, ToolUse)]
    if not calls:
        return ()
    settled = _settled_calls(request)
    return tuple(dict.fromkeys(call.name for call in calls if _identity(call) in settled))


def with_hint(request: Request, names: tuple[str, ...]) -> Request:
    """The request that tells the model at its end which calls not to repeat."""
    if not names:
        return request
    hint = Turn("system", (Text(_HINT.format(names=", ".join(names))),))
    if request.turns and request.turns[-1] == hint:
        return request
    return replace(request, turns=(*request.turns, hint))


def _settled_calls(request: Request) -> set[str]:
    """Calls with a result that still holds: since then the user said nothing and no tool ran that may change things."""
    settled: set[str] = set()
    waiting: dict[str, str] = {}
    for turn in request.turns:
        for block in turn.content:
            match block:
                case ToolUse(tool_id, name):
                    if not only_reads(name):
                        settled.clear()
                        waiting.clear()
                    waiting[tool_id] = _identity(block)
                case ToolResult(tool_id) if tool_id in waiting:
                    settled.add(waiting.pop(tool_id))
        if _is_spoken(turn):
            settled.clear()
    return settled


def _is_spoken(turn: Turn) -> bool:
    texts = [block.text for block in turn.content if isinstance(block, Text)] if turn.role == "user" else []
    return any(without_reminders(text).strip() for text in texts)


def _identity(call: ToolUse) -> str:
    return f"{call.name} {json.dumps(call.input, sort_keys=True, separators=(',', ':'))}"
