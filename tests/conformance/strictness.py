"""What clients need of a Messages stream, as a checklist: an empty list of defects is a stream that all of them read.

A stream begins with `message_start`, opens one block at a time, numbered from 0, and closes each; it ends with
`message_delta` and `message_stop`, or it fails with `error`, which ends it at any point.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

ENVELOPE = ("message_start", "message_delta", "message_stop")
BLOCKS = ("content_block_start", "content_block_delta", "content_block_stop")
KNOWN = frozenset({*ENVELOPE, *BLOCKS, "ping", "error"})
MESSAGE_ID = re.compile(r"msg_[A-Za-z0-9]+")
TOOL_ID = re.compile(r"toolu_[A-Za-z0-9]+")
# A call is made in full only when the model ended its turn with it; these ended the turn before.
ENDED_EARLY = frozenset({"max_tokens", "refusal", "model_context_window_exceeded"})
DELTAS = {
    "text": {"text_delta", "citations_delta"},
    "thinking": {"thinking_delta", "signature_delta"},
    "tool_use": {"input_json_delta"},
}


@dataclass(frozen=True, slots=True)
class Event:
    """One event: the name on its `event:` line, None without one, and its data."""

    name: str | None
    data: dict[str, Any]

    @property
    def type(self) -> str:
        return str(self.data.get("type"))

    def part(self, name: str) -> dict[str, Any]:
        """An object inside the data, empty if it is not there."""
        value = self.data.get(name)
        return value if isinstance(value, dict) else {}


def parse_events(raw: bytes) -> list[Event]:
    """The events of a stream; data that is not a JSON object becomes an event without a type."""
    events = []
    for block in raw.decode().replace("\r\n", "\n").split("\n\n"):
        fields = [line.partition(": ") for line in block.split("\n") if line and not line.startswith(":")]
        names = [value for name, _, value in fields if name == "event"]
        data = "\n".join(value for name, _, value in fields if name == "data")
        if fields:
            events.append(Event(names[-1] if names else None, _object(data)))
    return events


def defects(events: Sequence[Event]) -> list[str]:
    """Everything about one answer that some client would stumble over."""
    checks = (_names, _envelope, _ending, _usage, _blocks, _tools, _thinking)
    return list(chain.from_iterable(check(events) for check in checks))


def repeated_ids(ids: Iterable[str]) -> list[str]:
    """Message and tool ids that are not unique over all answers."""
    return [f"{name} was given {count} times" for name, count in Counter(ids).items() if count > 1]


def ids_of(events: Iterable[Event]) -> list[str]:
    """The message id and the tool ids of one answer."""
    starts = [event.part("message") for event in events if event.type == "message_start"]
    return [str(start.get("id")) for start in starts] + [str(block.get("id")) for block in _tool_blocks(events)]


def _names(events: Sequence[Event]) -> Iterator[str]:
    for number, event in enumerate(events):
        if event.type not in KNOWN:
            yield f"event {number}: {event.type} is no event of this protocol"
        elif event.name is None:
            yield f"event {number}: {event.type} has no event: line"
        elif event.name != event.type:
            yield f"event {number}: the event: line says {event.name}, the data {event.type}"


def _envelope(events: Sequence[Event]) -> Iterator[str]:
    said = [event for event in events if event.type != "ping"]
    if not said:
        yield "the stream is empty"
        return
    counts = Counter(event.type for event in said)
    failed = counts["error"] > 0
    if said[0].type != "message_start" and said[0].type != "error":
        yield f"{said[0].type} before message_start"
    for kind in ENVELOPE:
        if counts[kind] > 1 or (counts[kind] == 0 and not failed):
            yield f"{counts[kind]} {kind} events"
    for start in (event for event in said if event.type == "message_start"):
        if not MESSAGE_ID.fullmatch(str(start.part("message").get("id"))):
            yield f"the message id {start.part('message').get('id')!r} is not one of Anthropic's form"


def _ending(events: Sequence[Event]) -> Iterator[str]:
    said = [event for event in events if event.type != "ping"]
    kinds = [event.type for event in said]
    if "error" in kinds:
        if kinds.index("error") != len(kinds) - 1:
            yield "something follows error"
        if "message_stop" in kinds:
            yield "message_stop although the stream failed"
        details = said[kinds.index("error")].part("error")
        if not details.get("type") or not details.get("message"):
            yield "error without type or message"
        return
    if kinds and kinds[-1] != "message_stop":
        yield f"{kinds[-1]} at the end instead of message_stop"
    if "message_delta" in kinds and kinds[kinds.index("message_delta") + 1 :] != ["message_stop"]:
        yield "message_stop does not follow message_delta"


def _usage(events: Sequence[Event]) -> Iterator[str]:
    for event in events:
        if event.type == "message_start":
            yield from _counts(event.part("message").get("usage"), "message_start")
        elif event.type == "message_delta":
            yield from _counts(event.data.get("usage"), "message_delta")


def _counts(usage: object, where: str) -> Iterator[str]:
    if not isinstance(usage, dict):
        yield f"{where} without usage"
        return
    for name in ("input_tokens", "output_tokens"):
        if not isinstance(usage.get(name), int):
            yield f"{where} without usage.{name}"


def _blocks(events: Sequence[Event]) -> Iterator[str]:
    """Walks through the blocks; the walk goes on as well as it can after a defect."""
    opened: int | None = None
    kind, following = "", 0
    for event in events:
        index = event.data.get("index")
        match event.type:
            case "content_block_start":
                if opened is not None:
                    yield f"block {index} starts while block {opened} is open"
                if index != following:
                    yield f"block {index} where {following} was due"
                opened, kind, following = index, str(event.part("content_block").get("type")), following + 1
            case "content_block_delta":
                yield from _delta(event, opened, kind)
            case "content_block_stop":
                if index != opened:
                    yield f"block {index} stops while {_named(opened)} is open"
                opened = None
            case "message_delta" | "message_stop" if opened is not None:
                yield f"block {opened} has no content_block_stop"
                opened = None


def _delta(event: Event, opened: int | None, kind: str) -> Iterator[str]:
    index, delta = event.data.get("index"), str(event.part("delta").get("type"))
    if index != opened:
        yield f"{delta} for block {index} while {_named(opened)} is open"
    elif delta not in DELTAS.get(kind, set()):
        yield f"{delta} in a {kind} block"


def _named(opened: int | None) -> str:
    return "none" if opened is None else f"block {opened}"


def _tools(events: Sequence[Event]) -> Iterator[str]:
    calls = _tool_blocks(events)
    for call in calls:
        if call.get("input") != {}:
            yield f"the input of {call.get('name')} is in content_block_start, not in input_json_delta"
        if not TOOL_ID.fullmatch(str(call.get("id"))):
            yield f"the tool id {call.get('id')!r} is not one of Anthropic's form"
        if not call.get("name"):
            yield "a tool call without a name"
    yield from repeated_ids(str(call.get("id")) for call in calls)
    for event in events:
        if event.type == "message_delta":
            yield from _reason(event.part("delta").get("stop_reason"), has_calls=bool(calls))


def _reason(reason: str | None, *, has_calls: bool) -> Iterator[str]:
    if not reason:
        yield "message_delta without stop_reason"
    elif reason == "tool_use" and not has_calls:
        yield "stop_reason tool_use without a tool_use block"
    elif has_calls and reason != "tool_use" and reason not in ENDED_EARLY:
        yield f"stop_reason {reason} with a tool_use block"


def _thinking(events: Sequence[Event]) -> Iterator[str]:
    for block in _started(events):
        if block.get("type") == "thinking" and "signature" not in block:
            yield "thinking without signature"


def _started(events: Iterable[Event]) -> list[dict[str, Any]]:
    return [event.part("content_block") for event in events if event.type == "content_block_start"]


def _tool_blocks(events: Iterable[Event]) -> list[dict[str, Any]]:
    return [block for block in _started(events) if block.get("type") == "tool_use"]


def _object(data: str) -> dict[str, Any]:
    try:
        parsed = json.loads(data)
    except json.JSONDecodeError:
        return {}
    return parsed if isinstance(parsed, dict) else {}
