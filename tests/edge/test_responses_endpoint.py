"""The Responses API on both sides: as a protocol of clients, and as the one that OpenAI's newest models want."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import anthropic
import httpx2
import openai
import pytest
from pydantic import BaseModel

from support import FIXTURES, opened, running_bridge

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from scripted.server import ScriptedUpstream

CLAUDE, GEMINI, GPT = "claude-sonnet-4-5", "gemini-3-pro", "gpt-5.5"
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER: Any = {"type": "function", "name": "get_weather", "parameters": SCHEMA, "strict": True}
CLAUDE_TOOL: Any = {"name": "get_weather", "description": "Weather", "input_schema": SCHEMA}
PARIS = {"city": "Paris"}


@pytest.fixture
def bridge(upstream: ScriptedUpstream, tmp_path: Path) -> Iterator[str]:
    """A bridge whose every provider is the scripted upstream, under a path of its own."""
    settings = {
        f"UPSTREAM_{name}_BASE_URL": f"{upstream.url}/{name.lower()}/v1" for name in ("ANTHROPIC", "OPENAI", "GEMINI")
    }
    with running_bridge(tmp_path, **settings) as url:
        yield url


def sdk(url: str, key: str = "client-key") -> openai.OpenAI:
    return opened(openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, timeout=10))


def claude_sdk(url: str) -> anthropic.Anthropic:
    return opened(anthropic.Anthropic(base_url=url, api_key="client-key", max_retries=0, timeout=10))


@pytest.mark.req("P1")
@pytest.mark.parametrize(
    ("api", "model", "path"),
    [
        ("auto", "gpt-5.5", "/v1/responses"),
        ("auto", "gpt-4.1", "/v1/chat/completions"),
        ("auto", "some-local-model", "/v1/chat/completions"),
        ("chat", "gpt-5.5", "/v1/chat/completions"),
        ("responses", "gpt-4.1", "/v1/responses"),
    ],
)
def test_which_protocol_a_model_is_asked_in(
    upstream: ScriptedUpstream, tmp_path: Path, api: str, model: str, path: str
) -> None:
    upstream.script = [
        {"when": {"path": "/v1/responses"}, "reply": {"responses": {"text": "ok"}}},
        {"reply": {"chat": {"text": "ok"}}},
    ]
    with running_bridge(tmp_path, UPSTREAM_OPENAI_BASE_URL=upstream.url, OPENAI_API=api) as url:
        answer = claude_sdk(url).messages.create(
            model=f"openai/{model}", max_tokens=50, messages=[{"role": "user", "content": "Hi"}], tools=[CLAUDE_TOOL]
        )
    assert answer.content[0].type == "text"
    assert upstream.received[0].path == path


def turn_of_tools(url: str, streaming: bool) -> tuple[Any, Any]:
    """A first turn that calls a tool, as a Claude client asks for it, and the history of the second."""
    client = claude_sdk(url)
    asked: Any = {
        "model": GPT,
        "max_tokens": 2000,
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "tools": [CLAUDE_TOOL],
        "messages": [{"role": "user", "content": "Weather in Paris?"}],
    }
    if streaming:
        with client.messages.stream(**asked) as stream:
            message = stream.get_final_message()
    else:
        message = client.messages.create(**asked)
    (use,) = [block for block in message.content if block.type == "tool_use"]
    result = {"type": "tool_result", "tool_use_id": use.id, "content": "21 degrees"}
    answered = [block.model_dump(exclude_none=True) for block in message.content if block.type != "thinking"]
    history = [*asked["messages"], {"role": "assistant", "content": answered}, {"role": "user", "content": [result]}]
    return message, asked | {"messages": history}


@pytest.mark.req("P1", "S2", "S4", "C5.5")
@pytest.mark.parametrize("streaming", [False, True])
def test_encrypted_reasoning_returns_with_its_call(bridge: str, upstream: ScriptedUpstream, streaming: bool) -> None:
    call = {"name": "get_weather", "arguments": PARIS}
    first = {"reasoning": "Look it up.", "encrypted": "gAAAA-sealed", "text": "Looking.", "calls": [call]}
    upstream.script = [
        {"when": {"last_role": "tool"}, "reply": {"responses": {"text": "Sunny."}}},
        {"reply": {"responses": first}},
    ]
    message, second = turn_of_tools(bridge, streaming)
    assert [block.type for block in message.content] == ["thinking", "text", "tool_use"]
    assert message.content[0].thinking == "Look it up."
    assert message.content[2].input == PARIS
    assert message.stop_reason == "tool_use"
    assert "gAAAA-sealed" not in message.model_dump_json()
    answer = claude_sdk(bridge).messages.create(**second)
    assert answer.content[0].text == "Sunny."  # type: ignore[union-attr]
    asked, again = [received.json for received in upstream.received]
    assert asked["store"] is False
    assert asked["include"] == ["reasoning.encrypted_content"]
    assert asked["reasoning"]["effort"] in ("minimal", "low", "none")
    kinds = [item.get("type", "message") for item in again["input"]]
    assert kinds == ["message", "reasoning", "message", "function_call", "function_call_output"]
    assert again["input"][1]["encrypted_content"] == "gAAAA-sealed"
    assert json.loads(again["input"][3]["arguments"]) == PARIS
    assert again["input"][3]["call_id"] == again["input"][4]["call_id"]
    upstream.script = [{"reply": {"chat": {"text": "Sunny."}}}]
    claude_sdk(bridge).messages.create(**(second | {"model": "gpt-4.1"}))
    claude_sdk(bridge).messages.create(**(second | {"model": GEMINI}))
    assert "gAAAA-sealed" not in str([received.body for received in upstream.received[2:]])


@pytest.mark.req("P1", "S4")
def test_reasoning_that_is_refused_is_left_out_once(bridge: str, upstream: ScriptedUpstream) -> None:
    call = {"name": "get_weather", "arguments": PARIS}
    refusal = {"error": {"message": "The encrypted content gAAAA could not be verified.", "code": "invalid_value"}}
    upstream.script = [
        {"when": {"last_role": "tool", "call": 1}, "reply": {"status": 400, "json": refusal}},
        {"when": {"last_role": "tool"}, "reply": {"responses": {"text": "Sunny."}}},
        {"reply": {"responses": {"encrypted": "gAAAA", "calls": [call]}}},
    ]
    _, second = turn_of_tools(bridge, streaming=True)
    assert claude_sdk(bridge).messages.create(**second).content[0].text == "Sunny."  # type: ignore[union-attr]
    _, refused, without = [received.body for received in upstream.received]
    assert b"gAAAA" in refused
    assert b"gAAAA" not in without


@pytest.mark.req("P1", "C15")
@pytest.mark.parametrize("model", [CLAUDE, GEMINI])
def test_a_tool_loop_by_previous_response(bridge: str, upstream: ScriptedUpstream, model: str) -> None:
    upstream.script = [
        {
            "when": {"path": "/anthropic/*", "last_role": "tool"},
            "reply": {"messages": {"text": "Sunny."}},
        },
        {
            "when": {"path": "/anthropic/*"},
            "reply": {
                "messages": {
                    "thinking": "Look.",
                    "signature": "c2ln",
                    "tool_uses": [{"name": "get_weather", "input": PARIS}],
                }
            },
        },
        {"when": {"last_role": "tool"}, "reply": {"chat": {"text": "Sunny."}}},
        {"reply": {"chat": {"tool_calls": [{"name": "get_weather", "arguments": PARIS}]}}},
    ]
    client = sdk(bridge)
    first = client.responses.create(
        model=model, instructions="Be brief.", input="Weather in Paris?", tools=[WEATHER], reasoning={"effort": "high"}
    )
    (call,) = [item for item in first.output if item.type == "function_call"]
    assert (call.name, json.loads(call.arguments)) == ("get_weather", PARIS)
    output: Any = [{"type": "function_call_output", "call_id": call.call_id, "output": "21 degrees"}]
    second = client.responses.create(
        model=model,
        instructions="Be brief.",
        previous_response_id=first.id,
        input=output,
        tools=[WEATHER],
        reasoning={"effort": "high"},
    )
    assert second.output_text == "Sunny."
    assert second.previous_response_id == first.id
    sent = upstream.received[-1].json["messages"]
    if model == CLAUDE:
        assert [block["type"] for block in sent[1]["content"]] == ["thinking", "tool_use"]
        assert sent[1]["content"][0]["signature"] == "c2ln"
        assert sent[2]["content"][0]["tool_use_id"] == sent[1]["content"][1]["id"]
    else:
        assert [message["role"] for message in sent] == ["system", "user", "assistant", "tool"]
    third = client.responses.create(model=model, previous_response_id=second.id, input="And now?", tools=[WEATHER])
    branch = client.responses.create(model=model, previous_response_id=first.id, input=output, tools=[WEATHER])
    assert third.id != branch.id
    longest = max(len(received.json["messages"]) for received in upstream.received)
    assert longest == 5


@pytest.mark.req("P1", "NFR5")
def test_stored_responses_are_read_and_deleted_by_their_owner_alone(bridge: str, upstream: ScriptedUpstream) -> None:
    upstream.script = [{"reply": {"messages": {"text": "Hello"}}}]
    client = sdk(bridge)
    made = client.responses.create(model=CLAUDE, input="Hi", metadata={"a": "b"})
    kept = client.responses.retrieve(made.id)
    assert kept.model_dump() == made.model_dump()
    items = client.responses.input_items.list(made.id)
    assert [item.type for item in items] == ["message"]
    with pytest.raises(openai.NotFoundError):
        sdk(bridge, "another-key").responses.retrieve(made.id)
    with pytest.raises(openai.NotFoundError):
        sdk(bridge, "another-key").responses.delete(made.id)
    client.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(made.id)
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(model=CLAUDE, input="More", previous_response_id=made.id)
    assert refused.value.code == "previous_response_not_found"
    unkept = client.responses.create(model=CLAUDE, input="Hi", store=False)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(unkept.id)


@pytest.mark.req("P1", "C6.2")
@pytest.mark.parametrize("model", [CLAUDE, GEMINI])
def test_the_stream_helpers(bridge: str, upstream: ScriptedUpstream, model: str) -> None:
    class Weather(BaseModel):
        city: str
        degrees: int

    text = '{"city": "Paris", "degrees": 21}'
    upstream.script = [
        {"when": {"path": "/anthropic/*"}, "reply": {"messages": {"text": text}}},
        {"reply": {"chat": {"text": text}}},
    ]
    client = sdk(bridge)
    with client.responses.stream(model=model, input="Weather?", text_format=Weather) as stream:
        numbers = [event.sequence_number for event in stream]
        final = stream.get_final_response()
    assert final.output_parsed == Weather(city="Paris", degrees=21)
    assert numbers == list(range(len(numbers)))
    assert client.responses.retrieve(final.id).output_text == text
    parsed = client.responses.parse(model=model, input="Weather?", text_format=Weather)
    assert parsed.output_parsed == Weather(city="Paris", degrees=21)


@pytest.mark.req("P1", "C11")
def test_a_stream_that_breaks_fails_and_is_not_kept(bridge: str, upstream: ScriptedUpstream) -> None:
    upstream.script = [
        {
            "reply": {
                "sse": [
                    {"type": "message_start", "message": {"usage": {"input_tokens": 1, "output_tokens": 1}}},
                    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
                    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Half"}},
                ]
            }
        }
    ]
    events = list(sdk(bridge).responses.create(model=CLAUDE, input="Hi", stream=True))
    assert events[-1].type == "response.failed"
    assert events[-1].response.error is not None
    with pytest.raises(openai.NotFoundError):
        sdk(bridge).responses.retrieve(events[-1].response.id)


@pytest.mark.req("P1", "C15")
@pytest.mark.parametrize("model", [CLAUDE, GEMINI])
@pytest.mark.parametrize("path", ["codex/responses/01.json", "codex/responses/02.json"])
def test_recorded_requests_of_codex(bridge: str, upstream: ScriptedUpstream, path: str, model: str) -> None:
    upstream.script = [
        {"when": {"path": "/anthropic/*"}, "reply": {"messages": {"text": "Done."}}},
        {"reply": {"chat": {"text": "Done."}}},
    ]
    body = json.loads((FIXTURES / "wire" / path).read_text())["body"] | {"model": model}
    answer = httpx2.post(f"{bridge}/v1/responses", json=body, timeout=10)
    assert answer.status_code == 200, answer.text
    assert "event: response.completed" in answer.text
    assert upstream.received[0].json["tools"]


@pytest.mark.req("P1", "C3")
def test_responses_pass_through_to_openai_where_its_api_is_said_to_be_there(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.script = [{"reply": {"responses": {"text": "ok"}}}]
    with running_bridge(tmp_path, UPSTREAM_OPENAI_BASE_URL=upstream.url, OPENAI_API="responses") as url:
        body = b'{"model":"gpt-4.1",  "input":"Hi", "future":1}'
        answer = httpx2.post(f"{url}/v1/responses", content=body)
        assert answer.json()["status"] == "completed"
        assert upstream.received[0].body == body
        upstream.script = [{"reply": {"json": {"id": "resp_theirs"}}}]
        assert httpx2.get(f"{url}/v1/responses/resp_theirs").json() == {"id": "resp_theirs"}
        assert upstream.received[1].path == "/v1/responses/resp_theirs"


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"model": CLAUDE}, "input"),
        ({"model": CLAUDE, "input": "Hi", "background": True}, "background"),
        ({"model": CLAUDE, "input": "Hi", "previous_response_id": 3}, "previous_response_id"),
        ({"model": CLAUDE, "input": [{"type": "item_reference", "id": "x"}]}, "item_reference"),
    ],
)
def test_what_cannot_be_served_is_refused_with_its_field(
    bridge: str, upstream: ScriptedUpstream, body: dict[str, Any], told: str
) -> None:
    answer = httpx2.post(f"{bridge}/v1/responses", json=body)
    assert answer.status_code == 400
    assert told in answer.json()["error"]["message"]
    assert upstream.received == []
