"""Names and ids made legal for a provider, the same way everywhere in one request."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.traits import Traits

_LEGAL_NAMES = {
    "openai": re.compile(r"[A-Za-z0-9_-]{1,64}"),
    "gemini": re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}"),
}
_LEGAL_IDS = {"openai": re.compile(r"[A-Za-z0-9_-]{1,40}"), "mistral": re.compile(r"[A-Za-z0-9]{9}")}
_ILLEGAL_CHARACTER = re.compile(r"[^A-Za-z0-9_-]")


class Renaming:
    """A one-to-one mapping that changes only what has to change."""

    def __init__(self, legal: re.Pattern[str], replacement: Callable[[str], str]) -> None:
        self._legal = legal
        self._replacement = replacement
        self._wire: dict[str, str] = {}
        self._original: dict[str, str] = {}

    def __call__(self, original: str) -> str:
        known = self._wire.get(original)
        return known if known is not None else self._add(original)

    @property
    def changed(self) -> dict[str, str]:
        """What to change back: wire form -> original."""
        return {wire: original for wire, original in self._original.items() if wire != original}

    def _add(self, original: str) -> str:
        wire = original if self._legal.fullmatch(original) else self._replacement(original)
        salt = original
        while wire in self._original:
            salt += "#"
            wire = self._replacement(salt)
        self._wire[original], self._original[wire] = wire, original
        return wire


def tool_names(traits: Traits) -> Renaming:
    """Tool names: long ones keep a readable beginning and end in a digest."""
    return Renaming(_LEGAL_NAMES[traits.tool_names], _short_name)


def tool_ids(traits: Traits) -> Renaming:
    """Tool call ids."""
    return Renaming(_LEGAL_IDS[traits.tool_ids], _mistral_id if traits.tool_ids == "mistral" else _openai_id)


def _short_name(name: str) -> str:
    readable = _ILLEGAL_CHARACTER.sub("_", name)
    if not readable[:1].isalpha() and not readable.startswith("_"):
        readable = f"_{readable}"
    return f"{readable[:51]}_{sha256(name.encode()).hexdigest()[:12]}"


def _openai_id(tool_id: str) -> str:
    return f"call_{sha256(tool_id.encode()).hexdigest()[:32]}"


def _mistral_id(tool_id: str) -> str:
    return sha256(tool_id.encode()).hexdigest()[:9]
