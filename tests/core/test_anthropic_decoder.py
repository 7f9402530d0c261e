"""The Messages decoder: fixtures, and the properties that every stream codec has to hold."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.canonical.content import RedactedThinking, ServerBlock, Text, Thinking, ToolUse
from bridge.canonical.events import MessageEnd, MessageStart, StreamFailed, ToolUseStart, Usage
from bridge.canonical.fold import Message, fold, unfold
from bridge.canonical.head import AnswerHead
from bridge.canonical.reading import Reading
from bridge.errors import BridgeError, ErrorKind
from bridge.protocols.anthropic.parse_response import parse_response
from bridge.protocols.anthropic.render_response import render_response
from bridge.protocols.anthropic.replayed_thinking import MAX_KEPT_CHARACTERS
from bridge.protocols.anthropic.stream_decoder import MessagesStreamDecoder
from bridge.protocols.anthropic.stream_encoder import MessagesStreamEncoder
from bridge.protocols.anthropic.usage import parse_usage, usage_in
from support import FIXTURES

if TYPE_CHECKING:
    from pathlib import Path

    from bridge.canonical.events import StreamEvent

READING = Reading("acme")
CASES = sorted((FIXTURES / "anthropic").iterdir())
BOTH_WAYS = [case for case in CASES if (case / "response.json").exists()]


def decode(*pieces: bytes, reading: Reading = READING) -> list[StreamEvent]:
    decoder = MessagesStreamDecoder(reading)
    return [event for piece in pieces for event in decoder.feed(piece)] + decoder.close()


def reading_of(case: Path) -> Reading:
    path = case / "reading.json"
    return Reading("acme", **json.loads(path.read_text())) if path.exists() else READING


def decode_case(case: Path, *pieces: bytes) -> list[StreamEvent]:
    return decode(*pieces or [(case / "stream.sse").read_bytes()], reading=reading_of(case))


def encode(events: list[StreamEvent]) -> bytes:
    return MessagesStreamEncoder(AnswerHead("msg_1", "m")).encode(events)


def ids(cases: list[Path]) -> list[str]:
    return [case.name for case in cases]


def told(message: Message) -> dict[str, Any]:
    """The message as an Anthropic client would get it, and what its calls are to be sent back with."""
    body = render_response(message, AnswerHead("msg_1", "m"))
    told = {key: body[key] for key in ("content", "stop_reason", "stop_sequence", "usage")}
    calls = [block for block in message.content if isinstance(block, ToolUse)]
    replays = [call.replay.call if call.replay else None for call in calls]
    return json.loads(json.dumps(told | {"raw_reason": message.end.raw_reason, "replays": replays}))


@pytest.mark.req("G2", "S3")
@pytest.mark.parametrize("case", CASES, ids=ids(CASES))
def test_a_stream_amounts_to_the_expected_message(case: Path) -> None:
    assert told(fold(decode_case(case))) == json.loads((case / "expected.json").read_text())


@pytest.mark.req("G1", "S3")
@pytest.mark.parametrize("case", BOTH_WAYS, ids=ids(BOTH_WAYS))
def test_streaming_and_not_streaming_are_one_translation(case: Path) -> None:
    whole = parse_response((case / "response.json").read_bytes(), reading_of(case))
    assert whole == fold(decode_case(case))


@pytest.mark.parametrize("case", CASES, ids=ids(CASES))
def test_unfolding_a_message_folds_back(case: Path) -> None:
    message = fold(decode_case(case))
    assert fold(unfold(message)) == message


@pytest.mark.parametrize("case", CASES, ids=ids(CASES))
@given(data=st.data())
@settings(max_examples=25)
def test_any_split_of_the_bytes_gives_the_same_events(case: Path, data: st.DataObject) -> None:
    stream = (case / "stream.sse").read_bytes()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert decode_case(case, *pieces) == decode_case(case)


@pytest.mark.req("C11", "G2")
@pytest.mark.parametrize("case", CASES, ids=ids(CASES))
def test_truncation_anywhere_ends_legally(case: Path) -> None:
    stream = (case / "stream.sse").read_bytes()
    whole = decode_case(case)
    for cut in range(0, len(stream), 5):
        events = decode_case(case, stream[:cut])
        assert sum(isinstance(event, MessageEnd | StreamFailed) for event in events) == 1
        encoded = encode(events)
        last = events[-1]
        if isinstance(last, MessageEnd):  # only the message_stop may be missing, or a second count
            assert events[:-1] == whole[:-1]
            assert encoded.endswith(b'event: message_stop\ndata: {"type":"message_stop"}\n\n')
        else:
            assert isinstance(last, StreamFailed)
            assert "cut off" in last.error.message
            assert b"message_stop" not in encoded


@pytest.mark.parametrize("case", CASES, ids=ids(CASES))
def test_what_is_encoded_again_decodes_to_the_same_events(case: Path) -> None:
    events = decode_case(case)
    end = events[-1]
    assert isinstance(end, MessageEnd)
    # Words that only this provider has are not told on.
    events[-1] = replace(end, raw_reason=end.reason)
    assert decode(encode(events)) == events


texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
arguments = st.dictionaries(texts, st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts, max_size=3)
blocks = st.one_of(
    st.builds(Text, texts),
    st.builds(Thinking, texts, texts),
    st.builds(RedactedThinking, texts),
    st.builds(ToolUse, st.from_regex(r"toolu_[a-z0-9]{4}", fullmatch=True), texts, arguments),
    st.builds(lambda said: ServerBlock("server_tool_use", {"type": "server_tool_use", "input": said}), arguments),
)
usages = st.builds(Usage, *[st.integers(0, 10**6)] * 5)


def without_replays(message: Message) -> Message:
    """Replays follow from the blocks: the decoder finds them by itself."""
    kept = tuple(replace(block, replay=None) if isinstance(block, ToolUse) else block for block in message.content)
    return replace(message, content=kept)


@pytest.mark.req("G2")
@given(content=st.lists(blocks, max_size=6).map(tuple), usage=usages)
def test_every_message_that_can_be_encoded_decodes_to_itself(content: tuple[Any, ...], usage: Usage) -> None:
    reason = "tool_use" if any(isinstance(block, ToolUse) for block in content) else "end_turn"
    message = Message(content, MessageEnd(reason, usage, raw_reason=reason))  # type: ignore[arg-type]
    streamed = fold(decode(encode(list(unfold(message)))))
    assert without_replays(streamed) == message
    whole = json.dumps(render_response(message, AnswerHead("msg_1", "m"))).encode()
    assert parse_response(whole, READING) == streamed


STREAMS = [(case / "stream.sse").read_bytes() for case in CASES]
GARBAGE = [
    b"\x00",
    b"\xff\xfe",
    b"null",
    b"[]",
    b'""',
    b"data: ",
    b"\n\n",
    b"\r",
    b"{",
    b"}",
    b'"index":',
    b"-1",
    b"1e999",
]


def mutate(stream: bytes, rng: random.Random) -> bytes:
    for _ in range(rng.randint(1, 4)):
        at, length = rng.randrange(len(stream) + 1), rng.randint(1, 60)
        match rng.randrange(6):
            case 0:
                stream = stream[:at] + stream[at + length :]
            case 1:
                stream = stream[:at] + rng.choice(GARBAGE) + stream[at:]
            case 2:
                stream = stream[:at] + stream[at : at + length] + stream[at:]
            case 3:
                stream = stream[:at] + bytes([rng.randrange(256)]) + stream[at + 1 :]
            case 4:
                events = stream.split(b"\n\n")
                del events[rng.randrange(len(events))]
                stream = b"\n\n".join(events)
            case _:
                events = stream.split(b"\n\n")
                rng.shuffle(events)
                stream = b"\n\n".join(events)
    return stream


@pytest.mark.req("C11", "C13", "G2")
@pytest.mark.parametrize("seed", range(20))
def test_whatever_arrives_the_stream_ends_legally(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(80):
        stream = mutate(rng.choice(STREAMS), rng)
        cut = rng.randrange(len(stream) + 1)
        decoder = MessagesStreamDecoder(READING)
        events = [*decoder.feed(stream[:cut]), *decoder.feed(stream[cut:]), *decoder.close(), *decoder.close()]
        endings = [event for event in events if isinstance(event, MessageEnd | StreamFailed)]
        assert len(endings) == 1, stream
        assert events[-1] is endings[0]
        assert encode(events).endswith(b"\n\n")
        if isinstance(events[-1], MessageEnd):
            assert fold(events).end is events[-1]


@given(data=st.binary(max_size=400))
@settings(max_examples=60)
def test_bytes_that_are_no_stream_at_all_are_an_error(data: bytes) -> None:
    events = decode(data)
    assert [type(event) for event in events] == [StreamFailed]


def sse(*events: dict[str, Any]) -> bytes:
    return b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events)


START = {"type": "message_start", "message": {"usage": {"input_tokens": 5, "output_tokens": 1}}}
TEXT = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
TOOL = {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "t", "name": "f"}}
STOPPED = {"type": "content_block_stop", "index": 0}
STOP = {"type": "message_stop"}


def delta(kind: str, index: int = 0, **fields: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **fields}}


def ending(reason: str | None = "end_turn", **fields: Any) -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": reason}, **fields}


@pytest.mark.req("C11", "G2")
@pytest.mark.parametrize(
    ("stream", "says"),
    [
        (b"", "cut off"),
        (b": only a comment\n\n", "cut off"),
        (sse({"type": "ping"}), "cut off"),
        (sse(START, STOP), "without saying why"),
        (sse(START, ending(None), STOP), "without saying why"),
        (sse(START, START), "a second message"),
        (sse(START, delta("text_delta", text="x")), "not open"),
        (sse(START, TEXT, delta("text_delta", 1, text="x")), "not open"),
        (sse(START, TEXT, delta("thinking_delta", thinking="x")), "cannot hold it"),
        (sse(START, TEXT, delta("text_delta", text=5)), "not text"),
        (sse(START, {"type": "content_block_start", "index": 0}), "shape of a message"),
        (
            sse(START, {"type": "content_block_start", "content_block": {"type": "tool_use", "id": "t"}}),
            "without a name",
        ),
        (
            sse(START, TOOL, delta("input_json_delta", partial_json="[1"), STOPPED, ending("tool_use"), STOP),
            "JSON object",
        ),
        (
            sse(START, TOOL, delta("input_json_delta", partial_json="nope"), STOPPED, ending("max_tokens")),
            "JSON object",
        ),
        (b'{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}', "slow down"),
        (b'{"hello": 1}', "instead of a stream"),
        (b"<html><body>Bad gateway</body></html>", "an HTML page"),
        (b"data: <html>\n\n", "not JSON"),
        (b"data: [1, 2]\n\n", "shape of a message"),
        (sse({"choices": [{"delta": {"content": "Hi"}}]}), "shape of a message"),
        (sse({"error": {"message": "said by a gateway"}}), "said by a gateway"),
        (sse(START, TEXT, {"type": "error", "error": {"type": "api_error", "message": "it broke"}}), "it broke"),
        (b"event: error\ndata: {}\n\n", "shape of a message"),
    ],
)
def test_garbage_is_an_error_that_names_the_provider(stream: bytes, says: str) -> None:
    last = decode(stream)[-1]
    assert isinstance(last, StreamFailed)
    assert last.error.message.startswith("acme: ")
    assert says in last.error.message


@pytest.mark.req("C11")
@pytest.mark.parametrize(
    ("kind", "expected", "status", "retryable"),
    [
        ("overloaded_error", ErrorKind.OVERLOADED, 529, True),
        ("rate_limit_error", ErrorKind.RATE_LIMIT, 429, True),
        ("api_error", ErrorKind.API, 500, True),
        ("timeout_error", ErrorKind.TIMEOUT, 504, True),
        ("invalid_request_error", ErrorKind.INVALID_REQUEST, 400, False),
        ("permission_error", ErrorKind.PERMISSION, 403, False),
        ("a_new_error", ErrorKind.API, 502, True),
    ],
)
def test_an_error_event_keeps_its_kind(kind: str, expected: ErrorKind, status: int, *, retryable: bool) -> None:
    events = decode(
        sse(START, TEXT, {"type": "error", "error": {"type": kind, "message": "no"}, "request_id": "req_1"})
    )
    last = events[-1]
    assert isinstance(last, StreamFailed)
    assert (last.error.kind, last.error.status, last.error.retryable) == (expected, status, retryable)
    assert last.error.provider_details == {"type": kind, "request_id": "req_1"}


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"<html>", "not JSON"),
        (b"[]", "shape of a message"),
        (b'{"type": "message"}', "shape of a message"),
        (b'{"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}', "busy"),
        (b'{"content": [5]}', "shape of a message"),
        (b'{"content": [{"type": "tool_use", "id": "t", "name": "f", "input": [1]}]}', "JSON object"),
    ],
)
def test_a_body_that_holds_no_message_is_an_error(body: bytes, says: str) -> None:
    with pytest.raises(BridgeError, match=says):
        parse_response(body, READING)


def test_nothing_after_the_end_is_said() -> None:
    stream = sse(START, ending(), STOP, TEXT, START, {"type": "error", "error": {"message": "late"}})
    assert [type(event) for event in decode(stream)] == [MessageStart, MessageEnd]


def test_counts_that_never_came_are_estimated() -> None:
    start = {"type": "message_start", "message": {}}
    events = decode(
        sse(start, TEXT, delta("text_delta", text="x" * 40), STOPPED, ending(), STOP),
        reading=Reading("acme", estimated_input_tokens=77),
    )
    assert events[0] == MessageStart(Usage(77, estimated=True))
    assert fold(events).end.usage == Usage(77, 10, estimated=True)


@pytest.mark.req("S3")
def test_thinking_that_is_too_large_to_keep_is_said_but_not_kept() -> None:
    pieces = [delta("thinking_delta", thinking="x" * 10_000) for _ in range(MAX_KEPT_CHARACTERS // 10_000 + 1)]
    thinking = {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": ""}}
    signed = [thinking, *pieces, delta("signature_delta", signature="s"), STOPPED]
    small = [thinking, delta("thinking_delta", thinking="y"), delta("signature_delta", signature="s"), STOPPED]
    events = decode(sse(START, *signed, TOOL, STOPPED, *small, TOOL, STOPPED, ending("tool_use"), STOP))
    starts = [event for event in events if isinstance(event, ToolUseStart)]
    assert starts[0].data is None
    assert starts[1].data == {
        "thinking": [{"type": "thinking", "thinking": "y", "signature": "s"}],
        "after_text": False,
    }
    first = fold(events).content[0]
    assert isinstance(first, Thinking)
    assert len(first.thinking) == 10_000 * len(pieces)


@pytest.mark.req("C8")
def test_arguments_without_end_are_cut_off() -> None:
    decoder = MessagesStreamDecoder(READING)
    decoder.feed(sse(START, TOOL))
    piece = sse(delta("input_json_delta", partial_json="x" * 1_000_000))
    events = [event for _ in range(10) for event in decoder.feed(piece)]
    assert isinstance(events[-1], StreamFailed)
    assert "too large" in events[-1].error.message


@pytest.mark.req("LEDGER")
@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({}, Usage()),
        ({"input_tokens": 1, "output_tokens": 2}, Usage(1, 2)),
        (
            {"input_tokens": None, "cache_read_input_tokens": 3, "cache_creation_input_tokens": 4},
            Usage(cache_read_tokens=3, cache_write_tokens=4),
        ),
        (
            {"output_tokens": 9, "output_tokens_details": {"thinking_tokens": 5}},
            Usage(output_tokens=9, reasoning_tokens=5),
        ),
        ({"input_tokens": -1, "output_tokens": "many", "output_tokens_details": 5}, Usage()),
    ],
)
def test_usage_is_read_from_every_shape(usage: dict[str, Any], expected: Usage) -> None:
    assert parse_usage(usage) == expected


@pytest.mark.req("LEDGER")
@pytest.mark.parametrize("case", BOTH_WAYS, ids=ids(BOTH_WAYS))
def test_usage_observed_in_passing_is_what_the_decoder_reads(case: Path) -> None:
    known: Usage | None = None
    for line in (case / "stream.sse").read_text().splitlines():
        if line.startswith("data: "):
            known = usage_in(json.loads(line[6:]), known) or known
    assert known == fold(decode_case(case)).end.usage
    assert usage_in(json.loads((case / "response.json").read_bytes()), None) == known
