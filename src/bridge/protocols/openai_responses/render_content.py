"""Content blocks -> input parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from bridge.canonical import content as canonical
from bridge.canonical.documents import written_out
from bridge.errors import invalid_request

if TYPE_CHECKING:
    from bridge.canonical.json import JsonObject


def text_part(text: str) -> JsonObject:
    return {"type": "input_text", "text": text}


def image_part(image: canonical.Image) -> JsonObject:
    match image.source:
        case canonical.Base64Source(media_type, data):
            url = f"data:{media_type};base64,{data}"
        case canonical.UrlSource(url):
            pass
        case canonical.FileSource():
            raise invalid_request("image: files uploaded to another provider cannot be read by this upstream")
        case _:
            assert_never(image.source)
    return {"type": "input_image", "detail": "auto", "image_url": url}


def document_parts(document: canonical.Document) -> list[JsonObject]:
    """A document as text with its title around it, or as a file."""
    source = document.source
    if isinstance(source, tuple):
        pieces = written_out(document, source)
        return [text_part(piece) if isinstance(piece, str) else image_part(piece) for piece in pieces]
    file: JsonObject = {"type": "input_file"}
    match source:
        case canonical.Base64Source(media_type, data):
            filename = document.title or "document.pdf"
            file |= {"filename": filename, "file_data": f"data:{media_type};base64,{data}"}
        case canonical.UrlSource(url):
            file["file_url"] = url
        case canonical.FileSource():
            raise invalid_request("document: files uploaded to another provider cannot be read by this upstream")
        case _:
            assert_never(source)
    return [text_part(document.context), file] if document.context else [file]
