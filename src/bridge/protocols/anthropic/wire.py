"""The Messages request as clients send it. Validates shape and types; fields it does not know are kept, not refused."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, JsonValue, Tag

SERVER_BLOCK_TYPES = (
    "advisor_tool_result",
    "bash_code_execution_tool_result",
    "code_execution_tool_result",
    "compaction",
    "container_upload",
    "fallback",
    "mcp_tool_listing",
    "mcp_tool_result",
    "mcp_tool_use",
    "server_tool_use",
    "text_editor_code_execution_tool_result",
    "tool_search_tool_result",
    "web_fetch_tool_result",
    "web_search_tool_result",
)


class Wire(BaseModel):
    model_config = ConfigDict(extra="allow", hide_input_in_errors=True)


class CacheControl(Wire):
    type: Literal["ephemeral"]
    ttl: str | None = None


class Cacheable(Wire):
    cache_control: CacheControl | None = None


class TextBlock(Cacheable):
    type: Literal["text"]
    text: str


class Base64Source(Wire):
    type: Literal["base64"]
    media_type: str
    data: str


class UrlSource(Wire):
    type: Literal["url"]
    url: str


class FileSource(Wire):
    type: Literal["file"]
    file_id: str


class PlainTextSource(Wire):
    type: Literal["text"]
    data: str
    media_type: str = "text/plain"


class ImageBlock(Cacheable):
    type: Literal["image"]
    source: Annotated[Base64Source | UrlSource | FileSource, Field(discriminator="type")]


class ContentSource(Wire):
    type: Literal["content"]
    content: str | list[Annotated[TextBlock | ImageBlock, Field(discriminator="type")]]


class DocumentBlock(Cacheable):
    type: Literal["document"]
    source: Annotated[
        Base64Source | UrlSource | FileSource | PlainTextSource | ContentSource, Field(discriminator="type")
    ]
    title: str | None = None
    context: str | None = None


class SearchResultBlock(Cacheable):
    type: Literal["search_result"]
    source: str
    title: str
    content: list[TextBlock]


class BrowserStateBlock(Cacheable):
    type: Literal["browser_state"]
    tabs: list[dict[str, JsonValue]]


class ToolReferenceBlock(Cacheable):
    type: Literal["tool_reference"]
    tool_name: str


class ToolUseBlock(Cacheable):
    type: Literal["tool_use"]
    id: str = Field(min_length=1)
    name: str = Field(min_length=1)
    input: dict[str, JsonValue]


def _typed(block: Any) -> Any:
    if isinstance(block, dict) and "type" not in block and "text" in block:
        return {"type": "text", **block}
    return block


def _as_blocks(content: Any) -> Any:
    """The shapes that clients give content in: text, blocks, or an object that wraps either (R1)."""
    if isinstance(content, dict) and "type" not in content:
        content = content.get("content", content.get("text", content))
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if isinstance(content, list):
        return [_typed(block) for block in content]
    return [content] if isinstance(content, dict) and "type" in content else content


ResultContent = Annotated[
    TextBlock | ImageBlock | DocumentBlock | SearchResultBlock | ToolReferenceBlock | BrowserStateBlock,
    Field(discriminator="type"),
]


class ToolResultBlock(Cacheable):
    type: Literal["tool_result"]
    tool_use_id: str = Field(min_length=1)
    content: Annotated[list[ResultContent], BeforeValidator(_as_blocks)] | None = None
    is_error: bool | None = None


class ThinkingBlock(Wire):
    type: Literal["thinking"]
    thinking: str
    signature: str = ""


class RedactedThinkingBlock(Wire):
    type: Literal["redacted_thinking"]
    data: str


class CustomTool(Cacheable):
    name: str = Field(min_length=1)
    input_schema: dict[str, JsonValue]
    type: Literal["custom"] | None = None
    description: str | None = None
    strict: bool | None = None
    defer_loading: bool | None = None


class TypedTool(Wire):
    type: str
    name: str = ""


class ChangedTool(Wire):
    """A tool by reference, or its definition in place."""

    name: str = ""
    definition: CustomTool | None = None


class ToolChangeBlock(Cacheable):
    type: Literal["tool_addition", "tool_removal"]
    tool: ChangedTool


class ServerBlock(Wire):
    type: Literal[SERVER_BLOCK_TYPES]  # type: ignore[valid-type]


ContentBlock = Annotated[
    TextBlock
    | ImageBlock
    | DocumentBlock
    | SearchResultBlock
    | ToolUseBlock
    | ToolResultBlock
    | ThinkingBlock
    | RedactedThinkingBlock
    | ToolChangeBlock
    | ServerBlock,
    Field(discriminator="type"),
]


class OutputFormat(Wire):
    type: Literal["json_schema"]
    schema_: dict[str, JsonValue] = Field(alias="schema")


class OutputConfig(Wire):
    effort: str | None = None
    format: OutputFormat | None = None


class Message(Wire):
    role: Literal["user", "assistant", "system"]
    content: Annotated[list[ContentBlock], BeforeValidator(_as_blocks)] | None = None
    output_config: OutputConfig | None = None


def _tool_kind(tool: Any) -> str:
    kind = tool.get("type") if isinstance(tool, dict) else None
    return "custom" if kind in (None, "custom") else "typed"


AnyTool = Annotated[
    Annotated[CustomTool, Tag("custom")] | Annotated[TypedTool, Tag("typed")], Discriminator(_tool_kind)
]


class ToolChoice(Wire):
    type: Literal["auto", "any", "none", "tool"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(Wire):
    type: Literal["enabled", "disabled", "adaptive", "between_tools"]
    budget_tokens: int | None = None
    display: str | None = None


class MessagesRequest(Wire):
    model: str = Field(min_length=1)
    messages: list[Message]
    max_tokens: int | None = Field(default=None, ge=1)
    system: Annotated[list[TextBlock], BeforeValidator(_as_blocks)] | None = None
    tools: list[AnyTool] | None = None
    tool_choice: ToolChoice | None = None
    stream: bool | None = None
    temperature: float | None = Field(default=None, ge=0, le=1)
    top_p: float | None = Field(default=None, ge=0, le=1)
    top_k: int | None = Field(default=None, ge=0)
    stop_sequences: list[str] | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    output_format: OutputFormat | None = None
    metadata: dict[str, JsonValue] | None = None
    service_tier: str | None = None
