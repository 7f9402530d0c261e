"""Encodes canonical events as a stream of chat completion chunks.

    START --first chunk--> MESSAGE --a block starts--> TEXT, THINKING, CALL or CUSTOM --its stop--> MESSAGE
    CALL --first piece of the arguments--> ARGUMENTS       MESSAGE --finish_reason, [DONE]--> OVER
    any state --error--> OVER

Chunks have no blocks: what tells tool calls apart is an index that counts calls alone. A call whose
arguments never came (CALL at its stop) says `{}`. Free text for a custom tool comes wrapped in JSON and
is said at its stop; citations wait for the end of the text they belong to, which their positions name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from bridge.canonical import events
from bridge.canonical.fold import parse_arguments
from bridge.canonical.json import dumps
from bridge.canonical.states import StreamState
from bridge.errors import LocalProtocolError
from bridge.protocols.openai_chat.custom_tools import custom_names, from_arguments
from bridge.protocols.openai_chat.render_response import finish_reason, render_citations, render_usage
from bridge.protocols.openai_errors import render_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.canonical.content import Citation
    from bridge.canonical.events import StreamEvent
    from bridge.canonical.head import AnswerHead
    from bridge.canonical.json import JsonObject, JsonValue

DONE = b"data: [DONE]\n\n"


class _State(StreamState):
    START = 1
    MESSAGE = 2
    TEXT = 3
    THINKING = 4
    CALL = 5
    ARGUMENTS = 6
    CUSTOM = 7
    OVER = 8


_NEXT: dict[tuple[_State, type[StreamEvent]], _State] = {
    (_State.START, events.MessageStart): _State.MESSAGE,
    (_State.MESSAGE, events.TextStart): _State.TEXT,
    (_State.MESSAGE, events.ThinkingStart): _State.THINKING,
    (_State.MESSAGE, events.ToolUseStart): _State.CALL,
    (_State.MESSAGE, events.WholeBlock): _State.MESSAGE,
    (_State.MESSAGE, events.MessageEnd): _State.OVER,
    (_State.TEXT, events.TextDelta): _State.TEXT,
    (_State.TEXT, events.CitationDelta): _State.TEXT,
    (_State.TEXT, events.BlockStop): _State.MESSAGE,
    (_State.THINKING, events.ThinkingDelta): _State.THINKING,
    (_State.THINKING, events.SignatureDelta): _State.THINKING,
    (_State.THINKING, events.BlockStop): _State.MESSAGE,
    (_State.CALL, events.InputDelta): _State.ARGUMENTS,
    (_State.CALL, events.BlockStop): _State.MESSAGE,
    (_State.ARGUMENTS, events.InputDelta): _State.ARGUMENTS,
    (_State.ARGUMENTS, events.BlockStop): _State.MESSAGE,
    (_State.CUSTOM, events.InputDelta): _State.CUSTOM,
    (_State.CUSTOM, events.BlockStop): _State.MESSAGE,
} | {(state, events.StreamFailed): _State.OVER for state in _State if state is not _State.OVER}


class ChatStreamEncoder:
    """Events in, bytes out; one object per stream."""

    def __init__(self, head: AnswerHead) -> None:
        self._echo = head.echo
        self._custom_names = custom_names(head.echo)
        self._state = _State.START
        self._call = -1
        self._call_template = b""
        self._characters = 0
        self._block_began = 0
        self._citations: list[Citation] = []
        self._annotated = 0
        self._pieces: list[str] = []
        self._head = b'data: {"id":%b,"object":"chat.completion.chunk","created":%d,"model":%b,"choices":[' % (
            orjson.dumps(head.id),
            head.created,
            orjson.dumps(head.model),
        )
        self._before = self._head + b'{"index":0,"delta":{'
        self._tail = b',"usage":null}\n\n' if head.echo.get("include_usage") else b"}\n\n"
        self._after = b'},"logprobs":null,"finish_reason":null}]' + self._tail

    def encode(self, batch: Sequence[StreamEvent]) -> bytes:
        return b"".join([self._encode(event) for event in batch])

    def _encode(self, event: StreamEvent) -> bytes:
        state = self._state
        following = _NEXT.get((state, event.__class__))
        if following is None:
            raise LocalProtocolError(f"{event.__class__.__name__} cannot come in state {state.name}")
        self._state = following
        match event:
            case events.TextDelta(text):
                self._characters += len(text)
                return b'%b"content":%b%b' % (self._before, orjson.dumps(text), self._after)
            case events.InputDelta(piece):
                return self._arguments(piece, state)
            case events.ThinkingDelta(thinking):
                return self._thinking(thinking)
            case events.BlockStop():
                return self._block_stop(state)
            case _:
                return self._rare(event)

    def _rare(self, event: StreamEvent) -> bytes:
        match event:
            case events.MessageStart():
                return self._delta(b'"role":"assistant","content":""')
            case events.TextStart():
                self._block_began = self._characters
                return b""
            case events.ToolUseStart():
                return self._call_start(event)
            case events.CitationDelta(citation):
                self._citations.append(citation)
                return b""
            case events.ThinkingStart() | events.SignatureDelta() | events.WholeBlock():
                return b""
            case events.MessageEnd():
                return self._message_end(event)
            case events.StreamFailed(error):
                return b"data: %b\n\n" % dumps(render_error(error)[1])
            case _:
                raise LocalProtocolError(f"{event.__class__.__name__} has no encoding")

    def _delta(self, members: bytes) -> bytes:
        return self._before + members + self._after

    def _thinking(self, thinking: str) -> bytes:
        if not thinking or self._echo.get("exclude_reasoning"):
            return b""
        return self._delta(b'"reasoning_content":' + orjson.dumps(thinking))

    def _call_start(self, start: events.ToolUseStart) -> bytes:
        if self._echo.get("legacy_functions") and not self._call_template:
            self._call_template = b'"function_call":{%b}'
            return self._delta(self._call_template % (b'"name":%b,"arguments":""' % dumps(start.name)))
        self._call += 1
        kind, what = (b"custom", b"input") if start.name in self._custom_names else (b"function", b"arguments")
        if kind == b"custom":
            self._state, self._pieces = _State.CUSTOM, []
        self._call_template = b'"tool_calls":[{"index":%d,"%b":{%%b}}]' % (self._call, kind)
        return self._delta(
            b'"tool_calls":[{"index":%d,"id":%b,"type":"%b","%b":{"name":%b,"%b":""}}]'
            % (self._call, dumps(start.id), kind, kind, dumps(start.name), what)
        )

    def _arguments(self, piece: str, state: _State) -> bytes:
        if state is _State.CUSTOM:
            self._pieces.append(piece)
            return b""
        if state is _State.CALL and not piece.strip():
            self._state = _State.CALL
            return b""
        return self._delta(self._call_template % (b'"arguments":' + orjson.dumps(piece)))

    def _block_stop(self, state: _State) -> bytes:
        match state:
            case _State.CALL:
                return self._delta(self._call_template % b'"arguments":"{}"')
            case _State.CUSTOM:
                return self._delta(self._call_template % (b'"input":' + dumps(_free_text("".join(self._pieces)))))
            case _State.TEXT if self._citations:
                return self._annotations()
        return b""

    def _annotations(self) -> bytes:
        """The citations of the text that ends; the index is how the official client tells entries apart."""
        citations, self._citations = self._citations, []
        rendered = render_citations(citations, self._block_began, self._characters)
        entries: list[JsonValue] = [{"index": self._annotated + at, **entry} for at, entry in enumerate(rendered)]
        self._annotated += len(entries)
        return self._delta(b'"annotations":' + dumps(entries))

    def _message_end(self, end: events.MessageEnd) -> bytes:
        reason = dumps(finish_reason(end.reason, self._echo))
        last = self._before + b'},"logprobs":null,"finish_reason":%b}]' % reason + self._tail
        if not self._echo.get("include_usage"):
            return last + DONE
        usage: JsonObject = render_usage(end.usage)
        return last + self._head + b'],"usage":%b}\n\n' % dumps(usage) + DONE


def _free_text(arguments: str) -> str:
    try:
        return from_arguments(parse_arguments(arguments))
    except ValueError:
        return arguments
