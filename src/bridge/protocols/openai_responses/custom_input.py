"""The raw input of a custom tool, read out of its JSON arguments while they arrive.

Models call a custom tool with `{"input": "..."}`; clients want the text inside. Arguments of any other shape are
kept until they are complete. What is held back is at most an escape cut in two, or the few characters before the text.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING

from bridge.canonical.fold import parse_arguments
from bridge.canonical.json import dumps
from bridge.protocols.openai_responses.call_forms import CUSTOM_INPUT

if TYPE_CHECKING:
    from bridge.canonical.json import JsonObject

MAX_OPENING_CHARACTERS = 64
_OPENING = re.compile(rf'\s*\{{\s*"{CUSTOM_INPUT}"\s*:\s*"')
_PLAIN = re.compile(r'[^"\\]+')
_PAIR = re.compile(r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")
_UNIT = re.compile(r"\\u([0-9a-fA-F]{4})")
_SHORT = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_CUT = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?|\\u[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u[0-9a-fA-F]{0,3})?)?")
_REPLACEMENT = "\ufffd"


class _State(Enum):
    OPENING = 1
    TEXT = 2
    OVER = 3
    OTHER = 4


class CustomInput:
    """`feed` pieces of the arguments, get pieces of the input; `close` gives what was held back."""

    __slots__ = ("_held", "_other", "_state")

    def __init__(self) -> None:
        self._state = _State.OPENING
        self._held = ""
        self._other: list[str] = []

    def feed(self, piece: str) -> str:
        match self._state:
            case _State.OPENING:
                return self._open(self._held + piece)
            case _State.TEXT:
                return self._read(self._held + piece)
            case _State.OTHER:
                self._other.append(piece)
        return ""

    def close(self) -> str:
        if self._state in (_State.OPENING, _State.OTHER):
            return raw_input(_lenient("".join([self._held, *self._other])))
        return ""

    def _open(self, text: str) -> str:
        opening = _OPENING.match(text)
        if opening is not None:
            self._state, self._held = _State.TEXT, ""
            return self._read(text[opening.end() :])
        self._held = text
        if len(text) > MAX_OPENING_CHARACTERS:
            self._state = _State.OTHER
        return ""

    def _read(self, text: str) -> str:
        out: list[str] = []
        at, self._held = 0, ""
        while at < len(text):
            if plain := _PLAIN.match(text, at):
                out.append(plain[0])
                at = plain.end()
            elif text[at] == '"':
                self._state = _State.OVER
                break
            elif _CUT.fullmatch(text, at):
                self._held = text[at:]
                break
            else:
                letter, at = _unescaped(text, at)
                out.append(letter)
        return "".join(out)


def _unescaped(text: str, at: int) -> tuple[str, int]:
    """The letter that an escape stands for, and where it ends; half of a pair stands for nothing."""
    if pair := _PAIR.match(text, at):
        high, low = int(pair[1], 16), int(pair[2], 16)
        return chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00)), pair.end()
    if unit := _UNIT.match(text, at):
        code = int(unit[1], 16)
        return (_REPLACEMENT if 0xD800 <= code <= 0xDFFF else chr(code)), unit.end()
    return _SHORT.get(text[at + 1], _REPLACEMENT), at + 2


def _lenient(text: str) -> JsonObject:
    try:
        return parse_arguments(text)
    except ValueError:
        return {}


def raw_input(arguments: JsonObject) -> str:
    """The input inside whole arguments; arguments of another shape as they are, in JSON."""
    given = arguments.get(CUSTOM_INPUT)
    if isinstance(given, str):
        return given
    return dumps(arguments).decode() if arguments else ""
