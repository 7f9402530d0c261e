"""Chat completion request -> canonical request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import ValidationError
from pydantic_core import from_json

from bridge.canonical.request import OutputFormat, Reasoning, Request
from bridge.errors import invalid_request
from bridge.protocols.openai_chat.request_content import texts_of
from bridge.protocols.openai_chat.request_messages import MessageReader
from bridge.protocols.openai_chat.request_tools import choice_of, custom_tools, is_legacy, tools_of
from bridge.protocols.openai_chat.request_unread import extras_of, unread_names, user_in_metadata
from bridge.protocols.openai_chat.request_wire import ChatRequest

if TYPE_CHECKING:
    from bridge.canonical.json import JsonObject, JsonValue
    from bridge.errors import BridgeError

MAX_REPORTED_PROBLEMS = 3


def parse_request(body: bytes) -> Request:
    """The canonical request; a BridgeError that names the field if the body is not a chat completion request."""
    try:
        parsed = ChatRequest.model_validate_json(body)
    except ValidationError as error:
        raise _refusal(error, body) from None
    _check_wishes(parsed)
    reader = MessageReader(texts_of(parsed.system, "system"))
    reader.read(parsed.messages)
    return Request(
        model=parsed.model,
        turns=tuple(reader.turns),
        max_tokens=parsed.max_completion_tokens or parsed.max_tokens,
        system=tuple(reader.system),
        tools=tools_of(parsed),
        tool_choice=choice_of(parsed),
        stream=bool(parsed.stream),
        temperature=parsed.temperature,
        top_p=parsed.top_p,
        top_k=parsed.top_k,
        stop_sequences=tuple(filter(None, (*(parsed.stop or ()), *(parsed.stop_sequences or ())))),
        reasoning=_reasoning(parsed),
        output_format=_output_format(parsed),
        user_id=parsed.safety_identifier or parsed.user or user_in_metadata(parsed),
        service_tier=parsed.service_tier,
        extras=extras_of(parsed),
        unread=unread_names(parsed) + (("tool_calls.arguments (cut off)",) if reader.cut_off else ()),
        echo=_echo(parsed),
    )


def _check_wishes(request: ChatRequest) -> None:
    """What would need another kind of answer than one message of text and calls."""
    if not request.messages:
        raise invalid_request("messages: the list is empty; at least one message is required")
    if request.n is not None and request.n > 1:
        raise invalid_request(f"n: {request.n} answers were asked for; only one can be given")
    if request.audio is not None or set(request.modalities or ()) - {"text"}:
        field = "audio" if request.audio is not None else "modalities"
        raise invalid_request(f"{field}: answers are text only")


def _reasoning(request: ChatRequest) -> Reasoning:
    """What `thinking`, `reasoning` and `reasoning_effort` say together."""
    thinking, told = request.thinking, request.reasoning
    effort = request.reasoning_effort or (told.effort if told else None)
    enabled = told.enabled if told else None
    if enabled is None and effort == "none":
        enabled = False
    if thinking is not None:
        enabled = thinking.type != "disabled"
    return Reasoning(
        enabled=enabled,
        effort=None if effort == "none" else effort,
        budget_tokens=(thinking.budget_tokens if thinking else None) or (told.max_tokens if told else None),
        exclude=bool(told and told.exclude),
    )


def _output_format(request: ChatRequest) -> OutputFormat | None:
    wanted = request.response_format
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return OutputFormat(None)
    if wanted.json_schema is None:
        raise invalid_request("response_format.json_schema: Field required")
    return OutputFormat(wanted.json_schema.schema_, wanted.json_schema.name)


def _echo(request: ChatRequest) -> JsonObject:
    """What the answer's shape depends on."""
    wishes: JsonObject = {
        "include_usage": bool(request.stream_options and request.stream_options.include_usage),
        "legacy_functions": is_legacy(request),
        "exclude_reasoning": bool(request.reasoning and request.reasoning.exclude),
        "custom_tools": list(custom_tools(request)),
    }
    return {name: wish for name, wish in wishes.items() if wish}


def _refusal(error: ValidationError, body: bytes) -> BridgeError:
    try:
        raw = from_json(body)
    except ValueError:
        raw = None
    if isinstance(raw, dict) and "messages" not in raw and "input" in raw:
        return invalid_request("messages: missing; this is a Responses request, send it to /v1/responses")
    problems: dict[str, str] = {}
    for problem in error.errors(include_url=False, include_context=False, include_input=False):
        problems.setdefault(_path(problem["loc"], raw), problem["msg"])
    told = [f"{path}: {message}" for path, message in problems.items()]
    more = [f"and {len(told) - MAX_REPORTED_PROBLEMS} more"] if len(told) > MAX_REPORTED_PROBLEMS else []
    return invalid_request("; ".join(told[:MAX_REPORTED_PROBLEMS] + more))


def _path(location: tuple[int | str, ...], raw: JsonValue) -> str:
    """Where in the body the problem is: without the names of alternatives that validation puts between."""
    path: list[str] = []
    for position, part in enumerate(location):
        if isinstance(raw, dict) and part in raw:
            raw = raw[str(part)]
        elif isinstance(raw, list) and isinstance(part, int) and part < len(raw):
            raw = raw[part]
        elif not (isinstance(raw, dict) and position == len(location) - 1):
            continue
        path.append(str(part))
    return ".".join(path) or "body"
