"""Whom a request is rendered for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    provider: str
    model: str
    api_root: str = ""
    cache_key: str | None = None
    """Names the conversation to the provider's prompt cache, without saying whose it is."""
