"""The event stream codec: any split of the bytes gives the same events."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.sse import EventTooLargeError, ServerSentEvent, SseParser, encode_event


def parse(*pieces: bytes) -> list[ServerSentEvent]:
    parser = SseParser()
    return [event for piece in pieces for event in parser.feed(piece)] + parser.close()


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b"data: a\n\ndata: b\n\n", [(b"a", b""), (b"b", b"")]),
        (b"data: a\r\n\r\ndata: b\r\n\r\n", [(b"a", b""), (b"b", b"")]),
        (b"data: a\r\rdata: b\r\r", [(b"a", b""), (b"b", b"")]),
        (b"event: ping\ndata: {}\n\n", [(b"{}", b"ping")]),
        (b"data: one\ndata: two\n\n", [(b"one\ntwo", b"")]),
        (b"data:no space\n\n", [(b"no space", b"")]),
        (b": comment\n\ndata: a\n\n", [(b"a", b"")]),
        (b"id: 7\nretry: 5\ndata: a\n\n", [(b"a", b"")]),
        (b"\xef\xbb\xbfdata: a\n\n", [(b"a", b"")]),
        (b"data: a\n", [(b"a", b"")]),
        (b"data: a\n\ndata: cut o", [(b"a", b"")]),
        (b"event: only a name\n\n", []),
        (b"", []),
    ],
)
def test_streams_as_servers_send_them(stream: bytes, expected: list[tuple[bytes, bytes]]) -> None:
    assert [(event.data, event.event) for event in parse(stream)] == expected


LINES = st.sampled_from([b"data: x", b"data: {}", b"event: e", b": c", b"", b"data:", b"data: \xf0\x9f\x8e\x89"])
STREAMS = st.lists(st.tuples(LINES, st.sampled_from([b"\n", b"\r\n", b"\r"])), max_size=30).map(
    lambda lines: b"".join(line + end for line, end in lines)
)


@given(STREAMS, st.data())
def test_any_split_gives_the_same_events(stream: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert parse(*pieces) == parse(stream)


def test_what_is_encoded_parses_back() -> None:
    assert parse(encode_event(b"ping", b'{"type":"ping"}')) == [ServerSentEvent(b'{"type":"ping"}', b"ping")]


def test_an_event_without_end_is_not_kept_for_ever() -> None:
    parser = SseParser(limit=100)
    parser.feed(b"data: " + b"0" * 90)
    with pytest.raises(EventTooLargeError, match="larger than 100 bytes"):
        parser.feed(b"0" * 10)
