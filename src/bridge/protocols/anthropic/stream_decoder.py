"""Decodes the event stream of the Messages API.

    AWAITING --message_start--> OPEN --message_delta with a stop_reason--> FINISHED
    FINISHED --message_stop or end of bytes--> ENDED
       any state --error, garbage, end of bytes too early--> FAILED

Events and pieces of kinds that are not known are skipped: Anthropic adds new ones. A stream that ends in AWAITING or
OPEN was cut off and says so.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bridge.canonical.events import MessageEnd, MessageStart, StreamFailed, Usage
from bridge.canonical.json import load_object
from bridge.canonical.quoting import not_a_stream
from bridge.canonical.states import StreamState
from bridge.errors import BridgeError, broken_upstream
from bridge.protocols.anthropic.errors import error_in_document, error_in_event
from bridge.protocols.anthropic.open_blocks import Answer, BlockError, open_block
from bridge.protocols.anthropic.usage import parse_usage
from bridge.sse import EventTooLargeError, SseParser

if TYPE_CHECKING:
    from bridge.canonical.events import StopReason, StreamEvent
    from bridge.canonical.json import WireObject
    from bridge.canonical.reading import Reading
    from bridge.protocols.anthropic.open_blocks import OpenBlock
    from bridge.sse import ServerSentEvent

CHARACTERS_PER_TOKEN = 4
MAX_HEAD_BYTES = 4096
_REASONS: dict[str, StopReason] = {
    "end_turn": "end_turn",
    "max_tokens": "max_tokens",
    "stop_sequence": "stop_sequence",
    "tool_use": "tool_use",
    "pause_turn": "pause_turn",
    "refusal": "refusal",
    "model_context_window_exceeded": "model_context_window_exceeded",
}
_CUT_SHORT = frozenset({"max_tokens", "refusal", "model_context_window_exceeded"})


class _State(StreamState):
    AWAITING = 1
    OPEN = 2
    FINISHED = 3
    ENDED = 4
    FAILED = 5


_OVER = frozenset({_State.ENDED, _State.FAILED})


class MessagesStreamDecoder:
    """`feed` bytes of the stream and `close` at their end; events come out as soon as they can be said."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._sse = SseParser()
        self._state = _State.AWAITING
        self._head = b""
        self._answer = Answer(reading.tool_names)
        self._block: OpenBlock | None = None
        self._index: object = None
        self._usage: Usage | None = None
        self._stop: WireObject = {}
        self._takes = {
            "message_start": self._message_start,
            "content_block_start": self._block_start,
            "content_block_delta": self._block_delta,
            "content_block_stop": self._block_stop,
            "message_delta": self._message_delta,
            "message_stop": self._message_stop,
            "error": self._error,
        }

    def feed(self, data: bytes) -> list[StreamEvent]:
        out: list[StreamEvent] = []
        if self._state is _State.AWAITING and len(self._head) < MAX_HEAD_BYTES:
            self._head += data[:MAX_HEAD_BYTES]
        try:
            for event in self._sse.feed(data):
                self._event(event, out)
        except EventTooLargeError as error:
            self._fail(self._broken(str(error)), out)
        return out

    def close(self) -> list[StreamEvent]:
        """The end of bytes: the legal ending of a complete answer, or an error that says it is not."""
        out: list[StreamEvent] = []
        for event in self._sse.close():
            self._event(event, out)
        if self._state is _State.FINISHED:
            self.feed_event({"type": "message_stop"}, out)
        elif self._state is _State.AWAITING and not_a_stream(self._head):
            self._fail(error_in_document(self._head, self._reading.provider), out)
        elif self._state not in _OVER:
            self._fail(self._broken("the stream was cut off before the answer was complete"), out)
        return out

    def unfinished_usage(self) -> Usage | None:
        if self._state is _State.ENDED or (self._state is _State.FAILED and not self._answer.characters):
            return None
        estimated = self._estimated_usage()
        if self._usage is None:
            return estimated
        output = max(self._usage.output_tokens, estimated.output_tokens)  # what was told so far is as of the start
        return replace(self._usage, output_tokens=output, estimated=True)

    def feed_event(self, event: WireObject, out: list[StreamEvent]) -> None:
        """Take one parsed event."""
        if self._state in _OVER:
            return
        try:
            if not event.get("type"):
                self._error(event, out)
            elif take := self._takes.get(event["type"]):
                take(event, out)
        except BlockError as error:
            self._fail(self._broken(str(error)), out)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            self._fail(self._broken("an event of the stream does not have the shape of a message's"), out)

    def _event(self, event: ServerSentEvent, out: list[StreamEvent]) -> None:
        if self._state in _OVER or not event.data.strip() or event.data.startswith(b"[DONE]"):
            return
        try:
            said = load_object(event.data)
        except TypeError:
            self._error({}, out)
            return
        if said is None:
            self._fail(self._broken("the stream holds something that is not JSON"), out)
        else:
            self.feed_event(said, out)

    def _message_start(self, event: WireObject, out: list[StreamEvent]) -> None:
        if self._state is not _State.AWAITING:
            raise BlockError("the stream began a second message")
        usage = event["message"].get("usage")
        self._usage = parse_usage(usage) if isinstance(usage, dict) else None
        self._begin(out)

    def _begin(self, out: list[StreamEvent]) -> None:
        """Some servers forget to say that the message starts."""
        if self._state is _State.AWAITING:
            estimated = Usage(input_tokens=self._reading.estimated_input_tokens, estimated=True)
            out.append(MessageStart(self._usage or estimated))
            self._state = _State.OPEN

    def _block_start(self, event: WireObject, out: list[StreamEvent]) -> None:
        self._begin(out)
        self._close_block(out)
        self._block = open_block(event["content_block"], self._answer, out)
        self._index = event.get("index")

    def _block_delta(self, event: WireObject, out: list[StreamEvent]) -> None:
        if self._block is None or event.get("index") != self._index:
            raise BlockError("a piece of the answer arrived for a block that is not open")
        self._block.delta(event["delta"], out)

    def _block_stop(self, event: WireObject, out: list[StreamEvent]) -> None:
        if event.get("index") == self._index:
            self._close_block(out)

    def _close_block(self, out: list[StreamEvent]) -> None:
        block, self._block, self._index = self._block, None, None
        if block is not None:
            block.close(out)

    def _message_delta(self, event: WireObject, out: list[StreamEvent]) -> None:
        self._begin(out)
        usage = event.get("usage")
        if isinstance(usage, dict):
            self._usage = parse_usage(usage, self._usage or Usage(self._reading.estimated_input_tokens))
        delta = event.get("delta") or {}
        if delta.get("stop_reason"):
            self._stop = delta
            self._state = _State.FINISHED

    def _message_stop(self, _event: WireObject, out: list[StreamEvent]) -> None:
        if self._state is _State.FINISHED:
            self._end(out)
        else:
            self._fail(self._broken("the stream ended without saying why the answer ends"), out)

    def _error(self, event: WireObject, out: list[StreamEvent]) -> None:
        self._fail(error_in_event(event, self._reading.provider), out)

    def _end(self, out: list[StreamEvent]) -> None:
        self._close_block(out)
        raw_reason = str(self._stop["stop_reason"])
        reason = self._reason(raw_reason)
        unfinished = self._answer.unfinished
        if unfinished is not None and reason not in _CUT_SHORT:
            raise BlockError(f"the arguments of the tool call {unfinished!r} are not a JSON object")
        sequence = self._stop.get("stop_sequence")
        told = sequence if isinstance(sequence, str) else None
        out.append(MessageEnd(reason, self._usage or self._estimated_usage(), told, raw_reason))
        self._state = _State.ENDED

    def _reason(self, raw_reason: str) -> StopReason:
        """Anthropic's own word, unless what was sent contradicts it."""
        reason = _REASONS.get(raw_reason, "end_turn")
        if reason in ("tool_use", "end_turn"):
            return "tool_use" if self._answer.calls else "end_turn"
        return reason

    def _estimated_usage(self) -> Usage:
        output = max(1, self._answer.characters // CHARACTERS_PER_TOKEN)
        return Usage(self._reading.estimated_input_tokens, output, estimated=True)

    def _broken(self, message: str) -> BridgeError:
        return broken_upstream(message, self._reading.provider)

    def _fail(self, error: BridgeError, out: list[StreamEvent]) -> None:
        self._state = _State.FAILED
        out.append(StreamFailed(error))
