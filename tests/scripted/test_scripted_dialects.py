"""The high-level turns, checked by the official SDKs."""

from __future__ import annotations

import json

import anthropic
import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

CALLS = [
    {"id": "call_1", "name": "get_weather", "arguments": {"city": "Zürich", "days": [1, 2, 3]}},
    {"name": "noop", "arguments": ""},
]
TURN = {"text": "It is  sunny,\nI think. ", "reasoning_content": "Let me see.", "tool_calls": CALLS}
USES = [{"id": "toolu_1", "name": "get_weather", "input": {"city": "Zürich"}}, {"name": "noop"}]
MESSAGE = {"text": "It is sunny. ", "thinking": "Let me see.", "signature": "c2ln", "tool_uses": USES}
ASK = {"model": "m", "max_tokens": 10, "messages": [{"role": "user", "content": "Hi"}]}
ARGUMENTS_OF_FIRST = '{"city":"Zürich","days":[1,2,3]}'


@pytest.fixture
def openai_client(upstream):
    with openai.OpenAI(base_url=f"{upstream.url}/v1", api_key="k", max_retries=0) as client:
        yield client


@pytest.fixture
def anthropic_client(upstream):
    with anthropic.Anthropic(base_url=upstream.url, api_key="k", max_retries=0) as client:
        yield client


def test_a_completion_is_valid(upstream, post):
    upstream.script = [{"reply": {"chat": TURN}}]
    completion = ChatCompletion.model_validate_json(post({"model": "gpt-x"}).body, strict=True)
    message = completion.choices[0].message
    assert completion.model == "gpt-x"
    assert message.content == TURN["text"]
    assert [call.function.arguments for call in message.tool_calls or []] == [ARGUMENTS_OF_FIRST, ""]
    assert completion.choices[0].finish_reason == "tool_calls"
    assert completion.usage is not None
    assert completion.usage.total_tokens == completion.usage.prompt_tokens + completion.usage.completion_tokens


def test_every_chunk_is_valid(upstream, post):
    upstream.script = [{"reply": {"chat": TURN}}]
    *chunks, done = post({"model": "m", "stream": True}).events
    parsed = [ChatCompletionChunk.model_validate_json(json.dumps(chunk), strict=True) for chunk in chunks]
    assert done == "[DONE]"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in parsed) == TURN["text"]
    assert len({chunk.id for chunk in parsed}) == 1
    assert parsed[-1].choices[0].finish_reason == "tool_calls"
    assert all("usage" not in chunk for chunk in chunks)


def test_the_fragments_of_arguments_add_up(upstream, post):
    upstream.script = [{"reply": {"chat": TURN}}]
    deltas = [chunk["choices"][0]["delta"] for chunk in post({"stream": True}).events[:-1]]
    calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
    first = [call["function"]["arguments"] for call in calls if call["index"] == 0]
    assert (first[0], len(first), "".join(first)) == ("", 5, ARGUMENTS_OF_FIRST)
    assert [call["id"][:5] for call in calls if "id" in call] == ["call_", "call_"]


def test_usage_comes_last_when_asked_for(upstream, post):
    upstream.script = [{"reply": {"chat": {"text": "a", "usage": {"prompt_tokens": 7}}}}]
    *chunks, last, _done = post({"stream": True, "stream_options": {"include_usage": True}}).events
    assert all(chunk["usage"] is None for chunk in chunks)
    assert (last["choices"], last["usage"]) == ([], {"prompt_tokens": 7})


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_reasoning_keeps_the_name_it_is_given(upstream, post, field):
    upstream.script = [{"reply": {"chat": {field: "one two", "text": "x"}}}]
    deltas = [chunk["choices"][0]["delta"] for chunk in post({"stream": True}).events[:-1]]
    assert [delta[field] for delta in deltas if field in delta] == ["one ", "two"]
    assert post().json["choices"][0]["message"][field] == "one two"


def test_extra_fields_of_a_call_stand_beside_the_function(upstream, post):
    call = {"name": "f", "extra": {"extra_content": {"google": {"thought_signature": "s"}}}}
    upstream.script = [{"reply": {"chat": {"tool_calls": [call]}}}]
    assert post().json["choices"][0]["message"]["tool_calls"][0]["extra_content"] == call["extra"]["extra_content"]
    opened = post({"stream": True}).events[1]["choices"][0]["delta"]["tool_calls"][0]
    assert opened["extra_content"] == call["extra"]["extra_content"]


def test_the_openai_sdk_streams_it(upstream, openai_client):
    upstream.script = [{"reply": {"chat": {**TURN, "finish_reason": "length", "tool_calls": CALLS[:1]}}}]
    stream = openai_client.chat.completions.create(model="m", messages=ASK["messages"], stream=True)
    chunks = list(stream)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == TURN["text"]
    assert chunks[-1].choices[0].finish_reason == "length"


def test_the_anthropic_sdk_reads_a_message(upstream, anthropic_client):
    upstream.script = [{"when": {"path": "/v1/messages"}, "reply": {"messages": MESSAGE}}]
    message = anthropic_client.messages.create(**ASK)
    assert [block.type for block in message.content] == ["thinking", "text", "tool_use", "tool_use"]
    assert message.stop_reason == "tool_use"


def test_the_anthropic_sdk_streams_a_message(upstream, anthropic_client):
    upstream.script = [{"when": {"stream": True}, "reply": {"messages": {**MESSAGE, "usage": {"output_tokens": 9}}}}]
    with anthropic_client.messages.stream(**ASK) as stream:
        message = stream.get_final_message()
    thinking, text, first, second = message.content
    assert (thinking.type, thinking.thinking, thinking.signature) == ("thinking", "Let me see.", "c2ln")
    assert (text.type, text.text) == ("text", "It is sunny. ")
    assert (first.type, first.id, first.name, first.input) == (
        "tool_use",
        "toolu_1",
        "get_weather",
        {"city": "Zürich"},
    )
    assert (second.type, second.name, second.input) == ("tool_use", "noop", {})
    assert (message.stop_reason, message.usage.output_tokens) == ("tool_use", 9)


def test_the_events_of_a_message_are_in_order(upstream, post):
    upstream.script = [{"reply": {"messages": {"text": "one two", "tool_uses": USES[:1]}}}]
    answer = post({"stream": True})
    names = [line[7:] for line in answer.body.decode().split("\n") if line.startswith("event: ")]
    delta = "content_block_delta"
    assert names == [
        "message_start",
        *("content_block_start", "ping", delta, delta, "content_block_stop"),
        *("content_block_start", delta, delta, delta, delta, delta, "content_block_stop"),
        *("message_delta", "message_stop"),
    ]
    assert names == [event["type"] for event in answer.events]


def test_the_stream_and_the_whole_say_the_same(upstream, post):
    upstream.script = [{"reply": {"messages": {**MESSAGE, "stop_reason": "max_tokens"}}}]
    *_, message_delta, _stop = post({"stream": True}).events
    whole = post().json
    assert message_delta["delta"]["stop_reason"] == whole["stop_reason"] == "max_tokens"
    assert message_delta["usage"] == whole["usage"]


def test_raw_input_is_streamed_as_it_is(upstream, post):
    upstream.script = [{"reply": {"messages": {"tool_uses": [{"name": "f", "input": '{"broken": '}]}}}]
    deltas = [event["delta"] for event in post({"stream": True}).events if event["type"] == "content_block_delta"]
    assert "".join(delta["partial_json"] for delta in deltas) == '{"broken": '
