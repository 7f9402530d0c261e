"""Token counts of a chat completion."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.canonical.events import Usage

if TYPE_CHECKING:
    from bridge.canonical.json import JsonObject, JsonValue


def parse_usage(usage: JsonObject) -> Usage | None:
    """OpenAI counts cached tokens inside `prompt_tokens`; the canonical form counts them apart. None: no counts."""
    if usage.get("prompt_tokens") is None and usage.get("completion_tokens") is None:
        return None
    prompt_details = _object(usage.get("prompt_tokens_details"))
    completion_details = _object(usage.get("completion_tokens_details"))
    prompt = _count(usage.get("prompt_tokens"))
    cached = prompt_details.get("cached_tokens") or usage.get("prompt_cache_hit_tokens")  # the latter: DeepSeek
    read = min(_count(cached), prompt)
    written = min(_count(prompt_details.get("cache_write_tokens")), prompt - read)
    return Usage(
        input_tokens=prompt - read - written,
        output_tokens=_count(usage.get("completion_tokens")),
        cache_read_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=_count(completion_details.get("reasoning_tokens")),
    )


def usage_in(said: JsonObject, _known: Usage | None) -> Usage | None:
    """The counts that a completion or a chunk tells of."""
    usage = said.get("usage")
    return parse_usage(usage) if isinstance(usage, dict) else None


def _object(value: JsonValue) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _count(value: JsonValue) -> int:
    return max(int(value), 0) if isinstance(value, int | float) else 0
