"""Chunks that are not parsed say what they would have said if they had been."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.canonical.events import TextDelta
from bridge.canonical.reading import Reading
from bridge.protocols.openai_chat import text_run
from bridge.protocols.openai_chat.stream_decoder import ChatStreamDecoder
from bridge.protocols.openai_chat.text_run import MAX_LESSONS, TextRun

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.canonical.events import StreamEvent

pytestmark = pytest.mark.req("G1")
TEXTS = st.one_of(
    st.sampled_from([" word", "", '"', "\\", "\n", "é", "\u2028", "😀", "}]}", '"},"x":"', "letters", "\ud800", "  "]),
    st.text(max_size=12),
)
LAYOUTS = st.sampled_from([(",", ":"), (", ", ": "), (",", ": ")])


def chunk(delta: dict[str, Any], reason: str | None = None, **more: Any) -> dict[str, Any]:
    return {"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}], **more}


def with_text(text: str, kind: str) -> dict[str, Any]:
    """A chunk that says a text, alone or beside what changes its meaning."""
    plain = {"content": text}
    return {
        "plain": chunk(plain),
        "role": chunk({"role": "assistant", **plain}),
        "nulls": chunk({**plain, "tool_calls": None, "refusal": None, "reasoning_details": []}),
        "decoy before": {"note": {"content": text}, **chunk(plain)},
        "decoy after": chunk(plain, message={"content": text}),
        "padded": chunk(plain, obfuscation=text * 2),
        "usage": chunk(plain, usage={"prompt_tokens": len(text), "completion_tokens": 1}),
        "call": chunk({**plain, "tool_calls": [{"index": 0, "id": "t", "function": {"name": "f", "arguments": "{}"}}]}),
        "reasoning": chunk({**plain, "reasoning": text}),
        "refusal": chunk({**plain, "refusal": text}),
        "other choice": {"choices": [{"index": 1, "delta": plain}]},
        "odd other choice": {"choices": [{"index": 1, "delta": text}]},
        "odd delta": {"choices": [{"index": 0, "delta": text}]},
        "two choices": {"choices": [{"index": 0, "delta": plain}, {"index": 1, "delta": {"content": "no"}}]},
        "parts": chunk({"content": [{"type": "text", "text": text}]}),
        "last": chunk(plain, "stop"),
    }[kind]


KINDS = st.one_of(
    st.just("plain"),
    st.sampled_from(["role", "nulls", "decoy before", "decoy after", "padded", "usage", "call", "reasoning"]),
    st.sampled_from(["refusal", "other choice", "odd other choice", "odd delta", "two choices", "parts", "last"]),
)
CHUNKS = st.lists(st.tuples(TEXTS, KINDS, LAYOUTS), max_size=14)


def encoded(text: str, kind: str, layout: tuple[str, str], *, escapes: bool) -> bytes:
    data = json.dumps(with_text(text, kind), separators=layout, ensure_ascii=escapes)
    return b"data: %b\n\n" % data.encode("utf-8", "surrogatepass")


def decoded(events: Sequence[bytes], lessons: int) -> list[StreamEvent]:
    decoder = ChatStreamDecoder(Reading("acme"))
    decoder._run = TextRun()
    decoder._run._lessons_left = lessons
    out = [event for data in events for event in decoder.feed(data)]
    return [*out, *decoder.close()]


@settings(max_examples=600, deadline=None)
@given(chunks=CHUNKS, escapes=st.booleans())
def test_what_is_not_parsed_reads_as_if_it_were(chunks: list[tuple[str, str, Any]], escapes: bool) -> None:
    events = [encoded(text, kind, layout, escapes=escapes) for text, kind, layout in chunks]
    assert repr(decoded(events, MAX_LESSONS)) == repr(decoded(events, 0))


@settings(max_examples=400, deadline=None)
@given(
    chunks=CHUNKS,
    cuts=st.lists(st.integers(0, 2000), max_size=12),
    comment=st.sampled_from([b"", b": hi\n\n", b"\r\n"]),
)
def test_it_does_so_however_the_bytes_are_cut(
    chunks: list[tuple[str, str, Any]], cuts: list[int], comment: bytes
) -> None:
    events = [encoded(text, kind, layout, escapes=False) for text, kind, layout in chunks]
    stream = comment.join(events)
    borders = sorted({cut for cut in cuts if cut < len(stream)} | {0, len(stream)})
    reads = [stream[start:end] for start, end in pairwise(borders)]
    assert repr(decoded(reads, MAX_LESSONS)) == repr(decoded(reads, 0))


def learned(pattern: bytes) -> TextRun:
    run = TextRun()
    run.note(pattern, orjson.loads(pattern))
    run.learn()
    return run


PLAIN = orjson.dumps(chunk({"content": "one"}))


@pytest.mark.parametrize("text", ["two", "é", "😀", "}]}", ":", "letters"])
def test_plain_letters_are_read_without_parsing(text: str) -> None:
    assert learned(PLAIN).text_in(PLAIN.replace(b"one", text.encode())) == text


@pytest.mark.parametrize("letters", [b"", b'tw"o', b"tw\\no", b"tw\no", b"\xff", "\u2028".encode(), b'x"},"y":{"z":"x'])
def test_what_may_mean_more_than_its_letters_is_parsed(letters: bytes) -> None:
    assert learned(PLAIN).text_in(PLAIN.replace(b"one", letters)) is None


@pytest.mark.parametrize(
    "pattern",
    [
        b'{"message":{"content":"one"},"choices":[{"index":0,"delta":{"content" :"one"}}]}',
        b'{"choices":[{"index":0,"delta":{"content":"one","content":"one"}}]}',
        b'{"choices":[{"index":0,"delta":{"content":"one","reasoning":"x"}}]}',
        b'{"choices":[{"index":0,"delta":{"content":"one"},"finish_reason":"stop"}]}',
        b'{"choices":[{"index":1,"delta":{"content":"one"}}]}',
        b'{"usage":{"prompt_tokens":1},"choices":[{"index":0,"delta":{"content":"one"}}]}',
        b'{"error":{"message":"no"},"choices":[{"index":0,"delta":{"content":"one"}}]}',
        b'{"choices":[{"index":0,"delta":{}}]}',
        b'{"choices":[]}',
    ],
)
def test_a_chunk_whose_text_has_no_place_of_its_own_is_no_pattern(pattern: bytes) -> None:
    assert learned(pattern).text_in(pattern.replace(b"one", b"two")) is None


def test_a_stream_that_always_differs_elsewhere_is_given_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    probes: list[bytes] = []

    class Counted:
        JSONDecodeError = orjson.JSONDecodeError

        @staticmethod
        def loads(data: bytes) -> Any:
            probes.append(data)
            return orjson.loads(data)

    monkeypatch.setattr(text_run, "orjson", Counted)
    decoder = ChatStreamDecoder(Reading("acme"))
    for number in range(50):
        said = decoder.feed(b"data: %b\n\n" % orjson.dumps(chunk({"content": "a"}, padding="x" * number)))
        assert TextDelta("a") in said
    assert len(probes) == MAX_LESSONS
