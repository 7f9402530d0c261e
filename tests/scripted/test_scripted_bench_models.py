"""The models to measure with send what their names say."""

from __future__ import annotations

import json

import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from scripted.bench_models import bench_rules


@pytest.fixture(autouse=True)
def _bench(upstream):
    upstream.script = bench_rules()


@pytest.mark.parametrize("model", ["fake-300x0", "fake-300b0", "openai/fake-300x0"])
def test_sends_as_many_words(post, model):
    *chunks, done = post({"model": model, "stream": True}).events
    assert done == "[DONE]"
    for chunk in chunks:
        ChatCompletionChunk.model_validate_json(json.dumps(chunk), strict=True)
    words = [chunk["choices"][0]["delta"]["content"] for chunk in chunks[1:-2]]
    assert (len(words), words[:2], words[8]) == (300, [" the", " quick"], " the")
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["usage"] == {"prompt_tokens": 11, "completion_tokens": 300, "total_tokens": 311}


def test_keeps_the_time_between_words(raw):
    times = [at for at, _ in raw({"model": "fake-4x30", "stream": True})]
    assert times[-1] >= 0.12
    assert len(times) > 1


def test_a_burst_is_one_write(raw):
    [(_, data)] = raw({"model": "fake-50b0", "stream": True})
    assert data.startswith(b"HTTP/1.1 200 OK")
    assert data.count(b"data: ") == 54


def test_the_tool_call_comes_in_fifty_fragments(post):
    *chunks, _usage, _done = post({"model": "fake-tool", "stream": True}).events
    calls = [call for chunk in chunks for call in chunk["choices"][0]["delta"].get("tool_calls", [])]
    assert (calls[0]["id"], calls[0]["function"]["name"], len(calls)) == ("call_abc123", "get_weather", 51)
    assert json.loads("".join(call["function"]["arguments"] for call in calls)) == {"city": "Par" * 48}
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize(("model", "reason"), [("fake-3x0", "stop"), ("fake-tool", "tool_calls")])
def test_answers_as_a_whole(post, model, reason):
    completion = ChatCompletion.model_validate_json(post({"model": model}).body, strict=True)
    assert completion.choices[0].finish_reason == reason


def test_an_unknown_model_is_told_which_there_are(post):
    answer = post({"model": "gpt-x"})
    assert answer.status == 404
    assert "fake-<N>x<ms>" in answer.json["error"]["message"]
