"""Encodes canonical events as OpenAI's Responses event stream.

    START --response.created, in_progress--> BETWEEN --output_item.added--> BLOCK --block ends--> BETWEEN
    BETWEEN --response.completed or incomplete--> OVER       any state --response.failed--> OVER

An item is finished by what comes after it: another text still belongs to a message, a result to its search, and
whether the last item is complete is known at the end. A stream that fails finishes nothing more, so that no client
runs a call of an answer that never came to be. Sequence numbers and output indexes count from 0 without gaps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from bridge.canonical import events
from bridge.canonical.content import RedactedThinking, ServerBlock
from bridge.canonical.json import dumps
from bridge.canonical.states import StreamState
from bridge.errors import LocalProtocolError
from bridge.protocols.openai_errors import render_error
from bridge.protocols.openai_responses.answer_items import AnswerShape, is_result_of, is_search
from bridge.protocols.openai_responses.call_forms import form_of
from bridge.protocols.openai_responses.render_response import (
    failed_response,
    finished_response,
    last_item_status,
    render_envelope,
)
from bridge.protocols.openai_responses.stream_items import (
    EventWriter,
    OpenCall,
    OpenCustomCall,
    OpenFunctionCall,
    OpenMessage,
    OpenReasoning,
    OpenSearch,
)
from bridge.sse import encode_event

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.canonical.events import StreamEvent
    from bridge.canonical.head import AnswerHead
    from bridge.canonical.json import JsonValue
    from bridge.errors import BridgeError
    from bridge.protocols.openai_responses.answer_items import ItemStatus

_AnyItem: TypeAlias = OpenMessage | OpenReasoning | OpenCall | OpenSearch


class _State(StreamState):
    START = 1
    BETWEEN = 2
    BLOCK = 3
    OVER = 4


_NEXT: dict[tuple[_State, type[StreamEvent]], _State] = {
    (_State.START, events.MessageStart): _State.BETWEEN,
    (_State.START, events.StreamFailed): _State.OVER,
    (_State.BETWEEN, events.TextStart): _State.BLOCK,
    (_State.BETWEEN, events.ThinkingStart): _State.BLOCK,
    (_State.BETWEEN, events.ToolUseStart): _State.BLOCK,
    (_State.BETWEEN, events.WholeBlock): _State.BETWEEN,
    (_State.BETWEEN, events.MessageEnd): _State.OVER,
    (_State.BETWEEN, events.StreamFailed): _State.OVER,
    (_State.BLOCK, events.TextDelta): _State.BLOCK,
    (_State.BLOCK, events.ThinkingDelta): _State.BLOCK,
    (_State.BLOCK, events.SignatureDelta): _State.BLOCK,
    (_State.BLOCK, events.InputDelta): _State.BLOCK,
    (_State.BLOCK, events.CitationDelta): _State.BLOCK,
    (_State.BLOCK, events.BlockStop): _State.BETWEEN,
    (_State.BLOCK, events.StreamFailed): _State.OVER,
}
_CALLS = {"function": OpenFunctionCall, "custom": OpenCustomCall, "local_shell": OpenCall, "tool_search": OpenCall}


class ResponsesStreamEncoder:
    """Events in, bytes out; one object per stream."""

    def __init__(self, head: AnswerHead) -> None:
        self._head = head
        self._shape = AnswerShape.of(head)
        self._writer = EventWriter()
        self._state = _State.START
        self._item: _AnyItem | None = None
        self._items: list[JsonValue] = []

    def encode(self, batch: Sequence[StreamEvent]) -> bytes:
        return b"".join([self._encode(event) for event in batch])

    def _encode(self, event: StreamEvent) -> bytes:
        following = _NEXT.get((self._state, event.__class__))
        if following is None:
            raise LocalProtocolError(f"{event.__class__.__name__} cannot come in state {self._state.name}")
        said = self._in_block(self._item, event) if self._state is _State.BLOCK and self._item else self._beside(event)
        self._state = following
        return said

    def _in_block(self, item: _AnyItem, event: StreamEvent) -> bytes:
        match event:
            case events.TextDelta(piece) | events.InputDelta(piece) | events.ThinkingDelta(piece):
                return item.say(piece)
            case events.SignatureDelta(piece):
                item.sign(piece)
            case events.CitationDelta(citation):
                item.cite(citation)
            case events.BlockStop():
                return item.end_block()
            case _:
                return self._beside(event)
        return b""

    def _beside(self, event: StreamEvent) -> bytes:
        """What is said between blocks."""
        match event:
            case events.MessageStart():
                return self._begin()
            case events.TextStart():
                return b"" if isinstance(self._item, OpenMessage) else self._open(OpenMessage)
            case events.ThinkingStart():
                return self._open(OpenReasoning)
            case events.ToolUseStart(call_id, name):
                return self._open_call(call_id, name)
            case events.WholeBlock(block):
                return self._whole(block)
            case events.MessageEnd():
                return self._end(event)
            case events.StreamFailed(error):
                before = self._begin() if self._state is _State.START else b""
                response = failed_response(self._head, error, self._items)
                return before + self._writer.event("response.failed", {"response": response})
            case _:
                raise LocalProtocolError(f"{event.__class__.__name__} has no encoding")

    def _begin(self) -> bytes:
        response = render_envelope(self._head)
        return self._writer.event("response.created", {"response": response}) + self._writer.event(
            "response.in_progress", {"response": response}
        )

    def _open(self, kind: type[OpenMessage | OpenReasoning]) -> bytes:
        closing = self._finish("completed")
        return closing + self._set(kind(self._writer, self._shape, len(self._items)))

    def _open_call(self, call_id: str, name: str) -> bytes:
        closing = self._finish("completed")
        form = form_of(self._shape.calls, name)
        return closing + self._set(_CALLS[form.kind](self._writer, self._shape, len(self._items), form, call_id))

    def _whole(self, block: RedactedThinking | ServerBlock) -> bytes:
        if isinstance(block, RedactedThinking):
            closing = self._finish("completed")
            return closing + self._set(OpenReasoning(self._writer, self._shape, len(self._items), block))
        if is_search(block):
            closing = self._finish("completed")
            return closing + self._set(OpenSearch(self._writer, self._shape, len(self._items), block))
        if isinstance(self._item, OpenSearch) and is_result_of(block, self._item.search):
            self._item.take_result(block.raw)
        return b""

    def _set(self, item: _AnyItem) -> bytes:
        self._item = item
        return item.begin()

    def _finish(self, status: ItemStatus) -> bytes:
        """Finish the item before, if there is one."""
        if self._item is None:
            return b""
        said = self._item.finish(status)
        self._items.append(self._item.done)
        self._item = None
        return said

    def _end(self, end: events.MessageEnd) -> bytes:
        closing = self._finish(last_item_status(end))
        response = finished_response(self._head, end, self._items)
        return closing + self._writer.event(f"response.{response['status']}", {"response": response})


def encode_error(error: BridgeError) -> bytes:
    """An error in a stream that is passed through; what number its events have come to is not known."""
    told = render_error(error)[1]["error"]
    details = told if isinstance(told, dict) else {}
    said = {"type": "error", "code": details.get("code") or details.get("type"), "message": error.message}
    return encode_event(b"error", dumps(said | {"param": None, "sequence_number": 0}))
