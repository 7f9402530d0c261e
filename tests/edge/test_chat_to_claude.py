"""OpenAI clients served by Claude: the official SDK, recorded requests and Cursor's dialect through a real bridge."""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING, Any

import httpx2
import openai
import pytest
from pydantic import BaseModel

from support import FIXTURES, opened, running_bridge

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from scripted.server import ScriptedUpstream

MODEL = "claude-sonnet-4-5"
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
USES = [{"name": "get_weather", "input": {"city": "Paris"}}, {"name": "get_weather", "input": {"city": "Rome"}}]
ASKED: Any = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Weather in Paris and Rome?"}]


@pytest.fixture
def claude(upstream: ScriptedUpstream, tmp_path: Path) -> Iterator[str]:
    """A bridge whose Anthropic is the scripted upstream."""
    with running_bridge(tmp_path, UPSTREAM_ANTHROPIC_BASE_URL=upstream.url, ANTHROPIC_API_KEY="sk-ant-held") as url:
        yield url


def sdk(url: str) -> openai.OpenAI:
    return opened(openai.OpenAI(base_url=f"{url}/v1", api_key="sk-client", max_retries=0, timeout=10))


def recorded(path: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FIXTURES / "wire" / path).read_text())["body"]
    return found


@pytest.mark.req("G1", "G5", "C15")
def test_a_whole_answer(claude: str, upstream: ScriptedUpstream) -> None:
    usage = {"input_tokens": 5, "cache_read_input_tokens": 20, "cache_creation_input_tokens": 10, "output_tokens": 3}
    upstream.script = [{"reply": {"messages": {"text": "Hello there", "usage": usage}}}]
    answer = sdk(claude).chat.completions.create(model=MODEL, messages=ASKED, temperature=1.7, seed=3)
    assert answer.choices[0].message.content == "Hello there"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.model == MODEL
    assert answer.id.startswith("chatcmpl-")
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (35, 3, 38)
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 20
    (received,) = upstream.received
    assert received.path == "/v1/messages"
    assert received.headers["x-api-key"] == "sk-ant-held"
    assert "sk-client" not in str(received.headers)
    assert received.json["max_tokens"] > 0
    assert received.json["temperature"] == 1


@pytest.mark.req("G2", "G3", "G5")
def test_the_stream_helper_puts_text_reasoning_and_calls_together(claude: str, upstream: ScriptedUpstream) -> None:
    turn = {"thinking": "Two cities.", "signature": "sig", "text": "Let me look.", "tool_uses": USES}
    upstream.script = [{"reply": {"messages": turn}}]
    with sdk(claude).chat.completions.stream(
        model=MODEL, messages=ASKED, tools=[WEATHER], stream_options={"include_usage": True}
    ) as stream:
        chunks = [event.chunk for event in stream if event.type == "chunk"]
        answer = stream.get_final_completion()
    message = answer.choices[0].message
    assert message.content == "Let me look."
    calls = message.tool_calls or []
    assert [json.loads(call.function.arguments) for call in calls] == [{"city": "Paris"}, {"city": "Rome"}]
    assert len({call.id for call in calls}) == 2
    assert answer.choices[0].finish_reason == "tool_calls"
    assert {chunk.id for chunk in chunks} == {answer.id}
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    reasoning = "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas)
    assert reasoning == "Two cities."
    assert answer.usage is not None
    assert answer.usage.completion_tokens > 0


@pytest.mark.req("S3", "SM1")
@pytest.mark.parametrize("streaming", [False, True])
def test_signed_thinking_is_put_back_before_its_calls(claude: str, upstream: ScriptedUpstream, streaming: bool) -> None:
    turn = {"thinking": "Two cities.", "signature": "c2lnbmF0dXJl", "text": "Let me look.", "tool_uses": USES}
    upstream.script = [
        {"when": {"last_role": "tool"}, "reply": {"messages": {"text": "Sunny."}}},
        {"reply": {"messages": turn}},
    ]
    client = sdk(claude)
    if streaming:
        with client.chat.completions.stream(
            model=MODEL, messages=ASKED, tools=[WEATHER], reasoning_effort="high"
        ) as stream:
            message = stream.get_final_completion().choices[0].message
    else:
        asked = client.chat.completions.create(model=MODEL, messages=ASKED, tools=[WEATHER], reasoning_effort="high")
        message = asked.choices[0].message
    calls = [
        {"id": call.id, "type": "function", "function": {"name": "get_weather", "arguments": call.function.arguments}}
        for call in message.tool_calls or []
        if call.type == "function"
    ]
    history: Any = [
        *ASKED,
        {"role": "assistant", "content": message.content, "tool_calls": calls},
        {"role": "tool", "tool_call_id": calls[1]["id"], "content": "hot"},
        {"role": "tool", "tool_call_id": calls[0]["id"], "content": "mild"},
    ]
    answer = client.chat.completions.create(model=MODEL, messages=history, tools=[WEATHER], reasoning_effort="high")
    assert answer.choices[0].message.content == "Sunny."
    sent = upstream.received[-1].json
    thinking, text, *uses = sent["messages"][1]["content"]
    assert thinking == {"type": "thinking", "thinking": "Two cities.", "signature": "c2lnbmF0dXJl"}
    assert text["text"] == "Let me look."
    assert [use["input"]["city"] for use in uses] == ["Paris", "Rome"]
    results = [block for block in sent["messages"][2]["content"] if block["type"] == "tool_result"]
    assert [result["tool_use_id"] for result in results] == [use["id"] for use in uses]
    assert sent["thinking"]["type"] == "enabled"
    assert "signature" not in message.model_dump_json()


@pytest.mark.req("S3", "S4")
def test_thinking_that_is_lost_or_refused_costs_no_answer(
    claude: str, upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    refusal = {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": "Invalid `signature` in thinking"},
    }
    upstream.script = [
        {"when": {"last_role": "tool", "call": 1}, "reply": {"status": 400, "json": refusal}},
        {"when": {"last_role": "tool"}, "reply": {"messages": {"text": "Sunny."}}},
        {"reply": {"messages": {"thinking": "Hm.", "signature": "c2ln", "tool_uses": USES[:1]}}},
    ]
    client = sdk(claude)
    asked = client.chat.completions.create(model=MODEL, messages=ASKED, tools=[WEATHER], reasoning_effort="high")
    (call,) = asked.choices[0].message.tool_calls or []
    history: Any = [
        *ASKED,
        asked.choices[0].message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "mild"},
    ]

    def again() -> Any:
        return client.chat.completions.with_raw_response.create(
            model=MODEL, messages=history, tools=[WEATHER], reasoning_effort="high"
        )

    assert again().parse().choices[0].message.content == "Sunny."
    first, refused, without = [received.json for received in upstream.received]
    assert first["thinking"]["type"] == "enabled"
    assert refused["thinking"]["type"] == "enabled"
    assert "thinking" not in without
    with sqlite3.connect(tmp_path / "state.sqlite3") as file:
        file.execute("DELETE FROM state")
    file.close()
    answer = again()
    assert answer.parse().choices[0].message.content == "Sunny."
    assert "thinking" in answer.headers["x-bridge-losses"]


@pytest.mark.req("G1")
def test_structured_output_is_parsed(claude: str, upstream: ScriptedUpstream) -> None:
    class Weather(BaseModel):
        city: str
        degrees: int

    upstream.script = [{"reply": {"messages": {"text": '{"city": "Paris", "degrees": 21}'}}}]
    answer = sdk(claude).chat.completions.parse(model=MODEL, messages=ASKED, response_format=Weather)
    assert answer.choices[0].message.parsed == Weather(city="Paris", degrees=21)
    form = upstream.received[0].json["output_config"]["format"]
    assert form["type"] == "json_schema"
    assert form["schema"]["additionalProperties"] is False


@pytest.mark.req("G5")
def test_a_tool_loop_with_trimmed_history(claude: str, upstream: ScriptedUpstream) -> None:
    upstream.script = [
        {"when": {"last_role": "tool"}, "reply": {"messages": {"text": "Sunny."}}},
        {"reply": {"messages": {"tool_uses": [{"name": "get_weather", "input": {}}]}}},
    ]
    client = sdk(claude)
    asked = client.chat.completions.create(model=MODEL, messages=ASKED, tools=[WEATHER])
    (call,) = asked.choices[0].message.tool_calls or []
    assert call.type == "function"
    assert call.function.arguments == "{}"
    answer = client.chat.completions.create(
        model=MODEL, messages=[{"role": "tool", "tool_call_id": call.id, "content": "mild"}], tools=[WEATHER]
    )
    assert answer.choices[0].message.content == "Sunny."
    user, assistant, results = upstream.received[-1].json["messages"]
    assert (user["role"], assistant["content"][0]["name"]) == ("user", "get_weather")
    assert results["content"][0]["tool_use_id"] == assistant["content"][0]["id"] == call.id


@pytest.mark.req("C6.2", "C11")
@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (
            {
                "sse": [
                    {"type": "message_start", "message": {"usage": {"input_tokens": 1, "output_tokens": 1}}},
                    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
                    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Half"}},
                ]
            },
            "cut off",
        ),
        (
            {
                "sse": [
                    {"type": "message_start", "message": {"usage": {"input_tokens": 1, "output_tokens": 1}}},
                    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
                    {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
                ]
            },
            "Overloaded",
        ),
    ],
)
def test_a_stream_that_breaks_ends_with_an_error_and_without_done(
    claude: str, upstream: ScriptedUpstream, reply: dict[str, Any], told: str
) -> None:
    upstream.script = [{"reply": reply}]
    answer = httpx2.post(
        f"{claude}/chat/completions", json={"model": MODEL, "messages": ASKED, "stream": True}, timeout=10
    )
    *_, last, end = answer.text.split("\n\n")
    assert end == ""
    assert told in json.loads(last.removeprefix("data: "))["error"]["message"]
    assert "[DONE]" not in answer.text


@pytest.mark.req("C11")
@pytest.mark.parametrize(
    ("status", "kind", "becomes"),
    [(529, "overloaded_error", 503), (429, "rate_limit_error", 429), (401, "authentication_error", 401)],
)
def test_errors_of_anthropic_are_told_as_openai_tells_them(
    claude: str, upstream: ScriptedUpstream, status: int, kind: str, becomes: int
) -> None:
    error = {"type": "error", "error": {"type": kind, "message": "Not now"}}
    upstream.script = [{"reply": {"status": status, "json": error, "headers": {"retry-after": "7"}}}]
    with pytest.raises(openai.APIStatusError) as raised:
        sdk(claude).chat.completions.create(model=MODEL, messages=ASKED)
    assert raised.value.status_code == becomes
    assert "Not now" in raised.value.message
    assert raised.value.response.headers["retry-after"] == "7"


@pytest.mark.req("G1", "C15")
@pytest.mark.parametrize("path", ["codex/chat-0.80.0/01.json", "codex/chat-0.80.0/02.json"])
def test_recorded_requests_of_codex(claude: str, upstream: ScriptedUpstream, path: str) -> None:
    upstream.script = [{"reply": {"messages": {"text": "Done."}}}]
    body = recorded(path)
    answer = httpx2.post(f"{claude}/v1/chat/completions", json=body | {"model": MODEL}, timeout=10)
    assert answer.status_code == 200
    assert answer.text.endswith("data: [DONE]\n\n")
    sent = upstream.received[0].json
    assert [tool["name"] for tool in sent["tools"]] == [tool["function"]["name"] for tool in body["tools"]]
    assert sent["messages"][0]["role"] == "user"
    calls = [call for turn in body["messages"] for call in turn.get("tool_calls", ())]
    uses = [block for turn in sent["messages"] for block in turn["content"] if block["type"] == "tool_use"]
    assert [use["input"] for use in uses] == [json.loads(call["function"]["arguments"]) for call in calls]


@pytest.mark.req("G6")
def test_a_body_in_cursors_dialect(claude: str, upstream: ScriptedUpstream) -> None:
    upstream.script = [{"reply": {"messages": {"text": "Done."}}}]
    body = {
        "model": MODEL,
        "system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Read a"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "Reading."},
                    {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a"}},
                ],
            },
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "text of a"}]},
        ],
        "tools": [{"name": "read", "description": "Read a file", "input_schema": {"type": "object", "properties": {}}}],
        "tool_choice": {"type": "auto"},
        "stop_sequences": ["END"],
    }
    answer = httpx2.post(f"{claude}/v1/chat/completions", json=body, timeout=10)
    assert answer.json()["choices"][0]["message"]["content"] == "Done."
    sent = upstream.received[0].json
    assert sent["system"][0] == body["system"][0]  # type: ignore[index]
    assert sent["tools"][0]["name"] == "read"
    assert sent["messages"][1]["content"][1]["input"] == {"path": "a"}
    assert sent["messages"][2]["content"][0]["content"] in ("text of a", [{"type": "text", "text": "text of a"}])
    assert sent["stop_sequences"] == ["END"]


@pytest.mark.req("C5.1")
@pytest.mark.parametrize("switch", ["true", "false"])
def test_prompts_are_marked_for_the_cache_unless_switched_off(
    upstream: ScriptedUpstream, tmp_path: Path, switch: str
) -> None:
    upstream.script = [{"reply": {"messages": {"text": "ok"}}}]
    settings = {"UPSTREAM_ANTHROPIC_BASE_URL": upstream.url, "CACHE_PROMPTS": switch}
    with running_bridge(tmp_path, **settings) as url:
        sdk(url).chat.completions.create(model=MODEL, messages=ASKED, tools=[WEATHER])
    sent = upstream.received[0].json
    places = (sent["tools"][-1], sent["system"][-1], sent["messages"][-1]["content"][-1])
    assert ["cache_control" in place for place in places] == [switch == "true"] * 3


@pytest.mark.req("G1")
@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"n": 2}, "n:"),
        ({"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]}, "audio"),
        ({"messages": []}, "messages"),
    ],
)
def test_what_cannot_be_served_is_refused_with_its_field(
    claude: str, upstream: ScriptedUpstream, change: dict[str, Any], told: str
) -> None:
    answer = httpx2.post(f"{claude}/v1/chat/completions", json={"model": MODEL, "messages": ASKED} | change)
    assert answer.status_code == 400
    assert told in answer.json()["error"]["message"]
    assert upstream.received == []
