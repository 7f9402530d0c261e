"""POST /v1/messages over real HTTP, to an OpenAI-compatible upstream."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import anthropic
import httpx2
import pytest

from support import opened

if TYPE_CHECKING:
    from scripted.server import ScriptedUpstream

WEATHER: dict[str, Any] = {
    "name": "get_weather",
    "description": "The weather of a city",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def client(url: str) -> anthropic.Anthropic:
    return opened(anthropic.Anthropic(base_url=url, api_key="sk-client", max_retries=0))


def ask(url: str, **body: Any) -> httpx2.Response:
    whole = {"model": "openai/gpt-x", "max_tokens": 100, "messages": [{"role": "user", "content": "Hi"}]} | body
    return httpx2.post(f"{url}/v1/messages", json=whole, headers={"x-api-key": "sk-client"}, timeout=10)


@pytest.mark.req("C3", "C15", "C6.1")
def test_text_not_streamed(bridge_url: str, upstream: ScriptedUpstream) -> None:
    upstream.script = [{"reply": {"chat": {"text": "Hello there"}}}]
    message = client(bridge_url).messages.create(
        model="openai/gpt-x", max_tokens=100, system="Be brief.", messages=[{"role": "user", "content": "Hi"}]
    )
    assert [block.to_dict() for block in message.content] == [{"type": "text", "text": "Hello there"}]
    assert (message.model, message.stop_reason) == ("openai/gpt-x", "end_turn")
    assert message.id.startswith("msg_")
    (received,) = upstream.received
    assert received.path == "/v1/chat/completions"
    assert received.json == {
        "model": "gpt-x",
        "max_tokens": 100,
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
    }


@pytest.mark.req("R9", "C6.2")
def test_text_streamed(bridge_url: str, upstream: ScriptedUpstream) -> None:
    upstream.script = [{"reply": {"chat": {"text": "one two three"}}}]
    with client(bridge_url).messages.stream(
        model="openai/gpt-x", max_tokens=100, messages=[{"role": "user", "content": "Hi"}]
    ) as stream:
        pieces = list(stream.text_stream)
        message = stream.get_final_message()
    assert "".join(pieces) == "one two three"
    assert len(pieces) > 1
    assert message.stop_reason == "end_turn"
    assert message.usage.output_tokens > 0
    assert upstream.received[0].json["stream_options"] == {"include_usage": True}


@pytest.mark.req("R4", "R5", "C5.3")
@pytest.mark.parametrize("streaming", [True, False])
def test_a_tool_call_there_and_back(bridge_url: str, upstream: ScriptedUpstream, streaming: bool) -> None:
    upstream.script = [
        {"when": {"last_role": "tool"}, "reply": {"chat": {"text": "Sunny in Paris."}}},
        {
            "reply": {
                "chat": {"text": "Looking.", "tool_calls": [{"name": "get_weather", "arguments": {"city": "Paris"}}]}
            }
        },
    ]
    messages: list[Any] = [{"role": "user", "content": "Weather in Paris?"}]

    def turn() -> Any:
        with client(bridge_url).messages.stream(
            model="openai/gpt-x", max_tokens=100, messages=messages, tools=[WEATHER]
        ) as stream:
            return stream.get_final_message()

    def whole_turn() -> Any:
        return client(bridge_url).messages.create(
            model="openai/gpt-x", max_tokens=100, messages=messages, tools=[WEATHER]
        )

    take_turn = turn if streaming else whole_turn
    first = take_turn()
    text, call = first.content
    assert first.stop_reason == "tool_use"
    assert (text.text, call.name, call.input) == ("Looking.", "get_weather", {"city": "Paris"})
    messages += [
        {"role": "assistant", "content": [block.to_dict() for block in first.content]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "21 degrees, sunny"}]},
    ]
    assert take_turn().content[0].text == "Sunny in Paris."
    assert upstream.received[1].json["messages"][1:] == [
        {
            "role": "assistant",
            "content": "Looking.",
            "tool_calls": [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": "get_weather", "arguments": '{"city":"Paris"}'},
                }
            ],
        },
        {"role": "tool", "tool_call_id": call.id, "content": "21 degrees, sunny"},
    ]


@pytest.mark.req("S6")
def test_ids_are_unique_over_answers_although_the_upstream_repeats_its_own(
    bridge_url: str, upstream: ScriptedUpstream
) -> None:
    upstream.script = [{"reply": {"chat": {"tool_calls": [{"id": "call_0", "name": "f", "arguments": {}}] * 2}}}]
    answers = [ask(bridge_url).json() for _ in range(3)]
    tool_ids = [block["id"] for answer in answers for block in answer["content"]]
    assert len(set(tool_ids)) == 6
    assert len({answer["id"] for answer in answers}) == 3


@pytest.mark.req("FR5.1")
def test_a_failed_tool_is_visible_to_the_model(bridge_url: str, upstream: ScriptedUpstream) -> None:
    upstream.script = [{"reply": {"chat": {"text": "I see."}}}]
    ask(
        bridge_url,
        messages=[
            {"role": "user", "content": "Read it"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {}}]},
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_1", "content": "no such file", "is_error": True}
                ],
            },
        ],
    )
    assert upstream.received[0].json["messages"][-1]["content"] == "[tool error] no such file"


@pytest.mark.req("FR5.2", "C11")
@pytest.mark.parametrize(
    ("body", "path"),
    [
        (
            {"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]},
            "messages.0.content.0.tool_result.tool_use_id",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": 7}]}]},
            "messages.0.content.0.tool_result.content",
        ),
        ({"messages": [{"role": "user", "content": [{"type": "hologram"}]}]}, "messages.0.content.0"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages.0.role"),
        ({"messages": "Hi"}, "messages"),
        ({"model": 7}, "model"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"tools": [{"name": "x"}]}, "tools.0.custom.input_schema"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice.name"),
    ],
)
def test_a_malformed_request_is_refused_with_the_path_of_the_field(
    bridge_url: str, upstream: ScriptedUpstream, body: dict[str, Any], path: str
) -> None:
    answer = ask(bridge_url, **body)
    error = answer.json()["error"]
    assert (answer.status_code, error["type"]) == (400, "invalid_request_error")
    assert error["message"].startswith(path)
    assert answer.headers["x-should-retry"] == "false"
    assert upstream.received == []


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff\xfe", b'{"model": "m"}'])
def test_a_body_that_is_no_request_is_a_400(bridge_url: str, body: bytes) -> None:
    answer = httpx2.post(f"{bridge_url}/v1/messages", content=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.req("C11")
@pytest.mark.parametrize(
    ("reply", "status", "kind"),
    [
        ({"status": 401, "json": {"error": {"message": "bad key"}}}, 401, "authentication_error"),
        ({"status": 403, "json": {"error": {"message": "no"}}}, 403, "permission_error"),
        ({"status": 404, "json": {"error": {"message": "no model"}}}, 404, "not_found_error"),
        (
            {"status": 429, "headers": {"retry-after": "7"}, "json": {"error": {"message": "slow"}}},
            429,
            "rate_limit_error",
        ),
        ({"status": 500, "body": "<html>oops</html>"}, 500, "api_error"),
        ({"status": 503, "json": [{"error": {"message": "busy"}}]}, 529, "overloaded_error"),
        ({"body": "<html>login</html>"}, 502, "api_error"),
        ({"cut": "reset"}, 502, "api_error"),
        ({"json": {"error": {"message": "hidden in a 200", "code": 402}}}, 402, "billing_error"),
        ({"sse": [{"error": {"message": "hidden in a stream", "code": 402}}]}, 402, "billing_error"),
        ({"sse": [{"choices": [], "error": {"message": "like a usage chunk", "code": 429}}]}, 429, "rate_limit_error"),
        ({"status": 408, "json": {"error": "too slow"}}, 504, "timeout_error"),
        ({"status": 422, "json": {"detail": [{"loc": ["body"], "msg": "bad"}]}}, 400, "invalid_request_error"),
        ({"status": 400, "json": {"object": "error", "message": "bare words"}}, 400, "invalid_request_error"),
        ({"status": 413, "body": "too big"}, 413, "request_too_large"),
    ],
)
@pytest.mark.parametrize("streaming", [True, False])
def test_an_upstream_failure_before_the_first_byte_is_an_http_error(
    bridge_url: str, upstream: ScriptedUpstream, reply: dict[str, Any], status: int, kind: str, streaming: bool
) -> None:
    upstream.script = [{"reply": reply}]
    answer = ask(bridge_url, stream=streaming)
    error = answer.json()["error"]
    assert (answer.status_code, error["type"]) == (status, kind)
    assert "openai" in error["message"]
    assert answer.headers.get("retry-after") == reply.get("headers", {}).get("retry-after")
    assert answer.headers["request-id"] == answer.json()["request_id"]


@pytest.mark.req("C11", "C12")
@pytest.mark.parametrize(
    "fault", [{"$cut": "reset"}, {"$cut": "close"}, {"$bad_chunk": True}, {"$raw": "data: garbage\n\n"}]
)
def test_a_failure_after_the_first_byte_is_an_error_event(
    bridge_url: str, upstream: ScriptedUpstream, fault: dict[str, Any]
) -> None:
    delta = {"choices": [{"index": 0, "delta": {"content": "Hello"}, "finish_reason": None}]}
    upstream.script = [{"reply": {"sse": [delta, {"$delay_ms": 30}, fault]}}]
    answer = ask(bridge_url, stream=True)
    events = [line.removeprefix("event: ") for line in answer.text.splitlines() if line.startswith("event: ")]
    assert events == ["message_start", "content_block_start", "content_block_delta", "error"]
    last = json.loads(answer.text.strip().splitlines()[-1].removeprefix("data: "))
    assert last["error"]["type"] == "api_error"
    assert "openai" in last["error"]["message"]


@pytest.mark.req("C12")
def test_a_client_that_leaves_ends_the_upstream_call(bridge_url: str, upstream: ScriptedUpstream) -> None:
    delta = {"choices": [{"index": 0, "delta": {"content": "Hello"}, "finish_reason": None}]}
    upstream.script = [{"reply": {"sse": [delta, {"$hang_ms": 20_000}]}}]
    before = upstream.disconnects
    body = {"model": "openai/gpt-x", "max_tokens": 9, "stream": True, "messages": [{"role": "user", "content": "Hi"}]}
    with httpx2.stream("POST", f"{bridge_url}/v1/messages", json=body) as answer:
        next(answer.iter_raw())
    wait_for(lambda: upstream.disconnects == before + 1)


def wait_for(condition: Any) -> None:
    import time

    for _ in range(200):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("it did not happen within 4 s")


def test_health_and_unknown_paths(bridge_url: str) -> None:
    assert httpx2.get(f"{bridge_url}/health").json() == {"status": "ok"}
    assert httpx2.head(f"{bridge_url}/api/hello").status_code == 200
    assert httpx2.get(f"{bridge_url}/nowhere").json()["error"]["type"] == "not_found_error"
    assert httpx2.get(f"{bridge_url}/v1/messages").status_code == 405
    assert httpx2.get(f"{bridge_url}/v1/chat/completions").json()["error"]["param"] is None


@pytest.mark.parametrize(("model", "hint"), [("claude-sonnet-5-5", True), ("openai/gpt-x", False)])
def test_a_claude_name_that_nothing_maps_is_named_as_the_reason(
    bridge_url: str, upstream: ScriptedUpstream, model: str, hint: bool
) -> None:
    refusal = {"error": {"message": "The model does not exist", "code": "model_not_found"}}
    upstream.script = [{"reply": {"status": 404, "json": refusal}}]
    body = {"model": model, "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    answer = httpx2.post(f"{bridge_url}/v1/messages", json=body)
    assert answer.status_code == 404
    said = answer.json()["error"]["message"]
    assert "The model does not exist" in said
    assert ("no rule maps 'claude-sonnet-5-5'; see MODEL_MAP" in said) is hint
