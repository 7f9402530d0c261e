"""Pictures and files of a chat request -> canonical blocks."""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING

from bridge.canonical.content import Base64Source, Document, FileSource, Image, Text, UrlSource
from bridge.errors import invalid_request
from bridge.values import dataclass

if TYPE_CHECKING:
    from bridge.canonical.content import CacheMark
    from bridge.protocols.openai_chat.request_parts import File

PDF = "application/pdf"
_PDF_IN_BASE64 = "JVBERi"
_DATA_URL_HEAD = re.compile(r"data:([\w.+-]+/[\w.+-]+)((?:;[\w.+-]+=[^;,]*)*);base64", re.IGNORECASE)
_TEXT_TYPES = frozenset(
    {"application/json", "application/xml", "application/yaml", "application/x-yaml", "application/javascript"}
)
_TYPE_BY_ENDING = {"pdf": PDF, "png": "image/png", "jpg": "image/jpeg", "jpeg": "image/jpeg", "gif": "image/gif"}
_TEXT_ENDINGS = frozenset({"txt", "md", "csv", "json", "xml", "html", "yaml", "yml", "log", "py", "js", "ts"})


@dataclass(frozen=True, slots=True)
class _Bytes:
    media_type: str
    data: str


def image_of(url: str, cache: CacheMark | None, path: str) -> Image | Document:
    """The picture at a URL, or a PDF: some clients send those the same way."""
    if _is_remote(url):
        return Image(UrlSource(url), cache)
    carried = _read_data_url(url, path)
    if carried.media_type == PDF:
        return Document(Base64Source(PDF, carried.data), cache=cache)
    if not carried.media_type.startswith("image/"):
        raise invalid_request(f"{path}: {carried.media_type} is not a picture")
    return Image(Base64Source(carried.media_type, carried.data), cache)


def file_of(file: File, cache: CacheMark | None, path: str) -> Document | Image:
    """A file: a PDF or a picture by its bytes, a text by its words, an uploaded one by its id."""
    if file.file_data is None:
        if not file.file_id:
            raise invalid_request(f"{path}.file_data: Field required")
        return Document(FileSource(file.file_id), file.filename, cache=cache)
    at = f"{path}.file_data"
    if _is_remote(file.file_data):
        return Document(UrlSource(file.file_data), file.filename, cache=cache)
    carried = _carried(file.file_data, file.filename, at)
    if carried.media_type == PDF:
        return Document(Base64Source(PDF, carried.data), file.filename, cache=cache)
    if carried.media_type.startswith("image/"):
        return Image(Base64Source(carried.media_type, carried.data), cache)
    if carried.media_type.startswith("text/") or carried.media_type in _TEXT_TYPES:
        return Document((Text(_decoded(carried.data, at)),), file.filename, cache=cache)
    raise invalid_request(f"{at}: files of the type {carried.media_type} cannot be read; send a PDF or a text")


def _is_remote(url: str) -> bool:
    return url[:8].lower().startswith(("http://", "https://"))


def _carried(data: str, filename: str | None, path: str) -> _Bytes:
    """Bytes as a data URL, or as bare base64 whose type the name or the first bytes tell."""
    if data[:5].lower() == "data:":
        return _read_data_url(data, path)
    data = _sound(data, path)
    ending = (filename or "").rpartition(".")[2].lower()
    if data.startswith(_PDF_IN_BASE64):
        return _Bytes(PDF, data)
    if ending in _TEXT_ENDINGS:
        return _Bytes("text/plain", data)
    if ending in _TYPE_BY_ENDING:
        return _Bytes(_TYPE_BY_ENDING[ending], data)
    raise invalid_request(f"{path}: neither a data URL nor a filename says what kind of file this is")


def _read_data_url(url: str, path: str) -> _Bytes:
    head, comma, data = url.partition(",")
    matched = _DATA_URL_HEAD.fullmatch(head) if comma else None
    if matched is None:
        raise invalid_request(f"{path}: must be an http(s) URL or data:<media type>;base64,<data>")
    return _Bytes(matched[1].lower(), _sound(data, path))


def _sound(data: str, path: str) -> str:
    """Base64 without line breaks, known to be whole."""
    data = "".join(data.split())
    try:
        decoded = binascii.a2b_base64(data, strict_mode=True)
    except ValueError:
        raise invalid_request(f"{path}: the data is not valid base64") from None
    if not decoded:
        raise invalid_request(f"{path}: the data is empty")
    return data


def _decoded(data: str, path: str) -> str:
    try:
        return base64.b64decode(data).decode()
    except UnicodeDecodeError:
        raise invalid_request(f"{path}: the text is not UTF-8") from None
