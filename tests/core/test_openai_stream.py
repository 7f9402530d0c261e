"""The chat completion decoder: fixtures, and the properties that every stream codec has to hold."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.canonical.events import MessageEnd, StreamFailed, ToolUseStart
from bridge.canonical.fold import fold, unfold
from bridge.canonical.head import AnswerHead
from bridge.canonical.reading import Reading
from bridge.errors import ErrorKind
from bridge.protocols.anthropic.render_response import render_response
from bridge.protocols.anthropic.stream_encoder import MessagesStreamEncoder
from bridge.protocols.openai_chat.parse_response import parse_response
from bridge.protocols.openai_chat.stream_decoder import ChatStreamDecoder
from support import FIXTURES

if TYPE_CHECKING:
    from pathlib import Path

    from bridge.canonical.events import StreamEvent
    from bridge.canonical.fold import Message

READING = Reading("acme")
CASES = sorted((FIXTURES / "openai_chat").iterdir())
BOTH_WAYS = [case for case in CASES if (case / "response.json").exists()]


def decode(*pieces: bytes, reading: Reading = READING) -> list[StreamEvent]:
    decoder = ChatStreamDecoder(reading)
    return [event for piece in pieces for event in decoder.feed(piece)] + decoder.close()


def reading_of(case: Path) -> Reading:
    """What the request of a case was, where that matters for its answer."""
    path = case / "reading.json"
    given = json.loads(path.read_text()) if path.exists() else {}
    given["stop_sequences"] = tuple(given.get("stop_sequences", ()))
    return Reading("acme", **given)


def decode_case(case: Path, *pieces: bytes) -> list[StreamEvent]:
    return decode(*pieces or [(case / "stream.sse").read_bytes()], reading=reading_of(case))


def told(message: Message) -> dict[str, Any]:
    """The message as an Anthropic client gets it, without the ids, which are the provider's here."""
    body = json.loads(json.dumps(render_response(message, AnswerHead("msg_1", "m"))))
    for block in body["content"]:
        block.pop("id", None)
    return {key: body[key] for key in ("content", "stop_reason", "stop_sequence", "usage")}


def ids(cases: list[Path]) -> list[str]:
    return [case.name for case in cases]


@pytest.mark.req("C6.1", "C6.2", "R9")
@pytest.mark.parametrize("case", CASES, ids=ids(CASES))
def test_a_stream_amounts_to_the_expected_message(case: Path) -> None:
    message = fold(decode_case(case))
    assert told(message) == json.loads((case / "expected.json").read_text())


@pytest.mark.req("C6.1")
@pytest.mark.parametrize("case", BOTH_WAYS, ids=ids(BOTH_WAYS))
def test_streaming_and_not_streaming_are_one_translation(case: Path) -> None:
    streamed = fold(decode_case(case))
    assert parse_response((case / "response.json").read_bytes(), reading_of(case)) == streamed


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


@pytest.mark.req("C11")
@pytest.mark.parametrize("case", CASES, ids=ids(CASES))
def test_truncation_anywhere_ends_legally(case: Path) -> None:
    stream = (case / "stream.sse").read_bytes()
    whole = decode_case(case)
    for cut in range(0, len(stream), 7):
        events = decode_case(case, stream[:cut])
        encoded = MessagesStreamEncoder(AnswerHead("msg_1", "m")).encode(events)
        assert isinstance(events[-1], MessageEnd | StreamFailed)
        assert sum(isinstance(event, MessageEnd | StreamFailed) for event in events) == 1
        if isinstance(events[-1], MessageEnd):
            # Only the usage and the [DONE] may be missing: the answer itself is complete.
            assert events[:-1] == whole[:-1]
            assert encoded.endswith(b'event: message_stop\ndata: {"type":"message_stop"}\n\n')
        else:
            assert b"event: error\n" in encoded
            assert b"message_stop" not in encoded


@pytest.mark.req("C11")
@pytest.mark.parametrize(
    ("stream", "says"),
    [
        (b"", "cut off"),
        (b"data: [DONE]\n\n", "without an answer"),
        (b'data: {"choices": [{"delta": {"content": "Hi"}}]}\n\ndata: [DONE]\n\n', "without saying why"),
        (b'data: {"choices": [], "usage": {"prompt_tokens": 1}}\n\ndata: [DONE]\n\n', "without saying why"),
        (b'{"error": {"message": "sent as a stream", "code": "rate_limit_exceeded"}}', "sent as a stream"),
        (b'data: {"choices": [{"error": {"message": "in the choice", "code": 502}}]}\n\n', "in the choice"),
        (b"data: <html>\n\n", "not JSON"),
        (b"<html><body>Bad gateway</body></html>", "an HTML page"),
        (b'data: {"hello": 1}\n\n', "shape of a chat completion"),
        (b"data: [1, 2]\n\n", "shape of a chat completion"),
        (b'data: {"object": "error", "message": "vLLM says no", "code": 400}\n\n', "vLLM says no"),
        (b'data: {"detail": "not found"}\n\n', "not found"),
        (b'data: {"choices": [], "error": {"message": "upstream died", "code": 502}}\n\n', "upstream died"),
        (b'data: {"choices": [{"delta": {}, "finish_reason": "error"}]}\n\ndata: [DONE]\n\n', "gave up"),
        (b'data: {"choices": [17]}\n\n', "shape of a chat completion"),
        (b'data: {"choices": [{"delta": {"tool_calls": [{"index": 0}]}}]}\n\n', "without a name"),
        (b'data: {"error": {"message": "quota used up", "code": 429}}\n\n', "quota used up"),
        (b'data: {"error": "plain words"}\n\n', "plain words"),
    ],
)
def test_garbage_is_an_error_that_names_the_provider(stream: bytes, says: str) -> None:
    last = decode(stream)[-1]
    assert isinstance(last, StreamFailed)
    assert last.error.message.startswith("acme: ")
    assert says in last.error.message


def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    return b"data: %b\n\n" % json.dumps({"choices": [{"delta": delta, "finish_reason": finish}]}).encode()


def call(index: int | None, tool_id: str | None, name: str | None, arguments: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"tool_calls": [{"index": index, "id": tool_id, "function": function}]}


def test_an_error_chunk_keeps_its_status_and_kind() -> None:
    last = decode(chunk({"content": "Hi"}), b'data: {"error": {"message": "slow down", "code": 429}}\n\n')[-1]
    assert isinstance(last, StreamFailed)
    assert last.error.kind is ErrorKind.RATE_LIMIT


def test_malformed_arguments_are_an_error_not_a_guess() -> None:
    last = decode(chunk(call(0, "c", "f", '{"a": nope}')), chunk({}, "tool_calls"), b"data: [DONE]\n\n")[-1]
    assert isinstance(last, StreamFailed)
    assert "'f'" in last.error.message


@pytest.mark.req("S6")
@pytest.mark.parametrize(
    "deltas",
    [
        [call(None, "a", "f", '{"n":1}'), call(None, "b", "g", '{"n":2}')],
        [call(0, "a", "f", '{"n":1}'), call(0, "b", "g", '{"n":2}')],
        [call(0, "a", "f", {"n": 1}), call(1, "b", "g", {"n": 2})],
        [call(0, None, "f", '{"n":1}'), call(1, "", "g", '{"n":2}')],
        [call(None, None, "f", '{"n":1}'), call(None, "", "g", '{"n":2}')],
        [call(0, None, "f", '{"n":1}'), call(0, None, "g", '{"n":2}')],
        [
            {
                "tool_calls": call(None, None, "f", {"n": 1})["tool_calls"]
                + call(None, None, "g", '{"n":2}')["tool_calls"]
            }
        ],
        [call(0, "a", "f", '{"n":'), call(0, "a", None, "1}"), call(1, "b", "g", '{"n":2}')],
        [call(0, "a", "f", '{"n":1}'), call(0, None, None, " "), call(1, "b", "g", '{"n":2}')],
        [call(0, "a", "f", '{"n":1}'), {"content": None}, call(1, "b", "g", '{"n":2}'), call(0, None, None, "")],
    ],
    ids=[
        "no index",
        "index repeats",
        "object arguments",
        "no ids",
        "neither index nor id",
        "index repeats without ids",
        "several at once without either",
        "id repeats",
        "trailing space",
        "late nothing",
    ],
)
def test_calls_of_sloppy_servers_come_out_whole(deltas: list[dict[str, Any]]) -> None:
    events = decode(*[chunk(delta) for delta in deltas], chunk({}, "tool_calls"), b"data: [DONE]\n\n")
    message = fold(events)
    assert [(block["name"], block["input"]) for block in told(message)["content"]] == [("f", {"n": 1}), ("g", {"n": 2})]


@pytest.mark.req("C6.2")
def test_the_head_call_streams_while_others_wait() -> None:
    decoder = ChatStreamDecoder(READING)
    first = decoder.feed(chunk(call(0, "a", "f", "")))
    waiting = decoder.feed(chunk(call(1, "b", "g", '{"n":2}')))
    streaming = decoder.feed(chunk(call(0, None, None, '{"n":')))
    released = decoder.feed(chunk(call(0, None, None, "1}")))
    assert first[-1] == ToolUseStart("a", "f")
    assert waiting == []
    assert len(streaming) == 1
    assert ToolUseStart("b", "g") in released


def test_text_after_a_finished_call_is_a_block_of_its_own() -> None:
    stream = [chunk(call(0, "a", "f", "{}")), chunk({"content": "and so"}), chunk({}, "stop"), b"data: [DONE]\n\n"]
    kinds = [block["type"] for block in told(fold(decode(*stream)))["content"]]
    assert kinds == ["tool_use", "text"]


@pytest.mark.parametrize(
    "extra",
    [b'data: {"usage": {"prompt_tokens": 1, "completion_tokens": 2}}\n\n', b"data: \n\n", b"event: ping\ndata: {}\n\n"],
    ids=["usage without choices", "empty data", "a sign of life"],
)
def test_chunks_that_say_nothing_do_no_harm(extra: bytes) -> None:
    stream = [extra, chunk({"content": "Hi"}), extra, chunk({}, "stop"), extra, b"data: [DONE]\n\n"]
    assert told(fold(decode(*stream)))["content"] == [{"type": "text", "text": "Hi"}]


@pytest.mark.parametrize("arguments", ["null", '""', '"{}"', " "])
def test_arguments_that_amount_to_nothing_are_an_empty_object(arguments: str) -> None:
    events = decode(chunk(call(0, "c", "f", arguments)), chunk({}, "tool_calls"))
    assert told(fold(events))["content"][0]["input"] == {}


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("rate_limit_exceeded", ErrorKind.RATE_LIMIT),
        ("429", ErrorKind.RATE_LIMIT),
        ("invalid_api_key", ErrorKind.AUTHENTICATION),
    ],
)
def test_errors_in_a_stream_are_told_by_their_names_too(code: str, kind: ErrorKind) -> None:
    last = decode(b"data: %b\n\n" % json.dumps({"error": {"message": "no", "code": code}}).encode())[-1]
    assert isinstance(last, StreamFailed)
    assert last.error.kind is kind


def test_huge_integers_survive() -> None:
    number = 123456789012345678901234567890
    message = fold(decode(chunk(call(0, "c", "f", f'{{"n": {number}}}')), chunk({}, "tool_calls")))
    assert fold(unfold(message)) == message
    assert told(message)["content"][0]["input"] == {"n": number}
