"""What was fetched, in a form that a model reads: pages and texts as text, PDFs as they are."""

from __future__ import annotations

import codecs
from base64 import b64encode
from typing import TYPE_CHECKING

from bridge.canonical.content import Base64Source, Document, Text
from bridge.toolloop.blocks import SOURCE

if TYPE_CHECKING:
    from collections.abc import Mapping

HTML = frozenset({"text/html", "application/xhtml+xml"})
PDF = "application/pdf"
_TEXT = frozenset(
    {
        "application/javascript",
        "application/json",
        "application/toml",
        "application/x-ndjson",
        "application/x-yaml",
        "application/xml",
        "application/yaml",
    }
)


def media_type_of(headers: Mapping[str, str]) -> str:
    """The type of a body, without its parameters."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def is_readable(media_type: str) -> bool:
    is_text = media_type.startswith("text/") or media_type.endswith(("+json", "+xml")) or media_type in _TEXT
    return is_text or media_type in HTML or media_type == PDF


def readable(body: bytes, media_type: str, charset: str | None, url: str) -> Document:
    """The body as a document. Takes a while for a large page: not for the event loop."""
    if media_type == PDF:
        return Document(Base64Source(PDF, b64encode(body).decode()), context=SOURCE + url)
    if media_type not in HTML:
        return Document((Text(_decoded(body, charset)),), context=SOURCE + url)
    text, title = _page(body, charset)
    return Document((Text(text),), title, SOURCE + url)


def _page(body: bytes, charset: str | None) -> tuple[str, str | None]:
    """A page as Markdown, and its title. Scripts and styles are left out by the parser's sanitizer."""
    from justhtml import JustHTML

    page = JustHTML(body, encoding=charset or _likely_charset(body))
    found = page.query("title")
    title = " ".join(found[0].to_text().split()) if found else ""
    return page.to_markdown().strip(), title or None


def _likely_charset(body: bytes) -> str | None:
    """UTF-8 where the bytes are that; browsers would take Windows-1252 for it, unless the page says otherwise."""
    try:
        body.decode()
    except UnicodeDecodeError:
        return None
    return "utf-8"


def _decoded(body: bytes, charset: str | None) -> str:
    try:
        codecs.lookup(charset or "utf-8")
    except LookupError:
        charset = None
    return body.decode(charset or "utf-8", "replace").removeprefix("\ufeff")
