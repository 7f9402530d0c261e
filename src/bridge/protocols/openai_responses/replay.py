"""Reasoning that the API wants back with the calls that followed it: taken from answers, put into requests.

Nothing is stored at the provider, so reasoning returns as the API gave it, with its encrypted content. With a call is
kept what came since the call before it: `reasoning`, which stands before the text in between, or behind it if
`after_text`; `before_text`, if there was some on both sides; `messages`, the id and phase of each text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.canonical.json import dumps
from bridge.values import dataclass

if TYPE_CHECKING:
    from bridge.canonical.json import JsonObject, JsonValue, WireObject

MAX_REPLAY_BYTES = 256 * 1024
_KEPT = ("type", "id", "summary", "content", "encrypted_content")


class ReplayCollector:
    """What an answer says since its last call, as far as the provider wants it back."""

    __slots__ = ("_after", "_before", "_messages")

    def __init__(self) -> None:
        self._before: list[JsonValue] = []
        self._after: list[JsonValue] = []
        self._messages: list[JsonValue] = []

    def add_reasoning(self, item: WireObject) -> None:
        """A reasoning item; one that only names something stored is of no use, as nothing is stored."""
        if not item.get("encrypted_content") and not item.get("content"):
            return
        kept: JsonObject = {name: item[name] for name in _KEPT if item.get(name)} | {"type": "reasoning"}
        kept.setdefault("summary", [])
        (self._after if self._messages else self._before).append(kept)

    def add_message(self, item: WireObject) -> None:
        self._messages.append({name: item[name] for name in ("id", "phase") if isinstance(item.get(name), str)})

    def take(self) -> JsonObject | None:
        """What belongs to the call that begins now; None if there is nothing, or more than is kept."""
        before, after, messages = self._before, self._after, self._messages
        self._before, self._after, self._messages = [], [], []
        if not before and not after:
            return None
        data: JsonObject = {"reasoning": after or before, "after_text": bool(after)}
        if before and after:
            data["before_text"] = before
        if any(messages):
            data["messages"] = messages
        return data if len(dumps(data)) <= MAX_REPLAY_BYTES else None


@dataclass(frozen=True, slots=True)
class Replayed:
    """The items around the text before a call."""

    before_text: list[JsonObject]
    after_text: list[JsonObject]
    messages: list[JsonObject]


def replayed(data: JsonObject | None) -> Replayed:
    """What was kept with a call, ready to be put back."""
    kept = data or {}
    reasoning, before = _objects(kept.get("reasoning")), _objects(kept.get("before_text"))
    if not kept.get("after_text"):
        before, reasoning = [*before, *reasoning], []
    return Replayed(before, reasoning, _objects(kept.get("messages")))


def _objects(value: JsonValue) -> list[JsonObject]:
    return [element for element in value if isinstance(element, dict)] if isinstance(value, list) else []
