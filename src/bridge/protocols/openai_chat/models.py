"""Models as OpenAI lists them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bridge.canonical.json import JsonObject
    from bridge.catalog import ModelEntry


def render_models(entries: Iterable[ModelEntry]) -> JsonObject:
    """All of them: this list has no pages."""
    return {"object": "list", "data": [render_model(entry) for entry in entries]}


def render_model(entry: ModelEntry) -> JsonObject:
    """One model; OpenAI's clients want a date even where none is known."""
    return {"id": entry.id, "object": "model", "created": entry.created or 0, "owned_by": entry.owned_by}
