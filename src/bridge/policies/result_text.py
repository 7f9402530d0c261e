"""Leaves out all text that sits beside tool results (R8, strict)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.canonical.content import Text, ToolResult
from bridge.policies.reduction import reduced

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bridge.canonical.content import Block
    from bridge.canonical.request import Request, Turn


def drop_result_text(request: Request) -> Request:
    """The request whose user turns with tool results hold no text."""
    return reduced(request, _without_text)


def holds_result(turn: Turn) -> bool:
    """True for a user turn that answers tool calls."""
    return turn.role == "user" and any(isinstance(block, ToolResult) for block in turn.content)


def count_user_texts(request: Request) -> int:
    """How many texts the user turns of a request hold."""
    return sum(isinstance(block, Text) for turn in request.turns if turn.role == "user" for block in turn.content)


def _without_text(turn: Turn) -> Iterable[Block | None]:
    if not holds_result(turn):
        return turn.content
    return [None if isinstance(block, Text) else block for block in turn.content]
