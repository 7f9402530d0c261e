"""Every recorded Messages request becomes a chat completion request that OpenAI's own types and providers take."""

from __future__ import annotations

import json
from itertools import product
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from conformance.outbound import order_defects, type_defects, undeclared_tools
from conformance.strictness import defects, parse_events
from support import FIXTURES

if TYPE_CHECKING:
    from scripted.server import ScriptedUpstream

WIRE = FIXTURES / "wire"
RECORDINGS = {
    path.relative_to(WIRE).with_suffix("").as_posix(): json.loads(path.read_text()) for path in WIRE.rglob("*.json")
}
# Other endpoints, which have tests of their own.
OTHER_PATHS = {"/v1/messages/count_tokens", "/v1/chat/completions", "/v1/responses"}
# Recordings that have no translation of their own.
LEFT_OUT = {
    "claude-code/toolsearch/03": "web_search_20250305 is a tool that the provider runs: SERVER_TOOLS_MODE decides",
    "anthropic-py/runner/02": "thread continue: holds only the new messages, the rest is in the store",
}
# Each kind of upstream, by a model of it, with the keys that it takes beyond OpenAI's own.
TARGETS = {
    "openai/gpt-4.1": (),
    "openai/gpt-5.1": (),
    "openai/llama-3.3": (),
    "openrouter/anthropic/claude-sonnet-4.5": ("cache_control", "reasoning", "session_id", "top_k"),
    "openrouter/openai/gpt-5": ("reasoning", "session_id", "top_k"),
    "gemini/gemini-2.5-pro": (),
}
# What an upstream cannot be told is refused in words, and nothing is sent.
REFUSED = {("anthropic-py/rich/01", "gemini/gemini-2.5-pro"): "image: this upstream takes no image URLs"}
# Claude Code defers the tools of MCP servers without their definitions: a call in its history may be all there is.
CALLED_BUT_NOT_OFFERED = {
    "agent-sdk/mcp/02": {"mcp__w__get_weather"},
    "agent-sdk/mcp/03": {"mcp__w__get_weather"},
    "claude-code/mcp/02": {"mcp__demo__get_weather"},
}
HOP_HEADERS = {"content-length", "host", "connection", "accept-encoding", "transfer-encoding"}


def path_of(recording: dict[str, Any]) -> str:
    return str(recording["path"]).partition("?")[0]


MESSAGES = {
    name: recording
    for name, recording in sorted(RECORDINGS.items())
    if path_of(recording) == "/v1/messages" and name not in LEFT_OUT
}


def test_every_recording_is_replayed_or_listed_with_a_reason() -> None:
    elsewhere = {name for name, recording in RECORDINGS.items() if path_of(recording) in OTHER_PATHS}
    assert set(RECORDINGS) == {*MESSAGES, *LEFT_OUT, *elsewhere}
    assert all(recording["method"] == "POST" and recording["body"] for recording in MESSAGES.values())
    assert len(MESSAGES) > 30


@pytest.mark.req("R1", "R2", "R4", "R5", "R6", "C5.1", "C5.3", "C13", "SM1")
@pytest.mark.parametrize(("name", "model"), [pair for pair in product(MESSAGES, TARGETS) if pair not in REFUSED])
def test_a_recorded_request_reaches_the_upstream_as_one_it_takes(
    case_bridge: str, case_upstream: ScriptedUpstream, name: str, model: str
) -> None:
    case_upstream.received.clear()
    recording = MESSAGES[name]
    answer = replay(case_bridge, recording, model)
    assert answer.status_code == 200, answer.text
    (received,) = case_upstream.received
    body = received.json
    assert type_defects(body, beyond=TARGETS[model]) == []
    assert order_defects(body["messages"]) == []
    assert undeclared_tools(body) == CALLED_BUT_NOT_OFFERED.get(name, set())
    assert {tool["function"]["name"] for tool in body.get("tools", ())} == known_tools(recording["body"])
    assert b"UNKNOWN_TOOL_NAME" not in received.body
    assert b"x-anthropic-billing-header" not in received.body
    assert bool(body.get("stream")) is bool(recording["body"].get("stream"))


@pytest.mark.req("C5.2", "C11")
@pytest.mark.parametrize(("name", "model"), REFUSED)
def test_what_an_upstream_cannot_take_is_refused_in_words(
    case_bridge: str, case_upstream: ScriptedUpstream, name: str, model: str
) -> None:
    case_upstream.received.clear()
    answer = replay(case_bridge, MESSAGES[name], model)
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")
    assert answer.json()["error"]["message"].startswith(REFUSED[name, model])
    assert case_upstream.received == []


@pytest.mark.req("FR4.1", "SM1")
@pytest.mark.parametrize("name", CALLED_BUT_NOT_OFFERED)
def test_a_tool_is_undeclared_only_if_the_client_left_it_out(name: str) -> None:
    offered = {tool["name"] for tool in MESSAGES[name]["body"]["tools"]}
    assert not offered & CALLED_BUT_NOT_OFFERED[name]


@pytest.mark.req("C6.2", "C15")
@pytest.mark.parametrize("name", MESSAGES)
def test_a_recorded_request_is_answered_in_the_form_it_asked_for(case_bridge: str, name: str) -> None:
    recording = MESSAGES[name]
    answer = replay(case_bridge, recording, "openai/gpt-4.1")
    if not recording["body"].get("stream"):
        message = answer.json()
        assert (message["type"], message["stop_reason"], message["model"]) == (
            "message",
            "end_turn",
            recording["body"]["model"],
        )
        return
    events = parse_events(answer.content)
    assert defects(events) == []
    assert events[0].data["message"]["model"] == recording["body"]["model"]
    assert "".join(event.data["delta"].get("text", "") for event in events if event.type == "content_block_delta")


@pytest.mark.req("C5.3")
def test_the_recordings_hold_deferred_tools_both_found_and_not() -> None:
    deferred = [
        tool["name"] in known_tools(recording["body"])
        for recording in MESSAGES.values()
        for tool in recording["body"].get("tools", ())
        if tool.get("defer_loading")
    ]
    assert {True, False} == set(deferred)


@pytest.mark.req("R5")
def test_results_that_came_out_of_order_follow_their_calls(case_bridge: str, case_upstream: ScriptedUpstream) -> None:
    """The recording with parallel calls is only worth something if its results are out of order."""
    shuffled = [name for name, recording in MESSAGES.items() if has_shuffled_results(recording["body"]["messages"])]
    assert shuffled
    for name in shuffled:
        case_upstream.received.clear()
        assert replay(case_bridge, MESSAGES[name], "openai/gpt-4.1").status_code == 200
        assert order_defects(case_upstream.received[0].json["messages"]) == []


HI: dict[str, Any] = {"role": "user", "content": "Hi"}
CALLS: dict[str, Any] = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": ident, "type": "function", "function": {"name": "f", "arguments": "{}"}} for ident in ("a", "b")
    ],
}


def result(ident: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": ident, "content": "ok"}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"stream": "yes"}, "stream"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"top_k": 5}, "body.top_k"),
        ({"reasoning_effort": "enormous"}, "reasoning_effort"),
        ({"tool_choice": "any"}, "tool_choice"),
        ({"messages": [{"role": "robot", "content": "Hi"}]}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages"),
        ({"messages": [HI | {"cache_control": {"type": "ephemeral"}}]}, "body.messages.0.cache_control"),
        ({"messages": [HI | {"content": [{"type": "text"}]}]}, "text"),
        ({"tools": [{"type": "function", "function": {"parameters": {}}}]}, "function.name"),
    ],
)
def test_the_check_of_types_finds_what_is_wrong(change: dict[str, Any], says: str) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}]
    turns = [HI, CALLS, result("a"), result("b"), {"role": "user", "content": parts}]
    body = {"model": "m", "messages": turns, "stream": True, "stop": ["x"]}
    assert type_defects(body) == []
    found = type_defects(body | change)
    assert found
    assert says in " ".join(found)


def test_keys_of_another_provider_can_be_allowed_but_not_inside_schemas() -> None:
    schema = {"type": "object", "properties": {"session_id": {"type": "string"}}}
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    body = {"model": "m", "messages": [HI], "tools": [tool], "session_id": "s"}
    assert type_defects(body) == ["body.session_id: OpenAI's types have no such key"]
    assert type_defects(body, beyond=["session_id"]) == []


@pytest.mark.parametrize(
    ("messages", "says"),
    [
        ([HI, CALLS, result("b"), result("a")], "where a was due"),
        ([HI, CALLS, result("a"), HI], "before the results of b"),
        ([HI, CALLS, result("a")], "no result for b"),
        ([HI, result("a")], "where None was due"),
        ([HI, CALLS | {"tool_calls": CALLS["tool_calls"][:1] * 2}, result("a"), result("a")], "id of two calls"),
    ],
)
def test_the_check_of_the_order_finds_what_is_wrong(messages: list[dict[str, Any]], says: str) -> None:
    assert order_defects([HI, CALLS, result("a"), result("b"), HI]) == []
    assert says in " ".join(order_defects(messages))


def test_the_check_of_the_tools_finds_what_is_not_declared() -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    forced = {"type": "function", "function": {"name": "g"}}
    assert undeclared_tools({"messages": [CALLS], "tools": [tool]}) == set()
    assert undeclared_tools({"messages": [CALLS]}) == {"f"}
    assert undeclared_tools({"messages": [HI], "tools": [tool], "tool_choice": forced}) == {"g"}


def replay(url: str, recording: dict[str, Any], model: str) -> httpx2.Response:
    headers = {name: value for name, value in recording["headers"].items() if name.lower() not in HOP_HEADERS}
    return httpx2.post(
        url + recording["path"], json=recording["body"], headers=headers | {"x-bridge-model": model}, timeout=10
    )


def known_tools(body: dict[str, Any]) -> set[str]:
    """The tools that the model may know: a deferred one only after a search found it or it was called."""
    blocks = blocks_of(body["messages"])
    found = {block["name"] for block in blocks if block.get("type") == "tool_use"}
    for block in blocks:
        for part in block["content"] if isinstance(block.get("content"), list) else ():
            found |= {part["tool_name"]} if part["type"] == "tool_reference" else set()
    return {tool["name"] for tool in body.get("tools", ()) if not tool.get("defer_loading") or tool["name"] in found}


def blocks_of(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [block for message in messages for block in message["content"] if isinstance(block, dict)]


def has_shuffled_results(messages: list[dict[str, Any]]) -> bool:
    blocks = blocks_of(messages)
    calls = [block["id"] for block in blocks if block.get("type") == "tool_use"]
    results = [block["tool_use_id"] for block in blocks if block.get("type") == "tool_result"]
    return [ident for ident in calls if ident in results] != results
