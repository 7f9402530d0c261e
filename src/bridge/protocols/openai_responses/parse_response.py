"""Whole responses: read as a stream of only its last event, so that both ways of answering are one translation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.canonical.fold import fold
from bridge.canonical.json import load_object
from bridge.errors import broken_upstream
from bridge.protocols.openai_errors import error_in_chunk
from bridge.protocols.openai_responses.finish import TERMINAL
from bridge.protocols.openai_responses.stream_decoder import ResponsesStreamDecoder

if TYPE_CHECKING:
    from bridge.canonical.events import StreamEvent
    from bridge.canonical.fold import Message
    from bridge.canonical.reading import Reading


def parse_response(body: bytes, reading: Reading) -> Message:
    """The message that a response holds."""
    try:
        response = load_object(body)
    except TypeError:
        raise broken_upstream("the answer is not a response", reading.provider) from None
    if response is None:
        raise broken_upstream("the answer is not JSON; check the base URL", reading.provider)
    status = str(response.get("status") or "completed")
    if "output" not in response and status != "failed":
        raise error_in_chunk(response, reading.provider, "a response")
    if status not in TERMINAL:
        raise broken_upstream(f"the answer is not complete ({status[:20]})", reading.provider)
    events: list[StreamEvent] = []
    decoder = ResponsesStreamDecoder(reading)
    decoder.feed_event({"type": f"response.{status}", "response": response}, events)
    events += decoder.close()
    return fold(events)
