"""Puts interleaved pieces of an answer into blocks that open and close one after another.

Providers may mix the pieces of several tool calls; clients want one open block at a time. The lane
at the head streams; pieces of other lanes wait, bounded, until the head is known to be complete (its
arguments parse) or the answer ends. Text and thinking never block what follows them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import orjson

from bridge.canonical.events import (
    BlockStop,
    CitationDelta,
    InputDelta,
    SignatureDelta,
    TextDelta,
    TextStart,
    ThinkingDelta,
    ThinkingStart,
    ToolUseStart,
)

if TYPE_CHECKING:
    from bridge.canonical.content import Citation
    from bridge.canonical.events import BlockDelta, StreamEvent

MAX_HELD_CHARACTERS = 8 * 1024 * 1024


class SequenceError(ValueError):
    """The provider's pieces do not make blocks."""


class _TextLane:
    """A run of text."""

    __slots__ = ("waiting",)
    start: TextStart | ThinkingStart = TextStart()
    blocks_others = False

    def __init__(self) -> None:
        self.waiting: list[BlockDelta] = []


class _ThinkingLane(_TextLane):
    """A run of thinking, with the signature that closes it."""

    __slots__ = ()
    start = ThinkingStart()


class ToolLane:
    """One tool call. Its arguments are kept, because whether they are complete decides what may follow."""

    __slots__ = ("name", "pieces", "size", "start", "waiting")

    def __init__(self, start: ToolUseStart) -> None:
        self.start = start
        self.name = start.name
        self.pieces: list[str] = []
        self.size = 0
        self.waiting: list[BlockDelta] = []

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)

    @property
    def blocks_others(self) -> bool:
        return not is_complete_object(self.arguments)


_Lane: TypeAlias = _TextLane | ToolLane


class BlockSequencer:
    """Each method takes one piece and appends to `out` the events that can be said now."""

    __slots__ = ("_head", "_held", "_queue", "_tools")

    def __init__(self) -> None:
        self._head: _Lane | None = None
        self._queue: list[_Lane] = []
        self._tools: dict[int, ToolLane] = {}
        self._held = 0

    @property
    def tools(self) -> list[ToolLane]:
        """The tool calls seen so far, in order."""
        return list(self._tools.values())

    def text(self, piece: str, out: list[StreamEvent]) -> None:
        if self._head.__class__ is _TextLane:
            out.append(TextDelta(piece))
        else:
            self._add(self._run_of(_TextLane, out), TextDelta(piece), len(piece), out)

    def thinking(self, piece: str, out: list[StreamEvent]) -> None:
        self._add(self._run_of(_ThinkingLane, out), ThinkingDelta(piece), len(piece), out)

    def signature(self, piece: str, out: list[StreamEvent]) -> None:
        self._add(self._run_of(_ThinkingLane, out), SignatureDelta(piece), len(piece), out)

    def citation(self, citation: Citation, out: list[StreamEvent]) -> None:
        """A source of the text that was last said."""
        self._add(self._run_of(_TextLane, out), CitationDelta(citation), len(citation.cited_text), out)

    def open_tool(self, key: int, start: ToolUseStart, out: list[StreamEvent]) -> None:
        """A tool call begins; `key` names it in later pieces."""
        lane = self._tools[key] = ToolLane(start)
        self._enqueue(lane, out)

    def arguments(self, key: int, piece: str, out: list[StreamEvent]) -> None:
        lane = self._tools[key]
        if lane is not self._head and lane not in self._queue:
            if not piece.strip():
                return
            raise SequenceError(f"arguments arrived for the finished tool call {lane.name!r}")
        lane.pieces.append(piece)
        lane.size += len(piece)
        if lane.size > MAX_HELD_CHARACTERS:
            raise SequenceError(f"the arguments of the tool call {lane.name!r} are too large")
        self._add(lane, InputDelta(piece), len(piece), out)
        if self._queue and piece.rstrip().endswith("}"):
            self._advance(out)

    def arguments_of(self, key: int) -> str:
        return self._tools[key].arguments

    def finish(self, out: list[StreamEvent]) -> None:
        """The answer is complete: say what waits, close what is open."""
        while self._queue:
            self._promote(out)
        if self._head is not None:
            out.append(BlockStop())
            self._head = None

    def _run_of(self, kind: type[_TextLane], out: list[StreamEvent]) -> _TextLane:
        last = self._queue[-1] if self._queue else self._head
        if last.__class__ is kind:
            return last
        lane = kind()
        self._enqueue(lane, out)
        return lane

    def _enqueue(self, lane: _Lane, out: list[StreamEvent]) -> None:
        self._queue.append(lane)
        self._advance(out)

    def _advance(self, out: list[StreamEvent]) -> None:
        while self._queue and (self._head is None or not self._head.blocks_others):
            self._promote(out)

    def _promote(self, out: list[StreamEvent]) -> None:
        if self._head is not None:
            out.append(BlockStop())
        self._head = self._queue.pop(0)
        out.append(self._head.start)
        out.extend(self._head.waiting)
        self._head.waiting = []

    def _add(self, lane: _Lane, delta: BlockDelta, size: int, out: list[StreamEvent]) -> None:
        if lane is self._head:
            out.append(delta)
            return
        self._held += size
        if self._held > MAX_HELD_CHARACTERS:
            raise SequenceError("too much of the answer is waiting for an unfinished tool call")
        lane.waiting.append(delta)


def is_complete_object(text: str) -> bool:
    """True if the text is a whole JSON object: nothing can follow."""
    if not text.rstrip().endswith("}"):
        return False
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True
