"""Decodes a stream of chat completion chunks.

    AWAITING --first chunk--> OPEN --finish_reason--> FINISHED --[DONE] or end of bytes--> ENDED
       any state --error chunk, garbage, end of bytes too early--> FAILED

Usage may come in any chunk, also after the one with `finish_reason`, so the message ends only with
`[DONE]` or the end of bytes. A stream that ends in AWAITING or OPEN was cut off and says so.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

import orjson

from bridge.canonical.events import MessageEnd, MessageStart, StreamFailed
from bridge.canonical.fold import parse_arguments
from bridge.canonical.sequencer import BlockSequencer, SequenceError
from bridge.errors import BridgeError, broken_upstream
from bridge.protocols.openai_chat.errors import parse_error_object
from bridge.protocols.openai_chat.usage import parse_usage
from bridge.sse import EventTooLargeError, SseParser

if TYPE_CHECKING:
    from bridge.canonical.events import StopReason, StreamEvent, Usage
    from bridge.canonical.json import JsonValue
    from bridge.protocols.openai_chat.wire import WireObject

_STOP_REASONS: dict[str, StopReason] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}


class _State(Enum):
    AWAITING = 1
    OPEN = 2
    FINISHED = 3
    ENDED = 4
    FAILED = 5


_OVER = frozenset({_State.ENDED, _State.FAILED})


class ChatStreamDecoder:
    """`feed` bytes of the stream and `close` at their end; events come out as soon as they can be said."""

    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._sse = SseParser()
        self._state = _State.AWAITING
        self._blocks = BlockSequencer()
        self._calls = _CallKeys()
        self._usage: Usage | None = None
        self._finish_reason: str | None = None
        self._refused = False

    def feed(self, data: bytes) -> list[StreamEvent]:
        out: list[StreamEvent] = []
        try:
            for event in self._sse.feed(data):
                self._event(event.data, out)
        except EventTooLargeError as error:
            self._fail(self._broken(str(error)), out)
        return out

    def close(self) -> list[StreamEvent]:
        """The end of bytes: the legal ending of a complete answer, or an error that says it is not."""
        out: list[StreamEvent] = []
        for event in self._sse.close():
            self._event(event.data, out)
        if self._state is _State.FINISHED:
            self._end(out)
        elif self._state not in _OVER:
            self._fail(self._broken("the stream was cut off before the answer was complete"), out)
        return out

    def feed_chunk(self, chunk: WireObject, out: list[StreamEvent]) -> None:
        """Take one parsed chunk."""
        if self._state in _OVER:
            return
        try:
            self._chunk(chunk, out)
        except SequenceError as error:
            self._fail(self._broken(str(error)), out)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            self._fail(self._broken("a chunk of the stream does not have the shape of a chat completion"), out)

    def _event(self, data: bytes, out: list[StreamEvent]) -> None:
        if self._state in _OVER:
            return
        if data == b"[DONE]":
            self._end(out)
            return
        try:
            chunk = orjson.loads(data)
        except orjson.JSONDecodeError:
            self._fail(self._broken("the stream holds something that is not JSON"), out)
            return
        self.feed_chunk(chunk, out)

    def _chunk(self, chunk: WireObject, out: list[StreamEvent]) -> None:
        error = chunk.get("error")
        if error:
            self._fail(parse_error_object(error, self._provider), out)
            return
        if self._state is _State.AWAITING:
            out.append(MessageStart())
            self._state = _State.OPEN
        usage = chunk.get("usage")
        if usage:
            self._usage = parse_usage(usage)
        choices = chunk["choices"]
        if not choices:
            return
        choice = choices[0]
        delta = choice.get("delta")
        if delta:
            self._delta(delta, out)
        reason = choice.get("finish_reason")
        if reason:
            self._finish_reason = reason
            self._state = _State.FINISHED

    def _delta(self, delta: WireObject, out: list[StreamEvent]) -> None:
        reasoning = delta.get("reasoning_content") or delta.get("reasoning")
        if reasoning:
            self._blocks.thinking(reasoning, out)
        content = delta.get("content")
        if content:
            self._blocks.text(content, out)
        refusal = delta.get("refusal")
        if refusal:
            self._refused = True
            self._blocks.text(refusal, out)
        for call in delta.get("tool_calls") or ():
            self._tool_call(call, out)

    def _tool_call(self, call: WireObject, out: list[StreamEvent]) -> None:
        function: WireObject = call.get("function") or {}
        name, tool_id = function.get("name") or "", call.get("id") or ""
        key, is_new = self._calls.key_for(call.get("index"), tool_id, bool(name))
        if is_new:
            if not name:
                raise SequenceError("a tool call began without a name")
            self._blocks.open_tool(key, tool_id, name, out)
        arguments = function.get("arguments")
        if arguments:
            piece = arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()
            self._blocks.arguments(key, piece, out)

    def _end(self, out: list[StreamEvent]) -> None:
        if self._state is _State.AWAITING:
            self._fail(self._broken("the stream ended without an answer"), out)
            return
        reason = self._stop_reason()
        if reason != "max_tokens" and (bad := self._malformed_call()):
            self._fail(self._broken(f"the arguments of the tool call {bad!r} are not a JSON object"), out)
            return
        self._blocks.finish(out)
        usage = self._usage or parse_usage({})
        out.append(MessageEnd(reason, usage, raw_reason=self._finish_reason))
        self._state = _State.ENDED

    def _stop_reason(self) -> StopReason:
        if self._refused:
            return "refusal"
        reason = _STOP_REASONS.get(self._finish_reason or "", "end_turn")
        if reason == "tool_use" and not self._blocks.tools:
            return "end_turn"
        if reason == "end_turn" and self._blocks.tools:
            return "tool_use"
        return reason

    def _malformed_call(self) -> str | None:
        for tool in self._blocks.tools:
            try:
                parse_arguments(tool.arguments, partial=False)
            except ValueError:
                return tool.name
        return None

    def _broken(self, message: str) -> BridgeError:
        return broken_upstream(message, self._provider)

    def _fail(self, error: BridgeError, out: list[StreamEvent]) -> None:
        self._state = _State.FAILED
        out.append(StreamFailed(error))


class _CallKeys:
    """Which tool call a delta belongs to: by its index, unless the server leaves that out or repeats it."""

    def __init__(self) -> None:
        self._count = 0
        self._by_index: dict[int, tuple[int, str]] = {}

    def key_for(self, index: JsonValue, tool_id: str, has_name: bool) -> tuple[int, bool]:
        """The call's own number, and whether this delta begins it."""
        slot = index if isinstance(index, int) else -1
        known = self._by_index.get(slot)
        if known is None or (tool_id and has_name and tool_id != known[1]):
            known = self._by_index[slot] = (self._count, tool_id)
            self._count += 1
            return known[0], True
        return known[0], False
