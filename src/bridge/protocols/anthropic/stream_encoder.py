"""Encodes canonical events as Anthropic's event stream.

    START --message_start--> MESSAGE --content_block_start--> BLOCK --content_block_stop--> MESSAGE
    MESSAGE --message_delta, message_stop--> OVER       any state --error--> OVER

Block indexes count from 0 without gaps. Text and argument deltas, nearly all of a stream, are put
together from byte templates; everything else goes through a JSON encoder.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from bridge.canonical import events
from bridge.canonical.content import Thinking, ToolUse
from bridge.canonical.states import StreamState
from bridge.errors import LocalProtocolError
from bridge.protocols.anthropic.errors import render_error
from bridge.protocols.anthropic.render_response import render_block, render_citation, render_envelope, render_usage
from bridge.sse import encode_event

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.canonical.events import StreamEvent
    from bridge.canonical.head import AnswerHead
    from bridge.canonical.json import JsonObject


class _State(StreamState):
    START = 1
    MESSAGE = 2
    BLOCK = 3
    OVER = 4


_NEXT: dict[tuple[_State, type[StreamEvent]], _State] = {
    (_State.START, events.MessageStart): _State.MESSAGE,
    (_State.START, events.StreamFailed): _State.OVER,
    (_State.MESSAGE, events.TextStart): _State.BLOCK,
    (_State.MESSAGE, events.ThinkingStart): _State.BLOCK,
    (_State.MESSAGE, events.ToolUseStart): _State.BLOCK,
    (_State.MESSAGE, events.WholeBlock): _State.MESSAGE,
    (_State.MESSAGE, events.MessageEnd): _State.OVER,
    (_State.MESSAGE, events.StreamFailed): _State.OVER,
    (_State.BLOCK, events.TextDelta): _State.BLOCK,
    (_State.BLOCK, events.ThinkingDelta): _State.BLOCK,
    (_State.BLOCK, events.SignatureDelta): _State.BLOCK,
    (_State.BLOCK, events.InputDelta): _State.BLOCK,
    (_State.BLOCK, events.CitationDelta): _State.BLOCK,
    (_State.BLOCK, events.BlockStop): _State.MESSAGE,
    (_State.BLOCK, events.StreamFailed): _State.OVER,
}


_TEXT_START = (
    b"event: content_block_start\n"
    b'data: {"type":"content_block_start","index":%d,"content_block":{"type":"text","text":""}}\n\n'
)


class MessagesStreamEncoder:
    """Events in, bytes out; one object per stream."""

    def __init__(self, head: AnswerHead) -> None:
        self._head = head
        self._state = _State.START
        self._index = -1

    def encode(self, batch: Sequence[StreamEvent]) -> bytes:
        if len(batch) == 1:
            return self._encode(batch[0])
        return b"".join([self._encode(event) for event in batch])

    def _encode(self, event: StreamEvent) -> bytes:
        if event.__class__ is events.TextDelta and self._state is _State.BLOCK:
            return self._delta(b'"text_delta","text":', event.text)
        following = _NEXT.get((self._state, event.__class__))
        if following is None:
            raise LocalProtocolError(f"{event.__class__.__name__} cannot come in state {self._state.name}")
        self._state = following
        match event:
            case events.TextDelta(text):
                return self._delta(b'"text_delta","text":', text)
            case events.InputDelta(partial_json):
                return self._delta(b'"input_json_delta","partial_json":', partial_json)
            case events.ThinkingDelta(thinking):
                return self._delta(b'"thinking_delta","thinking":', thinking)
            case events.SignatureDelta(signature):
                return self._delta(b'"signature_delta","signature":', signature)
            case events.BlockStop():
                return self._block_stop()
            case _:
                return self._rare(event)

    def _delta(self, kind_and_key: bytes, value: str) -> bytes:
        return (
            b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{"type":%b%b}}\n\n'
            % (self._index, kind_and_key, orjson.dumps(value))
        )

    def _block_stop(self) -> bytes:
        return b'event: content_block_stop\ndata: {"type":"content_block_stop","index":%d}\n\n' % self._index

    def _rare(self, event: StreamEvent) -> bytes:
        match event:
            case events.MessageStart(usage):
                message = render_envelope(self._head) | {"usage": render_usage(usage)}
                return _event({"type": "message_start", "message": message})
            case events.TextStart():
                self._index += 1
                return _TEXT_START % self._index
            case events.ThinkingStart():
                return self._block_start(render_block(Thinking("")))
            case events.ToolUseStart(tool_id, name):
                return self._block_start(render_block(ToolUse(tool_id, name, {})))
            case events.WholeBlock(block):
                return self._block_start(render_block(block)) + self._block_stop()
            case events.CitationDelta(citation):
                delta: JsonObject = {"type": "citations_delta", "citation": render_citation(citation)}
                return _event({"type": "content_block_delta", "index": self._index, "delta": delta})
            case events.MessageEnd():
                return _message_end(event)
            case events.StreamFailed(error):
                return _event(render_error(error)[1])
            case _:
                raise LocalProtocolError(f"{event.__class__.__name__} has no encoding")

    def _block_start(self, block: JsonObject) -> bytes:
        self._index += 1
        return _event({"type": "content_block_start", "index": self._index, "content_block": block})


def _message_end(end: events.MessageEnd) -> bytes:
    delta: JsonObject = {"stop_reason": end.reason, "stop_sequence": end.sequence}
    message_delta: JsonObject = {"type": "message_delta", "delta": delta, "usage": render_usage(end.usage)}
    return _event(message_delta) + _event({"type": "message_stop"})


def _event(data: JsonObject) -> bytes:
    return encode_event(str(data["type"]).encode(), orjson.dumps(data))
