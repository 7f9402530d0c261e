"""Whether a text asks for nothing but reading, in English or Chinese. The words are those of intent.json.

It errs towards no: whatever sounds like a wish to change or run something counts as one, unless it is negated ("don't
edit") or named as a thing ("explain the fix"). What is quoted as code, a file name or an address asks for nothing.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from bridge.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_CHARACTERS = 8_000
_NAME = r"[A-Za-z0-9_./\\~-]"
_QUOTED = re.compile(
    rf"```.*?(?:```|\Z)|`[^`\n]*`|\bhttps?://[!-~]+|(?<!{_NAME}){_NAME}*\w\.[a-z][a-z0-9]{{0,4}}(?!\.?[A-Za-z0-9_/\\~-])",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class _Patterns:
    read: re.Pattern[str]
    write: re.Pattern[str]
    void: re.Pattern[str]
    """Words of wanting that want nothing: negated, or the name of a thing."""
    no_negation: re.Pattern[str]


def wants_only_to_read(text: str) -> bool:
    """True if the text asks to read, explain, summarise or list, and for nothing else."""
    said = _QUOTED.sub(" ", text.replace("’", "'"))
    if len(said) > MAX_CHARACTERS:  # that much is material, and what it asks for cannot be told by words
        return False
    patterns = _patterns()
    said = patterns.void.sub(" ", patterns.no_negation.sub(" ", said.lower()))
    return bool(patterns.read.search(said)) and not patterns.write.search(said)


@cache
def reading_tools() -> tuple[str, ...]:
    """Names of tools that only read, as globs."""
    return tuple(_words()["tools"])


@cache
def _words() -> dict[str, Any]:
    words: dict[str, Any] = orjson.loads(Path(__file__).with_name("intent.json").read_bytes())
    return words


@cache
def _patterns() -> _Patterns:
    words = _words()
    any_of = {key: _english(words[key]["en"]) for key in ("read", "write", "negation", "no_negation")}
    among = {key: _chinese(words[key]["zh"]) for key in ("read", "write", "negation", "no_negation")}
    write, between = any_of["write"], r"(?:(?!(?:but|and|then|just)\b)[a-z'-]+\s+){0,3}?"
    listed = rf"{write}(?:(?:\s*,\s*{write})*\s*,?\s*(?:or|nor)\s+{write})*"
    negated = rf"{any_of['negation']}\s+{between}(?:{listed}|{any_of['read']})"
    named = rf"(?<!do ){_english(words['determiners'])}\s+{write}"
    listed_chinese = rf"{among['write']}(?:(?:、|或者?|和|及|以及){among['write']})*"
    negated_chinese = rf"不{listed_chinese}|{among['negation']}[^\W\d_a-z]{{0,4}}?(?:{listed_chinese}|{among['read']})"
    void = "|".join((negated, negated_chinese, _chinese(words["nouns"]), named))
    return _Patterns(
        read=re.compile(f"{any_of['read']}|{among['read']}"),
        write=re.compile(f"{any_of['write']}|{among['write']}"),
        void=re.compile(void),
        no_negation=re.compile(f"{any_of['no_negation']}|{among['no_negation']}"),
    )


def _english(words: Iterable[str]) -> str:
    """Whole words only. Letters of other scripts are no part of a word: the two languages mix without spaces."""
    alternatives = "|".join(re.escape(word).replace(r"\ ", r"\s+") for word in _longest_first(words))
    return rf"(?<![a-z0-9_'-])(?:{alternatives})(?![a-z0-9_'-])"


def _chinese(words: Iterable[str]) -> str:
    return f"(?:{'|'.join(map(re.escape, _longest_first(words)))})"


def _longest_first(words: Iterable[str]) -> list[str]:
    return sorted(words, key=lambda word: (-len(word), word))
