"""Same protocol on both sides: the bytes go through."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anthropic
import httpx2
import openai
import pytest

from support import opened, running_bridge

if TYPE_CHECKING:
    from pathlib import Path

    from scripted.server import ScriptedUpstream


@pytest.mark.req("G1")
def test_an_openai_client_reaches_an_openai_upstream(bridge_url: str, upstream: ScriptedUpstream) -> None:
    upstream.script = [{"reply": {"chat": {"text": "Hello there"}}}]
    client = opened(openai.OpenAI(base_url=f"{bridge_url}/v1", api_key="sk-own", max_retries=0))
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
        client = opened(anthropic.Anthropic(base_url=url, api_key="secret-token", max_retries=0))
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


@pytest.mark.req("C3")
@pytest.mark.parametrize("status", [401, 429])
def test_another_key_is_tried_when_one_is_refused(upstream: ScriptedUpstream, tmp_path: Path, status: int) -> None:
    upstream.script = [
        {"when": {"header": {"authorization": "Bearer sk-bad"}}, "reply": {"status": status, "json": {"error": "no"}}},
        {"reply": {"chat": {"text": "ok"}}},
    ]
    settings = {"UPSTREAM_OPENAI_BASE_URL": upstream.url, "OPENAI_API_KEY": "sk-bad,sk-good"}
    body = {"model": "gpt-x", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    with running_bridge(tmp_path, **settings) as url:
        for path in ("/v1/messages", "/v1/chat/completions"):
            assert {httpx2.post(url + path, json=body).status_code for _ in range(8)} == {200}
    keys = {received.headers["authorization"] for received in upstream.received}
    assert keys == {"Bearer sk-bad", "Bearer sk-good"}


@pytest.mark.req("C8")
def test_a_key_that_the_provider_quotes_is_masked(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    refusal = {"error": {"message": "Incorrect API key provided: sk-canary-key"}}
    upstream.script = [{"reply": {"status": 401, "json": refusal}}]
    body = {"model": "gpt-x", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    with running_bridge(tmp_path, UPSTREAM_OPENAI_BASE_URL=upstream.url, OPENAI_API_KEY="sk-canary-key") as url:
        answer = httpx2.post(f"{url}/v1/messages", json=body)
    assert answer.status_code == 401
    assert "sk-canary-key" not in answer.text
    assert "***" in answer.text


@pytest.mark.req("C3")
def test_headers_that_the_operator_wants(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    upstream.script = [
        {"when": {"path": "/v1/messages"}, "reply": {"messages": {"text": "ok"}}},
        {"reply": {"chat": {"text": "ok"}}},
    ]
    settings = {
        "UPSTREAM_OPENROUTER_BASE_URL": upstream.url,
        "UPSTREAM_ANTHROPIC_BASE_URL": upstream.url,
        "OPENROUTER_REFERER": "https://example.com",
        "OPENROUTER_TITLE": "Example",
        "ANTHROPIC_VERSION": "2023-06-01",
    }
    body = {"max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    with running_bridge(tmp_path, **settings) as url:
        httpx2.post(f"{url}/v1/messages", json=body | {"model": "or:meta/llama"}, headers={"x-client-meta": "{}"})
        httpx2.post(
            f"{url}/v1/messages", json=body | {"model": "claude-x"}, headers={"anthropic-version": "2026-10-21"}
        )
    router, claude = upstream.received
    assert (router.headers["http-referer"], router.headers["x-title"]) == ("https://example.com", "Example")
    assert "x-client-meta" not in router.headers
    assert claude.headers["anthropic-version"] == "2023-06-01"
