"""Streams at the edge: heartbeats, buffered upstreams, losses, and failures that nobody expected."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import anthropic
import httpx2
import openai
import pytest

from support import opened, running_bridge

if TYPE_CHECKING:
    from pathlib import Path

    from scripted.server import ScriptedUpstream

BODY = {"model": "openai/gpt-x", "max_tokens": 9, "stream": True, "messages": [{"role": "user", "content": "Hi"}]}


def events_of(answer: httpx2.Response) -> list[str]:
    return [line.removeprefix("event: ") for line in answer.text.splitlines() if line.startswith("event: ")]


DELTA = {"choices": [{"index": 0, "delta": {"content": "Hello"}, "finish_reason": None}]}
END = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


@pytest.mark.req("C12", "C6.2")
def test_a_silent_upstream_does_not_make_a_silent_stream(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    upstream.script = [{"reply": {"sse": [DELTA, {"$hang_ms": 300}, END, "[DONE]"]}}]
    with running_bridge(tmp_path, UPSTREAM_OPENAI_BASE_URL=upstream.url, HEARTBEAT_SECONDS="0.05") as url:
        answer = httpx2.post(f"{url}/v1/messages", json=BODY)
        client = opened(anthropic.Anthropic(base_url=url, api_key="k", max_retries=0))
        with client.messages.stream(
            model="openai/gpt-x", max_tokens=9, messages=[{"role": "user", "content": "Hi"}]
        ) as stream:
            assert stream.get_final_text() == "Hello"
        chat = httpx2.post(f"{url}/v1/chat/completions", json=BODY)
        strict = opened(openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0))
        chunks = strict.chat.completions.create(
            model="gpt-x", messages=[{"role": "user", "content": "Hi"}], stream=True
        )
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Hello"
    events = events_of(answer)
    assert events.count("ping") >= 2
    assert [event for event in events if event != "ping"][-1] == "message_stop"
    assert ": keep-alive\n\n" in chat.text


@pytest.mark.req("R9")
def test_a_stream_can_be_served_from_a_buffered_call(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    upstream.script = [{"reply": {"chat": {"text": "Hello", "tool_calls": [{"name": "f", "arguments": {"n": 1}}]}}}]
    with running_bridge(tmp_path, UPSTREAM_OPENAI_BASE_URL=upstream.url, TOOL_BRIDGE_STREAM="false") as url:
        client = opened(anthropic.Anthropic(base_url=url, api_key="k", max_retries=0))
        with client.messages.stream(
            model="openai/gpt-x", max_tokens=9, messages=[{"role": "user", "content": "Hi"}]
        ) as stream:
            message = stream.get_final_message()
    assert "stream" not in upstream.received[0].json
    assert [block.type for block in message.content] == ["text", "tool_use"]
    assert message.content[1].input == {"n": 1}  # type: ignore[union-attr]


def test_losses_show_up_in_a_header(bridge_url: str, upstream: ScriptedUpstream) -> None:
    upstream.script = [{"reply": {"chat": {"text": "Hello"}}}]
    for stream in (True, False):
        lossy = httpx2.post(f"{bridge_url}/v1/messages", json=BODY | {"stream": stream, "top_k": 5})
        assert lossy.headers["x-bridge-losses"] == "top_k: this model does not take it"
    plain = httpx2.post(f"{bridge_url}/v1/messages", json=BODY)
    assert "x-bridge-losses" not in plain.headers


@pytest.mark.req("C8")
@pytest.mark.parametrize("stream", [True, False])
def test_a_field_name_cannot_write_headers(bridge_url: str, upstream: ScriptedUpstream, stream: bool) -> None:
    upstream.script = [{"reply": {"chat": {"text": "Hello"}}}]
    evil = {"x\r\nset-cookie: a=b\r\n\r\nbody": 1, "naïve": 2}
    answer = httpx2.post(f"{bridge_url}/v1/messages", json=BODY | {"stream": stream} | evil)
    assert answer.status_code == 200
    assert "set-cookie" not in answer.headers
    assert "x??set-cookie" in answer.headers["x-bridge-losses"]


@pytest.mark.req("C11")
def test_an_unexpected_failure_is_an_answer_and_not_a_leak(
    bridge_url: str, upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(*_: object) -> None:
        raise RuntimeError("internal detail")

    monkeypatch.setattr("bridge.pipeline.route", explode)
    answer = httpx2.post(f"{bridge_url}/v1/messages", json=BODY)
    assert (answer.status_code, answer.json()["error"]["type"]) == (500, "api_error")
    assert "internal detail" not in answer.text


@pytest.mark.req("C11")
def test_an_unexpected_failure_in_a_stream_ends_it_with_an_error(
    bridge_url: str, upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bridge.protocols.openai_chat.stream_decoder import ChatStreamDecoder

    def explode(*_: object) -> None:
        raise RuntimeError("internal detail")

    monkeypatch.setattr(ChatStreamDecoder, "close", explode)
    upstream.script = [{"reply": {"sse": [DELTA, {"$delay_ms": 20}]}}]
    answer = httpx2.post(f"{bridge_url}/v1/messages", json=BODY)
    assert events_of(answer)[-1] == "error"
    assert "internal detail" not in answer.text


@pytest.mark.req("G4")
def test_streams_at_once_do_not_mix(bridge_url: str, upstream: ScriptedUpstream) -> None:
    upstream.script = [
        {"when": {"model": f"m{number}"}, "reply": {"chat": {"text": f"{number} " * 40}, "chunk_delay_ms": 1}}
        for number in range(8)
    ]

    async def ask(client: httpx2.AsyncClient, number: int) -> str:
        answer = await client.post(f"{bridge_url}/v1/messages", json=BODY | {"model": f"openai/m{number}"})
        data = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
        return "".join(item["delta"].get("text", "") for item in data if item["type"] == "content_block_delta")

    async def ask_all() -> list[str]:
        async with httpx2.AsyncClient(timeout=30) as client:
            return await asyncio.gather(*(ask(client, number % 8) for number in range(24)))

    assert asyncio.run(ask_all()) == [f"{number % 8} " * 40 for number in range(24)]
