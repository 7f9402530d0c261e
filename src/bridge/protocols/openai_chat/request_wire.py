"""The chat completion request as clients send it. Validates shape and types; fields it does not know are kept."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, JsonValue

from bridge.protocols.openai_chat.request_parts import Cacheable, Content, TextPart, Wire, as_parts

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class FunctionCall(Wire):
    name: str = Field(min_length=1)
    arguments: str | dict[str, JsonValue] | None = None


class CustomCall(Wire):
    name: str = Field(min_length=1)
    input: str = ""


class ToolCall(Cacheable):
    id: str = Field(min_length=1)
    type: Literal["function", "custom"] = "function"
    function: FunctionCall | None = None
    custom: CustomCall | None = None


class Message(Cacheable):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Content | None = None
    name: str | None = None
    refusal: str | None = None
    tool_calls: list[ToolCall] | None = None
    function_call: FunctionCall | None = None
    tool_call_id: str | None = None
    audio: JsonValue = None


class ToolFormat(Wire):
    type: str = "text"


class Function(Cacheable):
    """What a tool is; clients write it inside `function`, inside `custom`, beside them, or at both places."""

    name: str | None = None
    description: str | None = None
    parameters: dict[str, JsonValue] | None = None
    input_schema: dict[str, JsonValue] | None = None
    strict: bool | None = None
    format: ToolFormat | None = None


class Tool(Function):
    """A declared tool; a legacy function is one without a type."""

    type: str | None = None
    function: Function | None = None
    custom: Function | None = None
    defer_loading: bool | None = None


class JsonSchema(Wire):
    name: str | None = None
    schema_: dict[str, JsonValue] | None = Field(default=None, alias="schema")
    strict: bool | None = None


class ResponseFormat(Wire):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class Reasoning(Wire):
    effort: Effort | None = None
    max_tokens: int | None = Field(default=None, ge=1)
    enabled: bool | None = None
    exclude: bool | None = None


class Thinking(Wire):
    type: Literal["enabled", "disabled", "adaptive", "between_tools"]
    budget_tokens: int | None = Field(default=None, ge=1)


class StreamOptions(Wire):
    include_usage: bool | None = None


def _as_list(stop: Any) -> Any:
    return [stop] if isinstance(stop, str) else stop


class ChatRequest(Wire):
    model: str = Field(min_length=1)
    messages: list[Message]
    system: Annotated[list[TextPart], BeforeValidator(as_parts)] | None = None
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    tools: list[Tool] | None = None
    tool_choice: str | dict[str, JsonValue] | None = None
    parallel_tool_calls: bool | None = None
    functions: list[Tool] | None = None
    function_call: str | dict[str, JsonValue] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, ge=0, le=1)
    top_k: int | None = Field(default=None, ge=0)
    stop: Annotated[list[str], BeforeValidator(_as_list)] | None = None
    stop_sequences: list[str] | None = None
    reasoning_effort: Effort | None = None
    reasoning: Reasoning | None = None
    thinking: Thinking | None = None
    response_format: ResponseFormat | None = None
    user: str | None = None
    safety_identifier: str | None = None
    metadata: dict[str, JsonValue] | None = None
    service_tier: str | None = None
    n: int | None = Field(default=None, ge=1)
    modalities: list[str] | None = None
    audio: JsonValue = None
