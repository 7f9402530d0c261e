"""Content blocks -> blocks of a Messages request."""

from __future__ import annotations

import binascii
from base64 import b64decode
from typing import TYPE_CHECKING, assert_never

from bridge.canonical import content as canonical
from bridge.errors import invalid_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.canonical.content import CacheMark, Document, Image, MediaSource
    from bridge.canonical.json import JsonObject

NO_DETAILS = "no details"
_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_SAME_TYPE = {"image/jpg": "image/jpeg", "image/pjpeg": "image/jpeg", "image/x-png": "image/png"}
_TEXTUAL = frozenset({"application/json", "application/xml", "application/yaml", "application/x-yaml"})


def render_text(text: str, cache: CacheMark | None = None) -> JsonObject:
    return marked({"type": "text", "text": text}, cache)


def render_image(image: Image) -> JsonObject:
    return marked({"type": "image", "source": _image_source(image.source)}, image.cache)


def render_document(document: Document) -> JsonObject:
    block: JsonObject = {"type": "document", "source": _document_source(document.source)}
    if document.title is not None:
        block["title"] = document.title
    if document.context is not None:
        block["context"] = document.context
    return marked(block, document.cache)


def render_result(result: canonical.ToolResult, tool_use_id: str, name: Callable[[str], str]) -> JsonObject:
    """One result under the id and with the tool names that go over the wire; blank texts are none."""
    block: JsonObject = {"type": "tool_result", "tool_use_id": tool_use_id}
    parts = [_result_part(part, name) for part in result.content if not is_blank(part)]
    if result.is_error:
        block["is_error"] = True
        parts = parts or [render_text(NO_DETAILS)]  # an error may not be empty
    if parts:
        block["content"] = list(parts)
    return marked(block, result.cache)


def is_blank(block: object) -> bool:
    """True for a text without a visible character: Anthropic refuses the request that holds one."""
    return isinstance(block, canonical.Text) and not block.text.strip()


def marked(block: JsonObject, cache: CacheMark | None) -> JsonObject:
    """The block with the client's wish that the prompt be cached up to it."""
    if cache is None:
        return block
    mark: JsonObject = {"type": "ephemeral", "ttl": cache.ttl} if cache.ttl else {"type": "ephemeral"}
    return block | {"cache_control": mark}


def _result_part(
    part: canonical.Text | Image | Document | canonical.ToolReference, name: Callable[[str], str]
) -> JsonObject:
    match part:
        case canonical.Text(text, cache):
            return render_text(text, cache)
        case canonical.Image():
            return render_image(part)
        case canonical.Document():
            return render_document(part)
        case canonical.ToolReference(tool_name):
            return {"type": "tool_reference", "tool_name": name(tool_name)}
        case _:
            assert_never(part)


def _image_source(source: MediaSource) -> JsonObject:
    match source:
        case canonical.Base64Source(media_type, data):
            known = _SAME_TYPE.get(media_type.lower(), media_type.lower())
            if known not in _IMAGES:
                raise invalid_request(f"image: Claude takes JPEG, PNG, GIF and WebP, not {media_type[:60]!r}")
            return {"type": "base64", "media_type": known, "data": data}
        case canonical.UrlSource(url):
            return {"type": "url", "url": url}
        case canonical.FileSource(file_id):
            return {"type": "file", "file_id": file_id}
        case _:
            assert_never(source)


def _document_source(source: MediaSource | tuple[canonical.Text | Image, ...]) -> JsonObject:
    match source:
        case (canonical.Text(text),):
            return _plain_text(text)
        case tuple(parts):
            shown = [
                render_image(part) if isinstance(part, canonical.Image) else render_text(part.text) for part in parts
            ]
            return {"type": "content", "content": list(shown)}
        case canonical.Base64Source(media_type, data):
            return _base64_document(media_type.lower(), data)
        case canonical.UrlSource(url):
            return {"type": "url", "url": url}
        case canonical.FileSource(file_id):
            return {"type": "file", "file_id": file_id}
        case _:
            assert_never(source)


def _base64_document(media_type: str, data: str) -> JsonObject:
    """PDF goes as it is; text, which Anthropic takes only in the open, is decoded."""
    if media_type == "application/pdf":
        return {"type": "base64", "media_type": media_type, "data": data}
    if not media_type.startswith("text/") and media_type not in _TEXTUAL:
        raise invalid_request(f"document: Claude reads PDF and plain text, not {media_type[:60]!r}")
    try:
        return _plain_text(b64decode(data, validate=True).decode())
    except (binascii.Error, UnicodeDecodeError):
        raise invalid_request("document: its data is not text in base64") from None


def _plain_text(text: str) -> JsonObject:
    return {"type": "text", "media_type": "text/plain", "data": text}
