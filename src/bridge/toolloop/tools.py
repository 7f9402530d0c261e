"""A tool that the bridge runs, and what comes out of it."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, TypeAlias

from bridge.canonical.content import Base64Source, Document, Image, Text
from bridge.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bridge.canonical.json import JsonObject
    from bridge.canonical.request import Tool

OutputPart: TypeAlias = Text | Image | Document
RunTool: TypeAlias = "Callable[[JsonObject], Awaitable[ToolOutput]]"

MAX_OUTPUT_CHARACTERS = 100 * 1024
MAX_MEDIA_CHARACTERS = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What a tool said; `shown` is what the client's result block holds besides it."""

    content: tuple[OutputPart, ...]
    is_error: bool = False
    shown: JsonObject = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class ServerCall:
    """Shown to the client as a server tool of this name."""

    name: str


@dataclass(frozen=True, slots=True)
class McpCall:
    """Shown to the client as a tool of this MCP server."""

    server: str
    tool: str


CallShape: TypeAlias = ServerCall | McpCall


@dataclass(frozen=True, slots=True)
class BridgeTool:
    """A tool as the model knows it, as the client sees it, and how it is run."""

    definition: Tool
    shape: CallShape
    run: RunTool
    repeatable: bool = False
    """Running it again changes nothing in the world: what it did need not be remembered."""


def failed(text: str, **shown: str) -> ToolOutput:
    """An output that tells the model what went wrong."""
    return ToolOutput((Text(text),), is_error=True, shown=dict(shown))


def bounded(output: ToolOutput, characters: int, media_characters: int = MAX_MEDIA_CHARACTERS) -> ToolOutput:
    """The output cut to a size, with a note where something is missing."""
    budget = _Budget(characters)
    parts = tuple(_bounded_part(part, budget, media_characters) for part in output.content)
    kept = tuple(part for part in parts if part is not None)
    if budget.missing:
        kept = (*kept, Text(f"[{budget.missing} more characters of this output are not shown]"))
    return replace(output, content=kept)


@dataclass(slots=True)
class _Budget:
    left: int
    missing: int = 0

    def take(self, text: str) -> str:
        taken = text[: self.left]
        self.missing += len(text) - len(taken)
        self.left -= len(taken)
        return taken


def _bounded_part(part: OutputPart, budget: _Budget, media_characters: int) -> OutputPart | None:
    match part:
        case Text(text):
            taken = budget.take(text)
            return replace(part, text=taken) if taken or not text else None
        case Document(tuple(pieces)):
            cut = [_bounded_part(piece, budget, media_characters) for piece in pieces]
            return replace(part, source=tuple(piece for piece in cut if isinstance(piece, Text | Image)))
        case Image(Base64Source(media_type, data)) | Document(Base64Source(media_type, data)):
            if len(data) > media_characters:
                return Text(f"[{media_type} of {len(data) * 3 // 4} bytes: too large to be shown]")
    return part
