"""Data that a provider gives with tool calls and wants back with them: taken from answers, put into requests."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bridge.canonical.json import JsonObject, WireObject

MAX_DETAIL_CHARACTERS = 256 * 1024
# Google's documented value for calls in a history that another model made.
GEMINI_BYPASS: JsonObject = {"extra_content": {"google": {"thought_signature": "skip_thought_signature_validator"}}}


def call_data(call: WireObject) -> JsonObject | None:
    """Gemini's thought signature, which sits on the call, or beside a text."""
    extra = call.get("extra_content")
    return {"extra_content": extra} if isinstance(extra, dict) and extra else None


def has_signature(delta: WireObject) -> bool:
    """True if Gemini signs a text: the signature sits beside it, often with the last, empty piece."""
    match delta:
        case {"extra_content": {"google": {"thought_signature": str()}}}:
            return True
    return False


class TurnData:
    """OpenRouter's reasoning details, put together from their fragments, or the reasoning text itself.

    Fragments of one detail share type, index and id; their texts join to the letter, because signatures cover them.
    """

    __slots__ = ("_details", "_keeps_text", "_size", "_text")

    def __init__(self, *, keeps_text: bool) -> None:
        self._keeps_text = keeps_text
        self._details: dict[tuple[object, object, object], WireObject] = {}
        self._text: list[str] = []
        self._size = 0

    @property
    def is_there(self) -> bool:
        return bool(self._details or self._keeps_text)

    def add(self, delta: WireObject, text: str) -> None:
        if self._keeps_text and text:
            self._text.append(text)
        for detail in delta.get("reasoning_details") or ():
            self._merge(detail)

    def merged(self) -> JsonObject | None:
        if self._size > MAX_DETAIL_CHARACTERS:
            return None
        if self._details:
            return {"reasoning_details": list(self._details.values())}
        if self._keeps_text:
            return {"reasoning_content": "".join(self._text)}
        return None

    def _merge(self, detail: WireObject) -> None:
        known = self._details.setdefault((detail.get("type"), detail.get("index"), detail.get("id")), {})
        for name, value in detail.items():
            self._size += len(value) if isinstance(value, str) else 8
            if name in ("text", "summary", "data") and isinstance(value, str):
                known[name] = f"{known.get(name) or ''}{value}"
            elif value is not None or name not in known:
                known[name] = value
