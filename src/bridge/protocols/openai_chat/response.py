"""Whole chat completions: read as a stream of one chunk, so that both ways of answering are one translation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from bridge.canonical.fold import fold
from bridge.errors import broken_upstream
from bridge.protocols.openai_chat.stream import ChatStreamDecoder

if TYPE_CHECKING:
    from bridge.canonical.events import StreamEvent
    from bridge.canonical.fold import Message


def parse_response(body: bytes, provider: str) -> Message:
    """The message that a chat completion holds."""
    try:
        completion = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise broken_upstream("the answer is not JSON; check the base URL", provider) from None
    if not isinstance(completion, dict):
        raise broken_upstream("the answer is not a chat completion", provider)
    choices = completion.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        choices[0]["delta"] = choices[0].get("message")
    decoder = ChatStreamDecoder(provider)
    events: list[StreamEvent] = []
    decoder.feed_chunk(completion, events)
    events += decoder.close()
    return fold(events)
