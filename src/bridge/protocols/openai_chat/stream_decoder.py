"""Decodes a stream of chat completion chunks.

    AWAITING --first chunk--> OPEN --finish_reason--> FINISHED --[DONE] or end of bytes--> ENDED
       any state --error chunk, garbage, end of bytes too early--> FAILED

Usage may come in any chunk, also after the one with `finish_reason`, so the message ends only with
`[DONE]` or the end of bytes. A stream that ends in AWAITING or OPEN was cut off and says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from bridge.canonical.events import MessageEnd, MessageStart, StreamFailed, TextDelta, ToolUseStart, Usage
from bridge.canonical.fold import parse_arguments
from bridge.canonical.json import load_object
from bridge.canonical.quoting import not_a_stream
from bridge.canonical.sequencer import BlockSequencer, SequenceError, is_complete_object
from bridge.canonical.states import StreamState
from bridge.errors import BridgeError, broken_upstream
from bridge.protocols.openai_chat.delta import (
    citations,
    is_thought,
    parts_of,
    reasoning_text,
    says_nothing,
    without_thought_tags,
)
from bridge.protocols.openai_chat.finish import CUT_SHORT, FAILED_REASONS, stop_reason
from bridge.protocols.openai_chat.reasoning_tags import ReasoningTags
from bridge.protocols.openai_chat.replay import TurnData, call_data, has_signature
from bridge.protocols.openai_chat.text_run import TextRun
from bridge.protocols.openai_chat.usage import parse_usage
from bridge.protocols.openai_errors import error_in_chunk, error_in_document
from bridge.sse import EventTooLargeError, SseParser

if TYPE_CHECKING:
    from bridge.canonical.events import StreamEvent
    from bridge.canonical.json import JsonObject, WireObject
    from bridge.canonical.reading import Reading

CHARACTERS_PER_TOKEN = 4
MAX_HEAD_BYTES = 4096
LEGACY_CALL = -1
UNNUMBERED = -2
_WRONG_SHAPE = "a chunk of the stream does not have the shape of a chat completion"


class _State(StreamState):
    AWAITING = 1
    OPEN = 2
    FINISHED = 3
    ENDED = 4
    FAILED = 5


_OVER = frozenset({_State.ENDED, _State.FAILED})


class ChatStreamDecoder:
    """`feed` bytes of the stream and `close` at their end; events come out as soon as they can be said."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._sse = SseParser()
        self._state = _State.AWAITING
        self._blocks = BlockSequencer()
        self._run = TextRun()
        self._calls = _CallKeys()
        self._tags = ReasoningTags(reading.reasoning_tags) if reading.reasoning_tags else None
        self._head = b""
        self._turn_data = TurnData(keeps_text=reading.replays_reasoning_text)
        self._text_data: JsonObject | None = None
        self._usage: Usage | None = None
        self._characters = 0
        self._finish: WireObject = {}
        self._refused = False

    def feed(self, data: bytes) -> list[StreamEvent]:
        out: list[StreamEvent] = []
        if self._state is _State.OPEN and self._run.is_known and self._sse.is_between_events:
            text = self._run.text_in_read(data)
            if text is not None:
                self._plain_text(text, out)
                return out
        elif self._state is _State.AWAITING and len(self._head) < MAX_HEAD_BYTES:
            self._head += data
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
        elif self._state is _State.AWAITING and not_a_stream(self._head):
            self._fail(error_in_document(self._head, self._reading.provider), out)
        elif self._state not in _OVER:
            self._fail(self._broken("the stream was cut off before the answer was complete"), out)
        return out

    def unfinished_usage(self) -> Usage | None:
        if self._state is _State.ENDED or (self._state is _State.FAILED and not self._characters):
            return None
        return self._usage or self._estimated_usage()

    def feed_chunk(self, chunk: WireObject, out: list[StreamEvent]) -> None:
        """Take one parsed chunk."""
        if self._state in _OVER:
            return
        try:
            self._chunk(chunk, out)
        except SequenceError as error:
            self._fail(self._broken(str(error)), out)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            self._fail(self._broken(_WRONG_SHAPE), out)

    def _event(self, data: bytes, out: list[StreamEvent]) -> None:
        if self._state in _OVER or not data.strip():
            return
        if self._state is _State.OPEN and self._run.learn():
            text = self._run.text_in(data)
            if text is not None:
                self._plain_text(text, out)
                return
        if data.startswith(b"[DONE]"):
            self._end(out)
            return
        try:
            chunk = load_object(data)
        except TypeError:
            self._fail(self._broken(_WRONG_SHAPE), out)
            return
        if chunk is None:
            self._fail(self._broken("the stream holds something that is not JSON"), out)
            return
        self.feed_chunk(chunk, out)
        if out and out[-1].__class__ is TextDelta and self._state is _State.OPEN and self._tags is None:
            self._run.note(data, chunk)

    def _plain_text(self, text: str, out: list[StreamEvent]) -> None:
        self._characters += len(text)
        try:
            self._blocks.text(text, out)
        except SequenceError as error:
            self._fail(self._broken(str(error)), out)

    def _chunk(self, chunk: WireObject, out: list[StreamEvent]) -> None:
        choices = chunk.get("choices")
        if chunk.get("error") or (choices is None and not says_nothing(chunk)):
            self._fail(error_in_chunk(chunk, self._reading.provider), out)
            return
        if self._state is _State.AWAITING:
            out.append(MessageStart(Usage(input_tokens=self._reading.estimated_input_tokens, estimated=True)))
            self._state = _State.OPEN
        usage = chunk.get("usage")
        if usage:
            self._usage = parse_usage(usage) or self._usage
        for choice in choices or ():
            if not choice.get("index"):  # one answer was asked for: others are none of ours
                self._choice(choice, out)

    def _choice(self, choice: WireObject, out: list[StreamEvent]) -> None:
        if choice.get("error"):
            self._fail(error_in_chunk(choice, self._reading.provider), out)
            return
        delta = choice.get("delta")
        if delta:
            self._delta(delta, out)
        if choice.get("usage"):
            self._usage = parse_usage(choice["usage"]) or self._usage
        if choice.get("finish_reason"):
            self._finish = choice
            self._state = _State.FINISHED

    def _delta(self, delta: WireObject, out: list[StreamEvent]) -> None:
        reasoning = reasoning_text(delta)
        if reasoning or "reasoning_details" in delta:
            self._turn_data.add(delta, reasoning)
        if reasoning:
            self._characters += len(reasoning)
            self._blocks.thinking(reasoning, out)
        if "extra_content" in delta:
            self._text_data = call_data(delta) if has_signature(delta) else self._text_data
        content = delta.get("content")
        if content:
            self._content(content, delta, out)
        refusal = delta.get("refusal")
        if refusal:
            self._refused = True
            self._blocks.text(refusal, out)
        calls = delta.get("tool_calls") or ()
        for position, call in enumerate(calls):
            self._tool_call(call, position if len(calls) > 1 else 0, out)
        if delta.get("function_call"):
            self._tool_call({"index": LEGACY_CALL, "function": delta["function_call"]}, 0, out)
        if "annotations" in delta:
            for citation in citations(delta):
                self._blocks.citation(citation, out)

    def _content(self, content: str | list[WireObject], delta: WireObject, out: list[StreamEvent]) -> None:
        if not isinstance(content, str):
            for kind, piece in parts_of(content):
                self._say(kind, piece, out)
        elif "extra_content" in delta and is_thought(delta):
            self._say("thinking", without_thought_tags(content), out)
        elif self._tags is not None:
            for kind, piece in self._tags.feed(content):
                self._say(kind, piece, out)
        else:
            self._characters += len(content)
            self._blocks.text(content, out)

    def _say(self, kind: str, piece: str, out: list[StreamEvent]) -> None:
        if not piece:
            return
        self._characters += len(piece)
        if kind == "thinking":
            self._blocks.thinking(piece, out)
        else:
            self._blocks.text(piece, out)

    def _tool_call(self, call: WireObject, position: int, out: list[StreamEvent]) -> None:
        function: WireObject = call.get("function") or {}
        name, tool_id = function.get("name") or "", call.get("id") or ""
        index = call.get("index")
        slot = index if isinstance(index, int) else UNNUMBERED - position
        key, is_new = self._calls.key_for(slot, tool_id, begins=self._begins(slot, tool_id, name, function))
        if is_new:
            if not name or not isinstance(name, str):
                raise SequenceError("a tool call began without a name")
            original = self._reading.tool_names.get(name, name)
            begins_turn = not self._blocks.tools and self._turn_data.is_there
            self._blocks.open_tool(key, ToolUseStart(tool_id, original, call_data(call), begins_turn), out)
        arguments = function.get("arguments")
        if arguments:
            piece = arguments if isinstance(arguments, str) else orjson.dumps(arguments).decode()
            self._characters += len(piece)
            self._blocks.arguments(key, piece, out)

    def _begins(self, slot: int, tool_id: str, name: str, function: WireObject) -> bool:
        """True if a delta on a slot that is taken begins another call: by its id, else by following a whole one."""
        known = self._calls.taken.get(slot)
        if known is None or not name:
            return False
        key, known_id = known
        if tool_id or known_id:
            return bool(tool_id) and tool_id != known_id
        return bool(function.get("arguments")) and is_complete_object(self._blocks.arguments_of(key))

    def _end(self, out: list[StreamEvent]) -> None:
        if self._state is not _State.FINISHED:
            lacking = "an answer" if self._state is _State.AWAITING else "saying why the answer ends"
            self._fail(self._broken(f"the stream ended without {lacking}"), out)
            return
        raw_reason = self._finish.get("finish_reason")
        if raw_reason in FAILED_REASONS:
            self._fail(self._broken(f"the provider gave up on the answer ({raw_reason})"), out)
            return
        reason, sequence = stop_reason(
            self._finish, self._reading.stop_sequences, has_tools=bool(self._blocks.tools), refused=self._refused
        )
        if bad := self._malformed_call(cut_short=reason in CUT_SHORT):
            self._fail(self._broken(f"the arguments of the tool call {bad!r} are not a JSON object"), out)
            return
        if self._tags is not None:
            for kind, piece in self._tags.close():
                self._say(kind, piece, out)
        self._blocks.finish(out)
        data = self._turn_data.merged() if self._blocks.tools else self._text_data
        out.append(MessageEnd(reason, self._usage or self._estimated_usage(), sequence, raw_reason, data))
        self._state = _State.ENDED

    def _estimated_usage(self) -> Usage:
        output = max(1, self._characters // CHARACTERS_PER_TOKEN)
        return Usage(self._reading.estimated_input_tokens, output, estimated=True)

    def _malformed_call(self, *, cut_short: bool) -> str | None:
        for tool in self._blocks.tools:
            try:
                parse_arguments(tool.arguments, partial=cut_short)
            except ValueError:
                return tool.name
        return None

    def _broken(self, message: str) -> BridgeError:
        return broken_upstream(message, self._reading.provider)

    def _fail(self, error: BridgeError, out: list[StreamEvent]) -> None:
        self._state = _State.FAILED
        out.append(StreamFailed(error))


class _CallKeys:
    """Which tool call a delta belongs to: by its slot, mostly the index; some servers use one slot for several."""

    def __init__(self) -> None:
        self._count = 0
        self.taken: dict[int, tuple[int, str]] = {}

    def key_for(self, slot: int, tool_id: str, *, begins: bool) -> tuple[int, bool]:
        """The call's own number, and whether this delta begins it."""
        known = self.taken.get(slot)
        if known is not None and not begins:
            return known[0], False
        self.taken[slot] = (self._count, tool_id)
        self._count += 1
        return self._count - 1, True
