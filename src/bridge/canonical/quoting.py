"""What a provider sent instead of an answer, quoted for the error message."""

from __future__ import annotations

MAX_QUOTED_CHARACTERS = 500


def plain_text(body: bytes) -> str:
    """The beginning of a body that is not what it should be."""
    text = body[: MAX_QUOTED_CHARACTERS * 4].decode("utf-8", "replace").strip()
    if text.startswith("<"):
        return "an HTML page instead of an API answer; check the base URL"
    return text[:MAX_QUOTED_CHARACTERS]


def not_a_stream(head: bytes) -> bool:
    """True if bytes that should be a stream begin like a JSON or HTML document."""
    return head.lstrip()[:1] in (b"{", b"[", b"<")
