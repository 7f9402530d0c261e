"""Models as Anthropic lists them, page by page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.errors import invalid_request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.canonical.json import JsonObject
    from bridge.catalog import ModelEntry

DEFAULT_LIMIT = 20
MAX_LIMIT = 1000


def parse_limit(value: str | None) -> int:
    """The `limit` of a query."""
    if value is None:
        return DEFAULT_LIMIT
    if not (value.isascii() and value.isdigit() and len(value) <= 4 and 1 <= int(value) <= MAX_LIMIT):
        raise invalid_request(f"limit: takes a number from 1 to {MAX_LIMIT}")
    return int(value)


def render_models(
    entries: Sequence[ModelEntry],
    limit: int = DEFAULT_LIMIT,
    after_id: str | None = None,
    before_id: str | None = None,
) -> JsonObject:
    """One page; `has_more` looks the way the client goes: backwards when it gave `before_id`."""
    if after_id and before_id:
        raise invalid_request("after_id, before_id: only one of them can be given")
    if before_id:
        stop = _position(entries, before_id, "before_id")
        start = max(0, stop - limit)
        has_more = start > 0
    else:
        start = _position(entries, after_id, "after_id") + 1 if after_id else 0
        stop = start + limit
        has_more = stop < len(entries)
    page = entries[start:stop]
    return {
        "data": [render_model(entry) for entry in page],
        "has_more": has_more,
        "first_id": page[0].id if page else None,
        "last_id": page[-1].id if page else None,
    }


def render_model(entry: ModelEntry) -> JsonObject:
    """One model, active unless its provider says otherwise."""
    return {
        "type": "model",
        "id": entry.id,
        "display_name": entry.display_name,
        "created_at": entry.created_at,
        "lifecycle": "active",
        **entry.details,
    }


def _position(entries: Sequence[ModelEntry], model_id: str, parameter: str) -> int:
    for position, entry in enumerate(entries):
        if entry.id == model_id:
            return position
    raise invalid_request(f"{parameter}: there is no such model in the list; start again without it")
