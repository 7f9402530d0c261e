"""Whom a request is rendered for."""

from __future__ import annotations

import re
from functools import lru_cache

from bridge.values import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    provider: str
    model: str
    api_root: str = ""
    cache_key: str | None = None
    """Names the conversation to the provider's prompt cache, without saying whose it is."""
    marks_cache: bool = False
    """Mark the prompt for caching where the client did not: its own protocol has no way to ask for it."""

    @property
    def family(self) -> str:
        """Who can read what this model gives with its tool calls: its provider, for models of the same make."""
        return f"{self.provider}/{_make(self.model)}"


@lru_cache(maxsize=512)
def _make(model: str) -> str:
    vendor, slash, name = model.rpartition("/")
    return vendor if slash else re.split(r"[^a-z]", name.lower(), maxsplit=1)[0]
