"""Message threads end to end, for models that never heard of them, with the official tool runner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anthropic
import httpx2
import pytest

from support import opened, running_bridge

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from scripted.server import ScriptedUpstream

TOOL = {"name": "get_weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}}}
HI = {"role": "user", "content": "Weather in Paris?"}
CREATE = {"type": "create"}


@pytest.fixture
def bridge(upstream: ScriptedUpstream, tmp_path: Path) -> Iterator[str]:
    upstream.script = [
        {"when": {"last_role": "tool"}, "reply": {"chat": {"text": "It is sunny."}}},
        {
            "when": {"text": "Paris"},
            "reply": {"chat": {"tool_calls": [{"name": "get_weather", "arguments": {"city": "Paris"}}]}},
        },
        {"reply": {"chat": {"text": "ok"}}},
    ]
    urls = {"UPSTREAM_OPENAI_BASE_URL": upstream.url, "UPSTREAM_GEMINI_BASE_URL": upstream.url}
    with running_bridge(tmp_path, **urls) as url:
        yield url


def ask(url: str, thread: Any, *messages: Any, key: str = "sk-ann", **more: Any) -> httpx2.Response:
    body = {"model": "openai/gpt-x", "max_tokens": 99, "messages": list(messages), "thread": thread} | more
    return httpx2.post(f"{url}/v1/messages", json=body, headers={"x-api-key": key}, timeout=20)


def following(answer: httpx2.Response) -> dict[str, Any]:
    return {"type": "continue", "previous_message_id": answer.json()["id"]}


def code(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["details"]["error_code"]


@pytest.mark.req("T1", "C15")
@pytest.mark.parametrize("model", ["openai/gpt-x", "gemini/gemini-3-pro"])
@pytest.mark.parametrize("stream", [True, False])
def test_the_official_tool_runner_works(bridge: str, upstream: ScriptedUpstream, model: str, stream: bool) -> None:
    asked: list[str] = []

    @anthropic.beta_tool
    def get_weather(city: str) -> str:
        """The weather of a city."""
        asked.append(city)
        return "sunny"

    client = opened(anthropic.Anthropic(base_url=bridge, api_key="k", max_retries=0))
    runner = client.beta.messages.tool_runner(
        model=model,
        max_tokens=100,
        tools=[get_weather],
        system="Be brief.",
        messages=[{"role": "user", "content": "Weather in Paris?"}],
        **({"stream": True} if stream else {}),  # type: ignore[arg-type]
    )
    final: Any = runner.until_done()
    assert final.content[0].text == "It is sunny."
    assert asked == ["Paris"]
    first, second = upstream.received
    assert [message["role"] for message in second.json["messages"]] == ["system", "user", "assistant", "tool"]
    assert second.json["tools"] == first.json["tools"]


@pytest.mark.req("T1")
def test_a_thread_carries_system_tools_and_history(bridge: str, upstream: ScriptedUpstream) -> None:
    first = ask(bridge, CREATE, {"role": "user", "content": "one"}, system="Be brief.", tools=[TOOL])
    second = ask(bridge, following(first), {"role": "user", "content": "two"})
    third = ask(bridge, following(second), {"role": "user", "content": "three"}, system="Be brief.", tools=[TOOL])
    assert third.status_code == 200
    sent = upstream.received[-1].json
    assert [message["content"] for message in sent["messages"]] == ["Be brief.", "one", "ok", "two", "ok", "three"]
    assert sent["tools"][0]["function"]["name"] == "get_weather"
    assert len({answer.json()["id"] for answer in (first, second, third)}) == 3


@pytest.mark.req("T1")
def test_anthropics_codes_say_what_is_wrong(bridge: str) -> None:
    first = ask(bridge, CREATE, {"role": "user", "content": "one"}, system="Be brief.")
    changed = ask(bridge, following(first), {"role": "user", "content": "two"}, system="Be long.")
    assert code(changed) == (400, "thread_fingerprint_mismatch")
    assert "system" in changed.json()["error"]["message"]
    assert ask(bridge, following(first), {"role": "user", "content": "two"}).status_code == 200, (
        "the lease was given back"
    )
    assert code(ask(bridge, following(first), {"role": "user", "content": "two"})) == (400, "thread_already_continued")
    assert code(ask(bridge, {"type": "continue", "previous_message_id": "msg_01X"}, HI)) == (404, "thread_not_found")
    other = ask(bridge, CREATE, {"role": "user", "content": "one"})
    assert code(ask(bridge, following(other), HI, key="sk-bob")) == (404, "thread_not_found")
    odd = ask(bridge, {"type": "fork"}, HI)
    assert (odd.status_code, odd.json()["error"]["type"]) == (400, "invalid_request_error")


@pytest.mark.req("T1")
@pytest.mark.parametrize("stream", [True, False])
def test_a_failure_gives_the_thread_back(bridge: str, upstream: ScriptedUpstream, stream: bool) -> None:
    first = ask(bridge, CREATE, {"role": "user", "content": "one"})
    working = upstream.script
    delta = {"choices": [{"index": 0, "delta": {"content": "Hel"}}]}
    for reply in ({"status": 500, "json": {}}, {"sse": [delta, {"$delay_ms": 20}, {"$cut": "reset"}]}):
        upstream.script = [{"reply": reply}]
        ask(bridge, following(first), {"role": "user", "content": "two"}, stream=stream)
    upstream.script = working
    assert ask(bridge, following(first), {"role": "user", "content": "two"}).status_code == 200


@pytest.mark.req("T1")
def test_a_paused_turn_is_continued_without_messages(bridge: str, upstream: ScriptedUpstream) -> None:
    first = ask(bridge, CREATE, {"role": "user", "content": "one"})
    assert ask(bridge, following(first)).status_code == 200
    assert [message["role"] for message in upstream.received[-1].json["messages"]] == ["user", "assistant"]


@pytest.mark.req("T1")
def test_threads_can_be_switched_off(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    with running_bridge(tmp_path, UPSTREAM_OPENAI_BASE_URL=upstream.url, THREADS="off") as url:
        assert code(ask(url, CREATE, HI)) == (400, "thread_unsupported_request")


@pytest.mark.req("T1")
def test_to_anthropic_threads_pass_untouched(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    upstream.script = [{"reply": {"messages": {"text": "ok"}}}]
    with running_bridge(tmp_path, UPSTREAM_ANTHROPIC_BASE_URL=upstream.url) as url:
        ask(url, CREATE, HI, model="claude-x")
    assert upstream.received[0].json["thread"] == CREATE
