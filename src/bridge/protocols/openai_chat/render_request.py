"""Canonical request -> chat completion request, with what could not be said in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.canonical.losses import Losses
from bridge.canonical.reading import Reading, Rendered
from bridge.protocols.openai_chat.messages import MessageRenderer
from bridge.protocols.openai_chat.naming import tool_ids, tool_names
from bridge.protocols.openai_chat.parameters import ParameterRenderer
from bridge.protocols.openai_chat.tools import ChatToolRenderer
from bridge.traits import traits_of

if TYPE_CHECKING:
    from bridge.canonical.json import JsonObject
    from bridge.canonical.request import Request
    from bridge.canonical.target import Target


def render_request(request: Request, target: Target) -> Rendered:
    """The request for one provider; content that cannot be said is refused, settings that cannot are losses."""
    traits = traits_of(target.provider, target.api_root, target.model)
    losses, names = Losses(), tool_names(traits)
    messages = MessageRenderer(traits, names, tool_ids(traits), losses).render(request)
    tools = ChatToolRenderer(traits, names, losses).render(request)
    parameters = ParameterRenderer(traits, losses).render(request, has_tools=bool(tools))
    body: JsonObject = {"model": target.model, "messages": messages, **tools, **parameters}
    if traits.cache_key_field and target.cache_key:
        body.setdefault(traits.cache_key_field, target.cache_key)
    if request.stream:
        body["stream"] = True
        if traits.stream_usage:
            body["stream_options"] = {"include_usage": True}
    reading = Reading(
        target.provider,
        names.changed,
        traits.reasoning_tags,
        replays_reasoning_text=traits.reasoning == "deepseek",
        stop_sequences=request.stop_sequences,
    )
    return Rendered(body, tuple(losses), reading)
