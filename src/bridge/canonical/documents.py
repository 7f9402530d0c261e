"""Documents given as text: what surrounds them, so that a model sees where one begins and ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from bridge.canonical.content import Image, Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.canonical.content import Document


def written_out(document: Document, source: Sequence[Text | Image]) -> list[str | Image]:
    """The document's text with its title around it, in as few pieces as its images allow."""
    title = f" title={orjson.dumps(document.title).decode()}" if document.title else ""
    pieces: list[str | Image] = []
    text = f"<document{title}>\n" + (f"{document.context}\n" if document.context else "")
    for part in source:
        if isinstance(part, Text):
            text += part.text
        else:
            pieces += [text, part] if text else [part]
            text = ""
    return [*pieces, f"{text}\n</document>"]
