"""Token counts as Anthropic gives them: cached tokens stand beside `input_tokens`, as in the canonical form."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.canonical.events import Usage

if TYPE_CHECKING:
    from bridge.canonical.json import JsonObject, JsonValue

NOTHING = Usage()


def parse_usage(usage: JsonObject, known: Usage = NOTHING) -> Usage:
    """The counts of a `usage` object, wherever it stands; they are totals, and what it lacks is as it was known."""
    details = usage.get("output_tokens_details")
    thinking = details.get("thinking_tokens") if isinstance(details, dict) else None
    return Usage(
        input_tokens=_count(usage.get("input_tokens"), known.input_tokens),
        output_tokens=_count(usage.get("output_tokens"), known.output_tokens),
        cache_read_tokens=_count(usage.get("cache_read_input_tokens"), known.cache_read_tokens),
        cache_write_tokens=_count(usage.get("cache_creation_input_tokens"), known.cache_write_tokens),
        reasoning_tokens=_count(thinking, known.reasoning_tokens),
    )


def usage_in(said: JsonObject, known: Usage | None) -> Usage | None:
    """The counts that a message or an event of its stream tells of."""
    kind = said.get("type")
    message = said.get("message") if kind == "message_start" else said
    usage = message.get("usage") if isinstance(message, dict) else None
    if not isinstance(usage, dict) or kind not in ("message_start", "message_delta", "message"):
        return None
    return parse_usage(usage, known or NOTHING)


def _count(value: JsonValue, known: int) -> int:
    if not isinstance(value, int):
        return known
    return max(value, 0)
