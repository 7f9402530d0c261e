"""Content parts of a Responses request -> canonical blocks."""

from __future__ import annotations

import re
from base64 import b64decode
from typing import TYPE_CHECKING, TypeAlias, assert_never

from bridge.canonical.content import Base64Source, Document, FileSource, Image, Text, UrlSource
from bridge.errors import invalid_request
from bridge.protocols.openai_responses import part_wire as wire

if TYPE_CHECKING:
    from collections.abc import Sequence

PartBlock: TypeAlias = Text | Image | Document
_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)(?:;[\w.+-]+=[^;,]*)*;base64,", re.I)
_PLAIN_TEXT = frozenset({"txt", "md", "csv", "json", "xml", "html", "yaml", "yml", "py", "js", "ts", "log"})
_DETAILS_THAT_ASK_NOTHING = (None, "auto")


def parse_parts(parts: Sequence[wire.Part], path: str, unread: dict[str, None]) -> list[PartBlock]:
    """The blocks of some parts; BridgeError naming the part that has no form here."""
    return [_block(part, f"{path}.{index}", unread) for index, part in enumerate(parts)]


def parse_texts(parts: Sequence[wire.Part], path: str, where: str, unread: dict[str, None]) -> list[Text]:
    """The same where only text may stand."""
    blocks = parse_parts(parts, path, unread)
    for index, block in enumerate(blocks):
        if not isinstance(block, Text):
            raise invalid_request(f"{path}.{index}: {parts[index].type} cannot stand in {where}")
    return [block for block in blocks if isinstance(block, Text)]


def _block(part: wire.Part, path: str, unread: dict[str, None]) -> PartBlock:
    extra = part.model_extra or {}
    match part:
        case wire.TextPart():
            block: PartBlock = Text(part.text)
        case wire.RefusalPart():
            block = Text(part.refusal)
        case wire.ImagePart():
            block = Image(_image_source(part, path))
        case wire.FilePart():
            block = _document(part, path)
        case wire.OtherPart():
            raise invalid_request(f"{path}.type: {part.type!r} is not served here")
        case _:
            assert_never(part)
    if isinstance(part, wire.ImagePart | wire.FilePart) and part.detail not in _DETAILS_THAT_ASK_NOTHING:
        unread[f"{part.type}.detail"] = None
    unread |= dict.fromkeys(f"{part.type}.{name}" for name, value in extra.items() if value is not None)
    return block


def _image_source(part: wire.ImagePart, path: str) -> Base64Source | UrlSource | FileSource:
    if part.image_url:
        return _source(part.image_url, f"{path}.image_url")
    if part.file_id:
        return FileSource(part.file_id)
    raise invalid_request(f"{path}: one of image_url, file_id is required")


def _source(url: str, path: str) -> Base64Source | UrlSource:
    data_url = _DATA_URL.match(url)
    if data_url is not None:
        return Base64Source(data_url[1].lower(), url[data_url.end() :])
    if not url.startswith(("https://", "http://")):
        raise invalid_request(f"{path}: neither an http(s) URL nor a base64 data URL")
    return UrlSource(url)


def _document(part: wire.FilePart, path: str) -> Document:
    if part.file_data:
        return _inline_document(part.file_data, part.filename, f"{path}.file_data")
    if part.file_url:
        return Document(_source(part.file_url, f"{path}.file_url"), part.filename)
    if part.file_id:
        return Document(FileSource(part.file_id), part.filename)
    raise invalid_request(f"{path}: one of file_data, file_url, file_id is required")


def _inline_document(data: str, filename: str | None, path: str) -> Document:
    """A file in the request; text is read here, because providers take nothing but PDF as bytes."""
    if data.startswith("data:"):
        source = _source(data, path)
        media_type, encoded = (source.media_type, source.data) if isinstance(source, Base64Source) else ("", "")
    else:
        ending = (filename or "").rpartition(".")[2].lower()
        media_type, encoded = ("text/plain" if ending in _PLAIN_TEXT else "application/pdf"), data
    if not media_type.startswith("text/") and media_type != "application/json":
        return Document(Base64Source(media_type, encoded), filename)
    try:
        text = b64decode(encoded, validate=True).decode()
    except ValueError:
        raise invalid_request(f"{path}: not UTF-8 text in base64") from None
    return Document((Text(text),), filename)
