"""Token counts of a response."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.canonical.events import Usage

if TYPE_CHECKING:
    from bridge.canonical.json import JsonObject, JsonValue


def parse_usage(usage: JsonValue) -> Usage | None:
    """OpenAI counts cached tokens inside `input_tokens`; the canonical form counts them apart. None: no counts."""
    told = _object(usage)
    if told.get("input_tokens") is None and told.get("output_tokens") is None:
        return None
    details = _object(told.get("input_tokens_details"))
    total = _count(told.get("input_tokens"))
    read = min(_count(details.get("cached_tokens")), total)
    written = min(_count(details.get("cache_write_tokens")), total - read)
    return Usage(
        input_tokens=total - read - written,
        output_tokens=_count(told.get("output_tokens")),
        cache_read_tokens=read,
        cache_write_tokens=written,
        reasoning_tokens=_count(_object(told.get("output_tokens_details")).get("reasoning_tokens")),
    )


def usage_in(said: JsonObject, _known: Usage | None) -> Usage | None:
    """The counts that a response, or the event that ends its stream, tells of."""
    return parse_usage(_object(said.get("response")).get("usage") or said.get("usage"))


def _object(value: JsonValue) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _count(value: JsonValue) -> int:
    return max(value, 0) if isinstance(value, int) else 0
