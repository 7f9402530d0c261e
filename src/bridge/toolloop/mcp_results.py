"""Results of MCP tools -> what the model reads. Nothing is left out without a word."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.canonical.content import Base64Source, Document, Image, Text
from bridge.canonical.json import dumps
from bridge.toolloop.tools import ToolOutput

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mcp.types import CallToolResult, ContentBlock

    from bridge.toolloop.tools import OutputPart

_IMAGES = frozenset({"image/gif", "image/jpeg", "image/png", "image/webp"})


def output_of(result: CallToolResult, secrets: Iterable[str]) -> ToolOutput:
    """A result as an output; a server that repeats the token it was given does not give it to the model."""
    parts = [_part(block) for block in result.content]
    if not parts and result.structured_content is not None:
        parts.append(Text(dumps(result.structured_content).decode()))
    said = tuple(Text(without(part.text, secrets)) if isinstance(part, Text) else part for part in parts)
    return ToolOutput(said, is_error=result.is_error)


def without(text: str, secrets: Iterable[str]) -> str:
    """The text with stars where it says a secret."""
    for secret in secrets:
        text = text.replace(secret, "***")
    return text


def _part(block: ContentBlock) -> OutputPart:
    match block.type:
        case "text":
            return Text(block.text)
        case "image":
            return _file(block.data, block.mime_type, "image")
        case "audio":
            return Text(f"[audio, {block.mime_type}, {_size(block.data)} bytes: cannot be shown]")
        case "resource_link":
            about = ": ".join(word for word in (block.title or block.name, block.description) if word)
            return Text(f"[resource {block.uri}: {about}]")
        case "resource":
            resource = block.resource
            text = getattr(resource, "text", None)
            if text is not None:
                return Text(f"[resource {resource.uri}]\n{text}")
            blob = getattr(resource, "blob", "")
            return _file(blob, resource.mime_type or "application/octet-stream", str(resource.uri))
    return Text(f"[{block.type}: cannot be shown]")


def _file(data: str, media_type: str, name: str) -> OutputPart:
    if media_type in _IMAGES:
        return Image(Base64Source(media_type, data))
    if media_type == "application/pdf":
        return Document(Base64Source(media_type, data), title=name)
    return Text(f"[{name}, {media_type}, {_size(data)} bytes: cannot be shown]")


def _size(data: str) -> int:
    return len(data) * 3 // 4
