"""Same protocol on both sides: the bytes go through."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anthropic
import httpx2
import openai
import pytest

from support import running_bridge

if TYPE_CHECKING:
    from pathlib import Path

    from scripted.server import ScriptedUpstream


@pytest.mark.req("G1")
def test_an_openai_client_reaches_an_openai_upstream(bridge_url: str, upstream: ScriptedUpstream) -> None:
    upstream.script = [{"reply": {"chat": {"text": "Hello there"}}}]
    client = openai.OpenAI(base_url=f"{bridge_url}/v1", api_key="sk-own", max_retries=0)
    stream = client.chat.completions.create(
        model="openai/gpt-x", messages=[{"role": "user", "content": "Hi"}], stream=True
    )
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices) == "Hello there"
    (received,) = upstream.received
    assert received.json["model"] == "gpt-x"
    assert received.headers["authorization"] == "Bearer sk-own"


def test_what_needs_no_change_is_passed_byte_by_byte(bridge_url: str, upstream: ScriptedUpstream) -> None:
    upstream.script = [
        {"reply": {"status": 418, "body": '{ "odd" :  1 }', "headers": {"content-type": "application/json"}}}
    ]
    body = b'{ "model" : "gpt-x",   "future_field": [1, 2 ] , "messages": [] }'
    answer = httpx2.post(f"{bridge_url}/chat/completions", content=body)
    assert upstream.received[0].body == body
    assert (answer.status_code, answer.content) == (418, b'{ "odd" :  1 }')


@pytest.mark.req("C3", "C4")
def test_an_anthropic_client_reaches_an_anthropic_upstream(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    upstream.script = [{"reply": {"messages": {"text": "Hello there"}}}]
    settings = {"UPSTREAM_ANTHROPIC_BASE_URL": f"{upstream.url}/v1", "ANTHROPIC_API_KEY": "sk-held"}
    with running_bridge(tmp_path, WORKER_TOKEN="ann:secret-token", **settings) as url:
        client = anthropic.Anthropic(base_url=url, api_key="secret-token", max_retries=0)
        with client.messages.stream(
            model="claude-x", max_tokens=9, messages=[{"role": "user", "content": "Hi"}]
        ) as stream:
            assert stream.get_final_text() == "Hello there"
    (received,) = upstream.received
    assert received.path == "/v1/messages"
    assert received.headers["x-api-key"] == "sk-held"
    assert "secret-token" not in str(received.headers)


def test_a_cut_stream_says_so(bridge_url: str, upstream: ScriptedUpstream) -> None:
    upstream.script = [{"reply": {"sse": [{"choices": []}, {"$delay_ms": 20}, {"$cut": "reset"}]}}]
    answer = httpx2.post(f"{bridge_url}/v1/chat/completions", json={"model": "gpt-x", "stream": True})
    assert answer.text.startswith('data: {"choices":[]}\n\n')
    assert '"error"' in answer.text.splitlines()[-2]
    assert "[DONE]" not in answer.text


def test_protocols_that_cannot_meet_yet_are_refused_clearly(tmp_path: Path) -> None:
    with running_bridge(tmp_path, UPSTREAM_ANTHROPIC_BASE_URL="http://127.0.0.1:9") as url:
        answer = httpx2.post(f"{url}/v1/chat/completions", json={"model": "claude-x", "messages": []})
    assert answer.status_code == 400
    assert "passed through" in answer.json()["error"]["message"]
