"""Whole messages: read as the stream that would have made them, so that both ways of answering are one translation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.canonical.fold import fold
from bridge.canonical.json import load_object
from bridge.errors import broken_upstream
from bridge.protocols.anthropic.errors import error_in_event
from bridge.protocols.anthropic.stream_decoder import MessagesStreamDecoder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bridge.canonical.events import StreamEvent
    from bridge.canonical.fold import Message
    from bridge.canonical.json import WireObject
    from bridge.canonical.reading import Reading


def parse_response(body: bytes, reading: Reading) -> Message:
    """The message that an answer holds."""
    try:
        message = load_object(body)
    except TypeError:
        raise error_in_event({}, reading.provider) from None
    if message is None:
        raise broken_upstream("the answer is not JSON; check the base URL", reading.provider)
    if not isinstance(message.get("content"), list):
        raise error_in_event(message, reading.provider)
    decoder = MessagesStreamDecoder(reading)
    events: list[StreamEvent] = []
    for event in _as_stream(message):
        decoder.feed_event(event, events)
    return fold(events)


def _as_stream(message: WireObject) -> Iterator[WireObject]:
    """The events of a message, each block in one piece; an answer that is whole has a reason to end."""
    yield {"type": "message_start", "message": message}
    for index, block in enumerate(message["content"]):
        yield {"type": "content_block_start", "index": index, "content_block": block}
        yield {"type": "content_block_stop", "index": index}
    end = {"stop_reason": message.get("stop_reason") or "end_turn", "stop_sequence": message.get("stop_sequence")}
    yield {"type": "message_delta", "delta": end, "usage": message.get("usage")}
    yield {"type": "message_stop"}
