"""The decoder of responses: fixtures, and the properties that every stream codec has to hold."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter

from bridge.canonical.content import ToolUse
from bridge.canonical.events import (
    BlockStop,
    InputDelta,
    MessageEnd,
    MessageStart,
    StreamFailed,
    TextDelta,
    TextStart,
    ToolUseStart,
)
from bridge.canonical.fold import fold, unfold
from bridge.canonical.head import AnswerHead
from bridge.canonical.reading import Reading
from bridge.errors import BridgeError, ErrorKind
from bridge.protocols.anthropic.render_response import render_response
from bridge.protocols.anthropic.stream_encoder import MessagesStreamEncoder
from bridge.protocols.openai_responses.parse_response import parse_response
from bridge.protocols.openai_responses.replay import MAX_REPLAY_BYTES
from bridge.protocols.openai_responses.stream_decoder import ResponsesStreamDecoder
from support import FIXTURES

if TYPE_CHECKING:
    from pathlib import Path

    from bridge.canonical.events import StreamEvent
    from bridge.canonical.fold import Message

READING = Reading("acme")
CASES = sorted((FIXTURES / "openai_responses").iterdir())
# Streams of servers that leave things out: the SDK's types do not hold for them.
SLOPPY = {"no_index", "types_only_in_the_event_line", "unknown_events", "error_event_wrapped", "cancelled"}


def expected(case: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((case / "expected.json").read_text())
    return told


ANSWERED = [case for case in CASES if "error" not in expected(case)]
FAILED = [case for case in CASES if "error" in expected(case)]
BOTH_WAYS = [case for case in CASES if (case / "response.json").exists()]


def decode(*pieces: bytes, reading: Reading = READING) -> list[StreamEvent]:
    decoder = ResponsesStreamDecoder(reading)
    return [event for piece in pieces for event in decoder.feed(piece)] + decoder.close()


def reading_of(case: Path) -> Reading:
    """What the request of a case was, where that matters for its answer."""
    path = case / "reading.json"
    return Reading("acme", **(json.loads(path.read_text()) if path.exists() else {}))


def decode_case(case: Path, *pieces: bytes) -> list[StreamEvent]:
    return decode(*pieces or [(case / "stream.sse").read_bytes()], reading=reading_of(case))


def told(message: Message) -> dict[str, Any]:
    """The message as an Anthropic client gets it, and what the bridge keeps with its calls."""
    body = json.loads(json.dumps(render_response(message, AnswerHead("msg_1", "m"))))
    calls = [block for block in message.content if isinstance(block, ToolUse) and block.replay]
    replays = {call.id: call.replay.call for call in calls if call.replay}
    return {key: body[key] for key in ("content", "stop_reason", "stop_sequence", "usage")} | {"replays": replays}


def ids(cases: list[Path]) -> list[str]:
    return [case.name for case in cases]


def failure(events: list[StreamEvent]) -> BridgeError:
    assert isinstance(events[-1], StreamFailed)
    return events[-1].error


def sse(*events: dict[str, Any]) -> bytes:
    return b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events)


def call_item(arguments: Any = "{}", **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": arguments} | more


def message_item(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "message", "id": "msg_1", "content": [{"type": "output_text", "text": text}]} | more


def added(index: int, item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def done(index: int, item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def arguments(index: int, piece: Any) -> dict[str, Any]:
    return {"type": "response.function_call_arguments.delta", "output_index": index, "delta": piece}


def text(index: int, piece: Any, **more: Any) -> dict[str, Any]:
    return {"type": "response.output_text.delta", "output_index": index, "delta": piece} | more


def completed(*output: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "response.completed", "response": {"status": "completed", "output": list(output)} | more}


@pytest.mark.req("P1", "C6.1", "C6.2")
@pytest.mark.parametrize("case", ANSWERED, ids=ids(ANSWERED))
def test_a_stream_amounts_to_the_expected_message(case: Path) -> None:
    assert told(fold(decode_case(case))) == expected(case)


@pytest.mark.req("P1", "C11")
@pytest.mark.parametrize("case", FAILED, ids=ids(FAILED))
def test_a_stream_that_fails_says_why(case: Path) -> None:
    error, wanted = failure(decode_case(case)), expected(case)["error"]
    assert error.kind is ErrorKind[wanted["kind"]]
    assert wanted["says"] in error.message
    assert error.provider == "acme"


@pytest.mark.parametrize("case", [case for case in CASES if case.name not in SLOPPY], ids=lambda case: case.name)
def test_the_fixtures_are_what_the_sdk_knows(case: Path) -> None:
    adapter: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
    lines = (case / "stream.sse").read_bytes().splitlines()
    events = [json.loads(line[6:]) for line in lines if line.startswith(b"data: {")]
    kinds = {adapter.validate_python(event).type for event in events if event["type"] != "keepalive"}
    assert kinds & {"response.completed", "response.incomplete", "response.failed", "error"}


@pytest.mark.req("P1", "C6.1")
@pytest.mark.parametrize("case", BOTH_WAYS, ids=ids(BOTH_WAYS))
def test_streaming_and_not_streaming_are_one_translation(case: Path) -> None:
    body, reading = (case / "response.json").read_bytes(), reading_of(case)
    if case in ANSWERED:
        assert parse_response(body, reading) == fold(decode_case(case))
        return
    with pytest.raises(BridgeError) as raised:
        parse_response(body, reading)
    assert str(raised.value) == str(failure(decode_case(case)))


@pytest.mark.parametrize("case", ANSWERED, ids=ids(ANSWERED))
def test_unfolding_a_message_folds_back(case: Path) -> None:
    message = fold(decode_case(case))
    assert fold(unfold(message)) == message


@pytest.mark.parametrize("case", CASES, ids=ids(CASES))
@given(data=st.data())
@settings(max_examples=15)
def test_any_split_of_the_bytes_gives_the_same_events(case: Path, data: st.DataObject) -> None:
    stream = (case / "stream.sse").read_bytes()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    split, whole = decode_case(case, *pieces), decode_case(case)
    assert split[:-1] == whole[:-1]
    assert str(split[-1]) == str(whole[-1])


@pytest.mark.req("C11")
@pytest.mark.parametrize("case", CASES, ids=ids(CASES))
def test_truncation_anywhere_ends_legally(case: Path) -> None:
    stream = (case / "stream.sse").read_bytes()
    for cut in range(0, len(stream), 29):
        events = decode_case(case, stream[:cut])
        encoded = MessagesStreamEncoder(AnswerHead("msg_1", "m")).encode(events)
        assert sum(isinstance(event, MessageEnd | StreamFailed) for event in events) == 1
        if isinstance(events[-1], MessageEnd):
            assert events == decode_case(case)
            assert encoded.endswith(b'event: message_stop\ndata: {"type":"message_stop"}\n\n')
        else:
            assert case in FAILED or "cut off" in failure(events).message
            assert b"event: error\n" in encoded
            assert b"message_stop" not in encoded


@pytest.mark.req("C11")
@pytest.mark.parametrize(
    ("stream", "says"),
    [
        (b"", "cut off"),
        (b"data: [DONE]\n\n", "cut off"),
        (sse(added(0, message_item("")), text(0, "Hi")) + b"data: [DONE]\n\n", "cut off"),
        (sse({"type": "response.created", "response": {}}), "cut off"),
        (b'{"error": {"message": "sent as a stream", "code": "rate_limit_exceeded"}}', "sent as a stream"),
        (b"data: <html>\n\n", "not JSON"),
        (b"<html><body>Bad gateway</body></html>", "an HTML page"),
        (sse({"hello": 1}), "shape of a response"),
        (sse({"choices": [{"delta": {"content": "Hi"}}]}), "shape of a response"),
        (b"data: [1, 2]\n\n", "shape of a response"),
        (b"data: 17\n\n", "shape of a response"),
        (b"data: " + b"[" * 100_000 + b"\n\n", "not JSON"),
        (sse({"detail": "not found"}), "not found"),
        (sse({"error": "plain words"}), "plain words"),
        (b'event: error\ndata: {"message": "by its event line", "code": null}\n\n', "by its event line"),
        (sse({"type": "error", "code": "server_error"}), "an error without explanation"),
        (sse({"type": "response.failed", "response": {"status": "failed"}}), "gave up on the answer (failed)"),
        (sse({"type": "response.completed", "response": 17}), "shape of a response"),
        (sse({"type": "response.completed"}), "shape of a response"),
        (sse({"type": "response.output_item.added", "output_index": 0}), "shape of a response"),
        (sse(text(0, 17)), "shape of a response"),
        (sse(text(0, "Hi", content_index=[1])), "shape of a response"),
        (sse(arguments(0, {})), "shape of a response"),
        (sse(done(0, call_item(name=None))), "has no name"),
        (sse(arguments(0, "{}"), completed()), "has no name"),
        (sse(completed({"type": "message", "content": "Hi"})), "shape of a response"),
    ],
)
def test_garbage_is_an_error_that_names_the_provider(stream: bytes, says: str) -> None:
    error = failure(decode(stream))
    assert error.message.startswith("acme: ")
    assert says in error.message


@pytest.mark.req("C11")
def test_a_refusal_right_after_the_announcement_comes_before_anything_is_said() -> None:
    decoder = ResponsesStreamDecoder(READING)
    assert decoder.feed(sse({"type": "response.created"}, {"type": "response.queued"})) == []
    events = decoder.feed(sse({"type": "error", "code": "rate_limit_exceeded", "message": "slow down"}))
    assert [type(event) for event in events] == [StreamFailed]
    assert failure(events).kind is ErrorKind.RATE_LIMIT


@pytest.mark.parametrize(
    "sign", [{"type": "keepalive"}, {"type": "response.web_search_call.searching"}, {"type": "response.new_thing"}]
)
def test_any_sign_of_work_begins_the_message(sign: dict[str, Any]) -> None:
    assert [type(event) for event in ResponsesStreamDecoder(READING).feed(sse(sign))] == [MessageStart]


@pytest.mark.req("G2")
def test_unknown_types_are_counted_and_known_ones_are_not() -> None:
    decoder = ResponsesStreamDecoder(READING)
    decoder.feed((FIXTURES / "openai_responses" / "unknown_events" / "stream.sse").read_bytes())
    assert decoder.skipped == 3
    union = get_args(ResponseStreamEvent)[0]
    for event in get_args(union):
        decoder = ResponsesStreamDecoder(READING)
        (kind,) = get_args(event.model_fields["type"].annotation)
        decoder.feed(sse({"type": kind, "output_index": 0}))
        assert decoder.skipped == 0, kind


@pytest.mark.req("C6.2")
def test_the_first_item_streams_while_others_wait() -> None:
    decoder = ResponsesStreamDecoder(READING)
    first = decoder.feed(sse(added(0, call_item("")), added(1, call_item("", call_id="call_2", name="g"))))
    waiting = decoder.feed(sse(arguments(1, '{"n":2}')))
    streaming = decoder.feed(sse(arguments(0, '{"n":')))
    released = decoder.feed(sse(arguments(0, "1}"), done(0, call_item('{"n":1}'))))
    assert first[-1] == ToolUseStart("call_1", "f")
    assert waiting == []
    assert streaming == [InputDelta('{"n":')]
    assert released == [InputDelta("1}"), BlockStop(), ToolUseStart("call_2", "g"), InputDelta('{"n":2}')]


def test_text_streams_piece_by_piece() -> None:
    decoder = ResponsesStreamDecoder(READING)
    decoder.feed(sse(added(0, message_item(""))))
    assert decoder.feed(sse(text(0, "He"))) == [TextStart(), TextDelta("He")]
    assert decoder.feed(sse(text(0, ""))) == []
    assert decoder.feed(sse(text(0, "llo"))) == [TextDelta("llo")]
    assert decoder.feed(sse(done(0, message_item("Hello")))) == [BlockStop()]


@pytest.mark.parametrize("arguments_text", ['{"a": nope}', "[1]", '{"a":1', "17"])
def test_malformed_arguments_are_an_error_not_a_guess(arguments_text: str) -> None:
    assert "'f'" in failure(decode(sse(completed(call_item(arguments_text))))).message


@pytest.mark.parametrize("arguments_text", ["{nope", "[1"])
def test_malformed_arguments_of_an_answer_cut_short_are_an_error_too(arguments_text: str) -> None:
    response = {"status": "incomplete", "output": [call_item(arguments_text)]}
    stream = sse({"type": "response.incomplete", "response": response})
    assert "'f'" in failure(decode(stream)).message


@pytest.mark.parametrize("given", ["null", '""', '"{}"', " ", None, {}])
def test_arguments_that_amount_to_nothing_are_an_empty_object(given: Any) -> None:
    assert told(fold(decode(sse(completed(call_item(given))))))["content"][0]["input"] == {}


def test_a_whole_text_that_contradicts_its_pieces_adds_nothing() -> None:
    stream = sse(text(0, "Hello"), done(0, message_item("Goodbye, friend")), completed())
    assert told(fold(decode(stream)))["content"] == [{"type": "text", "text": "Hello"}]


def test_events_after_the_end_of_an_item_or_of_the_response_say_nothing() -> None:
    late = sse(text(0, "again"), done(0, message_item("Hello again")))
    stream = sse(done(0, message_item("Hello"))) + late + sse(completed()) + late + sse(completed())
    assert told(fold(decode(stream)))["content"] == [{"type": "text", "text": "Hello"}]


def test_two_messages_without_ids_or_places_in_the_whole_output_are_two_texts() -> None:
    both = [message_item("One.", id=None), message_item("Two.", id=None)]
    stream = sse(done(0, both[0]), done(1, both[1]), completed(*both))
    assert [block["text"] for block in told(fold(decode(stream)))["content"]] == ["One.", "Two."]


def test_the_status_of_the_response_counts_more_than_the_name_of_the_event() -> None:
    cut_short = fold(decode(sse(completed(status="incomplete")))).end
    assert (cut_short.reason, cut_short.raw_reason) == ("max_tokens", "incomplete")
    assert "gave up" in failure(decode(sse(completed(status="failed")))).message


@pytest.mark.req("S2")
@pytest.mark.parametrize(
    ("item", "is_kept"),
    [
        ({"encrypted_content": "x" * 1000}, True),
        ({"encrypted_content": "x" * MAX_REPLAY_BYTES}, False),
        ({"encrypted_content": None}, False),
        ({"encrypted_content": None, "content": []}, False),
    ],
    ids=["encrypted", "too large", "only an id", "nothing inside"],
)
def test_reasoning_is_kept_with_the_call_if_it_can_be_given_back(item: dict[str, Any], is_kept: bool) -> None:
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "status": "completed"} | item
    (call,) = fold(decode(sse(completed(reasoning, call_item())))).content
    assert isinstance(call, ToolUse)
    kept = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": item["encrypted_content"]}
    assert (call.replay.call if call.replay else None) == (
        {"reasoning": [kept], "after_text": False} if is_kept else None
    )


def test_too_much_that_waits_is_an_error() -> None:
    head = sse(added(0, call_item("")), added(1, message_item("")))
    events = decode(head, *[sse(text(1, "x" * 1_000_000))] * 9)
    assert "waiting for an unfinished item" in failure(events).message


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"<html>", "not JSON"),
        (b"[]", "not a response"),
        (b'{"hello": 1}', "shape of a response"),
        (b'{"error": {"message": "no such model", "code": "model_not_found"}}', "no such model"),
        (b'{"status": "in_progress", "output": []}', "not complete (in_progress)"),
        (b'{"status": "queued", "output": []}', "not complete (queued)"),
        (b'{"status": "failed", "output": [], "error": {"code": "server_error", "message": "It broke"}}', "It broke"),
        (b'{"choices": []}', "shape of a response"),
    ],
)
def test_what_is_no_whole_response_is_an_error(body: bytes, says: str) -> None:
    with pytest.raises(BridgeError) as raised:
        parse_response(body, READING)
    assert says in raised.value.message


def test_broken_surrogates_are_replaced() -> None:
    stream = b'data: {"type": "response.output_text.delta", "output_index": 0, "delta": "a\\ud83d"}\n\n'
    assert TextDelta("a\ufffd") in decode(stream)


def test_huge_integers_survive() -> None:
    number = 123456789012345678901234567890
    message = fold(decode(sse(completed(call_item(f'{{"n": {number}}}')))))
    assert fold(unfold(message)) == message
    assert told(message)["content"][0]["input"] == {"n": number}
