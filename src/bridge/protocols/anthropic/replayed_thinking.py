"""Claude's thinking that OpenAI clients do not carry: taken from answers with the tool calls it led to, put back.

The data of a call is `{"thinking": [blocks], "after_text": bool}`. `after_text` says that the turn's text came before
the thinking. Where some of the blocks came before the text and some after, `before_text` counts the former.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.canonical.content import RedactedThinking, Thinking, ToolUse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.canonical.content import Block
    from bridge.canonical.json import JsonObject, JsonValue

MAX_KEPT_CHARACTERS = 256 * 1024


class ThinkingBeforeCall:
    """Gathers, while an answer arrives, the thinking since its last tool call; too much of it is not kept."""

    __slots__ = ("_after_text", "_blocks", "_size", "text_was_said")

    def __init__(self) -> None:
        self._blocks: list[JsonValue] = []
        self._after_text: list[bool] = []
        self._size = 0
        self.text_was_said = False

    @property
    def has_room(self) -> bool:
        return self._size <= MAX_KEPT_CHARACTERS

    def count(self, characters: int) -> None:
        """Thinking arrived that is not a whole block yet."""
        self._size += characters

    def add(self, block: Thinking | RedactedThinking) -> None:
        """A whole block; thinking without a signature is of no use to Claude."""
        match block:
            case Thinking(_, ""):
                return
            case Thinking(thinking, signature):
                said: JsonObject = {"type": "thinking", "thinking": thinking, "signature": signature}
                self._size += len(signature)
            case RedactedThinking(data):
                said = {"type": "redacted_thinking", "data": data}
                self._size += len(data)
        if self.has_room:
            self._blocks.append(said)
            self._after_text.append(self.text_was_said)

    def take(self) -> JsonObject | None:
        """What the call that begins now has to be sent back with."""
        blocks, after_text, fits = self._blocks, self._after_text, self.has_room
        self._blocks, self._after_text, self._size = [], [], 0
        if not blocks or not fits:
            return None
        data: JsonObject = {"thinking": blocks, "after_text": after_text[0]}
        if after_text[0] != after_text[-1]:
            data["before_text"] = after_text.count(False)
        return data


def with_thinking(blocks: Sequence[Block]) -> list[Block]:
    """An assistant turn with the thinking that its calls carry, unless the client gave the turn's thinking itself."""
    if any(isinstance(block, Thinking | RedactedThinking) for block in blocks):
        return list(blocks)
    restored: list[Block] = []
    calls = 0
    for block in blocks:
        if isinstance(block, ToolUse):
            before, directly = _replayed(block)
            restored = [*before, *restored, *directly] if calls == 0 else [*restored, *before, *directly]
            calls += 1
        restored.append(block)
    return restored


def _replayed(call: ToolUse) -> tuple[list[Block], list[Block]]:
    """The thinking of a call: what came before the turn's text, and what stood directly before the call."""
    data = (call.replay.call if call.replay else None) or {}
    given = data.get("thinking")
    blocks = [block for one in given if (block := _block(one))] if isinstance(given, list) else []
    counted = data.get("before_text")
    split = counted if isinstance(counted, int) else 0 if data.get("after_text") else len(blocks)
    return blocks[:split], blocks[split:]


def _block(given: JsonValue) -> Block | None:
    match given:
        case {"type": "thinking", "thinking": str(thinking), "signature": str(signature)}:
            return Thinking(thinking, signature)
        case {"type": "redacted_thinking", "data": str(data)}:
            return RedactedThinking(data)
    return None
