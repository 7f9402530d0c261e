"""Decodes the event stream of a response.

    AWAITING --first event of content--> OPEN --completed, incomplete--> ENDED
       any state --error, failed, cancelled, garbage, end of bytes too early--> FAILED

The events that only announce a response (`created`, `queued`, `in_progress`) begin nothing: a refusal right after
them can still have a status of its own. What comes after the end (`[DONE]`) is not read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.canonical.events import MessageEnd, MessageStart, StreamFailed, Usage
from bridge.canonical.fold import parse_arguments
from bridge.canonical.json import load_object
from bridge.canonical.quoting import not_a_stream
from bridge.canonical.sequencer import SequenceError
from bridge.canonical.states import StreamState
from bridge.errors import BridgeError, broken_upstream
from bridge.protocols.openai_errors import error_in_chunk, error_in_document
from bridge.protocols.openai_responses.finish import TERMINAL, final_status, incomplete_reason, stop_reason
from bridge.protocols.openai_responses.item_order import ADDED, DONE, OutputItems
from bridge.protocols.openai_responses.items import Telling
from bridge.protocols.openai_responses.usage import parse_usage
from bridge.sse import EventTooLargeError, SseParser

if TYPE_CHECKING:
    from bridge.canonical.events import StreamEvent
    from bridge.canonical.json import WireObject
    from bridge.canonical.reading import Reading
    from bridge.sse import ServerSentEvent

CHARACTERS_PER_TOKEN = 4
MAX_HEAD_BYTES = 4096

_ANNOUNCING = frozenset({"response.created", "response.queued", "response.in_progress"})
_ENDING = frozenset(f"response.{status}" for status in TERMINAL)
_OF_ITEMS = frozenset(
    {
        ADDED,
        DONE,
        "response.content_part.done",
        "response.output_text.delta",
        "response.output_text.done",
        "response.output_text.annotation.added",
        "response.output_text_annotation.added",
        "response.refusal.delta",
        "response.refusal.done",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.reasoning_summary_part.done",
        "response.reasoning_summary_text.delta",
        "response.reasoning_summary_text.done",
        "response.reasoning_text.delta",
        "response.reasoning_text.done",
    }
)
# Empty beginnings of parts, signs of life, and what tools do that are never declared here or tell it in their items.
_SAYING_NOTHING = (
    "keepalive",
    "ping",
    "response.audio.",
    "response.code_interpreter_call",
    "response.compaction.",
    "response.content_part.added",
    "response.custom_tool_call_input.",
    "response.file_search_call.",
    "response.image_generation_call.",
    "response.mcp_",
    "response.reasoning_summary_part.added",
    "response.shell_call_",
    "response.web_search_call.",
)


class _State(StreamState):
    AWAITING = 1
    OPEN = 2
    ENDED = 3
    FAILED = 4


_OVER = frozenset({_State.ENDED, _State.FAILED})


class ResponsesStreamDecoder:
    """`feed` bytes of the stream and `close` at their end; events come out as soon as they can be said."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._sse = SseParser()
        self._state = _State.AWAITING
        self._telling = Telling(reading.tool_names)
        self._items = OutputItems(self._telling)
        self._head = b""
        self.skipped = 0
        """How many events of unknown types were passed over."""

    def feed(self, data: bytes) -> list[StreamEvent]:
        out: list[StreamEvent] = []
        if self._state is _State.AWAITING and len(self._head) < MAX_HEAD_BYTES:
            self._head += data
        try:
            for event in self._sse.feed(data):
                self._event(event, out)
        except EventTooLargeError as error:
            self._fail(self._broken(str(error)), out)
        return out

    def close(self) -> list[StreamEvent]:
        """The end of bytes: nothing after a complete answer, else an error that says it is not."""
        out: list[StreamEvent] = []
        for event in self._sse.close():
            self._event(event, out)
        if self._state is _State.AWAITING and not_a_stream(self._head):
            self._fail(error_in_document(self._head, self._reading.provider), out)
        elif self._state not in _OVER:
            self._fail(self._broken("the stream was cut off before the answer was complete"), out)
        return out

    def unfinished_usage(self) -> Usage | None:
        if self._state is _State.ENDED or (self._state is _State.FAILED and not self._telling.blocks.characters):
            return None
        return self._usage({})

    def feed_event(self, event: WireObject, out: list[StreamEvent]) -> None:
        """Take one parsed event."""
        if self._state in _OVER:
            return
        try:
            self._parsed(event, out)
        except SequenceError as error:
            self._fail(self._broken(str(error)), out)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            self._fail(self._misshapen(), out)

    def _event(self, event: ServerSentEvent, out: list[StreamEvent]) -> None:
        if self._state in _OVER or not event.data.strip():
            return
        if event.data.startswith(b"[DONE]"):
            self._fail(self._broken("the stream ended without saying how the answer ends: it was cut off"), out)
            return
        try:
            parsed = load_object(event.data)
        except TypeError:
            self._fail(self._misshapen(), out)
            return
        if parsed is None:
            self._fail(self._broken("the stream holds something that is not JSON"), out)
            return
        if "type" not in parsed and event.event:
            parsed["type"] = event.event.decode("utf-8", "replace")
        self.feed_event(parsed, out)

    def _parsed(self, event: WireObject, out: list[StreamEvent]) -> None:
        kind = event.get("type")
        if kind in _OF_ITEMS:
            self._begin(out)
            self._items.take(event, out)
        elif kind in _ENDING:
            self._end(kind, event["response"], out)
        elif kind == "error" or not isinstance(kind, str):
            self._refusal(event, out)
        elif kind not in _ANNOUNCING:
            self._begin(out)
            self.skipped += not kind.startswith(_SAYING_NOTHING)

    def _refusal(self, event: WireObject, out: list[StreamEvent]) -> None:
        """An error, wrapped or flat, or something else altogether; an empty object is a sign of life."""
        if not event:
            return
        if event.get("type") == "error" and not event.get("error"):
            event = {"error": {name: event[name] for name in event if name != "type"}}
        self._fail(error_in_chunk(event, self._reading.provider, "a response"), out)

    def _begin(self, out: list[StreamEvent]) -> None:
        if self._state is _State.AWAITING:
            out.append(MessageStart(Usage(input_tokens=self._reading.estimated_input_tokens, estimated=True)))
            self._state = _State.OPEN

    def _end(self, kind: str, response: WireObject, out: list[StreamEvent]) -> None:
        status = final_status(kind, response)
        if status in ("failed", "cancelled"):
            self._fail(self._failure(status, response), out)
            return
        self._begin(out)
        self._items.settle(response.get("output"), out)
        self._items.finish(out)
        is_whole = status == "completed"
        if bad := self._malformed_call(partial=not is_whole):
            self._fail(self._broken(f"the arguments of the tool call {bad!r} are not a JSON object"), out)
            return
        raw_reason = status if is_whole else incomplete_reason(response)
        reason = stop_reason(
            raw_reason, is_whole=is_whole, has_calls=bool(self._telling.calls), refused=self._telling.refused
        )
        out.append(MessageEnd(reason, self._usage(response), raw_reason=raw_reason))
        self._state = _State.ENDED

    def _failure(self, status: str, response: WireObject) -> BridgeError:
        if response.get("error"):
            return error_in_chunk(response, self._reading.provider, "a response")
        return self._broken(f"the provider gave up on the answer ({status})")

    def _usage(self, response: WireObject) -> Usage:
        told = parse_usage(response.get("usage"))
        output = max(1, self._telling.blocks.characters // CHARACTERS_PER_TOKEN)
        return told or Usage(self._reading.estimated_input_tokens, output, estimated=True)

    def _malformed_call(self, *, partial: bool) -> str | None:
        for call in self._telling.calls:
            try:
                parse_arguments(call.arguments, partial=partial)
            except ValueError:
                return call.name
        return None

    def _misshapen(self) -> BridgeError:
        return self._broken("an event of the stream does not have the shape of a response")

    def _broken(self, message: str) -> BridgeError:
        return broken_upstream(message, self._reading.provider)

    def _fail(self, error: BridgeError, out: list[StreamEvent]) -> None:
        self._state = _State.FAILED
        out.append(StreamFailed(error))
