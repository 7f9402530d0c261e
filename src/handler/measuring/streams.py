"""When the tokens of a streamed answer came, in each of the three protocols, sans I/O: bytes and times in, timing out.

It reads the wire itself and not with the decoders of the bridge, which forgive what a client may not: here an
answer is whole only if its protocol's last event came.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Any

import orjson

from bridge.sse import SseParser
from bridge.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.providers import ProtocolName

_DONE = b"[DONE]"
_MESSAGES_CONTENT = ("text", "thinking", "partial_json")
_CHAT_CONTENT = ("content", "reasoning_content", "reasoning", "refusal", "tool_calls")
_RESPONSES_ENDS = ("response.completed", "response.incomplete")
_RESPONSES_FAILURES = ("response.failed", "error")


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer; times in seconds since the request was sent, no first token if it said nothing."""

    first_token: float | None
    total: float
    chunks: int
    longest_gap: float
    output_tokens: int | None


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong, and what was said about it."""

    kind: str
    text: str


Outcome = Answer | Failure


class Sign(Enum):
    """What an event is to somebody who waits for an answer."""

    CONTENT = auto()
    OTHER = auto()
    END = auto()
    ERROR = auto()


@dataclass(frozen=True, slots=True)
class Sighting:
    """An event: what it is, the tokens that it says were written, the words of an error."""

    sign: Sign
    output_tokens: int | None = None
    text: str = ""


class Phase(Enum):
    """Where a stream is. ENDED and FAILED are final."""

    WAITING = auto()
    SPEAKING = auto()
    ENDED = auto()
    FAILED = auto()


class StreamWatch:
    """`feed` bytes with the time at which they came; `outcome` when there are no more."""

    def __init__(self, protocol: ProtocolName, asked_at: float) -> None:
        self._read = _READERS[protocol]
        self._parser = SseParser()
        self._asked_at = self._last_at = self._end_at = asked_at
        self._first_token: float | None = None
        self._phase = Phase.WAITING
        self._chunks = 0
        self._longest_gap = 0.0
        self._output_tokens: int | None = None
        self._error = ""

    @property
    def is_over(self) -> bool:
        """True once the stream said that it has ended, well or not."""
        return self._phase in (Phase.ENDED, Phase.FAILED)

    def feed(self, data: bytes, now: float) -> None:
        for event in self._parser.feed(data):
            self._take(event.data, now)

    def outcome(self) -> Outcome:
        """What became of the answer."""
        for event in self._parser.close():
            self._take(event.data, self._last_at)
        if self._phase is Phase.FAILED:
            return Failure("error event", self._error)
        if self._phase is not Phase.ENDED:
            return Failure("ended early", "the stream ended without its last event")
        total = self._end_at - self._asked_at
        return Answer(self._first_token, total, self._chunks, self._longest_gap, self._output_tokens)

    def _take(self, data: bytes, now: float) -> None:
        if self.is_over:
            return
        seen = _sight(data, self._read)
        if seen.output_tokens is not None:
            self._output_tokens = seen.output_tokens
        match seen.sign:
            case Sign.CONTENT:
                self._count(now)
            case Sign.END:
                self._phase, self._end_at = Phase.ENDED, now
            case Sign.ERROR:
                self._phase, self._error = Phase.FAILED, seen.text
            case Sign.OTHER:
                pass

    def _count(self, now: float) -> None:
        if self._phase is Phase.WAITING:
            self._phase, self._first_token = Phase.SPEAKING, now - self._asked_at
        else:
            self._longest_gap = max(self._longest_gap, now - self._last_at)
        self._chunks += 1
        self._last_at = now


def error_text(said: object) -> str:
    """The words of an error in any of the three shapes, on one line."""
    match said:
        case {"response": {"error": dict() as error}} | {"error": dict() as error}:
            return error_text(error)
        case {"error": str(words)}:
            return words
        case {"message": str(message), **rest}:
            kind = rest.get("type") or rest.get("code")
            return f"{kind}: {message}" if isinstance(kind, str) and kind != "error" else message
        case _:
            return "no reason given"


def _sight(data: bytes, read: Callable[[dict[str, Any]], Sighting]) -> Sighting:
    if data == _DONE:
        return Sighting(Sign.END)
    try:
        said = orjson.loads(data)
    except orjson.JSONDecodeError:
        return Sighting(Sign.ERROR, text="an event is not JSON")
    return read(said) if isinstance(said, dict) else Sighting(Sign.ERROR, text="an event is not a JSON object")


def _messages(said: dict[str, Any]) -> Sighting:
    match said:
        case {"type": "content_block_delta", "delta": dict() as delta}:
            return Sighting(_content(delta, _MESSAGES_CONTENT))
        case {"type": "message_delta", "usage": {"output_tokens": int(tokens)}}:
            return Sighting(Sign.OTHER, tokens)
        case {"type": "message_stop"}:
            return Sighting(Sign.END)
        case {"type": "error"}:
            return Sighting(Sign.ERROR, text=error_text(said))
        case _:
            return Sighting(Sign.OTHER)


def _chat(said: dict[str, Any]) -> Sighting:
    if said.get("error"):
        return Sighting(Sign.ERROR, text=error_text(said))
    tokens = _chat_tokens(said.get("usage"))
    match said.get("choices"):
        case [{"delta": dict() as delta}, *_]:
            return Sighting(_content(delta, _CHAT_CONTENT), tokens)
        case _:
            return Sighting(Sign.OTHER, tokens)


def _chat_tokens(usage: object) -> int | None:
    match usage:
        case {"completion_tokens": int(tokens)}:
            return tokens
        case _:
            return None


def _responses(said: dict[str, Any]) -> Sighting:
    kind = str(said.get("type", ""))
    if kind in _RESPONSES_FAILURES:
        return Sighting(Sign.ERROR, text=error_text(said))
    if kind in _RESPONSES_ENDS:
        match said:
            case {"response": {"usage": {"output_tokens": int(tokens)}}}:
                return Sighting(Sign.END, tokens)
        return Sighting(Sign.END)
    return Sighting(_content(said, ("delta",)) if kind.endswith(".delta") else Sign.OTHER)


def _content(delta: dict[str, Any], names: tuple[str, ...]) -> Sign:
    return Sign.CONTENT if any(delta.get(name) for name in names) else Sign.OTHER


_READERS: dict[ProtocolName, Callable[[dict[str, Any]], Sighting]] = {
    "anthropic": _messages,
    "openai_chat": _chat,
    "openai_responses": _responses,
}
