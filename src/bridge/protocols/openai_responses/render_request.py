"""Canonical request -> request for a response, with what could not be said in it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bridge.canonical.losses import Losses
from bridge.canonical.reading import Reading, Rendered
from bridge.canonical.renaming import Renaming, short_id, short_name
from bridge.canonical.words import without_billing
from bridge.protocols.openai_responses.render_input import CACHE_LOSS, InputRenderer
from bridge.protocols.openai_responses.render_parameters import CACHE_KEY, ParameterRenderer
from bridge.protocols.openai_responses.render_tools import ResponsesToolRenderer, add_search
from bridge.traits import traits_of

if TYPE_CHECKING:
    from bridge.canonical.json import JsonObject
    from bridge.canonical.request import Request
    from bridge.canonical.target import Target

_LEGAL = re.compile(r"[A-Za-z0-9_-]{1,64}")


def render_request(request: Request, target: Target) -> Rendered:
    """The request for one provider; content that cannot be said is refused, settings that cannot are losses."""
    traits = traits_of(target.provider, target.api_root, target.model)
    losses, names = Losses(), Renaming(_LEGAL, short_name)
    body: JsonObject = {"model": target.model}
    if instructions := _instructions(request, losses):
        body["instructions"] = instructions
    body["input"] = InputRenderer(names, Renaming(_LEGAL, short_id), losses).render(request.turns)
    body |= ResponsesToolRenderer(traits, names, losses).render(request)
    body |= ParameterRenderer(traits, losses).render(request)
    if request.web_search is not None:
        add_search(request.web_search, body, losses)
    if target.cache_key:
        body.setdefault(CACHE_KEY, target.cache_key)
    if request.stream:
        body["stream"] = True
    return Rendered(body, tuple(losses), Reading(target.provider, names.changed))


def _instructions(request: Request, losses: Losses) -> str:
    if any(block.cache for block in request.system):
        losses.add(CACHE_LOSS)
    return "\n\n".join(text for block in request.system if (text := without_billing(block.text)))
