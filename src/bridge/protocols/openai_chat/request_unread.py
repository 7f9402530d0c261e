"""What a chat request asks for that the canonical form has no place for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.protocols.openai_chat import request_parts as parts

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bridge.canonical.json import JsonObject, JsonValue
    from bridge.protocols.openai_chat import request_wire as wire

_NEUTRAL: JsonObject = {
    "frequency_penalty": 0,
    "logit_bias": {},
    "logprobs": False,
    "presence_penalty": 0,
    "store": False,
    "top_logprobs": 0,
    "verbosity": "medium",
}
"""Values that ask for what happens anyway."""


def extras_of(request: wire.ChatRequest) -> JsonObject:
    """Settings without a place, but only those that ask for something."""
    extras: JsonObject = {
        name: value
        for name, value in (request.model_extra or {}).items()
        if value is not None and not (name in _NEUTRAL and value == _NEUTRAL[name])
    }
    metadata = dict(request.metadata or {})
    if user_in_metadata(request):
        del metadata["user_id"]
    return extras | {"metadata": metadata} if metadata else extras


def user_in_metadata(request: wire.ChatRequest) -> str | None:
    """The user where Anthropic's clients name it, unless OpenAI's own fields do."""
    user = (request.metadata or {}).get("user_id")
    named = request.user or request.safety_identifier
    return user if isinstance(user, str) and user and not named else None


def unread_names(request: wire.ChatRequest) -> tuple[str, ...]:
    """Names of fields inside messages, tools and settings that nothing here reads, each once."""
    names: dict[str, None] = {}
    for message in request.messages:
        names |= dict.fromkeys(_in_message(message))
    for tool in (*(request.tools or ()), *(request.functions or ())):
        names |= dict.fromkeys(_in_tool(tool))
    names |= dict.fromkeys(_in_settings(request))
    return tuple(names)


def _in_message(message: wire.Message) -> Iterator[str]:
    yield from _beyond("message", message)
    if message.name and message.role != "function":
        yield "message.name"
    if message.tool_call_id and message.role != "tool":
        yield "message.tool_call_id"
    if message.refusal and message.role != "assistant":
        yield "message.refusal"
    for call in message.tool_calls or ():
        yield from _beyond("tool_call", call, ignored=("index",))
    yield from _in_parts(message.content or ())


def _in_parts(content: Iterable[parts.Part]) -> Iterator[str]:
    for part in content:
        yield from _beyond(part.type, part)
        if isinstance(part, parts.ImageUrlPart):
            yield from _beyond("image_url", part.image_url)
            if part.image_url.detail not in (None, "auto"):
                yield "image_url.detail"
        elif isinstance(part, parts.FilePart):
            yield from _beyond("file", part.file)
        elif isinstance(part, parts.ToolResultBlock):
            yield from _in_parts(part.content or ())


def _in_tool(tool: wire.Tool) -> Iterator[str]:
    if tool.type not in (None, "function", "custom"):
        return  # a server tool keeps all its fields
    for definition in filter(None, (tool, tool.function, tool.custom)):
        yield from _beyond("tool", definition)
        if definition.format is not None and definition.format.type != "text":
            yield "tool.format"


def _in_settings(request: wire.ChatRequest) -> Iterator[str]:
    settings = {"stream_options": request.stream_options, "reasoning": request.reasoning, "thinking": request.thinking}
    for name, setting in settings.items():
        if setting is not None:
            yield from _beyond(name, setting)
    if request.user and request.safety_identifier not in (None, "", request.user):
        yield "user"
    wanted = request.response_format and request.response_format.json_schema
    if wanted:
        yield from _beyond("response_format", wanted)


def _beyond(kind: str, model: parts.Wire, ignored: tuple[str, ...] = ()) -> Iterator[str]:
    """Fields that the model does not know and that hold something."""
    for name, value in (model.model_extra or {}).items():
        if name not in ignored and _says_something(value):
            yield f"{kind}.{name}"


def _says_something(value: JsonValue) -> bool:
    return value is not None and value is not False and value not in ("", [], {})
