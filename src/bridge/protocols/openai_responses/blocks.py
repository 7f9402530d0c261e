"""Says the blocks of an answer: one is open at a time, each belongs to one part of one output item."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.canonical.events import (
    BlockStop,
    CitationDelta,
    InputDelta,
    TextDelta,
    TextStart,
    ThinkingDelta,
    ThinkingStart,
)
from bridge.canonical.sequencer import SequenceError

if TYPE_CHECKING:
    from collections.abc import Hashable

    from bridge.canonical.content import Citation
    from bridge.canonical.events import StreamEvent, ToolUseStart


MAX_ANSWER_CHARACTERS = 64 * 1024 * 1024


class BlockWriter:
    """Each method says one piece; a piece of another owner closes what is open."""

    __slots__ = ("_owner", "characters")

    def __init__(self) -> None:
        self._owner: object = None
        self.characters = 0

    def text(self, owner: object, piece: str, out: list[StreamEvent]) -> None:
        if not piece:
            return
        if owner != self._owner:
            self._open(owner, out)
            out.append(TextStart())
        self._count(piece)
        out.append(TextDelta(piece))

    def thinking(self, owner: object, piece: str, out: list[StreamEvent]) -> None:
        if not piece:
            return
        if owner != self._owner:
            self._open(owner, out)
            out.append(ThinkingStart())
        self._count(piece)
        out.append(ThinkingDelta(piece))

    def citation(self, citation: Citation, out: list[StreamEvent]) -> None:
        out.append(CitationDelta(citation))

    def call(self, owner: object, start: ToolUseStart, out: list[StreamEvent]) -> None:
        self._open(owner, out)
        out.append(start)

    def arguments(self, piece: str, out: list[StreamEvent]) -> None:
        if piece:
            self._count(piece)
            out.append(InputDelta(piece))

    def is_open(self, owner: object) -> bool:
        return owner == self._owner

    def close(self, out: list[StreamEvent]) -> None:
        if self._owner is not None:
            out.append(BlockStop())
            self._owner = None

    def _count(self, piece: str) -> None:
        self.characters += len(piece)
        if self.characters > MAX_ANSWER_CHARACTERS:
            raise SequenceError("the answer is too large")

    def _open(self, owner: object, out: list[StreamEvent]) -> None:
        self.close(out)
        self._owner = owner


class Said:
    """What was said of each part of an item, so that a whole text adds only what is missing."""

    __slots__ = ("_pieces",)

    def __init__(self) -> None:
        self._pieces: dict[Hashable, list[str]] = {}

    def has_others(self, part: Hashable) -> bool:
        """True if other parts were said, and nothing of this one yet."""
        return part not in self._pieces and bool(self._pieces)

    def add(self, part: Hashable, piece: str) -> str:
        """The piece, remembered."""
        if piece:
            self._pieces.setdefault(part, []).append(piece)
        return piece

    def rest(self, part: Hashable, whole: str) -> str:
        """What a whole text says beyond its pieces; nothing where it contradicts them."""
        said = self.whole(part)
        return self.add(part, whole[len(said) :]) if whole.startswith(said) else ""

    def whole(self, part: Hashable) -> str:
        return "".join(self._pieces.get(part, ()))
