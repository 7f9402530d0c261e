"""The kinds of output items and how each is told. An item may come in pieces, whole, or in pieces and then whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.canonical.content import Citation
from bridge.canonical.events import ToolUseStart, WholeBlock
from bridge.canonical.json import dumps
from bridge.canonical.searches import search_use
from bridge.canonical.sequencer import SequenceError
from bridge.protocols.openai_responses.blocks import BlockWriter, Said
from bridge.protocols.openai_responses.raw_json import objects_in, text_of
from bridge.protocols.openai_responses.replay import ReplayCollector

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.canonical.events import StreamEvent
    from bridge.canonical.json import WireObject


class Telling:
    """What the items of one answer share."""

    def __init__(self, tool_names: Mapping[str, str]) -> None:
        self.tool_names = tool_names
        self.blocks = BlockWriter()
        self.replay = ReplayCollector()
        self.calls: list[CallItem] = []
        self.refused = False


class Item:
    """An output item on its way; of what one of the provider's own tools did, nothing is told yet."""

    def __init__(self, kind: str) -> None:
        self.type = kind

    def begin(self, item: WireObject, out: list[StreamEvent]) -> None:
        """The item as it is announced; its content is still to come."""

    def feed(self, event: WireObject, out: list[StreamEvent]) -> None:
        """A piece of it, or the whole of one of its parts."""

    def settle(self, item: WireObject, out: list[StreamEvent]) -> None:
        """The whole item: what was not said yet is said now."""

    def abandon(self) -> None:
        """The answer ended and the item was never declared complete."""


class MessageItem(Item):
    """Text and refusals; each part is a block of its own."""

    def __init__(self, telling: Telling) -> None:
        super().__init__("message")
        self._telling = telling
        self._said = Said()
        self._citations: dict[object, int] = {}

    def feed(self, event: WireObject, out: list[StreamEvent]) -> None:
        index = event.get("content_index") or 0
        match event["type"]:
            case "response.output_text.delta":
                self._say(index, self._said.add(index, text_of(event["delta"])), out)
            case "response.refusal.delta":
                self._telling.refused = True
                self._say(index, self._said.add(index, text_of(event["delta"])), out)
            case "response.output_text.done":
                self._say(index, self._said.rest(index, text_of(event.get("text"))), out)
            case "response.refusal.done":
                self._part(index, {"type": "refusal", "refusal": event.get("refusal")}, out)
            case "response.content_part.done":
                self._part(index, event["part"], out)
            case "response.output_text.annotation.added" | "response.output_text_annotation.added":
                self._cite(index, event.get("annotation_index"), event.get("annotation"), out)

    def settle(self, item: WireObject, out: list[StreamEvent]) -> None:
        for index, part in enumerate(objects_in(item.get("content"))):
            self._part(index, part, out)
        self._telling.replay.add_message(item)

    def _part(self, index: object, part: WireObject, out: list[StreamEvent]) -> None:
        if part.get("type") == "refusal":
            self._telling.refused = True
            self._say(index, self._said.rest(index, text_of(part.get("refusal"))), out)
        elif part.get("type") == "output_text":
            self._say(index, self._said.rest(index, text_of(part.get("text"))), out)
            for position, annotation in enumerate(objects_in(part.get("annotations"))):
                self._cite(index, position, annotation, out)

    def _say(self, index: object, piece: str, out: list[StreamEvent]) -> None:
        self._telling.blocks.text((self, index), piece, out)

    def _cite(self, index: object, position: object, annotation: object, out: list[StreamEvent]) -> None:
        """A source, once; one that comes before its text comes again with the whole part."""
        known = self._citations.get(index, 0)
        place = position if isinstance(position, int) else known
        if place < known or not self._telling.blocks.is_open((self, index)):
            return
        self._citations[index] = place + 1
        match annotation:
            case {"type": "url_citation", "url": str(url), **rest}:
                title = rest.get("title")
                self._telling.blocks.citation(Citation(url, title if isinstance(title, str) else None), out)


class ReasoningItem(Item):
    """A summary or the reasoning itself, as one block with a blank line between its parts."""

    def __init__(self, telling: Telling) -> None:
        super().__init__("reasoning")
        self._telling = telling
        self._said = Said()

    def feed(self, event: WireObject, out: list[StreamEvent]) -> None:
        summary, content = ("summary", event.get("summary_index")), ("content", event.get("content_index"))
        match event["type"]:
            case "response.reasoning_summary_text.delta":
                self._piece(summary, text_of(event["delta"]), out)
            case "response.reasoning_text.delta":
                self._piece(content, text_of(event["delta"]), out)
            case "response.reasoning_summary_text.done":
                self._whole(summary, event.get("text"), out)
            case "response.reasoning_text.done":
                self._whole(content, event.get("text"), out)
            case "response.reasoning_summary_part.done":
                self._whole(summary, event["part"].get("text"), out)
            case "response.content_part.done":
                self._whole(content, event["part"].get("text"), out)

    def settle(self, item: WireObject, out: list[StreamEvent]) -> None:
        for name in ("summary", "content"):
            for index, part in enumerate(objects_in(item.get(name))):
                self._whole((name, index), part.get("text"), out)
        self._telling.replay.add_reasoning(item)

    def _piece(self, part: tuple[str, object], piece: str, out: list[StreamEvent]) -> None:
        separator = "\n\n" if piece and self._said.has_others(part) else ""
        self._telling.blocks.thinking(self, separator + self._said.add(part, piece), out)

    def _whole(self, part: tuple[str, object], whole: object, out: list[StreamEvent]) -> None:
        separator = "\n\n" if self._said.has_others(part) else ""
        rest = self._said.rest(part, text_of(whole))
        self._telling.blocks.thinking(self, separator + rest if rest else "", out)


class CallItem(Item):
    """A function call; it opens as soon as its name is known."""

    def __init__(self, telling: Telling) -> None:
        super().__init__("function_call")
        self._telling = telling
        self._said = Said()
        self.name = ""

    @property
    def arguments(self) -> str:
        return self._said.whole(None)

    def begin(self, item: WireObject, out: list[StreamEvent]) -> None:
        if not self.name and text_of(item.get("name")):
            self._open(item, out)

    def feed(self, event: WireObject, out: list[StreamEvent]) -> None:
        match event["type"]:
            case "response.function_call_arguments.delta":
                self._say(self._said.add(None, text_of(event["delta"])), out)
            case "response.function_call_arguments.done":
                self._say(self._said.rest(None, _argument_text(event.get("arguments"))), out)

    def settle(self, item: WireObject, out: list[StreamEvent]) -> None:
        self.begin(item, out)
        if not self.name:
            raise SequenceError("a function call has no name")
        self._say(self._said.rest(None, _argument_text(item.get("arguments"))), out)

    def abandon(self) -> None:
        if not self.name:
            raise SequenceError("a function call has no name")

    def _open(self, item: WireObject, out: list[StreamEvent]) -> None:
        wire_name, call_id = text_of(item["name"]), text_of(item.get("call_id") or item.get("id"))
        self.name = self._telling.tool_names.get(wire_name, wire_name)
        self._telling.calls.append(self)
        self._telling.blocks.call(self, ToolUseStart(call_id, self.name, self._telling.replay.take()), out)
        self._telling.blocks.arguments(self.arguments, out)

    def _say(self, piece: str, out: list[StreamEvent]) -> None:
        if self.name:
            self._telling.blocks.arguments(piece, out)


class SearchItem(Item):
    """A search of the provider's own, told when it is over: only then its query is known for sure."""

    def __init__(self, telling: Telling) -> None:
        super().__init__("web_search_call")
        self._telling = telling
        self._is_told = False

    def settle(self, item: WireObject, out: list[StreamEvent]) -> None:
        action = item.get("action")
        if self._is_told or not isinstance(action, dict) or action.get("type") != "search":
            return
        self._is_told = True
        self._telling.blocks.close(out)
        query = action.get("query") or next(iter(action.get("queries") or ()), "")
        out.append(WholeBlock(search_use(str(item.get("id")), str(query))))


_KINDS: dict[str, type[MessageItem | ReasoningItem | CallItem | SearchItem]] = {
    "message": MessageItem,
    "reasoning": ReasoningItem,
    "function_call": CallItem,
    "web_search_call": SearchItem,
}


def new_item(kind: str, telling: Telling) -> Item:
    made = _KINDS.get(kind)
    return made(telling) if made is not None else Item(kind)


def kind_for(event: WireObject) -> str:
    """The kind of item that a piece belongs to, where the item itself was never announced."""
    kind = str(event["type"])
    if kind.startswith("response.function_call_arguments."):
        return "function_call"
    match event.get("part"):
        case {"type": "reasoning_text" | "summary_text"}:
            return "reasoning"
    return "reasoning" if kind.startswith("response.reasoning") else "message"


def _argument_text(arguments: object) -> str:
    return dumps(arguments).decode() if isinstance(arguments, dict) else text_of(arguments)
