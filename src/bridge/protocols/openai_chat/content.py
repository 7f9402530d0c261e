"""Content blocks -> chat content parts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, assert_never

import orjson

from bridge.canonical import content as canonical
from bridge.errors import invalid_request

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bridge.canonical.json import JsonObject, JsonValue
    from bridge.traits import Traits

MAX_SERVER_BLOCK_CHARACTERS = 20_000
_ENCRYPTED = frozenset({"encrypted_content", "encrypted_index", "encrypted_stdout", "signature"})


@dataclass(slots=True)
class Losses:
    """What could not be said, each once, in the order in which it was met."""

    said: dict[str, None] = field(default_factory=dict)

    def add(self, loss: str) -> None:
        self.said[loss] = None

    def __iter__(self) -> Iterator[str]:
        return iter(self.said)


def text_part(text: str, cache: canonical.CacheMark | None, traits: Traits, losses: Losses) -> JsonObject:
    part: JsonObject = {"type": "text", "text": text}
    if cache is not None:
        if traits.cache_control:
            part["cache_control"] = cache_mark(cache)
        else:
            losses.add("cache_control: this upstream caches by itself or not at all")
    return part


def cache_mark(cache: canonical.CacheMark) -> JsonObject:
    return {"type": "ephemeral", "ttl": cache.ttl} if cache.ttl else {"type": "ephemeral"}


def image_part(image: canonical.Image, traits: Traits) -> JsonObject:
    match image.source:
        case canonical.Base64Source(media_type, data):
            url = f"data:{media_type};base64,{data}"
        case canonical.UrlSource(url):
            if not traits.image_urls:
                raise invalid_request("image: this upstream takes no image URLs; send the image as base64")
        case canonical.FileSource():
            raise invalid_request("image: files uploaded to another provider cannot be read by this upstream")
        case _:
            assert_never(image.source)
    return {"type": "image_url", "image_url": {"url": url}}


def document_parts(document: canonical.Document, traits: Traits) -> list[JsonObject]:
    """A document as text with its title around it, or as a file."""
    source = document.source
    if isinstance(source, tuple):
        return _text_document(document, source, traits)
    filename = document.title or "document.pdf"
    match source:
        case canonical.Base64Source(media_type, data):
            file_data = f"data:{media_type};base64,{data}"
        case canonical.UrlSource(file_data):
            if not traits.pdf_urls:
                raise invalid_request("document: this upstream takes no document URLs; send the document as base64")
        case canonical.FileSource():
            raise invalid_request("document: files uploaded to another provider cannot be read by this upstream")
        case _:
            assert_never(source)
    file: JsonObject = {"type": "file", "file": {"filename": filename, "file_data": file_data}}
    return [{"type": "text", "text": document.context}, file] if document.context else [file]


def _text_document(
    document: canonical.Document, source: Sequence[canonical.Text | canonical.Image], traits: Traits
) -> list[JsonObject]:
    title = f" title={orjson.dumps(document.title).decode()}" if document.title else ""
    head = f"<document{title}>\n" + (f"{document.context}\n" if document.context else "")
    parts: list[JsonObject] = [{"type": "text", "text": head}]
    for part in source:
        if isinstance(part, canonical.Text):
            parts[-1]["text"] = f"{parts[-1].get('text', '')}{part.text}"
        else:
            parts += [image_part(part, traits), {"type": "text", "text": ""}]
    parts[-1]["text"] = f"{parts[-1].get('text', '')}\n</document>"
    return parts


def server_block_text(block: canonical.ServerBlock) -> str:
    """What a provider's own tool did, in words that another model can read."""
    raw = block.raw
    if block.type in ("server_tool_use", "mcp_tool_use"):
        return f"[used {raw.get('name')}: {_compact(raw.get('input'))}]"
    if block.type in ("fallback", "mcp_tool_listing"):
        return ""
    if block.type == "compaction":
        return str(raw.get("content") or "")
    if block.type == "container_upload":
        raise invalid_request("container_upload: files in a container cannot be read by this upstream")
    return f"[{block.type.removesuffix('_tool_result')} result: {_compact(raw.get('content'))}]"


def _compact(value: JsonValue) -> str:
    return orjson.dumps(_readable(value)).decode()[:MAX_SERVER_BLOCK_CHARACTERS]


def _readable(value: JsonValue) -> JsonValue:
    """Without what only the provider that wrote it can read."""
    if isinstance(value, dict):
        return {key: _readable(inner) for key, inner in value.items() if key not in _ENCRYPTED}
    if isinstance(value, list):
        return [_readable(inner) for inner in value]
    return value


def joined(parts: Sequence[JsonObject], separator: str = "\n\n") -> JsonValue:
    """Parts as one string where they are nothing but text: some servers take nothing else."""
    if all(part.keys() == {"type", "text"} for part in parts):
        return separator.join(str(part["text"]) for part in parts)
    return list(parts)
