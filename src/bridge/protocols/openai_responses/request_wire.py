"""The Responses request as clients send it. Validates shape and types; fields it does not know are kept."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, JsonValue, Tag

from bridge.protocols.openai_responses.part_wire import Parts, TextPart, Wire, type_of
from bridge.protocols.openai_responses.tool_wire import AnyTool

ToolList = list[AnyTool]


class Item(Wire):
    """What every item may carry and nobody has to know."""

    id: str | None = None
    status: str | None = None


class MessageItem(Item):
    type: Literal["message"] | None = None
    role: Literal["user", "assistant", "system", "developer"]
    content: Parts
    phase: str | None = None


class FunctionCallItem(Item):
    type: Literal["function_call"]
    call_id: str = Field(min_length=1)
    name: str = Field(min_length=1)
    namespace: str | None = None
    arguments: str


class CustomCallItem(Item):
    type: Literal["custom_tool_call"]
    call_id: str = Field(min_length=1)
    name: str = Field(min_length=1)
    namespace: str | None = None
    input: str


class CallOutputItem(Item):
    """A result; the local shell's own form names its call by `id`."""

    type: Literal["function_call_output", "custom_tool_call_output", "local_shell_call_output"]
    call_id: str | None = None
    output: Parts
    name: str | None = None
    namespace: str | None = None


class LocalShellAction(Wire):
    type: Literal["exec"] = "exec"
    command: list[str]
    env: dict[str, str] | None = None
    timeout_ms: int | None = None
    user: str | None = None
    working_directory: str | None = None


class LocalShellCallItem(Item):
    type: Literal["local_shell_call"]
    call_id: str | None = None
    action: LocalShellAction


class ToolSearchCallItem(Item):
    type: Literal["tool_search_call"]
    call_id: str | None = None
    execution: str | None = None
    arguments: JsonValue = None


class ToolSearchOutputItem(Item):
    type: Literal["tool_search_output"]
    call_id: str | None = None
    execution: str | None = None
    tools: ToolList


class AdditionalToolsItem(Item):
    type: Literal["additional_tools"]
    role: str | None = None
    tools: ToolList


class ReasoningItem(Item):
    type: Literal["reasoning"]
    summary: list[TextPart] = Field(default_factory=list)
    content: list[TextPart] | None = None
    encrypted_content: str | None = None


class OtherItem(Item):
    type: str


_ITEM_KINDS = {
    "message": "@message",
    "function_call": "@function_call",
    "custom_tool_call": "@custom_tool_call",
    "function_call_output": "@output",
    "custom_tool_call_output": "@output",
    "local_shell_call_output": "@output",
    "local_shell_call": "@local_shell_call",
    "tool_search_call": "@tool_search_call",
    "tool_search_output": "@tool_search_output",
    "additional_tools": "@additional_tools",
    "reasoning": "@reasoning",
}


def _item_kind(item: Any) -> str:
    return _ITEM_KINDS.get(type_of(item), "@other")


def _with_type(item: Any) -> Any:
    """The two items whose type may be left out: a message has a role, a reference has nothing but an id."""
    if not isinstance(item, dict) or item.get("type") is not None:
        return item
    if "role" in item:
        return {**item, "type": "message"}
    return {**item, "type": "item_reference"} if item.keys() <= {"id", "type"} and "id" in item else item


InputItem = Annotated[
    Annotated[MessageItem, Tag("@message")]
    | Annotated[FunctionCallItem, Tag("@function_call")]
    | Annotated[CustomCallItem, Tag("@custom_tool_call")]
    | Annotated[CallOutputItem, Tag("@output")]
    | Annotated[LocalShellCallItem, Tag("@local_shell_call")]
    | Annotated[ToolSearchCallItem, Tag("@tool_search_call")]
    | Annotated[ToolSearchOutputItem, Tag("@tool_search_output")]
    | Annotated[AdditionalToolsItem, Tag("@additional_tools")]
    | Annotated[ReasoningItem, Tag("@reasoning")]
    | Annotated[OtherItem, Tag("@other")],
    Discriminator(_item_kind),
]


def _as_items(given: Any) -> Any:
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": given}]
    return [_with_type(item) for item in given] if isinstance(given, list) else given


class Reasoning(Wire):
    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    summary: str | None = None
    generate_summary: str | None = None


class TextFormat(Wire):
    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    schema_: dict[str, JsonValue] | None = Field(default=None, alias="schema")
    strict: bool | None = None
    description: str | None = None


class TextConfig(Wire):
    format: TextFormat | None = None
    verbosity: str | None = None


class ToolChoice(Wire):
    type: str
    name: str | None = None
    namespace: str | None = None
    mode: Literal["auto", "required"] | None = None
    tools: list[dict[str, JsonValue]] | None = None


class ResponsesRequest(Wire):
    model: str = Field(min_length=1)
    input: Annotated[list[InputItem], BeforeValidator(_as_items)] = Field(min_length=1)
    instructions: str | None = None
    tools: ToolList | None = None
    tool_choice: (
        Annotated[
            Annotated[Literal["auto", "none", "required"], Tag("@mode")] | Annotated[ToolChoice, Tag("@object")],
            Discriminator(lambda choice: "@mode" if isinstance(choice, str) else "@object"),
        ]
        | None
    ) = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: int | None = Field(default=None, ge=1)
    max_tool_calls: int | None = Field(default=None, ge=1)
    temperature: float | None = Field(default=None, ge=0, le=2)
    top_p: float | None = Field(default=None, ge=0, le=1)
    top_logprobs: int | None = Field(default=None, ge=0)
    reasoning: Reasoning | None = None
    text: TextConfig | None = None
    stream: bool | None = None
    stream_options: dict[str, JsonValue] | None = None
    store: bool | None = None
    background: bool | None = None
    conversation: JsonValue = None
    prompt: JsonValue = None
    previous_response_id: str | None = None
    include: list[str] | None = None
    metadata: dict[str, JsonValue] | None = None
    client_metadata: JsonValue = None
    truncation: Literal["auto", "disabled"] | None = None
    service_tier: str | None = None
    user: str | None = None
    safety_identifier: str | None = None
