"""Whole chat completions: read as a stream of one chunk, so that both ways of answering are one translation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.canonical.fold import fold
from bridge.canonical.json import load_object
from bridge.errors import broken_upstream
from bridge.protocols.openai_chat.stream_decoder import ChatStreamDecoder

if TYPE_CHECKING:
    from bridge.canonical.events import StreamEvent
    from bridge.canonical.fold import Message
    from bridge.canonical.json import WireObject
    from bridge.canonical.reading import Reading


def parse_response(body: bytes, reading: Reading) -> Message:
    """The message that a chat completion holds."""
    try:
        completion = load_object(body)
    except TypeError:
        raise broken_upstream("the answer is not a chat completion", reading.provider) from None
    if completion is None:
        raise broken_upstream("the answer is not JSON; check the base URL", reading.provider)
    decoder = ChatStreamDecoder(reading)
    events: list[StreamEvent] = []
    decoder.feed_chunk(_as_chunk(completion), events)
    events += decoder.close()
    return fold(events)


def _as_chunk(completion: WireObject) -> WireObject:
    """The completion with its message as a delta; calls are told apart by position, as whole ones have no index."""
    match completion:
        case {"choices": [{"message": {**message}, **choice}, *_]}:
            calls = message.get("tool_calls")
            if isinstance(calls, list):
                message["tool_calls"] = [
                    call | {"index": index} if isinstance(call, dict) else call for index, call in enumerate(calls)
                ]
            finish = choice.get("finish_reason") or "stop"
            return completion | {"choices": [choice | {"delta": message, "finish_reason": finish}]}
    if completion.get("error") or "choices" not in completion:
        return completion
    return {"error": "the answer holds no message"}
