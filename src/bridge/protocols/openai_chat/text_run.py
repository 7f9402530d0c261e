"""A run of plain text: chunks that differ from one before them in their text alone, which need not be parsed.

Nearly every chunk of a stream repeats the bytes of its predecessor around a few new letters. Once one such chunk has
been parsed, and a probe has shown that the place of its text is where the text is read from, another that has the same
bytes around a text of plain letters says the same with that text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:
    from bridge.canonical.json import WireObject

MAX_LESSONS = 3
_PROBE = "letters"
_OPENING = (b'"content":"', b'"content": "')


class TextRun:
    """What surrounds the text, once it is known. A stream whose chunks always differ elsewhere is given up on."""

    __slots__ = ("_after", "_before", "_lessons_left", "_noted", "_read_after", "_read_before", "is_known")

    def __init__(self) -> None:
        self.is_known = False
        self._before = self._after = self._read_before = self._read_after = b""
        self._noted: tuple[bytes, WireObject] | None = None
        self._lessons_left = MAX_LESSONS

    def text_in(self, data: bytes) -> str | None:
        """The text of a chunk that holds nothing else; None if it has to be parsed."""
        return _plain_between(self._before, data, self._after)

    def text_in_read(self, data: bytes) -> str | None:
        """The same for a read that is one event with such a chunk, as most are."""
        return _plain_between(self._read_before, data, self._read_after)

    def note(self, data: bytes, chunk: WireObject) -> None:
        """A chunk that was parsed. It is looked at when the next one comes: nobody's first token waits for it."""
        if self._lessons_left:
            self._noted = data, chunk

    def learn(self) -> bool:
        """Look at what was noted; True if there is a pattern now."""
        if self._noted is not None:
            (data, chunk), self._noted = self._noted, None
            if _is_plain(chunk):
                self._lessons_left -= 1
                self._learn(data, chunk)
        return self.is_known

    def _learn(self, data: bytes, chunk: WireObject) -> None:
        """Take a chunk that says a text and nothing else as the pattern, if its text is where it seems to be."""
        text: str = chunk["choices"][0]["delta"]["content"]
        for opening in _OPENING:
            before, found, after = data.partition(opening + text.encode() + b'"')
            if found and _says(before + opening, b'"' + after, chunk):
                self._before, self._after = before + opening, b'"' + after
                self.is_known = True
                if b"\n" not in data and b"\r" not in data:
                    self._read_before, self._read_after = b"data: " + self._before, self._after + b"\n\n"
                return


def _plain_between(before: bytes, data: bytes, after: bytes) -> str | None:
    """The letters between known bytes, if they are letters that mean themselves."""
    if not before or not data.startswith(before) or not data.endswith(after):
        return None
    letters = data[len(before) : len(data) - len(after)]
    if not letters or b'"' in letters or b"\\" in letters:
        return None
    try:
        text = letters.decode()
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() else None


def _is_plain(chunk: WireObject) -> bool:
    """True for one choice that goes on with a text of plain letters."""
    choices = chunk.get("choices")
    if chunk.get("error") or chunk.get("usage") or not choices or len(choices) != 1:
        return False
    choice = choices[0]
    delta = choice.get("delta")
    if choice.get("index") or not isinstance(delta, dict):
        return False
    text = delta.get("content")
    if not isinstance(text, str) or not text or not text.isprintable():
        return False
    others = (*choice.values(), *(value for name, value in delta.items() if name not in ("content", "role")))
    return not any(value for value in others if value is not delta)


def _says(before: bytes, after: bytes, chunk: WireObject) -> bool:
    """True if letters between these bytes are the chunk's text, and nothing else of it."""
    try:
        probe = orjson.loads(before + _PROBE.encode() + after)
        delta = probe["choices"][0]["delta"]
        if delta["content"] != _PROBE:
            return False
        delta["content"] = chunk["choices"][0]["delta"]["content"]
    except (orjson.JSONDecodeError, LookupError, TypeError):
        return False
    return bool(probe == chunk)
