"""The less usual things that a delta or a message may hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.canonical.content import Citation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bridge.canonical.json import WireObject


def reasoning_text(delta: WireObject) -> str:
    """Reasoning under whichever name the server gives it; several names may carry the same text."""
    said = delta.get("reasoning_content") or delta.get("reasoning")
    if said:
        return str(said)
    details = delta.get("reasoning_details")
    return "".join(_detail_text(detail) for detail in details) if details else ""


def _detail_text(detail: WireObject) -> str:
    return str(detail.get("text") or detail.get("summary") or "")


def is_thought(delta: WireObject) -> bool:
    """Gemini marks its thoughts this way and writes them into the content."""
    match delta:
        case {"extra_content": {"google": {"thought": True}}}:
            return True
    return False


def without_thought_tags(text: str) -> str:
    return text.replace("<thought>", "").replace("</thought>", "")


def parts_of(content: list[WireObject]) -> Iterator[tuple[str, str]]:
    """Content as a list of parts, the way Mistral's reasoning models answer."""
    for part in content:
        if part["type"] == "thinking":
            yield "thinking", "".join(str(inner.get("text", "")) for inner in part["thinking"])
        else:
            yield "text", str(part.get("text", ""))


def citations(delta: WireObject) -> Iterator[Citation]:
    for annotation in delta.get("annotations") or ():
        match annotation:
            case {"type": "url_citation", "url_citation": {"url": str(url), **rest}}:
                title, cited = rest.get("title"), rest.get("content")
                yield Citation(url, str(title) if title else None, str(cited or ""))


def says_nothing(chunk: WireObject) -> bool:
    """True for a chunk without choices that is no error either: usage alone, or a sign of life."""
    return not chunk or bool(chunk.get("usage")) or chunk.get("type") == "ping"
