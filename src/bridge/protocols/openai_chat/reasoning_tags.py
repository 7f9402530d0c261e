"""Splits text from reasoning where a model writes its reasoning into the text, between tags."""

from __future__ import annotations

from typing import Literal, TypeAlias

Piece: TypeAlias = tuple[Literal["text", "thinking"], str]


class ReasoningTags:
    """Only a tag that opens the answer counts: later on it is the model speaking of tags."""

    __slots__ = ("_close", "_held", "_open", "_state")

    def __init__(self, tag: str) -> None:
        self._open = f"<{tag}>"
        self._close = f"</{tag}>"
        self._held = ""
        self._state: Literal["start", "inside", "after", "text"] = "start"

    def feed(self, text: str) -> list[Piece]:
        if self._state == "text":
            return [("text", text)]
        self._held += text
        pieces: list[Piece] = []
        if self._state == "start":
            self._look_for_opening(pieces)
        if self._state == "inside":
            self._look_for_closing(pieces)
        if self._state == "after" and (rest := self._held.lstrip("\n")):
            pieces.append(("text", rest))
            self._held, self._state = "", "text"
        return pieces

    def close(self) -> list[Piece]:
        """What was held back in case it was a tag."""
        held, self._held = self._held, ""
        kind: Literal["text", "thinking"] = "thinking" if self._state == "inside" else "text"
        self._state = "text"
        return [(kind, held)] if held.strip("\n") else []

    def _look_for_opening(self, pieces: list[Piece]) -> None:
        begun = self._held.lstrip()
        if begun.startswith(self._open):
            self._held, self._state = begun[len(self._open) :].lstrip("\n"), "inside"
        elif not self._open.startswith(begun):
            pieces.append(("text", self._held))
            self._held, self._state = "", "text"

    def _look_for_closing(self, pieces: list[Piece]) -> None:
        thinking, found, rest = self._held.partition(self._close)
        if found:
            self._held, self._state = rest, "after"
        else:
            keep = _possible_beginning(thinking, self._close)
            thinking, self._held = thinking[: len(thinking) - keep], thinking[len(thinking) - keep :]
        if thinking:
            pieces.append(("thinking", thinking))


def _possible_beginning(text: str, tag: str) -> int:
    """How many characters at the end of the text could be the beginning of the tag."""
    return next((size for size in range(min(len(tag) - 1, len(text)), 0, -1) if tag.startswith(text[-size:])), 0)
