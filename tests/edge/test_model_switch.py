"""A conversation that goes on with another model: what the bridge put into its history reaches nobody else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import anthropic
import httpx2
import openai
import pytest

from support import opened, running_bridge

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from scripted.server import ScriptedUpstream

TOOL: Any = {"name": "look", "input_schema": {"type": "object", "properties": {}}}


@pytest.fixture
def bridge(upstream: ScriptedUpstream, tmp_path: Path) -> Iterator[str]:
    settings = {
        f"UPSTREAM_{name}_BASE_URL": f"{upstream.url}/{name.lower()}/v1"
        for name in ("ANTHROPIC", "OPENAI", "OPENROUTER")
    }
    with running_bridge(tmp_path, **settings, OPENAI_API="responses", SERVER_TOOLS_MODE="emulate") as url:
        yield url


@pytest.mark.req("S4")
def test_thinking_of_another_model_does_not_reach_claude(bridge: str, upstream: ScriptedUpstream) -> None:
    upstream.script = [
        {"when": {"path": "/anthropic/*"}, "reply": {"messages": {"text": "Done."}}},
        {"reply": {"responses": {"reasoning": "GPT thinks.", "calls": [{"name": "look"}]}}},
    ]
    client = opened(anthropic.Anthropic(base_url=bridge, api_key="k", max_retries=0, timeout=10))
    asked: Any = {"max_tokens": 2000, "tools": [TOOL], "messages": [{"role": "user", "content": "Look"}]}
    first = client.messages.create(model="gpt-5.5", thinking={"type": "enabled", "budget_tokens": 1024}, **asked)
    assert first.content[0].type == "thinking"
    result = {"type": "tool_result", "tool_use_id": first.content[1].id, "content": "seen"}  # type: ignore[union-attr]
    history = [
        *asked["messages"],
        {"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in first.content]},
        {"role": "user", "content": [result]},
    ]
    client.messages.create(model="claude-x", **(asked | {"messages": history}))
    sent = upstream.received[-1].json["messages"][1]["content"]
    assert [block["type"] for block in sent] == ["tool_use"]


@pytest.mark.req("S4")
def test_signed_thinking_passes_to_the_byte(bridge: str, upstream: ScriptedUpstream) -> None:
    upstream.script = [{"reply": {"messages": {"text": "Done."}}}]
    thinking = '{"type": "thinking",  "thinking": "x", "signature": "c2ln"}'
    body = f'{{"model": "claude-x", "messages": [{{"role": "assistant", "content": [{thinking}]}}]}}'.encode()
    httpx2.post(f"{bridge}/v1/messages", content=body)
    assert upstream.received[0].body == body


@pytest.mark.req("S4", "P1")
def test_what_the_bridge_sealed_does_not_reach_openai(bridge: str, upstream: ScriptedUpstream) -> None:
    thinking = {"thinking": "Claude thinks.", "signature": "c2ln", "text": "Hello"}
    upstream.script = [
        {"when": {"path": "/anthropic/*"}, "reply": {"messages": thinking}},
        {"reply": {"responses": {"text": "Done."}}},
    ]
    client = opened(openai.OpenAI(base_url=f"{bridge}/v1", api_key="k", max_retries=0, timeout=10))
    first = client.responses.create(
        model="claude-sonnet-4-5", input="Hi", store=False, include=["reasoning.encrypted_content"]
    )
    carried: Any = [item.model_dump(exclude_none=True) for item in first.output]
    assert "tb1." in json.dumps(carried)
    client.responses.create(model="gpt-5.5", input=[*carried, {"role": "user", "content": "More"}], store=False)
    sent = upstream.received[-1].json["input"]
    assert [item["type"] for item in sent[:-1]] == ["message"]


@pytest.mark.req("P1")
def test_a_kept_response_is_continued_by_openai_itself(bridge: str, upstream: ScriptedUpstream) -> None:
    upstream.script = [
        {"when": {"path": "/anthropic/*"}, "reply": {"messages": {"text": "Hello"}}},
        {"reply": {"responses": {"text": "Done."}}},
    ]
    client = opened(openai.OpenAI(base_url=f"{bridge}/v1", api_key="k", max_retries=0, timeout=10))
    first = client.responses.create(model="claude-sonnet-4-5", input="Hi")
    client.responses.create(model="gpt-5.5", input="More", previous_response_id=first.id)
    sent = upstream.received[-1].json
    assert "previous_response_id" not in sent
    assert [item["role"] for item in sent["input"]] == ["user", "assistant", "user"]
    client.responses.create(model="gpt-5.5", input="More", previous_response_id="resp_of_openai")
    assert upstream.received[-1].json["previous_response_id"] == "resp_of_openai"


@pytest.mark.req("C5.4")
def test_openais_own_tools_stay_with_openai(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    upstream.script = [{"reply": {"responses": {"text": "ok"}}}]
    settings = {"UPSTREAM_OPENAI_BASE_URL": upstream.url, "OPENAI_API": "responses"}
    body = {"model": "gpt-5.5", "input": "hi", "tools": [{"type": "web_search"}, {"type": "file_search"}]}
    with running_bridge(tmp_path, **settings, SERVER_TOOLS_MODE="enforceAnthropic") as url:
        assert httpx2.post(f"{url}/v1/responses", json=body).status_code == 200
    assert upstream.received[0].json == body


@pytest.mark.req("C12")
def test_a_model_that_cannot_stand_in_does_not_hide_why_the_first_failed(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    busy = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    upstream.script = [{"when": {"path": "/a/*"}, "reply": {"status": 529, "json": busy}}]
    settings = {
        "UPSTREAM_ANTHROPIC_BASE_URL": f"{upstream.url}/a/v1",
        "UPSTREAM_OPENAI_BASE_URL": f"{upstream.url}/o/v1",
        "FALLBACK_MODELS": "openai/gpt-4.1",
    }
    body = {
        "model": "claude-x",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": [{"type": "web_search_20250305", "name": "web_search"}],
    }
    with running_bridge(tmp_path, **settings) as url:
        answer = httpx2.post(f"{url}/v1/messages", json=body)
    assert (answer.status_code, answer.json()["error"]["message"]) == (529, "Overloaded")


@pytest.mark.req("C11", "C12")
def test_a_late_failure_of_responses_begins_before_it_fails(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    busy = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    upstream.script = [{"reply": {"status": 529, "json": busy, "delay_ms": 300}}]
    settings = {"UPSTREAM_ANTHROPIC_BASE_URL": upstream.url, "HEARTBEAT_SECONDS": "0.05"}
    with running_bridge(tmp_path, **settings) as url:
        client = opened(openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0, timeout=10))
        events = list(client.responses.create(model="claude-x", input="Hi", stream=True))
    assert [event.type for event in events] == ["response.created", "response.in_progress", "response.failed"]
    assert "Overloaded" in str(events[-1].response.error)  # type: ignore[union-attr]


@pytest.mark.req("G1", "P1")
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/responses"])
def test_arguments_that_were_cut_off_come_back_cut_off_and_said_so(
    bridge: str, upstream: ScriptedUpstream, path: str
) -> None:
    upstream.script = [{"reply": {"messages": {"text": "ok"}}}]
    cut = '{"x": 1, "y": "tru'
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": cut}}
    chat = [
        {"role": "user", "content": "Go"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "bad arguments"},
    ]
    items = [
        {"role": "user", "content": "Go"},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": cut},
        {"type": "function_call_output", "call_id": "c1", "output": "bad arguments"},
    ]
    asked = {"messages": chat} if "chat" in path else {"input": items}
    answer = httpx2.post(bridge + path, json={"model": "claude-sonnet-4-5", **asked})
    assert answer.status_code == 200
    assert "cut off" in answer.headers["x-bridge-losses"]
    (use,) = [block for block in upstream.received[0].json["messages"][1]["content"] if block["type"] == "tool_use"]
    assert use["input"]["x"] == 1


@pytest.mark.req("C5.3")
def test_alternatives_at_the_root_of_a_schema_are_merged_for_openai(bridge: str, upstream: ScriptedUpstream) -> None:
    upstream.script = [{"reply": {"responses": {"text": "ok"}}}]
    variants = [
        {"type": "object", "properties": {"a": {"type": "string"}}},
        {"type": "object", "properties": {"b": {"type": "string"}}},
    ]
    body = {
        "model": "gpt-5.5",
        "max_tokens": 100,
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": [{"name": "f", "input_schema": {"type": "object", "anyOf": variants}}],
    }
    answer = httpx2.post(f"{bridge}/v1/messages", json=body)
    assert answer.status_code == 200
    parameters = upstream.received[0].json["tools"][0]["parameters"]
    assert "anyOf" not in parameters
    assert parameters["properties"].keys() == {"a", "b"}
    assert "anyOf" in answer.headers["x-bridge-losses"]
