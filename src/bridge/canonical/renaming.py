"""Names and ids made legal for a provider, the same way everywhere in one request."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

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


def short_name(name: str) -> str:
    """A legal name of at most 64 characters: it keeps a readable beginning and ends in a digest."""
    readable = _ILLEGAL_CHARACTER.sub("_", name)
    if not readable[:1].isalpha() and not readable.startswith("_"):
        readable = f"_{readable}"
    return f"{readable[:51]}_{sha256(name.encode()).hexdigest()[:12]}"


def short_id(tool_id: str) -> str:
    """A legal tool call id of 37 characters."""
    return f"call_{sha256(tool_id.encode()).hexdigest()[:32]}"
