"""The memory end to end, over HTTP: what the client no longer carries is still there."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import httpx2
import pytest

from bridge.state.claims import conversation_of, conversation_token, mint, read_claim
from bridge.state.dynamodb_table import connect
from bridge.state.table import create_table
from support import running_bridge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from scripted.server import ScriptedUpstream

TOOL = {"name": "get_weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}
HI = {"role": "user", "content": "Weather in Paris?"}
CALL = {"name": "get_weather", "arguments": {"city": "Paris"}}


@pytest.fixture(params=["sqlite", "dynamodb_local"])
def start_bridge(
    request: pytest.FixtureRequest, tmp_path: Path, upstream: ScriptedUpstream
) -> Iterator[Callable[..., str]]:
    """Starts bridges on one store: each stands for another process or Lambda environment."""
    shared = {
        "STATE_FILE": str(tmp_path / "shared.sqlite3"),
        "UPSTREAM_OPENAI_BASE_URL": upstream.url,
        "UPSTREAM_OPENROUTER_BASE_URL": upstream.url,
        "UPSTREAM_GEMINI_BASE_URL": upstream.url,
    }
    if request.param == "dynamodb_local":
        request.getfixturevalue("aws_environment")
        shared["STATE_TABLE"] = f"memory-{uuid4().hex}"
        create_table(connect(), shared["STATE_TABLE"])
    with ExitStack() as stack:
        yield lambda **more: stack.enter_context(running_bridge(tmp_path, **(shared | more)))


@pytest.fixture
def bridge(start_bridge: Callable[..., str]) -> str:
    return start_bridge()


def ask(url: str, *messages: Any, model: str = "openai/gpt-x", key: str = "sk-ann", **more: Any) -> httpx2.Response:
    headers = {"x-api-key": key} | more.pop("headers", {})
    body = {"model": model, "max_tokens": 99, "messages": list(messages), "tools": [TOOL]} | more
    return httpx2.post(f"{url}/v1/messages", json=body, headers=headers, timeout=20)


def first_call(answer: httpx2.Response) -> dict[str, Any]:
    """The first tool call of an answer, streamed or not."""
    if answer.headers["content-type"].startswith("text/event-stream"):
        import json

        data = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
        return next(
            item["content_block"]
            for item in data
            if item["type"] == "content_block_start" and item["content_block"]["type"] == "tool_use"
        )
    return next(block for block in answer.json()["content"] if block["type"] == "tool_use")


def result(tool_id: str, content: str = "sunny") -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": tool_id, "content": content}]}


def script(upstream: ScriptedUpstream, *calls: dict[str, Any], **chat: Any) -> None:
    upstream.script = [
        {"when": {"last_role": "tool"}, "reply": {"chat": {"text": "It is sunny."}}},
        {"reply": {"chat": {"tool_calls": list(calls) or [CALL], **chat}}},
    ]


@pytest.mark.req("FR3.1", "FR4.1", "S5", "SM1", "FR2.1")
@pytest.mark.parametrize("stream", [True, False])
def test_a_tool_call_survives_a_trimmed_history_in_another_process(
    start_bridge: Callable[..., str], upstream: ScriptedUpstream, stream: bool
) -> None:
    script(upstream)
    call = first_call(ask(start_bridge(), HI, stream=stream))
    answer = ask(start_bridge(), result(call["id"]), stream=stream)
    assert answer.status_code == 200
    assert upstream.received[-1].json["messages"] == [
        {"role": "user", "content": "(Earlier messages are not shown.)"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": call["id"],
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": '{"city":"Paris"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": call["id"], "content": "sunny"},
    ]


@pytest.mark.req("FR6.4", "FR5.3")
def test_a_result_may_come_again(bridge: str, upstream: ScriptedUpstream) -> None:
    """Clients retry and resend: a call is not forgotten because its result was seen once."""
    script(upstream)
    call = first_call(ask(bridge, HI))
    for _ in range(3):
        assert ask(bridge, result(call["id"])).status_code == 200


@pytest.mark.req("S5")
def test_only_the_calls_that_are_missing_are_put_back(bridge: str, upstream: ScriptedUpstream) -> None:
    script(upstream, CALL, {"name": "get_weather", "arguments": {"city": "Rome"}}, CALL)
    calls = ask(bridge, HI).json()["content"]
    kept, *lost = calls
    results = [result(call["id"], call["input"]["city"])["content"][0] for call in reversed(calls)]
    answer = ask(bridge, HI, {"role": "assistant", "content": [kept]}, {"role": "user", "content": results})
    assert answer.status_code == 200
    sent = upstream.received[-1].json["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "tool", "tool"]
    assert [call["id"] for call in sent[1]["tool_calls"]] == [message["tool_call_id"] for message in sent[2:]]
    assert {call["id"] for call in sent[1]["tool_calls"]} == {call["id"] for call in [kept, *lost]}


@pytest.mark.req("FR2.2", "FR2.4")
def test_a_client_without_headers_stays_in_one_conversation(bridge: str, upstream: ScriptedUpstream) -> None:
    script(upstream)
    first = ask(bridge, HI)
    call = first_call(first)
    second = ask(bridge, HI, {"role": "assistant", "content": [call]}, result(call["id"]))
    assert first.headers["x-conversation-id"].startswith("conv_")
    assert second.headers["x-conversation-id"] == first.headers["x-conversation-id"]
    assert ask(bridge, HI).headers["x-conversation-id"] != first.headers["x-conversation-id"]


@pytest.mark.req("FR2.2", "FR2.3")
@pytest.mark.parametrize(
    ("headers", "more", "expected"),
    [
        ({"x-conversation-id": "my-talk", "x-claude-code-session-id": "s1"}, {}, "my-talk"),
        ({"x-claude-code-session-id": "s1"}, {}, "s1"),
        ({"session_id": "s2"}, {}, "s2"),
        ({}, {"metadata": {"user_id": '{"device_id":"d","session_id":"s3"}'}}, "s3"),
    ],
)
def test_conversations_are_named_by_what_clients_send(
    bridge: str, upstream: ScriptedUpstream, headers: dict[str, str], more: dict[str, Any], expected: str
) -> None:
    script(upstream)
    assert ask(bridge, HI, headers=headers, **more).headers["x-conversation-id"] == expected


@pytest.mark.req("FR6.3", "C11")
def test_what_was_terminated_or_never_was_is_refused_by_name(bridge: str, upstream: ScriptedUpstream) -> None:
    script(upstream)
    first = ask(bridge, HI, headers={"x-conversation-id": "talk"})
    call = first_call(first)
    stranger = httpx2.post(f"{bridge}/v1/conversations/talk/terminate", headers={"x-api-key": "sk-bob"})
    assert stranger.json()["deleted_items"] == 0
    assert ask(bridge, result(call["id"])).status_code == 200
    own = httpx2.post(f"{bridge}/v1/conversations/talk/terminate", headers={"x-api-key": "sk-ann"})
    assert own.json()["deleted_items"] == 1
    refused = ask(bridge, result(call["id"]))
    assert refused.status_code == 400
    assert call["id"] in refused.json()["error"]["message"]
    assert "terminated" in refused.json()["error"]["message"]
    unknown = ask(bridge, result(mint(conversation_token("x"), b"12345678", has_data=False)))
    assert (unknown.status_code, "not known" in unknown.json()["error"]["message"]) == (400, True)
    foreign = ask(bridge, result("toolu_01Other"))
    assert (foreign.status_code, "toolu_01Other" in foreign.json()["error"]["message"]) == (400, True)


@pytest.mark.req("NFR5")
def test_another_principal_cannot_use_an_id_it_knows(bridge: str, upstream: ScriptedUpstream) -> None:
    script(upstream)
    call = first_call(ask(bridge, HI, headers={"x-conversation-id": "talk"}))
    theirs = ask(bridge, result(call["id"]), key="sk-bob", headers={"x-conversation-id": "talk"})
    never = ask(bridge, result(call["id"][:-4] + "AAAA"), key="sk-bob", headers={"x-conversation-id": "talk"})
    assert (theirs.status_code, never.status_code) == (400, 400)
    known, unknown = (answer.json()["error"]["message"].partition("': ")[2] for answer in (theirs, never))
    assert known == unknown


SIGNED = CALL | {"extra": {"extra_content": {"google": {"thought_signature": "SIG"}}}}
UNSIGNED = {"extra_content": {"google": {"thought_signature": "skip_thought_signature_validator"}}}


def history(call: dict[str, Any]) -> list[Any]:
    return [HI, {"role": "assistant", "content": [call]}, result(call["id"])]


@pytest.mark.req("S1", "S4")
@pytest.mark.parametrize("stream", [True, False])
def test_gemini_gets_its_signatures_back_and_nobody_else_does(
    bridge: str, upstream: ScriptedUpstream, stream: bool
) -> None:
    script(upstream, SIGNED)
    call = first_call(ask(bridge, HI, model="gemini/gemini-3-pro", stream=stream))
    ask(bridge, *history(call), model="gemini/gemini-3-pro")
    (sent,) = upstream.received[-1].json["messages"][1]["tool_calls"]
    assert sent["extra_content"] == {"google": {"thought_signature": "SIG"}}
    ask(bridge, *history(call), model="openai/gpt-x")
    assert "extra_content" not in upstream.received[-1].json["messages"][1]["tool_calls"][0]
    ask(bridge, result(call["id"]), model="gemini/gemini-3-pro")
    assert "SIG" in upstream.received[-1].body.decode()


@pytest.mark.req("S1", "S4")
@pytest.mark.parametrize("stream", [True, False])
def test_gemini_gets_the_signature_of_a_plain_answer_back(
    bridge: str, upstream: ScriptedUpstream, stream: bool
) -> None:
    signed = {"extra_content": {"google": {"thought_signature": "TEXT-SIG"}}}
    deltas = [{"content": "Hello "}, {"content": "there."}, {"content": ""} | signed]
    chunks: list[Any] = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    message = {"role": "assistant", "content": "Hello there."} | signed
    upstream.script = [
        {"when": {"stream": True}, "reply": {"sse": [*chunks, "[DONE]"]}},
        {"reply": {"json": {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}}},
    ]
    talk: dict[str, Any] = {"headers": {"x-conversation-id": "plain-talk"}}
    ask(bridge, HI, model="gemini/gemini-3-pro", stream=stream, **talk)
    said = {"role": "assistant", "content": [{"type": "text", "text": "Hello there."}]}
    ask(bridge, HI, said, HI, model="gemini/gemini-3-pro", headers={"x-conversation-id": "plain-talk"})
    assert upstream.received[-1].json["messages"][1] == {"role": "assistant", "content": "Hello there."} | signed
    ask(bridge, HI, said, HI, model="openai/gpt-x", headers={"x-conversation-id": "plain-talk"})
    assert "extra_content" not in upstream.received[-1].json["messages"][1]


@pytest.mark.req("S1", "S4")
def test_gemini_history_of_others_carries_the_documented_bypass(bridge: str, upstream: ScriptedUpstream) -> None:
    script(upstream)
    call = first_call(ask(bridge, HI))
    ask(bridge, *history(call), model="gemini/gemini-3-pro")
    assert upstream.received[-1].json["messages"][1]["tool_calls"][0]["extra_content"] == UNSIGNED["extra_content"]
    ask(bridge, *history(call), model="gemini/gemini-2.5-pro")
    assert "extra_content" not in upstream.received[-1].json["messages"][1]["tool_calls"][0]


FRAGMENTS = [
    [{"type": "reasoning.text", "text": "Let me ", "format": "anthropic-claude-v1", "index": 0}],
    [{"type": "reasoning.text", "text": "think. ", "format": "anthropic-claude-v1", "index": 0}],
    [{"type": "reasoning.text", "signature": "SIG", "format": "anthropic-claude-v1", "index": 0}],
    [{"type": "reasoning.encrypted", "data": "XYZ", "id": "tool_1", "index": 0}],
]
MERGED = [
    {
        "type": "reasoning.text",
        "text": "Let me think. ",
        "format": "anthropic-claude-v1",
        "index": 0,
        "signature": "SIG",
    },
    {"type": "reasoning.encrypted", "data": "XYZ", "id": "tool_1", "index": 0},
]


@pytest.mark.req("S2", "S4")
def test_openrouter_gets_its_reasoning_details_back_whole(bridge: str, upstream: ScriptedUpstream) -> None:
    deltas: list[Any] = [{"choices": [{"index": 0, "delta": {"reasoning_details": piece}}]} for piece in FRAGMENTS]
    function = {"name": "get_weather", "arguments": '{"city":"Paris"}'}
    deltas.append({"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "id": "c", "function": function}]}}]})
    deltas.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    upstream.script = [
        {"when": {"last_role": "tool"}, "reply": {"chat": {"text": "ok"}}},
        {"reply": {"sse": [*deltas, "[DONE]"]}},
    ]
    call = first_call(ask(bridge, HI, model="openrouter/anthropic/claude-x", stream=True))
    claim = read_claim(call["id"])
    assert claim is not None
    assert claim.has_data
    ask(bridge, *history(call), model="openrouter/anthropic/claude-x")
    assert upstream.received[-1].json["messages"][1]["reasoning_details"] == MERGED
    ask(bridge, *history(call), model="openrouter/google/gemini-x")
    assert "reasoning_details" not in upstream.received[-1].json["messages"][1]


@pytest.mark.req("S2")
@pytest.mark.parametrize(("reasoning", "expected"), [("Hm.", "Hm."), ("", "")])
def test_deepseek_gets_its_reasoning_back_even_when_empty(
    bridge: str, upstream: ScriptedUpstream, reasoning: str, expected: str
) -> None:
    script(upstream, reasoning_content=reasoning) if reasoning else script(upstream)
    call = first_call(ask(bridge, HI, model="openai/deepseek-v4"))
    ask(bridge, *history(call), model="openai/deepseek-v4")
    assert upstream.received[-1].json["messages"][1]["reasoning_content"] == expected


@pytest.mark.req("S4")
def test_data_that_the_provider_refuses_is_left_out_once(bridge: str, upstream: ScriptedUpstream) -> None:
    script(upstream, SIGNED)
    call = first_call(ask(bridge, HI, model="gemini/gemini-3-pro"))
    refusal = {"status": 400, "json": [{"error": {"code": 400, "message": "Corrupted thought signature."}}]}
    upstream.received.clear()
    upstream.script = [{"when": {"call": 1}, "reply": refusal}, {"reply": {"chat": {"text": "ok"}}}]
    assert ask(bridge, *history(call), model="gemini/gemini-3-pro").status_code == 200
    first, second = (received.json["messages"][1]["tool_calls"][0] for received in upstream.received)
    assert first["extra_content"]["google"]["thought_signature"] == "SIG"
    assert second["extra_content"] == UNSIGNED["extra_content"]
    upstream.script = [{"reply": refusal}]
    upstream.received.clear()
    assert ask(bridge, *history(call), model="gemini/gemini-3-pro").status_code == 400
    assert len(upstream.received) == 2


@pytest.mark.req("S1", "FR1.3")
def test_a_history_that_shows_a_call_twice_is_read_once(bridge: str, upstream: ScriptedUpstream) -> None:
    script(upstream, SIGNED)
    call = first_call(ask(bridge, HI, model="gemini/gemini-3-pro"))
    answer = ask(bridge, *history(call), *history(call), model="gemini/gemini-3-pro")
    assert answer.status_code == 200
    assert upstream.received[-1].body.count(b'"SIG"') == 2


@pytest.mark.req("S6", "FR1.2")
def test_ids_that_the_provider_repeats_never_collide(bridge: str, upstream: ScriptedUpstream) -> None:
    script(upstream, CALL | {"id": "call_0"})
    headers = {"x-conversation-id": "talk"}
    first = first_call(ask(bridge, HI, headers=headers))
    script(upstream, {"id": "call_0", "name": "get_weather", "arguments": {"city": "Rome"}})
    second = first_call(ask(bridge, HI, headers=headers))
    ask(bridge, {"role": "user", "content": [*result(second["id"])["content"], *result(first["id"])["content"]]})
    calls = upstream.received[-1].json["messages"][1]["tool_calls"]
    assert [call["function"]["arguments"] for call in calls] == ['{"city":"Rome"}', '{"city":"Paris"}']


def test_claims_say_what_was_put_into_them() -> None:
    own = f"conv_{uuid4()}"
    for conversation in (own, "my-talk"):
        token = conversation_token(conversation)
        minted = mint(token, b"\xff" * 8, has_data=True)
        assert len(minted) == 40
        assert minted.isascii()
        assert minted.replace("_", "").isalnum()
        claim = read_claim(minted)
        assert claim is not None
        assert (claim.token, claim.has_data) == (token, True)
        assert conversation_token(conversation_of(token)) == token
    assert conversation_of(conversation_token(own)) == own
    assert read_claim("toolu_01FAKEaaaa") is None
