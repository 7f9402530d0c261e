"""The tool loop as a client meets it: a real bridge, a real MCP server, the official SDK."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anthropic
import httpx2
import pytest
from mcp_servers import serving_mcp

from support import opened, running_bridge

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from mcp_servers import Served

    from scripted.server import ScriptedUpstream

TOKEN = "tok-very-secret"
ASKED: Any = [{"role": "user", "content": "What is 2 + 3?"}]
ADD = {"name": "mcp__srv__add", "arguments": {"a": 2, "b": 3}}
WRITE: Any = {"name": "Write", "description": "Writes", "input_schema": {"type": "object", "properties": {}}}


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serving_mcp("http", TOKEN) as server:
        yield server


@pytest.fixture
def bridge(upstream: ScriptedUpstream, tmp_path: Path) -> Iterator[str]:
    settings = {"UPSTREAM_OPENAI_BASE_URL": upstream.url, "MCP_BRIDGE_MODE": "http-sse", "MCP_ALLOW": "localhost"}
    with running_bridge(tmp_path, **settings) as url:
        yield url


def body(served: Served, **more: Any) -> dict[str, Any]:
    server = {"type": "url", "url": served.url, "name": "srv", "authorization_token": TOKEN}
    return {"model": "gpt-4.1", "max_tokens": 100, "messages": ASKED, "mcp_servers": [server], **more}


def ask(url: str, asked: dict[str, Any], *, stream: bool) -> Any:
    client = opened(anthropic.Anthropic(base_url=url, api_key="k", max_retries=0, timeout=10))
    asked = {"betas": ["mcp-client-2025-04-04"], **asked}
    if not stream:
        return client.beta.messages.create(**asked)
    with client.beta.messages.stream(**asked) as streamed:
        return streamed.get_final_message()


@pytest.mark.req("C5.6", "C7")
@pytest.mark.parametrize("stream", [False, True])
def test_a_tool_of_an_mcp_server_is_run_and_shown(
    bridge: str, upstream: ScriptedUpstream, served: Served, stream: bool
) -> None:
    upstream.script = [
        {"when": {"last_role": "tool"}, "reply": {"chat": {"text": "It is 5."}}},
        {"when": {"text": "And"}, "reply": {"chat": {"text": "Nothing more."}}},
        {"reply": {"chat": {"text": "Adding.", "tool_calls": [ADD]}}},
    ]
    answer = ask(bridge, body(served), stream=stream)
    assert [block.type for block in answer.content] == ["text", "mcp_tool_use", "mcp_tool_result", "text"]
    _, use, result, text = answer.content
    assert (use.server_name, use.name, use.input) == ("srv", "add", {"a": 2, "b": 3})
    assert (result.tool_use_id, result.is_error) == (use.id, False)
    assert result.content[0].text == "5"
    assert (text.text, answer.stop_reason) == ("It is 5.", "end_turn")
    first, second = [received.json for received in upstream.received]
    assert "mcp__srv__add" in [tool["function"]["name"] for tool in first["tools"]]
    call, told = second["messages"][-2:]
    assert call["tool_calls"][0]["id"] == told["tool_call_id"]
    assert told["content"] == "5"
    assert TOKEN not in str([received.body for received in upstream.received])
    history = [*ASKED, {"role": "assistant", "content": [b.model_dump(exclude_none=True) for b in answer.content]}]
    ask(bridge, body(served, messages=[*history, {"role": "user", "content": "And?"}]), stream=stream)
    roles = [message["role"] for message in upstream.received[-1].json["messages"]]
    assert roles == ["user", "assistant", "tool", "assistant", "user"]


@pytest.mark.req("C7")
@pytest.mark.parametrize("stream", [False, True])
def test_a_turn_with_tools_of_both_ends_with_the_clients(
    bridge: str, upstream: ScriptedUpstream, served: Served, stream: bool
) -> None:
    upstream.script = [
        {"when": {"last_role": "tool"}, "reply": {"chat": {"text": "Written."}}},
        {"reply": {"chat": {"tool_calls": [ADD, {"name": "Write", "arguments": {"text": "5"}}]}}},
    ]
    answer = ask(bridge, body(served, tools=[WRITE]), stream=stream)
    assert answer.stop_reason == "tool_use"
    (use,) = [block for block in answer.content if block.type == "tool_use"]
    assert (use.name, use.input) == ("Write", {"text": "5"})
    assert len(upstream.received) == 1
    result = {"type": "tool_result", "tool_use_id": use.id, "content": "done"}
    content = [block.model_dump(exclude_none=True) for block in answer.content]
    messages = [*ASKED, {"role": "assistant", "content": content}, {"role": "user", "content": [result]}]
    final = ask(bridge, body(served, tools=[WRITE], messages=messages), stream=stream)
    assert final.content[-1].text == "Written."
    sent = upstream.received[-1].json["messages"]
    calls = [call["id"] for message in sent for call in message.get("tool_calls", ())]
    results = [message["tool_call_id"] for message in sent if message["role"] == "tool"]
    assert sorted(calls) == sorted(results)
    assert len(calls) == 2


@pytest.mark.req("C7")
def test_a_retried_request_runs_no_side_effect_twice(bridge: str, upstream: ScriptedUpstream, served: Served) -> None:
    upstream.script = [
        {"when": {"last_role": "tool", "call": 1}, "reply": {"status": 503, "json": {"error": "later"}}},
        {"when": {"last_role": "tool"}, "reply": {"chat": {"text": "Counted."}}},
        {"reply": {"chat": {"tool_calls": [{"name": "mcp__srv__count", "arguments": {}}]}}},
    ]
    served.counted = 0
    asked = body(served) | {"betas": ["mcp-client-2025-04-04"]}
    client = opened(anthropic.Anthropic(base_url=bridge, api_key="k", max_retries=2, timeout=10))
    answer = client.beta.messages.create(**asked)
    assert answer.content[-1].text == "Counted."
    assert served.counted == 1
    assert upstream.received[-1].json["messages"][-1]["content"] == "counted 1"
    client.beta.messages.create(**asked)
    assert served.counted == 2, "the same words in a new conversation are a new wish"
    for _ in range(2):
        client.beta.messages.create(**asked, extra_headers={"x-conversation-id": "talk-1"})
    assert served.counted == 3


@pytest.mark.req("C5.6", "C8")
@pytest.mark.parametrize(
    ("settings", "server", "told"),
    [
        ({}, "https://mcp.example.com/mcp", "MCP_BRIDGE_MODE"),
        ({"MCP_BRIDGE_MODE": "http-sse"}, "https://mcp.example.com/mcp", "not among the hosts"),
        ({"MCP_BRIDGE_MODE": "http-sse"}, "http://127.0.0.1:9/mcp", "https"),
    ],
)
def test_servers_that_may_not_be_called_are_refused(
    upstream: ScriptedUpstream, tmp_path: Path, settings: dict[str, str], server: str, told: str
) -> None:
    asked = {"model": "gpt-4.1", "max_tokens": 9, "messages": ASKED}
    servers = [{"type": "url", "url": server, "name": "srv", "authorization_token": TOKEN}]
    with running_bridge(tmp_path, UPSTREAM_OPENAI_BASE_URL=upstream.url, **settings) as url:
        answer = httpx2.post(f"{url}/v1/messages", json=asked | {"mcp_servers": servers})
    assert answer.status_code == 400
    assert told in answer.json()["error"]["message"]
    assert TOKEN not in answer.text
    assert upstream.received == []


@pytest.mark.req("C7", "FR5.1", "C8")
@pytest.mark.parametrize("stream", [False, True])
def test_a_page_that_may_not_be_fetched_is_an_error_for_the_model(
    upstream: ScriptedUpstream, tmp_path: Path, stream: bool
) -> None:
    page = {"name": "web_fetch", "arguments": {"url": "https://localhost/secret"}}
    upstream.script = [
        {"when": {"last_role": "tool"}, "reply": {"chat": {"text": "I could not read it."}}},
        {"reply": {"chat": {"tool_calls": [page]}}},
    ]
    settings = {"SERVER_TOOLS_MODE": "emulate", "TOOL_FETCH_ALLOW": "localhost, *.example.com"}
    asked = {
        "model": "gpt-4.1",
        "max_tokens": 100,
        "messages": ASKED,
        "tools": [{"type": "web_fetch_20250910", "name": "web_fetch"}],
    }
    with running_bridge(tmp_path, UPSTREAM_OPENAI_BASE_URL=upstream.url, **settings) as url:
        answer = ask(url, asked, stream=stream)
    assert [block.type for block in answer.content] == ["server_tool_use", "web_fetch_tool_result", "text"]
    assert answer.content[1].content.type == "web_fetch_tool_result_error"
    assert upstream.received[1].json["messages"][-1]["content"].startswith("[tool error]")


@pytest.mark.req("C7")
def test_a_loop_that_never_ends_is_ended(bridge: str, upstream: ScriptedUpstream, served: Served) -> None:
    upstream.script = [{"reply": {"chat": {"tool_calls": [ADD]}}}]
    answer = ask(bridge, body(served), stream=True)
    assert answer.stop_reason == "pause_turn"
    uses = [block.id for block in answer.content if block.type == "mcp_tool_use"]
    results = [block.tool_use_id for block in answer.content if block.type == "mcp_tool_result"]
    assert uses == results
    assert 1 < len(upstream.received) < 20


@pytest.mark.req("C7")
def test_a_model_that_stands_in_runs_no_side_effect_again(
    upstream: ScriptedUpstream, tmp_path: Path, served: Served
) -> None:
    count = {"chat": {"tool_calls": [{"name": "mcp__srv__count", "arguments": {}}]}}
    upstream.script = [
        {"when": {"path": "/o/*", "last_role": "tool"}, "reply": {"status": 500, "json": {"error": "broken"}}},
        {"when": {"last_role": "tool"}, "reply": {"chat": {"text": "Counted."}}},
        {"reply": count},
    ]
    settings = {
        "UPSTREAM_OPENAI_BASE_URL": f"{upstream.url}/o/v1",
        "UPSTREAM_OPENROUTER_BASE_URL": f"{upstream.url}/r/v1",
        "FALLBACK_MODELS": "openrouter/x/y",
        "MCP_BRIDGE_MODE": "http-sse",
        "MCP_ALLOW": "localhost",
    }
    served.counted = 0
    with running_bridge(tmp_path, **settings) as url:
        answer = ask(url, body(served), stream=False)
    assert answer.content[-1].text == "Counted."
    assert served.counted == 1
