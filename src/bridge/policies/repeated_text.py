"""Leaves out user text that was said before, word for word: history that a client replays asks for nothing (R7, R8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.canonical.content import Text
from bridge.policies.reduction import reduced
from bridge.policies.result_text import holds_result

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bridge.canonical.content import Block
    from bridge.canonical.request import Request, Turn


def drop_repeated_text(request: Request, *, everywhere: bool) -> Request:
    """The request without repeated user text: beside tool results only, or wherever it stands."""
    texts = [
        block.text for turn in request.turns if turn.role == "user" for block in turn.content if isinstance(block, Text)
    ]
    if len(set(texts)) == len(texts):
        return request
    said: set[str] = set()

    def without_repeats(turn: Turn) -> Iterable[Block | None]:
        if turn.role != "user":
            return turn.content
        may_drop = everywhere or holds_result(turn)
        return [None if _repeats(block, said) and may_drop else block for block in turn.content]

    return reduced(request, without_repeats)


def _repeats(block: Block, said: set[str]) -> bool:
    """True if the text was said before; from now on it was."""
    if not isinstance(block, Text) or not block.text.strip():
        return False
    if block.text in said:
        return True
    said.add(block.text)
    return False
