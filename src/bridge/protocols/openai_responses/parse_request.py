"""Responses request -> canonical request."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pydantic import ValidationError

from bridge.canonical.content import Text
from bridge.canonical.request import OutputFormat, Reasoning, Request, ServerTool
from bridge.errors import invalid_request
from bridge.protocols.openai_responses import request_wire as wire
from bridge.protocols.openai_responses.call_forms import WEB_SEARCH, said_forms
from bridge.protocols.openai_responses.parse_input import InputReader
from bridge.protocols.openai_responses.parse_tools import Toolbox, parse_tool_choice

if TYPE_CHECKING:
    from bridge.canonical.json import JsonObject, JsonValue
    from bridge.errors import BridgeError

MAX_REPORTED_PROBLEMS = 3
ENCRYPTED_REASONING = "reasoning.encrypted_content"
SEARCH_SOURCES = "web_search_call.action.sources"
_LOGPROBS = "message.output_text.logprobs"
_ECHOED = (
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "parallel_tool_calls",
    "previous_response_id",
    "prompt_cache_key",
    "reasoning",
    "safety_identifier",
    "service_tier",
    "store",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "truncation",
    "user",
)
_NOT_SERVED = {
    "background": "answers are given at once here, not in the background",
    "conversation": "conversations are not kept under this name here: use previous_response_id or send the items",
    "prompt": "stored prompts are not kept here: send the instructions themselves",
}
_ASKS_NOTHING: dict[str, tuple[JsonValue, ...]] = {
    "truncation": ("disabled",),
    "top_logprobs": (0,),
    "prompt_cache_retention": ("in_memory",),
    "image": ({}, {"context_compression": "auto"}),
    "context_management": ([],),
    "moderation": ({},),
}
_SERVICE_TIERS = {"default": "standard_only"}


def parse_request(body: bytes) -> Request:
    """The canonical request; a BridgeError that names the field if the body is not a Responses request."""
    try:
        parsed = wire.ResponsesRequest.model_validate_json(body)
    except ValidationError as error:
        raise _refusal(error) from None
    for name, reason in _NOT_SERVED.items():
        if getattr(parsed, name):
            raise invalid_request(f"{name}: {reason}")
    return _request(parsed)


def _request(parsed: wire.ResponsesRequest) -> Request:
    unread: dict[str, None] = {}
    toolbox = Toolbox(unread)
    toolbox.declare(parsed.tools or [], "tools")
    reader = InputReader(toolbox, unread)
    reader.read(parsed.input)
    tool_choice = parse_tool_choice(parsed, toolbox)
    instructions = (Text(parsed.instructions),) if parsed.instructions else ()
    extras = _extras(parsed, toolbox)
    unread |= dict.fromkeys(_unread_settings(parsed))
    return Request(
        model=parsed.model,
        turns=reader.turns,
        max_tokens=parsed.max_output_tokens,
        system=(*instructions, *reader.system),
        tools=tuple(toolbox.tools.values()),
        tool_choice=tool_choice,
        stream=bool(parsed.stream),
        temperature=parsed.temperature,
        top_p=parsed.top_p,
        reasoning=_reasoning(parsed.reasoning),
        output_format=_output_format(parsed.text),
        user_id=parsed.safety_identifier or parsed.user,
        service_tier=_SERVICE_TIERS.get(parsed.service_tier or "", parsed.service_tier),
        extras=extras,
        unread=tuple(unread),
        echo=_echo(parsed, toolbox),
    )


def _refusal(error: ValidationError) -> BridgeError:
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    told = [f"{_path(problem['loc'])}: {problem['msg']}" for problem in problems[:MAX_REPORTED_PROBLEMS]]
    if len(problems) > MAX_REPORTED_PROBLEMS:
        told.append(f"and {len(problems) - MAX_REPORTED_PROBLEMS} more")
    return invalid_request("; ".join(told))


def _path(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in location if not str(part).startswith("@")) or "body"


def _reasoning(given: wire.Reasoning | None) -> Reasoning:
    effort = given.effort if given else None
    return Reasoning(enabled=False if effort == "none" else None, effort=effort)


def _output_format(text: wire.TextConfig | None) -> OutputFormat | None:
    given = text.format if text else None
    if given is None or given.type == "text":
        return None
    if given.type == "json_object":
        return OutputFormat(None)
    if given.schema_ is None:
        raise invalid_request("text.format.schema: Field required")
    return OutputFormat(given.schema_, given.name)


def _extras(parsed: wire.ResponsesRequest, toolbox: Toolbox) -> JsonObject:
    """Fields that ask for something the canonical form has no place for."""
    asked: JsonObject = dict(parsed.model_extra or {})
    asked |= {"truncation": parsed.truncation, "top_logprobs": parsed.top_logprobs}
    search = toolbox.tools.get(WEB_SEARCH)
    if isinstance(search, ServerTool) and parsed.max_tool_calls is not None:
        options: JsonObject = {**search.options, "max_uses": parsed.max_tool_calls}
        toolbox.tools[WEB_SEARCH] = replace(search, options=options)
    else:
        asked["max_tool_calls"] = parsed.max_tool_calls
    if parsed.text and parsed.text.verbosity != "medium":
        asked["verbosity"] = parsed.text.verbosity
    return {
        name: value for name, value in asked.items() if value is not None and value not in _ASKS_NOTHING.get(name, ())
    }


def _unread_settings(parsed: wire.ResponsesRequest) -> list[str]:
    """Settings inside other settings that nobody here can follow."""
    names = ["include.logprobs"] if _LOGPROBS in (parsed.include or ()) else []
    reasoning = (parsed.reasoning.model_extra or {}) if parsed.reasoning else {}
    names += [f"reasoning.{name}" for name, value in reasoning.items() if value not in (None, "auto", "standard")]
    if parsed.text:
        names += [f"text.{name}" for name, value in (parsed.text.model_extra or {}).items() if value is not None]
    return names


def _echo(parsed: wire.ResponsesRequest, toolbox: Toolbox) -> JsonObject:
    """What the answer says again of the request, and how calls are to look in it."""
    said: JsonObject = parsed.model_dump(mode="json", by_alias=True, exclude_unset=True, include=set(_ECHOED))
    cache_key = (parsed.model_extra or {}).get("prompt_cache_key")
    if isinstance(cache_key, str):
        said["prompt_cache_key"] = cache_key
    include = parsed.include or ()
    return {
        "response": said,
        "calls": said_forms(toolbox.forms),
        "seals_reasoning": ENCRYPTED_REASONING in include,
        "names_sources": SEARCH_SOURCES in include,
    }
