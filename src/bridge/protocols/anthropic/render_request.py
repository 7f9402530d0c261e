"""Canonical request -> Messages request, with what could not be said in it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bridge.canonical.losses import Losses
from bridge.canonical.reading import Reading, Rendered
from bridge.canonical.renaming import Renaming, short_id, short_name
from bridge.errors import invalid_request
from bridge.protocols.anthropic.cache_marks import mark_prompt
from bridge.protocols.anthropic.claude import claude_of
from bridge.protocols.anthropic.render_blocks import is_blank, render_text
from bridge.protocols.anthropic.render_messages import (
    MessageRenderer,
    is_prefill,
    loops_without_thinking,
    trim_prefill,
)
from bridge.protocols.anthropic.render_parameters import ParameterRenderer
from bridge.protocols.anthropic.render_thinking import ThinkingRenderer
from bridge.protocols.anthropic.render_tools import FORCED, ToolRenderer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.canonical.json import JsonObject, JsonValue
    from bridge.canonical.request import Request
    from bridge.canonical.target import Target
    from bridge.protocols.anthropic.claude import Claude
    from bridge.protocols.anthropic.render_messages import Message

_LEGAL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_LEGAL_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")


def render_request(request: Request, target: Target) -> Rendered:
    """The request for Claude; content that cannot be said is refused, settings that cannot are losses."""
    claude, losses = claude_of(target.model), Losses()
    names = Renaming(_LEGAL_NAME, short_name)
    tools = ToolRenderer(claude, names, losses)
    body: JsonObject = {"model": target.model, **tools.render(request)}
    messages = MessageRenderer(tools, Renaming(_LEGAL_ID, short_id), losses).render(request.turns)
    if is_prefill(messages):
        _take_prefill(messages, claude)
    parameters = ParameterRenderer(claude, losses)
    body["max_tokens"] = max_tokens = parameters.max_tokens(request)
    obstacle = _obstacle_to_thinking(request, messages, claude)
    plan = ThinkingRenderer(claude, losses).plan(request.reasoning, max_tokens, obstacle)
    output_format, words = parameters.format(request.output_format)
    system = _system(request, words)
    if target.marks_cache:
        mark_prompt(_objects(body.get("tools")), system, messages)
    if system:
        body["system"] = list(system)
    body["messages"] = [message.rendered() for message in messages]
    if plan.thinking is not None:
        body["thinking"] = plan.thinking
    effort: JsonObject = {"effort": plan.effort} if plan.effort else {}
    if output_config := effort | output_format:
        body["output_config"] = output_config
    body |= parameters.render(request, thinks=plan.thinks)
    if request.stream:
        body["stream"] = True
    reading = Reading(target.provider, names.changed, stop_sequences=request.stop_sequences)
    return Rendered(body, tuple(losses), reading)


def _take_prefill(messages: list[Message], claude: Claude) -> None:
    if not claude.prefill:
        raise invalid_request(
            "messages: the last one is the assistant's, and this model does not go on from the beginning of an answer; "
            "end with a user message"
        )
    trim_prefill(messages)


def _obstacle_to_thinking(request: Request, messages: Sequence[Message], claude: Claude) -> str | None:
    """Why Claude cannot think in this request, if it cannot."""
    is_forced = request.tool_choice is not None and request.tool_choice.mode in FORCED
    if is_forced and claude.without_thinking != "impossible":
        return "it does not go with a forced tool_choice"
    if is_prefill(messages):
        return "it does not go with an answer that the client begins"
    if claude.thinking == "budget" and loops_without_thinking(messages):
        return "the thinking that led to the tool calls is not in the history"
    return None


def _system(request: Request, words: str | None) -> list[JsonObject]:
    system = [render_text(block.text, block.cache) for block in request.system if not is_blank(block)]
    return [*system, render_text(words)] if words else system


def _objects(value: JsonValue) -> list[JsonObject]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
