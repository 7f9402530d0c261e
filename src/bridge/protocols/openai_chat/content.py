"""Content blocks -> chat content parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from bridge.canonical import content as canonical
from bridge.canonical.documents import written_out
from bridge.errors import invalid_request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.canonical.json import JsonObject, JsonValue
    from bridge.canonical.losses import Losses
    from bridge.traits import Traits


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
        pieces = written_out(document, source)
        return [
            {"type": "text", "text": piece} if isinstance(piece, str) else image_part(piece, traits) for piece in pieces
        ]
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


def joined(parts: Sequence[JsonObject], separator: str = "\n\n") -> JsonValue:
    """Parts as one string where they are nothing but text: some servers take nothing else."""
    if all(part.keys() == _PLAIN_TEXT for part in parts):
        return separator.join([str(part["text"]) for part in parts])
    return list(parts)


_PLAIN_TEXT = {"type", "text"}
