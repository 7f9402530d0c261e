"""Stream events: a whole answer in the order in which it is made. One block is open at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from bridge.values import dataclass

if TYPE_CHECKING:
    from bridge.canonical.content import Citation, RedactedThinking, ServerBlock
    from bridge.canonical.json import JsonObject
    from bridge.errors import BridgeError

StopReason: TypeAlias = Literal[
    "end_turn",
    "max_tokens",
    "stop_sequence",
    "tool_use",
    "pause_turn",
    "refusal",
    "model_context_window_exceeded",
]


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts; `input_tokens` leaves out what was read from or written to a cache."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    estimated: bool = False
    web_searches: int = 0


def add_usage(first: Usage, second: Usage) -> Usage:
    """What two answers cost together."""
    return Usage(
        first.input_tokens + second.input_tokens,
        first.output_tokens + second.output_tokens,
        first.cache_read_tokens + second.cache_read_tokens,
        first.cache_write_tokens + second.cache_write_tokens,
        first.reasoning_tokens + second.reasoning_tokens,
        first.estimated or second.estimated,
        first.web_searches + second.web_searches,
    )


@dataclass(frozen=True, slots=True)
class MessageStart:
    usage: Usage = Usage()


@dataclass(frozen=True, slots=True)
class TextStart:
    pass


@dataclass(frozen=True, slots=True)
class ThinkingStart:
    pass


@dataclass(frozen=True, slots=True)
class ToolUseStart:
    """`data` is what the provider wants back with this call; `begins_turn` says that more of it may come at the end."""

    id: str
    name: str
    data: JsonObject | None = None
    begins_turn: bool = False


@dataclass(frozen=True, slots=True)
class WholeBlock:
    """A block that arrives in one piece and closes at once."""

    block: RedactedThinking | ServerBlock


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    thinking: str


@dataclass(frozen=True, slots=True)
class SignatureDelta:
    signature: str


@dataclass(frozen=True, slots=True)
class InputDelta:
    """A piece of a tool call's arguments, as JSON text cut anywhere."""

    partial_json: str


@dataclass(frozen=True, slots=True)
class CitationDelta:
    citation: Citation


@dataclass(frozen=True, slots=True)
class BlockStop:
    pass


@dataclass(frozen=True, slots=True)
class MessageEnd:
    """The answer is complete. `raw_reason` is the provider's own word for why."""

    reason: StopReason
    usage: Usage
    sequence: str | None = None
    raw_reason: str | None = None
    turn_data: JsonObject | None = None
    """What the provider wants back with this turn: with its first tool call, else with its text."""


@dataclass(frozen=True, slots=True)
class StreamFailed:
    """The answer will never be complete."""

    error: BridgeError


BlockStart: TypeAlias = TextStart | ThinkingStart | ToolUseStart
BlockDelta: TypeAlias = TextDelta | ThinkingDelta | SignatureDelta | InputDelta | CitationDelta
StreamEvent: TypeAlias = MessageStart | BlockStart | WholeBlock | BlockDelta | BlockStop | MessageEnd | StreamFailed
