"""Tools as clients declare them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, JsonValue, Tag

from bridge.protocols.openai_responses.part_wire import Wire, type_of


class FunctionTool(Wire):
    type: Literal["function"]
    name: str = Field(min_length=1)
    parameters: dict[str, JsonValue] | None = None
    description: str | None = None
    strict: bool | None = None
    defer_loading: bool | None = None


class ToolFormat(Wire):
    type: Literal["text", "grammar"]
    syntax: str | None = None
    definition: str | None = None


class CustomTool(Wire):
    type: Literal["custom"]
    name: str = Field(min_length=1)
    description: str | None = None
    format: ToolFormat | None = None
    defer_loading: bool | None = None


class SearchFilters(Wire):
    allowed_domains: list[str] | None = None
    blocked_domains: list[str] | None = None


class WebSearchTool(Wire):
    type: str
    external_web_access: bool | None = None
    filters: SearchFilters | None = None
    user_location: dict[str, JsonValue] | None = None
    search_context_size: str | None = None


class LocalShellTool(Wire):
    type: Literal["local_shell"]


class ToolSearchTool(Wire):
    type: Literal["tool_search"]
    execution: Literal["server", "client"] | None = None
    description: str | None = None
    parameters: dict[str, JsonValue] | None = None


class OtherTool(Wire):
    type: str


_TOOL_KINDS = {
    "function": "@function",
    "custom": "@custom",
    "namespace": "@namespace",
    "local_shell": "@local_shell",
    "tool_search": "@tool_search",
    "web_search": "@web_search",
    "web_search_2025_08_26": "@web_search",
    "web_search_preview": "@web_search",
    "web_search_preview_2025_03_11": "@web_search",
}


def _tool_kind(tool: Any) -> str:
    return _TOOL_KINDS.get(type_of(tool), "@other")


class NamespaceTool(Wire):
    type: Literal["namespace"]
    name: str = Field(min_length=1)
    description: str | None = None
    tools: list[
        Annotated[
            Annotated[FunctionTool, Tag("@function")]
            | Annotated[CustomTool, Tag("@custom")]
            | Annotated[OtherTool, Tag("@other")],
            Discriminator(lambda tool: kind if (kind := _tool_kind(tool)) in ("@function", "@custom") else "@other"),
        ]
    ]


AnyTool = Annotated[
    Annotated[FunctionTool, Tag("@function")]
    | Annotated[CustomTool, Tag("@custom")]
    | Annotated[NamespaceTool, Tag("@namespace")]
    | Annotated[LocalShellTool, Tag("@local_shell")]
    | Annotated[ToolSearchTool, Tag("@tool_search")]
    | Annotated[WebSearchTool, Tag("@web_search")]
    | Annotated[OtherTool, Tag("@other")],
    Discriminator(_tool_kind),
]
