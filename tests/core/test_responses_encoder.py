"""The Responses stream encoder and the whole response: one translation, accepted by the official SDK."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from openai._models import construct_type_unchecked
from openai._types import omit
from openai.lib.streaming.responses._responses import ResponseStreamState
from openai.types.responses import Response, ResponseStreamEvent

from bridge.canonical.content import Citation, RedactedThinking, ServerBlock, Text, Thinking, ToolUse
from bridge.canonical.events import (
    BlockStop,
    InputDelta,
    MessageEnd,
    MessageStart,
    StreamFailed,
    TextDelta,
    TextStart,
    ToolUseStart,
    Usage,
)
from bridge.canonical.fold import Message, fold, unfold
from bridge.canonical.head import AnswerHead
from bridge.canonical.request import Turn
from bridge.errors import BridgeError, ErrorKind
from bridge.protocols.openai_responses.custom_input import CustomInput, raw_input
from bridge.protocols.openai_responses.parse_request import parse_request
from bridge.protocols.openai_responses.render_response import render_content, render_response
from bridge.protocols.openai_responses.stream_encoder import ResponsesStreamEncoder
from bridge.protocols.openai_responses.stream_items import LocalProtocolError
from bridge.sse import SseParser
from support import FIXTURES

REQUEST: dict[str, Any] = {
    "model": "m",
    "input": "hi",
    "instructions": "Be brief.",
    "include": ["reasoning.encrypted_content", "web_search_call.action.sources"],
    "metadata": {"team": "blue"},
    "temperature": 0.5,
    "tools": [
        {"type": "function", "name": "get_weather", "parameters": {"type": "object"}, "strict": True},
        {"type": "custom", "name": "apply_patch", "format": {"type": "grammar", "syntax": "lark", "definition": "s"}},
        {"type": "namespace", "name": "crm", "description": "d", "tools": [{"type": "function", "name": "find"}]},
        {"type": "local_shell"},
        {"type": "tool_search", "execution": "client", "description": "finds tools"},
    ],
}
HEAD = AnswerHead("resp_a1", "m", 1700000000, parse_request(json.dumps(REQUEST).encode()).echo)
USAGE = Usage(10, 20, 3, 4, 5)
END = MessageEnd("end_turn", USAGE)


def data_of(stream: bytes) -> list[dict[str, Any]]:
    parser = SseParser()
    parsed = parser.feed(stream)
    assert parser.close() == []
    for event in parsed:
        assert json.loads(event.data)["type"].encode() == event.event
    return [json.loads(event.data) for event in parsed]


def streamed(message: Message, head: AnswerHead = HEAD) -> list[dict[str, Any]]:
    return data_of(ResponsesStreamEncoder(head).encode(unfold(message)))


def accumulated(stream: list[dict[str, Any]]) -> tuple[Any, list[Any]]:
    """What the official SDK makes of a stream: the completed response, and the events that it hands on."""
    state: Any = ResponseStreamState(text_format=omit, input_tools=omit)
    handed = []
    for data in stream:
        event: Any = construct_type_unchecked(value=data, type_=ResponseStreamEvent)
        handed += state.handle_event(event)
    return state._completed_response, handed


def unparsed(value: Any) -> Any:
    """Without what the SDK's own parsing adds."""
    if isinstance(value, dict):
        return {key: unparsed(inner) for key, inner in value.items() if not key.startswith("parsed")}
    return [unparsed(inner) for inner in value] if isinstance(value, list) else value


def as_json(value: object) -> Any:
    return json.loads(json.dumps(value))


SEARCH = ServerBlock(
    "server_tool_use", {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "cats"}}
)
FOUND = ServerBlock(
    "web_search_tool_result",
    {
        "type": "web_search_tool_result",
        "tool_use_id": "srv_1",
        "content": [{"type": "web_search_result", "url": "https://cats.example", "title": "Cats"}],
    },
)
NOT_FOUND = ServerBlock(
    "web_search_tool_result",
    {
        "type": "web_search_tool_result",
        "tool_use_id": "srv_1",
        "content": {"type": "web_search_tool_result_error", "error_code": "unavailable"},
    },
)
OTHER = ServerBlock("code_execution_tool_result", {"type": "code_execution_tool_result", "content": {}})

CITATIONS = st.builds(Citation, st.just("https://a.example"), st.none() | st.text(), st.text())
TEXTS = st.builds(Text, st.text(), citations=st.lists(CITATIONS, max_size=2).map(tuple))
ARGUMENTS = st.dictionaries(st.text(), st.text() | st.integers(-(2**53), 2**53) | st.booleans() | st.none(), max_size=3)
SHELL = st.fixed_dictionaries({"command": st.lists(st.text(), max_size=3)}, optional={"timeout_ms": st.integers(0, 9)})
NAMES = st.sampled_from(["get_weather", "crm__find", "tool_search", "undeclared"])
CALLS = (
    st.builds(lambda name, arguments: (name, arguments), NAMES, ARGUMENTS)
    | st.tuples(st.just("apply_patch"), st.fixed_dictionaries({"input": st.text()}) | ARGUMENTS)
    | st.tuples(st.just("local_shell"), SHELL | ARGUMENTS)
)
BLOCKS = st.one_of(
    TEXTS,
    st.builds(Thinking, st.text(), st.sampled_from(["", "c2ln"])),
    st.builds(RedactedThinking, st.text(min_size=1)),
    CALLS,
    st.sampled_from([SEARCH, FOUND, NOT_FOUND, OTHER]),
)
ENDS = st.builds(
    MessageEnd,
    st.sampled_from(["end_turn", "tool_use", "max_tokens", "stop_sequence", "refusal", "pause_turn"]),
    st.builds(Usage, *[st.integers(0, 9)] * 5),
)


def with_ids(blocks: list[Any]) -> tuple[Any, ...]:
    return tuple(
        ToolUse(f"call_{index}", *block) if isinstance(block, tuple) else block for index, block in enumerate(blocks)
    )


MESSAGES = st.builds(Message, st.lists(BLOCKS, max_size=6).map(with_ids), ENDS)


@pytest.mark.req("P1", "C13")
@given(MESSAGES)
@settings(max_examples=300, deadline=None)
def test_streaming_and_not_streaming_are_one_translation(message: Message) -> None:
    stream = streamed(message)
    whole = as_json(render_response(message, HEAD))
    assert stream[-1]["type"] == f"response.{whole['status']}"
    assert stream[-1]["response"] == whole
    assert [data["item"] for data in stream if data["type"] == "response.output_item.done"] == whole["output"]


@pytest.mark.req("P1", "C15")
@given(MESSAGES)
@example(Message((SEARCH, FOUND, NOT_FOUND), MessageEnd("end_turn", Usage())))
@settings(max_examples=200, deadline=None)
def test_the_official_sdk_accumulates_the_stream_to_the_whole_response(message: Message) -> None:
    whole = as_json(render_response(message, HEAD))
    completed, handed = accumulated(streamed(message))
    final = completed if whole["status"] == "completed" else handed[-1].response
    expected: Any = construct_type_unchecked(value=whole, type_=Response)
    assert final.output_text == expected.output_text
    assert [unparsed(item.to_dict()) for item in final.output] == [item.to_dict() for item in expected.output]
    assert final.usage.to_dict() == expected.usage.to_dict()
    assert final.tools == expected.tools


@pytest.mark.req("P1")
@given(MESSAGES)
@settings(max_examples=200, deadline=None)
def test_numbers_count_from_zero_and_every_item_added_is_done(message: Message) -> None:
    stream = streamed(message)
    assert [data["sequence_number"] for data in stream] == list(range(len(stream)))
    added = [data for data in stream if data["type"] == "response.output_item.added"]
    done = [data for data in stream if data["type"] == "response.output_item.done"]
    assert [data["output_index"] for data in added] == list(range(len(added)))
    assert [(data["output_index"], data["item"]["id"]) for data in added] == [
        (data["output_index"], data["item"]["id"]) for data in done
    ]
    assert len({data["item"]["id"] for data in added}) == len(added)
    for data in stream:
        if "item_id" in data:
            assert data["item_id"] == added[data["output_index"]]["item"]["id"]


@pytest.mark.req("P1")
def test_sources_are_numbered_over_the_whole_message_and_point_at_their_text() -> None:
    texts = [Text(word, citations=(Citation("https://a.example", word),)) for word in ("one", "two")]
    stream = streamed(Message((texts[0], Text(" and "), texts[1]), END))
    added = [data for data in stream if data["type"] == "response.output_text.annotation.added"]
    assert [data["annotation_index"] for data in added] == [0, 1]
    [part] = stream[-1]["response"]["output"][0]["content"]
    assert [data["annotation"] for data in added] == part["annotations"]
    for source in part["annotations"]:
        assert part["text"][source["start_index"] : source["end_index"]] == source["title"]


@given(MESSAGES, st.data())
@settings(max_examples=100, deadline=None)
def test_any_batching_gives_the_same_bytes(message: Message, data: st.DataObject) -> None:
    events = list(unfold(message))
    cut = data.draw(st.integers(0, len(events)))
    encoder = ResponsesStreamEncoder(HEAD)
    assert encoder.encode(events[:cut]) + encoder.encode(events[cut:]) == ResponsesStreamEncoder(HEAD).encode(events)


@pytest.mark.req("C11", "P1")
@given(MESSAGES, st.data())
@settings(max_examples=150, deadline=None)
def test_a_failure_after_any_event_ends_the_stream_legally(message: Message, data: st.DataObject) -> None:
    events = list(unfold(message))[:-1]
    cut = data.draw(st.integers(0, len(events)))
    encoder = ResponsesStreamEncoder(HEAD)
    stream = data_of(encoder.encode([*events[:cut], StreamFailed(BridgeError(ErrorKind.API, "gone"))]))
    assert [one["type"] for one in stream[:2]] == ["response.created", "response.in_progress"]
    assert [one["sequence_number"] for one in stream] == list(range(len(stream)))
    assert stream[-1]["type"] == "response.failed"
    response = stream[-1]["response"]
    assert (response["status"], response["error"]) == ("failed", {"code": "server_error", "message": "gone"})
    assert response["output"] == [one["item"] for one in stream if one["type"] == "response.output_item.done"]
    accumulated(stream)
    with pytest.raises(LocalProtocolError):
        encoder.encode([TextStart()])


@pytest.mark.req("P1", "S3")
@given(st.lists(BLOCKS, max_size=6).map(with_ids))
@settings(max_examples=200, deadline=None)
def test_the_items_of_an_answer_come_back_as_the_same_turn(blocks: tuple[Any, ...]) -> None:
    """Texts that follow each other have become one; what server tools did has no form to come back in."""
    asked = {"role": "user", "content": "x"}
    body = {"model": "m", "input": [asked, *as_json(render_content(Message(blocks, END)))]}
    turns = parse_request(json.dumps(body).encode()).turns
    expected: list[Any] = []
    last_kept: Any = None
    for block in blocks:
        if isinstance(block, ServerBlock):
            last_kept = block if block is SEARCH else last_kept
        elif isinstance(block, Text) and isinstance(last_kept, Text):
            expected[-1] = last_kept = Text(last_kept.text + block.text)
        elif isinstance(block, Text):
            last_kept = Text(block.text)
            expected.append(last_kept)
        elif block != Thinking(""):
            last_kept = block
            expected.append(block)
        else:
            last_kept = block
    assert turns[1:] == ((Turn("assistant", tuple(expected)),) if expected else ())


@pytest.mark.req("P1", "S3")
@pytest.mark.parametrize(
    "case", sorted((FIXTURES / "openai_responses_client").iterdir()), ids=lambda case: str(case.name)
)
def test_an_answer_streams_as_recorded(case: Any) -> None:
    """Fixtures hold the message by its blocks, and the stream as OpenAI would have sent it."""
    given_case = json.loads((case / "answer.json").read_text())
    kinds = {kind.__name__: kind for kind in (Text, Thinking, RedactedThinking, ToolUse, ServerBlock)}
    blocks = []
    for kind, fields in given_case["content"]:
        if kind == "Text":
            fields["citations"] = tuple(Citation(**citation) for citation in fields.get("citations", ()))
        blocks.append(kinds[kind](**fields))
    message = Message(tuple(blocks), MessageEnd(given_case["reason"], USAGE))
    stream = streamed(message)
    for data in stream:
        if "response" in data:
            data["response"] = {key: data["response"][key] for key in ("status", "incomplete_details", "usage")}
    assert stream == json.loads((case / "stream.json").read_text())


@pytest.mark.req("P1")
def test_the_response_repeats_the_request() -> None:
    response = as_json(render_response(Message((Text("hi"),), END), HEAD))
    assert (response["id"], response["object"], response["created_at"]) == ("resp_a1", "response", 1700000000)
    for name in ("instructions", "metadata", "temperature", "tools"):
        assert response[name] == REQUEST[name], name
    assert (response["parallel_tool_calls"], response["tool_choice"], response["store"]) == (True, "auto", True)
    Response.model_validate(response)


@pytest.mark.req("C6.1", "P1")
def test_usage_counts_what_went_through_the_cache_as_input() -> None:
    assert render_response(Message((), END), HEAD)["usage"] == {
        "input_tokens": 17,
        "input_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 4},
        "output_tokens": 20,
        "output_tokens_details": {"reasoning_tokens": 5},
        "total_tokens": 37,
    }


@pytest.mark.req("P1", "G5")
@pytest.mark.parametrize("pieces", [[], [""], [" "], ["{}"]])
def test_a_call_without_arguments_has_an_empty_object(pieces: list[str]) -> None:
    events = [MessageStart(), ToolUseStart("c", "get_weather"), *map(InputDelta, pieces), BlockStop(), END]
    stream = data_of(ResponsesStreamEncoder(HEAD).encode(events))
    [item] = stream[-1]["response"]["output"]
    deltas = [data["delta"] for data in stream if data["type"] == "response.function_call_arguments.delta"]
    assert json.loads(item["arguments"]) == {}
    assert "".join(deltas) == item["arguments"]


@pytest.mark.req("P1")
def test_a_call_that_was_cut_off_is_incomplete() -> None:
    events = [
        MessageStart(),
        ToolUseStart("c", "get_weather"),
        InputDelta('{"city": "Par'),
        BlockStop(),
        MessageEnd("max_tokens", USAGE),
    ]
    response = data_of(ResponsesStreamEncoder(HEAD).encode(events))[-1]["response"]
    assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert [item["status"] for item in response["output"]] == ["incomplete"]


@pytest.mark.req("P1")
@given(st.text(), st.lists(st.integers(0, 400), max_size=8), st.booleans())
@settings(max_examples=400, deadline=None)
def test_a_custom_input_comes_out_the_same_however_it_is_cut(text: str, cuts: list[int], ascii_only: bool) -> None:
    arguments = json.dumps({"input": text, "more": "x"}, ensure_ascii=ascii_only)
    edges = sorted({0, len(arguments), *(cut for cut in cuts if cut < len(arguments))})
    reader = CustomInput()
    said = [reader.feed(arguments[start:end]) for start, end in pairwise(edges)]
    assert "".join(said) + reader.close() == text


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("", ""),
        ("{}", ""),
        ('{"patch": "p"}', '{"patch":"p"}'),
        ('{"input": 5}', '{"input":5}'),
        ('{"note": "a long one before the input, longer than the opening", "input": "x"}', "x"),
        ('{"input": "a\\ud83d"}', "a\ufffd"),
        ('{"input": "\\ud83d\\ude00\\u00e9\\n\\/"}', "\U0001f600é\n/"),
        ('{"input": "cut', "cut"),
        ('{"input": "cut\\u00', "cut"),
        ("not json", ""),
    ],
)
def test_custom_inputs_of_every_shape(arguments: str, expected: str) -> None:
    reader = CustomInput()
    assert "".join(map(reader.feed, arguments)) + reader.close() == expected


def test_a_custom_call_holds_nothing_back_but_a_cut_escape() -> None:
    reader = CustomInput()
    assert [reader.feed(piece) for piece in ('{"inp', 'ut":"ab', "c\\", 'n"', "}")] == ["", "ab", "c", "\n", ""]
    assert raw_input({"input": "abc\n"}) == "abc\n"


@pytest.mark.req("P1", "C11")
@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (BridgeError(ErrorKind.RATE_LIMIT, "slow"), "rate_limit_exceeded", "slow"),
        (
            BridgeError(ErrorKind.RATE_LIMIT, "slow.", retry_after="7"),
            "rate_limit_exceeded",
            "slow. Please try again in 7s.",
        ),
        (BridgeError(ErrorKind.BILLING, "pay"), "insufficient_quota", "pay"),
        (
            BridgeError(ErrorKind.RATE_LIMIT, "pay", provider_details={"code": "insufficient_quota"}),
            "insufficient_quota",
            "pay",
        ),
        (BridgeError(ErrorKind.OVERLOADED, "busy"), "server_error", "busy"),
        (BridgeError(ErrorKind.INVALID_REQUEST, "bad"), "invalid_prompt", "bad"),
        (
            BridgeError(ErrorKind.INVALID_REQUEST, "prompt is too long: 9 tokens > 8 maximum"),
            "context_length_exceeded",
            "prompt is too long: 9 tokens > 8 maximum",
        ),
        (BridgeError(ErrorKind.API, "x", code="context_length_exceeded"), "context_length_exceeded", "x"),
    ],
)
def test_a_failed_response_says_what_clients_decide_by(error: BridgeError, code: str, message: str) -> None:
    stream = data_of(ResponsesStreamEncoder(HEAD).encode([StreamFailed(error)]))
    assert stream[-1]["response"]["error"] == {"code": code, "message": message}


def test_reasoning_is_sealed_only_for_clients_that_asked_for_it() -> None:
    message = Message((Thinking("hm", "sig"), RedactedThinking("zzz")), END)
    items: Any = render_response(message, AnswerHead("resp_1", "m"))["output"]
    assert all("encrypted_content" not in item for item in items)
    sealed: Any = render_response(message, HEAD)["output"]
    assert all(item["encrypted_content"].startswith("tb1.") for item in sealed)
    assert sealed[1]["summary"] == []


@pytest.mark.req("G4")
def test_streams_at_once_do_not_mix() -> None:
    first, second = ResponsesStreamEncoder(HEAD), ResponsesStreamEncoder(AnswerHead("resp_b2", "m"))
    batches = [[MessageStart()], [TextStart()], [TextDelta("a")], [BlockStop(), END]]
    said = [(first.encode(batch), second.encode(batch)) for batch in batches]
    for position, head in ((0, HEAD), (1, AnswerHead("resp_b2", "m"))):
        alone = ResponsesStreamEncoder(head).encode([event for batch in batches for event in batch])
        assert b"".join(pair[position] for pair in said) == alone


def test_arguments_cut_anywhere_fold_to_the_arguments_that_were_said() -> None:
    events = [
        MessageStart(),
        ToolUseStart("c", "get_weather"),
        *map(InputDelta, ['{ "city"', ': "Pa', 'ris" }']),
        BlockStop(),
        MessageEnd("tool_use", USAGE),
    ]
    [item] = data_of(ResponsesStreamEncoder(HEAD).encode(events))[-1]["response"]["output"]
    [block] = fold(events).content
    assert isinstance(block, ToolUse)
    assert json.loads(item["arguments"]) == block.input
