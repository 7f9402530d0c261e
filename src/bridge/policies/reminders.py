"""Takes the hints that clients wrap in `<system-reminder>` out of user and system text (R2).

Tags pair as brackets do. One that has no partner stays, with all that follows it: it may be the user's own words.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from bridge.canonical.content import Text
from bridge.canonical.request import Turn
from bridge.policies.reduction import reduced, rewritten_turn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bridge.canonical.content import Block
    from bridge.canonical.request import Request

_OPENING = "<system-reminder>"
_TAG = re.compile(r"<(/?)system-reminder>")


def strip_reminders(request: Request) -> Request:
    """The request without reminders in its system prompt and in its user and system turns."""
    prompt = Turn("system", request.system)
    stripped = rewritten_turn(prompt, _without(prompt))
    if stripped is not prompt:
        request = replace(request, system=tuple(block for block in stripped.content if isinstance(block, Text)))
    return reduced(request, _without)


def count_reminders(request: Request) -> int:
    """How many reminders a request holds."""
    texts = [*request.system, *(block for turn in request.turns for block in turn.content)]
    return sum(block.text.count(_OPENING) for block in texts if isinstance(block, Text))


def without_reminders(text: str) -> str:
    """The text without its reminders; itself if it has none."""
    spans = _spans(text) if _OPENING in text else []
    if not spans:
        return text
    starts = [0, *(end for _, end in spans)]
    ends = [*(start for start, _ in spans), len(text)]
    pieces = [text[start:end].strip("\r\n") for start, end in zip(starts, ends, strict=True)]
    return "\n".join(piece for piece in pieces if piece.strip())


def _without(turn: Turn) -> Iterator[Block | None]:
    for block in turn.content:
        if not isinstance(block, Text) or (rest := without_reminders(block.text)) == block.text:
            yield block
        else:
            yield replace(block, text=rest) if rest else None


def _spans(text: str) -> list[tuple[int, int]]:
    """Where reminders begin and end: the outermost of those that are nested."""
    opened: list[int] = []
    spans: list[tuple[int, int]] = []
    for tag in _TAG.finditer(text):
        if not tag[1]:
            opened.append(tag.start())
        elif opened:
            start = opened.pop()
            while spans and spans[-1][0] > start:
                spans.pop()
            spans.append((start, tag.end()))
    return spans
