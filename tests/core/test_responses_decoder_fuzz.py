"""Mutated streams of responses, bounded in number: never a crash, never an illegal ending."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.canonical.events import MessageEnd, StreamFailed
from bridge.canonical.fold import fold
from bridge.canonical.head import AnswerHead
from bridge.canonical.reading import Reading
from bridge.errors import BridgeError
from bridge.protocols.anthropic.stream_encoder import MessagesStreamEncoder
from bridge.protocols.openai_responses.parse_response import parse_response
from bridge.protocols.openai_responses.stream_decoder import ResponsesStreamDecoder
from support import FIXTURES

if TYPE_CHECKING:
    from collections.abc import Callable

CASES = sorted((FIXTURES / "openai_responses").iterdir())
STREAMS = [(case / "stream.sse").read_bytes() for case in CASES]
EVENTS = [
    [json.loads(line[6:]) for line in stream.splitlines() if line.startswith(b"data: {")]
    for stream, case in zip(STREAMS, CASES, strict=True)
]
WHOLE = [json.loads(path.read_bytes()) for path in sorted((FIXTURES / "openai_responses").glob("*/response.json"))]
ODD: list[Any] = [None, "", "x", 0, -1, 7, 10**30, 1.5, True, [], {}, [[]], [{}], {"type": "output_text"}, "\ud800"]
GARBAGE = [b"\x00", b"\xff\xfe", b"null", b"[]", b'""', b"data: ", b"\n\n", b"\r", b"{", b"}", b'"index":', b"1e999"]


def check(stream: bytes, cut: int) -> None:
    """Whatever arrives: one ending, the last, and Anthropic's encoder takes it all."""
    decoder = ResponsesStreamDecoder(Reading("acme"))
    events = [*decoder.feed(stream[:cut]), *decoder.feed(stream[cut:]), *decoder.close(), *decoder.close()]
    endings = [event for event in events if isinstance(event, MessageEnd | StreamFailed)]
    assert len(endings) == 1, stream
    assert events[-1] is endings[0]
    assert MessagesStreamEncoder(AnswerHead("msg_1", "m")).encode(events).endswith(b"\n\n")
    if isinstance(endings[0], MessageEnd):
        assert fold(events).end is endings[0]


def mutated(value: Any, draw: Callable[..., Any]) -> Any:
    """The JSON value with one thing in it replaced, left out or said twice."""
    if draw(st.integers(0, 4)) == 0 or not value or not isinstance(value, dict | list):
        return draw(st.sampled_from(ODD))
    if isinstance(value, list):
        place = draw(st.integers(0, len(value) - 1))
        match draw(st.integers(0, 2)):
            case 0:
                return value[:place] + value[place + 1 :]
            case 1:
                return [*value[:place], value[place], *value[place:]]
            case _:
                return [*value[:place], mutated(value[place], draw), *value[place + 1 :]]
    name = draw(st.sampled_from(sorted(value)))
    if draw(st.booleans()):
        return value | {name: mutated(value[name], draw)}
    return {key: kept for key, kept in value.items() if key != name}


@st.composite
def mutated_events(draw: Callable[..., Any]) -> bytes:
    """Events of one or two streams, some reordered, repeated, left out or changed inside."""
    events = list(draw(st.sampled_from(EVENTS)))
    if draw(st.booleans()):
        events = events[:-1] + draw(st.sampled_from(EVENTS))
    for _ in range(draw(st.integers(1, 4))):
        place, other = draw(st.integers(0, len(events) - 1)), draw(st.integers(0, len(events) - 1))
        match draw(st.integers(0, 3)):
            case 0:
                events[place], events[other] = events[other], events[place]
            case 1:
                events.insert(other, events[place])
            case 2:
                events = events[:place] + events[place + 1 :] or events
            case _:
                events[place] = mutated(events[place], draw)
    return b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events)


@pytest.mark.req("C11", "C13", "G2", "P1")
@given(stream=mutated_events(), cut=st.integers(0, 5000))
@settings(max_examples=1500, deadline=None)
def test_mutated_events_end_legally(stream: bytes, cut: int) -> None:
    check(stream, cut)


@pytest.mark.req("C11", "C13")
@given(data=st.data())
@settings(max_examples=500, deadline=None)
def test_mutated_bytes_end_legally(data: st.DataObject) -> None:
    stream = data.draw(st.sampled_from(STREAMS))
    for _ in range(data.draw(st.integers(1, 4))):
        at, length = data.draw(st.integers(0, len(stream))), data.draw(st.integers(0, 60))
        stream = stream[:at] + data.draw(st.sampled_from(GARBAGE)) + stream[at + length :]
    check(stream, data.draw(st.integers(0, len(stream))))


@pytest.mark.req("C11", "C13")
@given(data=st.data())
@settings(max_examples=500, deadline=None)
def test_mutated_whole_responses_are_read_or_refused(data: st.DataObject) -> None:
    response = mutated(data.draw(st.sampled_from(WHOLE)), data.draw)
    try:
        told = parse_response(json.dumps(response).encode(), Reading("acme")).end.raw_reason
    except BridgeError as error:
        told = error.provider
    assert told
