"""Content blocks: what a turn is made of, whichever protocol it came from."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Literal, TypeAlias

from bridge.values import dataclass

if TYPE_CHECKING:
    from bridge.canonical.json import JsonObject
    from bridge.canonical.request import Tool


@dataclass(frozen=True, slots=True)
class CacheMark:
    """The client's wish that the prompt be cached up to here."""

    ttl: str | None = None


@dataclass(frozen=True, slots=True)
class Base64Source:
    """Bytes carried in the request itself."""

    media_type: str
    data: str


@dataclass(frozen=True, slots=True)
class UrlSource:
    """Bytes that the provider fetches."""

    url: str


@dataclass(frozen=True, slots=True)
class FileSource:
    """Bytes uploaded to one provider earlier; only that provider can read them."""

    file_id: str


MediaSource: TypeAlias = Base64Source | UrlSource | FileSource


@dataclass(frozen=True, slots=True)
class Replay:
    """What a provider gave with a tool call or a text and wants back with it; nobody else can read it.

    `call` belongs to the call itself, `turn` to the assistant turn that the call or the text begins.
    """

    call: JsonObject | None = None
    turn: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class Citation:
    """Where a piece of an answer comes from."""

    url: str
    title: str | None = None
    cited_text: str = ""


@dataclass(frozen=True, slots=True)
class Text:
    text: str
    cache: CacheMark | None = None
    citations: tuple[Citation, ...] = ()
    replay: Replay | None = None


@dataclass(frozen=True, slots=True)
class Image:
    source: MediaSource
    cache: CacheMark | None = None


@dataclass(frozen=True, slots=True)
class Document:
    """A file to read: a PDF by source, or text and blocks given in place of one."""

    source: MediaSource | tuple[Text | Image, ...]
    title: str | None = None
    context: str | None = None
    cache: CacheMark | None = None


@dataclass(frozen=True, slots=True)
class ToolReference:
    """A deferred tool that a tool search found: from here on it is declared."""

    tool_name: str


@dataclass(frozen=True, slots=True)
class ToolUse:
    id: str
    name: str
    input: JsonObject
    cache: CacheMark | None = None
    replay: Replay | None = None


@dataclass(frozen=True, slots=True)
class ToolResult:
    tool_use_id: str
    content: tuple[Text | Image | Document | ToolReference, ...] = ()
    is_error: bool = False
    cache: CacheMark | None = None


@dataclass(frozen=True, slots=True)
class Thinking:
    """Reasoning in words; the signature is proof for the provider that made it, and only for that one."""

    thinking: str
    signature: str = ""


@dataclass(frozen=True, slots=True)
class RedactedThinking:
    data: str


@dataclass(frozen=True, slots=True)
class ToolChange:
    """A tool added to or removed from the conversation by a system turn."""

    action: Literal["add", "remove"]
    tool_name: str
    definition: Tool | None = None


@dataclass(frozen=True, slots=True)
class ServerBlock:
    """A block that a provider's own server tool made, kept as it is for the provider that understands it."""

    type: str
    raw: JsonObject = field(hash=False)


Block: TypeAlias = (
    Text | Image | Document | ToolUse | ToolResult | Thinking | RedactedThinking | ToolChange | ServerBlock
)
