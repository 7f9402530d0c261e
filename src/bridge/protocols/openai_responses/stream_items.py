"""The events of one output item, from the first to the last. Each class is one kind of item."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from bridge.canonical.content import Thinking
from bridge.canonical.fold import parse_arguments
from bridge.canonical.json import dumps
from bridge.errors import LocalProtocolError
from bridge.protocols.openai_responses.answer_items import (
    CALL_PREFIXES,
    annotation,
    call_item,
    message_item,
    reasoning_item,
    search_item,
    summary_part,
    text_part,
)
from bridge.protocols.openai_responses.call_forms import CUSTOM_INPUT
from bridge.protocols.openai_responses.custom_input import CustomInput
from bridge.sse import encode_event

if TYPE_CHECKING:
    from bridge.canonical.content import Citation, RedactedThinking, ServerBlock
    from bridge.canonical.json import JsonObject, JsonValue
    from bridge.protocols.openai_responses.answer_items import AnswerShape, ItemStatus
    from bridge.protocols.openai_responses.call_forms import CallForm


class EventWriter:
    """Numbers the events of a stream from 0."""

    __slots__ = ("_number",)

    def __init__(self) -> None:
        self._number = 0

    def event(self, kind: str, fields: JsonObject) -> bytes:
        data: JsonObject = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        return encode_event(kind.encode(), dumps(data))

    def delta(self, kind: bytes, place: bytes, piece: str) -> bytes:
        """The event that nearly all of a stream consists of, put together from bytes."""
        number = self._number
        self._number = number + 1
        return b'event: %b\ndata: {"type":"%b","sequence_number":%d,%b"delta":%b}\n\n' % (
            kind,
            kind,
            number,
            place,
            orjson.dumps(piece),
        )


class OpenItem:
    """An item that is being said; `done` is the whole of it once it is finished."""

    __slots__ = ("_index", "_writer", "done", "item_id")

    def __init__(self, writer: EventWriter, index: int, item_id: str) -> None:
        self._writer = writer
        self._index = index
        self.item_id = item_id
        self.done: JsonObject = {}

    def say(self, piece: str) -> bytes:
        raise LocalProtocolError(f"{type(self).__name__} takes no text: {len(piece)} characters")

    def sign(self, piece: str) -> None:
        raise LocalProtocolError(f"{type(self).__name__} takes no signature: {len(piece)} characters")

    def cite(self, citation: Citation) -> None:
        raise LocalProtocolError(f"{type(self).__name__} takes no citation: {citation.url}")

    def end_block(self) -> bytes:
        """A block of the item is complete; the next one may belong to it as well."""
        return b""

    def finish(self, status: ItemStatus) -> bytes:
        raise NotImplementedError

    def _place(self, middle: bytes = b"") -> bytes:
        return b'"item_id":%b,"output_index":%d,%b' % (orjson.dumps(self.item_id), self._index, middle)

    def _event(self, kind: str, fields: JsonObject) -> bytes:
        return self._writer.event(kind, {"item_id": self.item_id, "output_index": self._index, **fields})

    def _added(self, item: JsonObject) -> bytes:
        return self._writer.event("response.output_item.added", {"output_index": self._index, "item": item})

    def _done(self, item: JsonObject) -> bytes:
        self.done = item
        return self._writer.event("response.output_item.done", {"output_index": self._index, "item": item})


class OpenMessage(OpenItem):
    """Texts that follow each other."""

    __slots__ = ("_annotations", "_block_start", "_citations", "_delta_place", "_length", "_pieces")

    def __init__(self, writer: EventWriter, shape: AnswerShape, index: int) -> None:
        super().__init__(writer, index, shape.item_id("msg", index))
        self._delta_place = self._place(b'"content_index":0,"logprobs":[],')
        self._pieces: list[str] = []
        self._length = self._block_start = 0
        self._citations: list[Citation] = []
        self._annotations: list[JsonValue] = []

    def begin(self) -> bytes:
        part: JsonObject = {"content_index": 0, "part": text_part("", [])}
        return self._added(message_item(self.item_id, "in_progress", None, [])) + self._event(
            "response.content_part.added", part
        )

    def say(self, piece: str) -> bytes:
        if not piece:
            return b""
        self._pieces.append(piece)
        self._length += len(piece)
        return self._writer.delta(b"response.output_text.delta", self._delta_place, piece)

    def cite(self, citation: Citation) -> None:
        self._citations.append(citation)

    def end_block(self) -> bytes:
        """Only now it is known which text the sources belong to."""
        said = [annotation(citation, self._block_start, self._length) for citation in self._citations]
        first = len(self._annotations)
        self._annotations += said
        self._block_start, self._citations = self._length, []
        return b"".join(
            self._event(
                "response.output_text.annotation.added",
                {"content_index": 0, "annotation_index": first + offset, "annotation": one},
            )
            for offset, one in enumerate(said)
        )

    def finish(self, status: ItemStatus) -> bytes:
        text = "".join(self._pieces)
        return (
            self._event("response.output_text.done", {"content_index": 0, "text": text, "logprobs": []})
            + self._event(
                "response.content_part.done", {"content_index": 0, "part": text_part(text, self._annotations)}
            )
            + self._done(message_item(self.item_id, status, text, self._annotations))
        )


class OpenReasoning(OpenItem):
    """Thinking in words, with the signature that closes it, or thinking that nobody here can read."""

    __slots__ = ("_delta_place", "_pieces", "_redacted", "_shape", "_signature")

    def __init__(
        self, writer: EventWriter, shape: AnswerShape, index: int, redacted: RedactedThinking | None = None
    ) -> None:
        super().__init__(writer, index, shape.item_id("rs", index))
        self._shape = shape
        self._delta_place = self._place(b'"summary_index":0,')
        self._pieces: list[str] = []
        self._signature = ""
        self._redacted = redacted

    def begin(self) -> bytes:
        return self._added(reasoning_item(self._shape, self._index, Thinking(""), "in_progress"))

    def say(self, piece: str) -> bytes:
        if not piece:
            return b""
        before = b"" if self._pieces else self._summary("part.added", {"part": summary_part("")})
        self._pieces.append(piece)
        return before + self._writer.delta(b"response.reasoning_summary_text.delta", self._delta_place, piece)

    def sign(self, piece: str) -> None:
        self._signature += piece

    def finish(self, status: ItemStatus) -> bytes:
        words = "".join(self._pieces)
        block = self._redacted or Thinking(words, self._signature)
        ending = b""
        if words:
            ending = self._summary("text.done", {"text": words})
            ending += self._summary("part.done", {"part": summary_part(words)})
        return ending + self._done(reasoning_item(self._shape, self._index, block, status))

    def _summary(self, what: str, fields: JsonObject) -> bytes:
        return self._event(f"response.reasoning_summary_{what}", {"summary_index": 0, **fields})


class OpenCall(OpenItem):
    """A call whose form has no pieces: it is said when it is complete."""

    __slots__ = ("_call_id", "_form", "_pieces")

    def __init__(self, writer: EventWriter, shape: AnswerShape, index: int, form: CallForm, call_id: str) -> None:
        super().__init__(writer, index, shape.item_id(CALL_PREFIXES[form.kind], index))
        self._form = form
        self._call_id = call_id
        self._pieces: list[str] = []

    def begin(self) -> bytes:
        return self._added(self._item("", {}, "in_progress"))

    def say(self, piece: str) -> bytes:
        self._pieces.append(piece)
        return b""

    def finish(self, status: ItemStatus) -> bytes:
        arguments = "".join(self._pieces)
        return self._done(self._item(arguments, _parsed(arguments), status))

    def _item(self, arguments: str, parsed: JsonObject, status: ItemStatus) -> JsonObject:
        return call_item(self._form, self.item_id, self._call_id, arguments, parsed, status)


class OpenFunctionCall(OpenCall):
    """A call with its arguments as they arrive."""

    __slots__ = ("_delta_place",)

    def __init__(self, writer: EventWriter, shape: AnswerShape, index: int, form: CallForm, call_id: str) -> None:
        super().__init__(writer, shape, index, form, call_id)
        self._delta_place = self._place()

    def say(self, piece: str) -> bytes:
        if not piece:
            return b""
        self._pieces.append(piece)
        return self._writer.delta(b"response.function_call_arguments.delta", self._delta_place, piece)

    def finish(self, status: ItemStatus) -> bytes:
        before = self.say("{}") if not any(piece.strip() for piece in self._pieces) else b""
        arguments = "".join(self._pieces)
        said = self._event("response.function_call_arguments.done", {"arguments": arguments})
        return before + said + self._done(self._item(arguments, {}, status))


class OpenCustomCall(OpenCall):
    """A call with the raw text inside its arguments as it arrives."""

    __slots__ = ("_delta_place", "_input")

    def __init__(self, writer: EventWriter, shape: AnswerShape, index: int, form: CallForm, call_id: str) -> None:
        super().__init__(writer, shape, index, form, call_id)
        self._delta_place = self._place()
        self._input = CustomInput()

    def say(self, piece: str) -> bytes:
        return self._say_raw(self._input.feed(piece))

    def finish(self, status: ItemStatus) -> bytes:
        before = self._say_raw(self._input.close())
        raw = "".join(self._pieces)
        said = self._event("response.custom_tool_call_input.done", {"input": raw})
        return before + said + self._done(self._item("", {CUSTOM_INPUT: raw}, status))

    def _say_raw(self, text: str) -> bytes:
        if not text:
            return b""
        self._pieces.append(text)
        return self._writer.delta(b"response.custom_tool_call_input.delta", self._delta_place, text)


class OpenSearch(OpenItem):
    """A web search that the provider runs; its result may follow."""

    __slots__ = ("_result", "_shape", "search")

    def __init__(self, writer: EventWriter, shape: AnswerShape, index: int, search: ServerBlock) -> None:
        super().__init__(writer, index, shape.item_id("ws", index))
        self._shape = shape
        self.search = search
        self._result: JsonObject | None = None

    def begin(self) -> bytes:
        return (
            self._added(search_item(self._shape, self._index, self.search.raw, None, "in_progress"))
            + self._event("response.web_search_call.in_progress", {})
            + self._event("response.web_search_call.searching", {})
        )

    def take_result(self, result: JsonObject) -> None:
        """What was found; of several results the first counts, as in a whole answer."""
        if self._result is None:
            self._result = result

    def finish(self, status: ItemStatus) -> bytes:
        item = search_item(self._shape, self._index, self.search.raw, self._result, status)
        return self._event("response.web_search_call.completed", {}) + self._done(item)


def _parsed(arguments: str) -> JsonObject:
    try:
        return parse_arguments(arguments)
    except ValueError:
        return {}
