"""What a provider's model takes and what it refuses, from one data file: traits.json."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import orjson

from bridge.values import dataclass


@dataclass(frozen=True, slots=True)
class Traits:
    """One model at one provider. The names are those of traits.json."""

    api: Literal["chat", "responses"]
    """What OpenAI serves this model best on: with tools the newest ones reason on Responses only."""
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"]
    max_output_tokens: int | None
    unsupported: frozenset[str]
    reasoning: Literal["effort", "openrouter", "gemini", "deepseek", "none"]
    efforts: tuple[str, ...]
    effort_off: str | None
    tools_with_reasoning: Literal["any", "none_only", "never"]
    stop_limit: int
    tool_limit: int | None
    tool_ids: Literal["openai", "mistral"]
    tool_names: Literal["openai", "gemini"]
    schema: Literal["plain", "gemini"]
    strict: bool
    system_turns: Literal["system", "user"]
    user_after_tool: Literal["direct", "assistant"]
    prefill_flag: str | None
    reasoning_tags: str | None
    cache_control: bool
    cache_key_field: Literal["prompt_cache_key", "session_id"] | None
    stream_usage: bool
    image_urls: bool
    pdf_urls: bool
    service_tier: bool
    signs_calls: bool
    web_search: Literal["none", "plugin", "options", "tool"]
    """How the provider is asked to search the web: OpenRouter's plugin, chat's options, a tool of Responses."""


@lru_cache(maxsize=512)
def traits_of(provider: str, api_root: str, model: str) -> Traits:
    """The traits of a model, by provider, by host and by the model's own name."""
    table = _table()
    merged = dict(table["default"])
    merged |= table["providers"].get(provider, {})
    merged |= table["hosts"].get(urlsplit(api_root).hostname or "", {})
    merged |= _model_row(table["models"], provider, model.rpartition("/")[2].lower())
    merged.pop("providers", None)
    merged["unsupported"] = frozenset(merged["unsupported"])
    merged["efforts"] = tuple(merged["efforts"])
    return Traits(**merged)


def _model_row(rows: list[tuple[str, dict[str, Any]]], provider: str, name: str) -> dict[str, Any]:
    for pattern, row in rows:
        if fnmatchcase(name, pattern) and provider in row.get("providers", (provider,)):
            return row
    return {}


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = orjson.loads(Path(__file__).with_name("traits.json").read_bytes())
    return table
