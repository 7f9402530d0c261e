"""Takes blocks out of a history without breaking it: every stretch between assistant turns keeps what it says.

A user turn that is left with nothing disappears only where another user turn stands beside it. Where it was all that
the user said between two answers, or the end of the history, it stays as it was.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from bridge.canonical.content import Document, Image, Text, ToolResult, ToolUse
from bridge.canonical.request import Turn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bridge.canonical.content import Block
    from bridge.canonical.request import Request


def reduced(request: Request, rewrite: Callable[[Turn], Iterable[Block | None]]) -> Request:
    """The request with its user and system turns rewritten, block by block; None takes a block out."""
    turns: list[Turn] = []
    for is_answer, group in groupby(request.turns, key=lambda turn: turn.role == "assistant"):
        stretch = list(group)
        turns += stretch if is_answer else _reduced_stretch(stretch, rewrite)
    if len(turns) == len(request.turns) and all(map(_is_same, turns, request.turns)):
        return request
    return replace(request, turns=tuple(turns))


def rewritten_turn(turn: Turn, blocks: Iterable[Block | None]) -> Turn:
    """The turn with these blocks in place of its own; the cache mark of one taken out moves to the one before."""
    kept: list[Block] = []
    for old, new in zip(turn.content, blocks, strict=True):
        if new is not None:
            kept.append(new)
        elif isinstance(old, Text) and old.cache and kept:
            kept[-1] = _marked(kept[-1], old)
    if len(kept) == len(turn.content) and all(map(_is_same, kept, turn.content)):
        return turn
    return Turn(turn.role, tuple(kept))


def _reduced_stretch(stretch: list[Turn], rewrite: Callable[[Turn], Iterable[Block | None]]) -> list[Turn]:
    rewritten = [rewritten_turn(turn, rewrite(turn)) for turn in stretch]
    if not any(turn.role == "user" and turn.content for turn in rewritten):
        spoken = [position for position, turn in enumerate(stretch) if turn.role == "user" and turn.content]
        for position in spoken[-1:]:
            rewritten[position] = stretch[position]
    return [new for new, old in zip(rewritten, stretch, strict=True) if new.content or not old.content]


def _marked(block: Block, taken_out: Text) -> Block:
    if isinstance(block, Text | Image | Document | ToolUse | ToolResult) and block.cache is None:
        return replace(block, cache=taken_out.cache)
    return block


def _is_same(new: object, old: object) -> bool:
    return new is old
