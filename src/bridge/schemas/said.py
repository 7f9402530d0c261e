"""A schema as a model takes it, enforced where that was asked for and can be had."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.schemas import adapt_schema
from bridge.schemas.anthropic import ROOT_ALTERNATIVES, adapt_input

if TYPE_CHECKING:
    from bridge.canonical.json import JsonObject
    from bridge.canonical.losses import Losses
    from bridge.traits import Traits


def said_schema(schema: JsonObject, traits: Traits, losses: Losses, *, wants_strict: bool) -> tuple[JsonObject, bool]:
    """The schema to send, and whether to send it as strict; why it is not, where it should be, is a loss."""
    if wants_strict and traits.strict:
        adapted, misfits = adapt_schema(schema, "strict")
        if not misfits:
            return adapted, True
        for loss in misfits:
            losses.add(f"strict: {loss}")
    elif wants_strict:
        losses.add("strict: this upstream does not enforce schemas")
    if traits.schema == "plain" and not ROOT_ALTERNATIVES.isdisjoint(schema):
        adapted, changes = adapt_input(schema)  # OpenAI refuses them there
    else:
        adapted, changes = adapt_schema(schema, traits.schema)
    for loss in changes:
        losses.add(loss)
    return adapted, False
