"""Canonical answers -> chat completions and their chunks: shapes, order, and what every stream codec has to hold."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from chat_streams import ANSWERS, CALL, USAGE, accumulated, chunks, comparable, deltas, frames, head
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion

from bridge.canonical.content import Text, Thinking, ToolUse
from bridge.canonical.events import (
    BlockStop,
    InputDelta,
    MessageEnd,
    MessageStart,
    SignatureDelta,
    StreamFailed,
    TextDelta,
    TextStart,
    ThinkingStart,
    ToolUseStart,
)
from bridge.canonical.fold import Message, fold, unfold
from bridge.canonical.reading import Reading
from bridge.errors import BridgeError, ErrorKind
from bridge.protocols.openai_chat.parse_request import parse_request
from bridge.protocols.openai_chat.render_response import render_content, render_response
from bridge.protocols.openai_chat.stream_decoder import ChatStreamDecoder
from bridge.protocols.openai_chat.stream_encoder import ChatStreamEncoder, LocalProtocolError
from support import FIXTURES

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from bridge.canonical.events import StopReason, StreamEvent
    from bridge.canonical.fold import AnswerBlock

UPSTREAM_CASES = sorted((FIXTURES / "openai_chat").iterdir())
GOLDEN = sorted((FIXTURES / "openai_chat_client").glob("*/stream.sse"))
FAILURE = StreamFailed(BridgeError(ErrorKind.OVERLOADED, "too much to do", code="overloaded"))


def upstream_events(case: Path) -> list[StreamEvent]:
    path = case / "reading.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    known["stop_sequences"] = tuple(known.get("stop_sequences", ()))
    decoder = ChatStreamDecoder(Reading("acme", **known))
    return decoder.feed((case / "stream.sse").read_bytes()) + decoder.close()


EVENTS: dict[str, list[StreamEvent]] = {name: list(unfold(message)) for name, message in ANSWERS.items()} | {
    f"upstream {case.name}": upstream_events(case) for case in UPSTREAM_CASES
}


def encode(events: Iterable[StreamEvent], **echo: Any) -> bytes:
    return ChatStreamEncoder(head(**echo)).encode(events)


def every_case(function: Any) -> Any:
    return pytest.mark.parametrize("events", EVENTS.values(), ids=list(EVENTS))(function)


@every_case
@pytest.mark.req("G1", "G2", "G3", "G5")
def test_the_official_client_puts_the_whole_answer_together(events: list[StreamEvent]) -> None:
    stream = encode(events, include_usage=True)
    whole: Any = render_response(fold(events), head(include_usage=True))
    choice = accumulated(stream)
    assert comparable(choice["message"]) == comparable(whole["choices"][0]["message"])
    assert choice["finish_reason"] == whole["choices"][0]["finish_reason"]
    assert chunks(stream)[-1]["usage"] == whole["usage"]


@every_case
def test_the_whole_answer_is_a_valid_chat_completion(events: list[StreamEvent]) -> None:
    whole: Any = render_response(fold(events), head())
    parsed = ChatCompletion.model_validate(whole, strict=True)
    assert (parsed.id, parsed.object, parsed.created) == ("chatcmpl-1", "chat.completion", 1_700_000_000)
    assert whole["choices"][0]["message"] == render_content(fold(events))
    assert whole["choices"][0]["message"]["refusal"] is None
    assert (whole["choices"][0]["logprobs"], whole["system_fingerprint"]) == (None, None)


@every_case
@pytest.mark.req("G1")
def test_our_own_decoder_reads_the_same_answer(events: list[StreamEvent]) -> None:
    decoder = ChatStreamDecoder(Reading("acme"))
    back = fold(decoder.feed(encode(events, include_usage=True)) + decoder.close())
    message = fold(events)
    assert merged(back.content) == merged(message.content)
    assert back.end.usage.output_tokens == message.end.usage.output_tokens


def merged(content: Iterable[AnswerBlock]) -> list[Any]:
    """What chat chunks can carry of an answer: neighbouring texts are one, signatures and server blocks are not."""
    said: list[Any] = []
    for block in content:
        match block:
            case Text(text, citations=citations) if text or citations:
                if said and said[-1][0] == "text":
                    said[-1] = ("text", said[-1][1] + text, [*said[-1][2], *citations])
                else:
                    said.append(("text", text, list(citations)))
            case Thinking(thinking) if thinking:
                if said and said[-1][0] == "thinking":
                    said[-1] = ("thinking", said[-1][1] + thinking)
                else:
                    said.append(("thinking", thinking))
            case ToolUse(tool_id, name, arguments):
                said.append(("call", tool_id, name, arguments))
    return said


@every_case
@given(data=st.data())
@settings(max_examples=10, deadline=None)
def test_any_batching_gives_the_same_bytes(events: list[StreamEvent], data: st.DataObject) -> None:
    encoder = ChatStreamEncoder(head())
    out, rest = b"", events
    while rest:
        size = data.draw(st.integers(0, len(rest)))
        out += encoder.encode(rest[: size or 1])
        rest = rest[size or 1 :]
    assert out == encode(events)


@every_case
@pytest.mark.req("G5")
def test_a_stream_that_fails_after_any_event_says_so_and_is_not_done(events: list[StreamEvent]) -> None:
    for cut in range(len(events)):
        encoder = ChatStreamEncoder(head(include_usage=True))
        *before, last = frames(encoder.encode(events[:cut]) + encoder.encode([FAILURE]))
        assert last["error"]["message"] == "too much to do"
        assert last["error"]["code"] == "overloaded"
        assert all(chunk["choices"][0]["finish_reason"] is None for chunk in before)
        with pytest.raises(LocalProtocolError):
            encoder.encode([MessageStart()])


@pytest.mark.req("G4")
def test_two_streams_at_once_do_not_mix() -> None:
    first, second = EVENTS["text_and_calls_in_turns"], EVENTS["citations"]
    one, other = ChatStreamEncoder(head()), ChatStreamEncoder(head(include_usage=True))
    outs = [b"", b""]
    for turn in range(max(len(first), len(second))):
        outs[0] += one.encode(first[turn : turn + 1])
        outs[1] += other.encode(second[turn : turn + 1])
    assert outs == [encode(first), encode(second, include_usage=True)]


@pytest.mark.req("G3")
def test_text_and_calls_keep_their_order() -> None:
    kinds = [kind_of(delta) for delta in deltas(encode(EVENTS["text_and_calls_in_turns"])) if delta]
    assert kinds == ["role", "content", "call 0", "call 0", "content", "call 1", "call 1", "call 2", "call 2"]


def kind_of(delta: dict[str, Any]) -> str:
    if "tool_calls" in delta:
        return f"call {delta['tool_calls'][0]['index']}"
    return next(iter(delta))


@pytest.mark.req("G3")
def test_a_call_is_named_once_and_then_only_numbered() -> None:
    pieces = ['{"ci', 'ty":', '"Paris"}']
    events = [MessageStart(), ToolUseStart("toolu_1", "get_weather"), *map(InputDelta, pieces), BlockStop()]
    first, *later = [delta["tool_calls"][0] for delta in deltas(encode([*events, ANSWERS["one_call"].end]))[1:-1]]
    assert first == {
        "index": 0,
        "id": "toolu_1",
        "type": "function",
        "function": {"name": "get_weather", "arguments": ""},
    }
    assert later == [{"index": 0, "function": {"arguments": piece}} for piece in pieces]


@pytest.mark.parametrize("pieces", [[], [""], ["", " ", "\n"]], ids=repr)
@pytest.mark.req("G5")
def test_a_call_without_arguments_says_an_empty_object(pieces: list[str]) -> None:
    events = [MessageStart(), ToolUseStart("toolu_1", "now"), *map(InputDelta, pieces), BlockStop()]
    said = deltas(encode([*events, ANSWERS["one_call"].end]))[2:-1]
    assert said == [{"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}]


@pytest.mark.req("G2")
def test_thinking_is_reasoning_content_and_signatures_are_not_said() -> None:
    stream = encode(EVENTS["thinking"])
    assert {"reasoning_content": "Hm. "} in deltas(stream)
    assert b"sig" not in stream


@pytest.mark.req("G2")
def test_reasoning_stays_out_where_the_client_wants_it_out() -> None:
    echo = parse_request(
        b'{"model":"m","messages":[{"role":"user","content":"a"}],"reasoning":{"effort":"low","exclude":true}}'
    ).echo
    assert b"Hm" not in encode(EVENTS["thinking"], **echo)
    assert "Hm" not in json.dumps(render_response(ANSWERS["thinking"], head(**echo)))


def test_citations_name_the_text_they_belong_to() -> None:
    whole: Any = render_response(ANSWERS["citations"], head())
    message = whole["choices"][0]["message"]
    spans = [entry["url_citation"] for entry in message["annotations"]]
    cited = [message["content"][span["start_index"] : span["end_index"]] for span in spans]
    assert cited == ["12 degrees", "12 degrees", "sunny."]
    assert spans[0] == {
        "url": "https://a.example",
        "title": "A",
        "start_index": 6,
        "end_index": 16,
        "content": "12°",
    }


def test_a_message_of_calls_alone_has_no_content() -> None:
    assert render_content(ANSWERS["one_call"]) == {
        "role": "assistant",
        "content": None,
        "refusal": None,
        "tool_calls": [
            {
                "id": "toolu_1",
                "type": "function",
                "function": {"name": "get_weather", "arguments": '{"city":"Paris"}'},
            }
        ],
    }


@pytest.mark.req("G5")
def test_usage_is_said_only_where_asked_for() -> None:
    *first, last = chunks(encode(EVENTS["text"], include_usage=True))
    assert all(chunk["usage"] is None and chunk["choices"] for chunk in first)
    assert last["choices"] == []
    assert last["usage"] == {
        "prompt_tokens": 16,
        "completion_tokens": 7,
        "total_tokens": 23,
        "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    assert not any("usage" in chunk for chunk in chunks(encode(EVENTS["text"])))


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("pause_turn", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("tool_use", "tool_calls"),
        ("refusal", "content_filter"),
    ],
)
@pytest.mark.req("G5")
def test_why_an_answer_ends(reason: StopReason, expected: str) -> None:
    message = Message((Text("a"), CALL), MessageEnd(reason, USAGE))
    whole: Any = render_response(message, head())
    assert whole["choices"][0]["finish_reason"] == expected
    assert chunks(encode(unfold(message)))[-1]["choices"][0]["finish_reason"] == expected


def test_a_client_of_functions_gets_a_function_call() -> None:
    message = ANSWERS["one_call"]
    choice = accumulated(encode(unfold(message), legacy_functions=True))
    whole: Any = render_response(message, head(legacy_functions=True))
    assert choice["finish_reason"] == whole["choices"][0]["finish_reason"] == "function_call"
    assert comparable(choice["message"]) == comparable(whole["choices"][0]["message"])
    assert whole["choices"][0]["message"]["function_call"] == {"name": "get_weather", "arguments": '{"city":"Paris"}'}
    assert "tool_calls" not in whole["choices"][0]["message"]


def test_what_a_client_of_functions_did_not_ask_for_is_not_lost() -> None:
    message = Message((CALL, ToolUse("toolu_2", "now", {})), MessageEnd("tool_use", USAGE))
    choice = accumulated(encode(unfold(message), legacy_functions=True))
    whole: Any = render_response(message, head(legacy_functions=True))
    assert comparable(choice["message"]) == comparable(whole["choices"][0]["message"])
    assert whole["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "now"


@pytest.mark.parametrize(
    ("pieces", "text"),
    [
        (['{"inp', 'ut": "*** Begin', ' Patch"}'], "*** Begin Patch"),
        (['{"input": "cut o'], ""),
        (['{"other": 1}'], '{"other":1}'),
        (["not JSON"], "not JSON"),
        ([], ""),
    ],
    ids=repr,
)
def test_a_tool_of_free_text_gets_its_text(pieces: list[str], text: str) -> None:
    events = [MessageStart(), ToolUseStart("toolu_1", "apply_patch"), *map(InputDelta, pieces), BlockStop()]
    stream = encode([*events, ANSWERS["one_call"].end], custom_tools=["apply_patch"])
    first, last = [delta["tool_calls"][0] for delta in deltas(stream)[1:-1]]
    assert first == {"index": 0, "id": "toolu_1", "type": "custom", "custom": {"name": "apply_patch", "input": ""}}
    assert last == {"index": 0, "custom": {"input": text}}


def test_a_whole_answer_calls_a_tool_of_free_text_with_its_text() -> None:
    message = Message((ToolUse("toolu_1", "say", {"input": "hi"}), CALL), MessageEnd("tool_use", USAGE))
    whole: Any = render_response(message, head(custom_tools=["say"]))
    first, second = whole["choices"][0]["message"]["tool_calls"]
    assert first == {"id": "toolu_1", "type": "custom", "custom": {"name": "say", "input": "hi"}}
    assert second["function"]["name"] == "get_weather"


@pytest.mark.parametrize("name", [name for name in ANSWERS if name not in ("nothing", "only_for_anthropic")])
@pytest.mark.req("G1")
def test_an_answer_given_back_is_read_as_it_was(name: str) -> None:
    message = ANSWERS[name]
    body = {"model": "m", "messages": [{"role": "user", "content": "a"}, render_content(message)]}
    given = merged(parse_request(json.dumps(body).encode()).turns[-1].content)  # type: ignore[arg-type]
    assert sorted(given, key=str) == sorted(one_text(merged(message.content)), key=str)


def one_text(blocks: list[Any]) -> list[Any]:
    """What a chat message can carry back: one text for all, the calls, no thinking, no citations."""
    text = "".join(block[1] for block in blocks if block[0] == "text")
    calls = [block for block in blocks if block[0] == "call"]
    return [("text", text, []), *calls] if text else calls


@pytest.mark.parametrize(
    "events",
    [
        [TextStart()],
        [MessageEnd("end_turn", USAGE)],
        [MessageStart(), MessageStart()],
        [MessageStart(), TextDelta("a")],
        [MessageStart(), BlockStop()],
        [MessageStart(), TextStart(), TextStart()],
        [MessageStart(), TextStart(), InputDelta("{}")],
        [MessageStart(), TextStart(), MessageEnd("end_turn", USAGE)],
        [MessageStart(), ThinkingStart(), TextDelta("a")],
        [MessageStart(), ToolUseStart("a", "b"), TextDelta("a")],
        [MessageStart(), ToolUseStart("a", "b"), ToolUseStart("c", "d")],
        [MessageStart(), ToolUseStart("a", "b"), SignatureDelta("a")],
        [MessageStart(), MessageEnd("end_turn", USAGE), MessageEnd("end_turn", USAGE)],
        [MessageStart(), MessageEnd("end_turn", USAGE), FAILURE],
    ],
    ids=lambda events: " ".join(type(event).__name__ for event in events),
)
def test_events_out_of_order_are_refused(events: list[StreamEvent]) -> None:
    with pytest.raises(LocalProtocolError):
        encode(events)


@pytest.mark.parametrize("path", GOLDEN, ids=[path.parent.name for path in GOLDEN])
@pytest.mark.req("G1", "G2", "G3", "G5")
def test_streams_byte_by_byte(path: Path) -> None:
    told = json.loads((path.parent / "answer.json").read_text())
    assert encode(EVENTS[told["answer"]], **told["echo"]).decode() == path.read_text()


words = st.text(max_size=12)
arguments = st.dictionaries(words, st.none() | st.integers() | words | st.lists(words, max_size=2), max_size=3)
blocks = st.one_of(
    words.map(Text),
    st.builds(Thinking, words, words),
    st.builds(ToolUse, st.uuids().map(str), st.sampled_from(["look", "now"]), arguments),
)


@given(st.lists(blocks, max_size=8))
@settings(max_examples=200, deadline=None)
@pytest.mark.req("G3")
def test_any_answer_arrives_whole(content: list[Any]) -> None:
    has_calls = any(isinstance(block, ToolUse) for block in content)
    message = Message(tuple(content), MessageEnd("tool_use" if has_calls else "end_turn", USAGE))
    stream = encode(unfold(message))
    whole: Any = render_response(message, head())
    assert comparable(accumulated(stream)["message"]) == comparable(whole["choices"][0]["message"])
    decoder = ChatStreamDecoder(Reading("acme"))
    assert merged(fold(decoder.feed(stream) + decoder.close()).content) == merged(message.content)
