"""Same-protocol routes change nothing but auth, routing headers and, where routing says so, the model's name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import anthropic
import httpx2
import openai
import pytest

from support import opened, running_bridge

if TYPE_CHECKING:
    import logging
    from collections.abc import Iterator
    from pathlib import Path

    from scripted.server import ScriptedUpstream

TURN = {"max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}


@pytest.fixture
def all_providers(upstream: ScriptedUpstream, tmp_path: Path) -> Iterator[str]:
    """A bridge whose every provider is the scripted upstream, under a path of its own."""
    settings = {
        f"UPSTREAM_{name}_BASE_URL": f"{upstream.url}/{name.lower()}/v1"
        for name in ("ANTHROPIC", "OPENAI", "OPENROUTER", "GEMINI")
    }
    mapped = {"MODEL_MAP": json.dumps({"house-model": "openai/gpt-real", "house-claude": "anthropic/claude-real"})}
    with running_bridge(tmp_path, **settings, **mapped, WORKER_TOKEN="ann:secret-token") as url:
        yield url


def ask(url: str, path: str, body: bytes, **headers: str) -> httpx2.Response:
    return httpx2.post(
        url + path, content=body, headers={"x-worker-token": "secret-token", "x-api-key": "sk-mine", **headers}
    )


@pytest.mark.req("C3", "C4")
@pytest.mark.parametrize(
    ("sent", "received"),
    [
        pytest.param(
            b'{ "model" :  "house-model" ,\n "n": 1.0, "messages":[ ]}',
            b'{ "model" :  "gpt-real" ,\n "n": 1.0, "messages":[ ]}',
            id="the first model is the one",
        ),
        pytest.param(
            b'{"metadata":{"model":"house-model"},"messages":[{"content":"\\"model\\":\\"house-model\\""}],'
            b'"model":"house-model"  }',
            b'{"metadata":{"model":"house-model"},"messages":[{"content":"\\"model\\":\\"house-model\\""}],'
            b'"model":"gpt-real"  }',
            id="other places that look like it stay",
        ),
        pytest.param(
            b'{"model":"house\\u002dmodel","big":12345678901234567,"e":1E5}',
            b'{"model":"gpt-real","big":12345678901234567,"e":1E5}',
            id="an escaped name",
        ),
    ],
)
def test_only_the_model_changes(all_providers: str, upstream: ScriptedUpstream, sent: bytes, received: bytes) -> None:
    upstream.script = [{"reply": {"chat": {"text": "ok"}}}]
    assert ask(all_providers, "/v1/chat/completions", sent).status_code == 200
    assert upstream.received[0].body == received


@pytest.mark.req("C3", "C15")
def test_what_a_client_tells_anthropic_arrives_and_what_it_answers_comes_back(
    all_providers: str, upstream: ScriptedUpstream
) -> None:
    told = {
        "anthropic-version": "2026-10-21",
        "anthropic-beta": "future-2027-01-01,other-2026-02-02",
        "user-agent": "claude-cli/2.1",
        "x-stainless-lang": "js",
        "x-claude-code-session-id": "session-1",
        "x-castari-provider": "anthropic",
        "x-client-meta": '{"secret": 1}',
        "cookie": "session=secret",
        "x-corporate-token": "secret",
    }
    headers = {
        "request-id": "req_of_anthropic",
        "anthropic-ratelimit-tokens-remaining": "17",
        "anthropic-organization-id": "org",
        "x-future": "kept",
        "set-cookie": "a=b",
        "retry-after": "3",
        "content-type": "application/json",
    }
    upstream.script = [{"reply": {"status": 429, "body": '{"type": "error",  "odd":1}', "headers": headers}}]
    answer = ask(all_providers, "/v1/messages?beta=true", b'{"model":"claude-x","future":[1, 2]}', **told)
    (received,) = upstream.received
    assert received.path == "/anthropic/v1/messages?beta=true"
    assert received.body == b'{"model":"claude-x","future":[1, 2]}'
    for name in ("anthropic-version", "anthropic-beta", "user-agent", "x-stainless-lang", "x-claude-code-session-id"):
        assert received.headers[name] == told[name]
    assert received.headers["x-api-key"] == "sk-mine"
    assert not {"x-castari-provider", "x-client-meta", "cookie", "x-corporate-token"} & received.headers.keys()
    assert "secret" not in str(received.headers)
    assert (answer.status_code, answer.content) == (429, b'{"type": "error",  "odd":1}')
    for name in headers.keys() - {"set-cookie"}:
        assert answer.headers[name] == headers[name]
    assert "set-cookie" not in answer.headers
    assert answer.headers["x-bridge-request-id"].startswith("req_")


@pytest.mark.req("X1")
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "batches"),
        ("GET", "batches/msgbatch_1"),
        ("GET", "batches/msgbatch_1/results"),
        ("DELETE", "batches/b"),
    ],
)
def test_sub_resources_of_messages_reach_anthropic(
    all_providers: str, upstream: ScriptedUpstream, method: str, path: str
) -> None:
    upstream.script = [{"reply": {"json": {"id": "msgbatch_1", "path": path}}}]
    answer = httpx2.request(
        method,
        f"{all_providers}/v1/messages/{path}?limit=2",
        headers={"x-worker-token": "secret-token", "x-api-key": "sk-ant-mine"},
        content=b'{"requests":[]}' if method == "POST" else None,
    )
    (received,) = upstream.received
    assert (received.method, received.path) == (method, f"/anthropic/v1/messages/{path}?limit=2")
    assert received.headers["x-api-key"] == "sk-ant-mine"
    assert answer.json()["path"] == path


def test_sub_resources_without_anthropic_are_not_found(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    with running_bridge(tmp_path, UPSTREAM_OPENAI_BASE_URL=upstream.url) as url:
        answer = httpx2.get(f"{url}/v1/messages/batches")
    assert answer.status_code == 404
    assert "Anthropic" in answer.json()["error"]["message"]


@pytest.mark.req("X1")
@pytest.mark.parametrize(
    ("model", "path", "wire_model"),
    [
        ("text-embedding-3-small", "/openai/v1/embeddings", "text-embedding-3-small"),
        ("or:qwen/qwen3-embedding", "/openrouter/v1/embeddings", "qwen/qwen3-embedding"),
        ("gemini-embedding-001", "/gemini/v1/embeddings", "gemini-embedding-001"),
    ],
)
def test_embeddings_go_to_providers_that_have_them(
    all_providers: str, upstream: ScriptedUpstream, model: str, path: str, wire_model: str
) -> None:
    rows = [{"object": "embedding", "index": 0, "embedding": [0.5, 0.25]}]
    usage = {"prompt_tokens": 3, "total_tokens": 3}
    upstream.script = [{"reply": {"json": {"object": "list", "data": rows, "model": wire_model, "usage": usage}}}]
    client = opened(
        openai.OpenAI(
            base_url=f"{all_providers}/v1",
            api_key="sk-own",
            max_retries=0,
            default_headers={"x-worker-token": "secret-token"},
        )
    )
    made = client.embeddings.create(model=model, input="words", encoding_format="float")
    assert made.data[0].embedding == [0.5, 0.25]
    (received,) = upstream.received
    assert (received.path, received.json["model"]) == (path, wire_model)
    assert received.headers["authorization"] == "Bearer sk-own"


@pytest.mark.req("X1")
def test_embeddings_of_claude_are_refused_clearly(all_providers: str, upstream: ScriptedUpstream) -> None:
    answer = ask(all_providers, "/v1/embeddings", b'{"model":"claude-x","input":"words"}')
    assert answer.status_code == 400
    assert "anthropic has no embeddings" in answer.json()["error"]["message"]
    assert upstream.received == []


@pytest.mark.req("C4")
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("model=house-model", {"provider": "openai", "wire_model": "gpt-real", "reason": "MODEL_MAP 'house-model'"}),
        ("model=claude-x", {"provider": "anthropic", "upstream_protocol": "anthropic", "translated": False}),
        ("model=claude-x&client=openai_chat", {"upstream_protocol": "anthropic", "translated": True}),
        ("model=gpt-x", {"upstream_protocol": "openai_chat", "translated": True, "key": "the client's"}),
    ],
)
def test_a_route_explains_itself_without_secrets(all_providers: str, query: str, expected: dict[str, object]) -> None:
    headers = {"authorization": "Bearer secret-token", "x-api-key": "sk-mine"}
    answer = httpx2.get(f"{all_providers}/v1/route?{query}", headers=headers)
    assert answer.status_code == 200
    assert answer.json() | expected == answer.json()
    assert "secret-token" not in answer.text
    assert "sk-mine" not in answer.text


@pytest.mark.parametrize(
    ("query", "status", "told"),
    [("", 400, "model"), ("model=x&client=telnet", 400, "client"), ("model=x", 401, "token")],
)
def test_a_route_that_cannot_be_explained(all_providers: str, query: str, status: int, told: str) -> None:
    token = "secret-token" if status != 401 else "wrong"
    answer = httpx2.get(f"{all_providers}/v1/route?{query}", headers={"x-worker-token": token})
    assert answer.status_code == status
    assert told in answer.json()["error"]["message"]


@pytest.mark.req("C3", "C8")
@pytest.mark.parametrize(
    ("key", "model", "shown"),
    [
        ("sk-ant-own", "claude-x", True),
        ("sk-ant-own", "gpt-x", False),
        ("sk-or-own", "or:a/b", True),
        ("sk-or-own", "claude-x", False),
        ("sk-proj-own", "gpt-x", True),
        ("sk-proj-own", "gemini-2.5-pro", False),
        ("anything", "gpt-x", True),
    ],
)
def test_a_clients_key_is_shown_to_nobody_but_whom_it_was_made_for(
    all_providers: str, upstream: ScriptedUpstream, key: str, model: str, shown: bool
) -> None:
    upstream.script = [
        {"when": {"path": "/anthropic/v1/messages"}, "reply": {"messages": {"text": "ok"}}},
        {"reply": {"chat": {"text": "ok"}}},
    ]
    body = json.dumps(TURN | {"model": model}).encode()
    answer = httpx2.post(
        f"{all_providers}/v1/messages", content=body, headers={"x-worker-token": "secret-token", "x-api-key": key}
    )
    assert answer.status_code == 200
    assert (key in str(upstream.received[0].headers)) is shown


@pytest.mark.req("C3", "C11")
def test_without_any_key_the_error_says_what_to_set(tmp_path: Path) -> None:
    with running_bridge(
        tmp_path, WORKER_TOKEN="ann:secret-token", UPSTREAM_OPENAI_BASE_URL="http://127.0.0.1:9"
    ) as url:
        body = json.dumps(TURN | {"model": "anthropic/claude-x"}).encode()
        answer = httpx2.post(f"{url}/v1/messages", content=body, headers={"x-worker-token": "secret-token"})
    assert answer.status_code == 401
    assert "ANTHROPIC_API_KEY" in answer.json()["error"]["message"]
    assert answer.headers["x-should-retry"] == "false"


def test_a_subscription_token_travels_as_bearer(all_providers: str, upstream: ScriptedUpstream) -> None:
    upstream.script = [{"reply": {"messages": {"text": "ok"}}}]
    client = opened(
        anthropic.Anthropic(
            base_url=all_providers,
            auth_token="sk-ant-oat01-own",
            max_retries=0,
            default_headers={"x-worker-token": "secret-token"},
        )
    )
    client.messages.create(model="claude-x", max_tokens=9, messages=[{"role": "user", "content": "Hi"}])
    (received,) = upstream.received
    assert received.headers["authorization"] == "Bearer sk-ant-oat01-own"
    assert "x-api-key" not in received.headers


@pytest.mark.req("C12")
def test_a_sign_of_life_never_falls_into_an_event(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    half, rest = 'data: {"choices":[{"index":0,"delta":{"content":"He', 'llo"}}]}\n\n'
    upstream.script = [{"reply": {"sse": [{"$raw": half}, {"$hang_ms": 200}, {"$raw": rest}, {"$hang_ms": 200}]}}]
    with running_bridge(tmp_path, UPSTREAM_OPENAI_BASE_URL=upstream.url, HEARTBEAT_SECONDS="0.05") as url:
        answer = httpx2.post(f"{url}/v1/chat/completions", json={"model": "gpt-x", "stream": True, "messages": []})
    assert answer.text.startswith(half + rest)
    assert set(answer.text.removeprefix(half + rest).split("\n\n")) == {": keep-alive", ""}


@pytest.mark.req("C9")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "model", "reply"),
    [
        ("/v1/messages", "claude-x", {"messages": {"text": "ok", "usage": {"input_tokens": 7, "output_tokens": 3}}}),
        (
            "/v1/chat/completions",
            "gpt-x",
            {"chat": {"text": "ok", "usage": {"prompt_tokens": 7, "completion_tokens": 3}}},
        ),
    ],
)
def test_usage_of_what_passes_through_is_seen(
    upstream: ScriptedUpstream,
    tmp_path: Path,
    bridge_log: list[logging.LogRecord],
    path: str,
    model: str,
    reply: dict[str, object],
    stream: bool,
) -> None:
    upstream.script = [{"reply": reply}]
    settings = {"UPSTREAM_OPENAI_BASE_URL": upstream.url, "UPSTREAM_ANTHROPIC_BASE_URL": upstream.url}
    body = TURN | {"model": model, "stream": stream, "stream_options": {"include_usage": True}}
    with running_bridge(tmp_path, **settings, LOG_LEVEL="info") as url:
        assert httpx2.post(url + path, json=body).status_code == 200
    fields = bridge_log[-1].__dict__["fields"]
    assert (fields["input_tokens"], fields["output_tokens"]) == (7, 3)


SIGNATURE = {"extra_content": {"google": {"thought_signature": "c2lnbmVk"}}}


@pytest.mark.req("S1", "S4")
@pytest.mark.parametrize("stream", [False, True])
def test_gemini_gets_its_signatures_back_from_clients_that_drop_them(
    all_providers: str, upstream: ScriptedUpstream, stream: bool
) -> None:
    call = {"id": "call_0", "name": "read", "arguments": {"path": "a"}, "extra": SIGNATURE}
    upstream.script = [{"reply": {"chat": {"tool_calls": [call]}}}]
    asked = {"model": "gemini-3-pro", "messages": [{"role": "user", "content": "Read a"}], "stream": stream}
    first = json.dumps(asked).encode()
    assert ask(all_providers, "/v1/chat/completions", first).status_code == 200
    assert upstream.received[0].body == first
    made = {"id": "call_0", "type": "function", "function": {"name": "read", "arguments": '{"path":"a"}'}}
    history = [
        *asked["messages"],  # type: ignore[misc]
        {"role": "assistant", "content": None, "tool_calls": [made]},
        {"role": "tool", "tool_call_id": "call_0", "content": "text"},
    ]
    second = json.dumps(asked | {"messages": history}).encode()
    ask(all_providers, "/v1/chat/completions", second)
    assert upstream.received[1].json["messages"][1]["tool_calls"] == [made | SIGNATURE]
    ask(all_providers, "/v1/chat/completions", second, **{"x-api-key": "another"})
    unknown = json.dumps(asked | {"messages": history}).replace("call_0", "call_9").encode()
    ask(all_providers, "/v1/chat/completions", unknown)
    bypass = upstream.received[-1].json["messages"][1]["tool_calls"][0]["extra_content"]["google"]
    assert bypass["thought_signature"] == "skip_thought_signature_validator"
    signed = [*history[:1], {"role": "assistant", "tool_calls": [made | SIGNATURE]}, *history[2:]]
    whole = json.dumps(asked | {"messages": signed}).encode()
    ask(all_providers, "/v1/chat/completions", whole)
    assert upstream.received[-1].body == whole
