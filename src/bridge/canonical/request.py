"""A request for one assistant turn."""

from __future__ import annotations

from collections import Counter
from dataclasses import field
from typing import TYPE_CHECKING, Literal, TypeAlias

from bridge.canonical.content import Base64Source, Document, Image, ToolResult
from bridge.values import dataclass

if TYPE_CHECKING:
    from bridge.canonical.content import Block, CacheMark, Text
    from bridge.canonical.json import JsonObject

Role: TypeAlias = Literal["user", "assistant", "system"]


@dataclass(frozen=True, slots=True)
class Turn:
    role: Role
    content: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the client runs."""

    name: str
    input_schema: JsonObject
    description: str | None = None
    strict: bool | None = None
    deferred: bool = False
    cache: CacheMark | None = None


@dataclass(frozen=True, slots=True)
class ServerTool:
    """A tool by its provider-given type; who runs it depends on the type."""

    type: str
    name: str
    options: JsonObject
    optional: bool = False
    """The client can do without it: where nobody can run it, it is left out and reported."""


@dataclass(frozen=True, slots=True)
class ToolChoice:
    mode: Literal["auto", "any", "none", "tool"]
    name: str | None = None
    parallel: bool = True


@dataclass(frozen=True, slots=True)
class Reasoning:
    """How much the model shall think, in whichever terms the client gave; `exclude` keeps it out of the answer."""

    enabled: bool | None = None
    effort: str | None = None
    budget_tokens: int | None = None
    exclude: bool = False


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """The JSON schema that the answer has to follow; None: any JSON object will do."""

    schema: JsonObject | None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class WebSearch:
    """The provider is to search the web by itself."""

    max_uses: int | None = None
    allowed_domains: tuple[str, ...] = ()
    blocked_domains: tuple[str, ...] = ()
    user_location: JsonObject | None = field(default=None, hash=False)
    context_size: str | None = None
    engine: str | None = None
    max_results: int | None = None


@dataclass(frozen=True, slots=True)
class Request:
    model: str
    turns: tuple[Turn, ...]
    max_tokens: int | None
    system: tuple[Text, ...] = ()
    tools: tuple[Tool | ServerTool, ...] = ()
    tool_choice: ToolChoice | None = None
    stream: bool = False
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop_sequences: tuple[str, ...] = ()
    reasoning: Reasoning = field(default_factory=Reasoning)
    output_format: OutputFormat | None = None
    web_search: WebSearch | None = None
    user_id: str | None = None
    service_tier: str | None = None
    extras: JsonObject = field(default_factory=dict)
    """Fields of the request without a place here; a renderer that cannot express one reports it as a loss."""
    unread: tuple[str, ...] = ()
    """Fields inside messages and tools without a place here, by name."""
    echo: JsonObject = field(default_factory=dict)
    """What the client's own protocol needs to shape its answer; renderers towards providers never look at it."""
    _kinds: frozenset[type[Block]] | None = field(default=None, init=False, repr=False, compare=False)

    @property
    def kinds(self) -> frozenset[type[Block]]:
        """The kinds of blocks in its turns: who looks for one that is not there need not look twice."""
        if self._kinds is None:
            kinds = frozenset([block.__class__ for turn in self.turns for block in turn.content])
            object.__setattr__(self, "_kinds", kinds)
            return kinds
        return self._kinds


_HOLD_MEDIA = (Image, Document, ToolResult)


def shape_of(request: Request) -> dict[str, int]:
    """How much of what a request holds."""
    kinds = Counter(type(block).__name__ for turn in request.turns for block in turn.content)
    roles = Counter(f"{turn.role}_turns" for turn in request.turns)
    system = sum(len(block.text) for block in request.system)
    return {**roles, **kinds, "tools": len(request.tools), "system_characters": system}


def media_characters(request: Request) -> int:
    """How much of a request is pictures and files: their size says nothing about tokens."""
    if request.kinds.isdisjoint(_HOLD_MEDIA):
        return 0
    return sum(_media(block) for turn in request.turns for block in turn.content)


def _media(block: object) -> int:
    match block:
        case Image(Base64Source(_, data)) | Document(Base64Source(_, data)):
            return len(data)
        case ToolResult(_, parts) | Document(tuple(parts)):
            return sum(_media(part) for part in parts)
    return 0
