"""The checklist itself: a legal stream has no defect, and each defect is found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from conformance.strictness import Event, defects, ids_of, parse_events, repeated_ids

if TYPE_CHECKING:
    Events = list[Event]

USAGE = {"input_tokens": 3, "output_tokens": 1}
FAILURE = {"type": "api_error", "message": "openai: the connection broke"}


def event(kind: str, **data: Any) -> Event:
    return Event(kind, {"type": kind, **data})


def message_start(message_id: str = "msg_01", **message: Any) -> Event:
    return event("message_start", message={"id": message_id, "usage": USAGE, "content": []} | message)


def start(index: int, kind: str, **block: Any) -> Event:
    return event("content_block_start", index=index, content_block={"type": kind, **block})


def delta(index: int, kind: str, **data: Any) -> Event:
    return event("content_block_delta", index=index, delta={"type": kind, **data})


def stop(index: int) -> Event:
    return event("content_block_stop", index=index)


def message_delta(reason: str | None = "tool_use", **data: Any) -> Event:
    return event("message_delta", **{"delta": {"stop_reason": reason, "stop_sequence": None}, "usage": USAGE} | data)


def tool(index: int, tool_id: str = "toolu_01", **block: Any) -> list[Event]:
    opened = start(index, "tool_use", **{"id": tool_id, "name": "f", "input": {}} | block)
    return [opened, delta(index, "input_json_delta", partial_json="{}"), stop(index)]


MESSAGE_STOP = event("message_stop")
THINKING = [
    start(0, "thinking", thinking="", signature=""),
    delta(0, "thinking_delta", thinking="Hm."),
    delta(0, "signature_delta", signature="s"),
    stop(0),
]
TEXT = [start(1, "text", text=""), event("ping"), delta(1, "text_delta", text="Hi"), stop(1)]
BLOCKS = [*THINKING, *TEXT, *tool(2), *tool(3, "toolu_02")]
LEGAL = [message_start(), *BLOCKS, message_delta(), MESSAGE_STOP]
FAILED = [message_start(), *THINKING, TEXT[0], event("error", error=FAILURE)]


def with_blocks(*blocks: Event, reason: str = "end_turn") -> Events:
    return [message_start(), *blocks, message_delta(reason), MESSAGE_STOP]


@pytest.mark.parametrize(
    "events",
    [
        LEGAL,
        FAILED,
        [event("error", error=FAILURE)],
        with_blocks(),
        with_blocks(*tool(0), reason="max_tokens"),
        with_blocks(*tool(0), reason="refusal"),
        with_blocks(start(0, "redacted_thinking", data="x"), stop(0)),
        [event("ping"), *LEGAL],
    ],
    ids=["whole", "failed", "failed at once", "empty", "cut call", "refused call", "whole block", "ping first"],
)
def test_a_legal_stream_has_no_defects(events: Events) -> None:
    assert defects(events) == []


def text(index: int) -> Events:
    return [start(index, "text", text=""), delta(index, "text_delta", text="Hi"), stop(index)]


DEFECTIVE: dict[str, tuple[Events, str]] = {
    "nothing": ([], "the stream is empty"),
    "only pings": ([event("ping")], "the stream is empty"),
    "no event line": ([Event(None, LEGAL[0].data), *LEGAL[1:]], "event 0: message_start has no event: line"),
    "another event line": ([Event("message", LEGAL[0].data), *LEGAL[1:]], "says message, the data message_start"),
    "unknown event": ([*LEGAL[:-1], event("surprise"), MESSAGE_STOP], "surprise is no event"),
    "not JSON": ([LEGAL[0], Event("ping", {}), *LEGAL[1:]], "None is no event"),
    "no message_start": (LEGAL[1:], "0 message_start events"),
    "late message_start": ([*THINKING, LEGAL[0], message_delta("end_turn"), MESSAGE_STOP], "before message_start"),
    "two message_start": ([LEGAL[0], *LEGAL], "2 message_start events"),
    "no message_delta": ([*LEGAL[:-2], MESSAGE_STOP], "0 message_delta events"),
    "two message_delta": ([*LEGAL[:-1], message_delta(), MESSAGE_STOP], "2 message_delta events"),
    "no message_stop": (LEGAL[:-1], "message_delta at the end instead of message_stop"),
    "two message_stop": ([*LEGAL, MESSAGE_STOP], "2 message_stop events"),
    "block after message_delta": (
        [message_start(), message_delta("end_turn"), *text(0), MESSAGE_STOP],
        "message_stop does not follow message_delta",
    ),
    "no usage at the start": ([message_start(usage=None), *LEGAL[1:]], "message_start without usage"),
    "no usage at the end": ([*LEGAL[:-2], message_delta(usage=None), MESSAGE_STOP], "message_delta without usage"),
    "no input tokens at the end": (
        [*LEGAL[:-2], message_delta(usage={"output_tokens": 1}), MESSAGE_STOP],
        "message_delta without usage.input_tokens",
    ),
    "index from 1": (with_blocks(*text(1)), "block 1 where 0 was due"),
    "index gap": (with_blocks(*text(0), *text(2)), "block 2 where 1 was due"),
    "index repeats": (with_blocks(*text(0), *text(0)), "block 0 where 1 was due"),
    "no block stop": (with_blocks(*text(0)[:-1]), "block 0 has no content_block_stop"),
    "two open blocks": (with_blocks(text(0)[0], *text(1), stop(0)), "block 1 starts while block 0 is open"),
    "stop of another": (with_blocks(*text(0)[:-1], stop(1)), "block 1 stops while block 0 is open"),
    "stop of none": (with_blocks(stop(0)), "block 0 stops while none is open"),
    "delta of another": (with_blocks(text(0)[0], text(1)[1], stop(0)), "for block 1 while block 0 is open"),
    "delta of none": (with_blocks(text(0)[1]), "for block 0 while none is open"),
    "delta of another kind": (with_blocks(text(0)[0], tool(0)[1], stop(0)), "input_json_delta in a text block"),
    "input at the start": (with_blocks(*tool(0, input={"a": 1}), reason="tool_use"), "not in input_json_delta"),
    "no tool id": (with_blocks(*tool(0, ""), reason="tool_use"), "the tool id ''"),
    "foreign tool id": (with_blocks(*tool(0, "call_1"), reason="tool_use"), "the tool id 'call_1'"),
    "tool id twice": (with_blocks(*tool(0), *tool(1), reason="tool_use"), "toolu_01 was given 2 times"),
    "no tool name": (with_blocks(*tool(0, name=""), reason="tool_use"), "without a name"),
    "tool_use without a call": (with_blocks(*text(0), reason="tool_use"), "tool_use without a tool_use block"),
    "call without tool_use": (with_blocks(*tool(0), reason="end_turn"), "stop_reason end_turn with a tool_use block"),
    "no stop reason": ([message_start(), message_delta(None), MESSAGE_STOP], "without stop_reason"),
    "no signature": (with_blocks(start(0, "thinking", thinking=""), stop(0)), "thinking without signature"),
    "foreign message id": ([message_start("chatcmpl-1"), *LEGAL[1:]], "the message id 'chatcmpl-1'"),
    "more after error": ([*FAILED, stop(1)], "something follows error"),
    "a false end after error": ([*FAILED, MESSAGE_STOP], "message_stop although the stream failed"),
    "hollow start": ([event("message_start"), *LEGAL[1:]], "the message id None"),
    "hollow delta": (with_blocks(text(0)[0], event("content_block_delta", index=0), stop(0)), "None in a text block"),
    "hollow end": ([message_start(), event("message_delta"), MESSAGE_STOP], "without stop_reason"),
    "error in silence": ([message_start(), event("error")], "error without type or message"),
}


@pytest.mark.parametrize(("events", "says"), DEFECTIVE.values(), ids=DEFECTIVE)
def test_a_defect_is_found(events: Events, says: str) -> None:
    assert any(says in found for found in defects(events)), defects(events)


@pytest.mark.parametrize("cut", range(1, len(LEGAL)))
def test_a_stream_that_just_stops_is_defective_wherever_it_does(cut: int) -> None:
    assert defects(LEGAL[:cut])


def test_ids_are_compared_over_answers() -> None:
    other = [message_start("msg_02"), *tool(0), message_delta(), MESSAGE_STOP]
    assert ids_of(LEGAL) == ["msg_01", "toolu_01", "toolu_02"]
    assert repeated_ids([*ids_of(LEGAL), *ids_of(other)]) == ["toolu_01 was given 2 times"]


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_events_are_read_from_bytes(ending: str) -> None:
    lines = [
        "event: ping",
        'data: {"type":',
        'data: "ping"}',
        "",
        ": comment",
        "",
        'data: {"type":"x"}',
        "",
        "data: {",
        "",
    ]
    raw = ending.join([*lines, ""]).encode()
    assert parse_events(raw) == [event("ping"), Event(None, {"type": "x"}), Event(None, {})]
