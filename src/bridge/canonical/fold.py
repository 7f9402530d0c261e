"""Events <-> whole message. `fold` is what makes streaming and not streaming one translation."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, assert_never

from pydantic_core import from_json

from bridge.canonical.content import RedactedThinking, Replay, ServerBlock, Text, Thinking, ToolUse
from bridge.canonical.events import (
    BlockStop,
    CitationDelta,
    InputDelta,
    MessageEnd,
    MessageStart,
    SignatureDelta,
    StreamFailed,
    TextDelta,
    TextStart,
    ThinkingDelta,
    ThinkingStart,
    ToolUseStart,
    WholeBlock,
)
from bridge.canonical.json import dumps
from bridge.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bridge.canonical.content import Citation
    from bridge.canonical.events import BlockStart, StreamEvent
    from bridge.canonical.json import JsonObject

AnswerBlock: TypeAlias = Text | Thinking | ToolUse | RedactedThinking | ServerBlock


@dataclass(frozen=True, slots=True)
class Message:
    """A complete answer."""

    content: tuple[AnswerBlock, ...]
    end: MessageEnd


class UnfinishedMessageError(ValueError):
    """The events stop before the answer is complete."""


def parse_arguments(text: str, *, partial: bool = True) -> JsonObject:
    """The object that a tool call's argument text holds; with `partial`, as far as a text that was cut off goes."""
    parsed = from_json(text, allow_partial=partial) if text.strip() else None
    if isinstance(parsed, str):  # some servers encode twice
        parsed = from_json(parsed, allow_partial=partial) if parsed.strip() else None
    if parsed is None:
        return {}
    if not isinstance(parsed, dict):
        raise ValueError("tool arguments are not a JSON object")
    return parsed


def are_whole(arguments: str) -> bool:
    """True unless a tool call's argument text ends in the middle, as an answer that was cut off leaves it."""
    try:
        parse_arguments(arguments, partial=False)
    except ValueError:
        return False
    return True


def fold(events: Iterable[StreamEvent]) -> Message:
    """The whole message that a stream of events amounts to; raises what a failed stream carries."""
    content: list[AnswerBlock] = []
    start: BlockStart | None = None
    pieces: list[str] = []
    signature = ""
    citations: list[Citation] = []
    for event in events:
        match event:
            case TextStart() | ThinkingStart() | ToolUseStart():
                start, pieces, signature, citations = event, [], "", []
            case TextDelta(piece) | ThinkingDelta(piece) | InputDelta(piece):
                pieces.append(piece)
            case SignatureDelta(piece):
                signature += piece
            case CitationDelta(citation):
                citations.append(citation)
            case BlockStop():
                if start is not None:
                    content.append(_finished(start, "".join(pieces), signature, tuple(citations)))
            case WholeBlock(block):
                content.append(block)
            case MessageEnd():
                return Message(tuple(content), event)
            case StreamFailed(error):
                raise error
            case MessageStart():
                pass
            case _:
                assert_never(event)
    raise UnfinishedMessageError("the stream ended without a MessageEnd")


def _finished(start: BlockStart, text: str, signature: str, citations: tuple[Citation, ...]) -> AnswerBlock:
    match start:
        case TextStart():
            return Text(text, citations=citations)
        case ThinkingStart():
            return Thinking(text, signature)
        case ToolUseStart(tool_id, name, data):
            return ToolUse(tool_id, name, parse_arguments(text), replay=Replay(call=data) if data else None)
        case _:
            assert_never(start)


def unfold(message: Message) -> Iterator[StreamEvent]:
    """The events that amount to a whole message."""
    first_call = next((block for block in message.content if isinstance(block, ToolUse)), None)
    yield MessageStart(message.end.usage)
    for block in message.content:
        match block:
            case Text(text, citations=citations):
                yield from (TextStart(), TextDelta(text))
                yield from map(CitationDelta, citations)
                yield BlockStop()
            case Thinking(thinking, signature):
                yield from (ThinkingStart(), ThinkingDelta(thinking))
                if signature:
                    yield SignatureDelta(signature)
                yield BlockStop()
            case ToolUse(tool_id, name, arguments, replay=replay):
                data = replay.call if replay else None
                begins_turn = message.end.turn_data is not None and block is first_call
                yield ToolUseStart(tool_id, name, data, begins_turn)
                yield from (InputDelta(dumps(arguments).decode()), BlockStop())
            case RedactedThinking() | ServerBlock():
                yield WholeBlock(block)
            case _:
                assert_never(block)
    yield message.end
