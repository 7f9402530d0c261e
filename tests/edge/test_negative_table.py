"""What the bridge refuses: each bad request with its status, its error in the client's own terms, and its words."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from test_cli import serving as command_line
from test_cli import url_in

from support import running_bridge

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from scripted.server import ScriptedUpstream

TOKEN = "ann-token-123"
SETTINGS = {
    "WORKER_TOKEN": f"ann:{TOKEN},bob:bob-token-456",
    "MAX_BODY_BYTES": "60000",
    "MAX_JSON_DEPTH": "20",
    "MAX_JSON_KEYS": "1000",
    "MAX_MESSAGES": "20",
    "MAX_TOOLS": "10",
    "MAX_SCHEMA_DEPTH": "8",
    "MAX_SCHEMA_BYTES": "2000",
    "MAX_IMAGES": "3",
    "MAX_IMAGE_BYTES": "1024",
    "MAX_DOCUMENT_BYTES": "1024",
}
MESSAGES, CHAT, RESPONSES = "/v1/messages", "/v1/chat/completions", "/v1/responses"
TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    405: "invalid_request_error",
    413: "request_too_large",
}
OPENAI_TYPES = TYPES | {413: "invalid_request_error"}  # OpenAI has no name of its own for it


@dataclass(frozen=True)
class Bad:
    """One request and the refusal that it deserves."""

    path: str
    body: Any
    status: int
    says: str
    method: str = "POST"
    headers: dict[str, str] = field(default_factory=lambda: {"x-api-key": TOKEN})

    @property
    def content(self) -> Any:
        """Bytes and pieces go out as they are, anything else as JSON."""
        if isinstance(self.body, bytes):
            return self.body
        return iter(self.body) if isinstance(self.body, tuple) else json.dumps(self.body).encode()


@pytest.fixture(scope="module")
def strict_bridge(tmp_path_factory: pytest.TempPathFactory, _scripted_upstream: ScriptedUpstream) -> Iterator[str]:
    url = _scripted_upstream.url
    with running_bridge(tmp_path_factory.mktemp("strict"), UPSTREAM_OPENAI_BASE_URL=url, **SETTINGS) as bridge:
        yield bridge


# --- requests ----------------------------------------------------------------------------------------------------


def question(path: str, **more: Any) -> dict[str, Any]:
    """A good request to an endpoint, for a provider that speaks another protocol where there is one."""
    said = [{"role": "user", "content": "Hi"}]
    match path:
        case "/v1/messages":
            return {"model": "openai/gpt-x", "max_tokens": 9, "messages": said} | more
        case "/v1/chat/completions":
            return {"model": "anthropic/claude-x", "messages": said} | more
        case _:
            return {"model": "openai/gpt-x", "input": said} | more


def raw(path: str, added: str) -> bytes:
    """A good request with more text in it."""
    return json.dumps(question(path)).encode()[:-1] + b"," + added.encode() + b"}"


def turns(path: str, *items: Any) -> dict[str, Any]:
    return question(path, **{"input" if path == RESPONSES else "messages": list(items)})


def nested(levels: int) -> dict[str, Any]:
    value: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        value = {"not": value}
    return value


def tool(path: str, schema: dict[str, Any]) -> dict[str, Any]:
    match path:
        case "/v1/messages":
            return {"name": "f", "input_schema": schema}
        case "/v1/chat/completions":
            return {"type": "function", "function": {"name": "f", "parameters": schema}}
        case _:
            return {"type": "function", "name": "f", "parameters": schema}


def image(path: str, data: str) -> dict[str, Any]:
    url = f"data:image/png;base64,{data}"
    match path:
        case "/v1/messages":
            return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
        case "/v1/chat/completions":
            return {"type": "image_url", "image_url": {"url": url}}
        case _:
            return {"type": "input_image", "image_url": url}


def user(*content: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(content)}


def deep(levels: int) -> str:
    return '{"a":' * levels + "1" + "}" * levels


# --- the table ---------------------------------------------------------------------------------------------------


def everywhere(path: str) -> dict[str, Bad]:
    """What no endpoint takes, whatever protocol it speaks."""
    good = json.dumps(question(path)).encode()
    object_schema = {"type": "object"}
    gzipped = {"x-api-key": TOKEN, "content-encoding": "gzip"}

    def encoded(encoding: str) -> dict[str, str]:
        return {"x-api-key": TOKEN, "content-encoding": encoding}

    return {
        "no token": Bad(path, good, 401, "token is missing or wrong", headers={}),
        "a wrong key": Bad(path, good, 401, "token is missing or wrong", headers={"x-api-key": f"{TOKEN}x"}),
        "a wrong bearer": Bad(path, good, 401, "wrong", headers={"authorization": "Bearer wrong-token"}),
        "a wrong worker token": Bad(path, good, 401, "wrong", headers={"x-worker-token": "wrong-token"}),
        "another scheme": Bad(path, good, 401, "Bearer", headers={"authorization": f"Basic {TOKEN}"}),
        "a key beyond ASCII": Bad(path, good, 401, "no key has", headers={"x-api-key": "schlüssel"}),
        "another method": Bad(path, b"", 405, "takes POST", method="PUT"),
        "a declared size over the cap": Bad(path, b" " * 60_001, 413, "MAX_BODY_BYTES"),
        "a streamed body over the cap": Bad(path, (b" " * 40_000,) * 2, 413, "MAX_BODY_BYTES"),
        "a bomb": Bad(path, gzip.compress(b" " * 30_000_000), 413, "when inflated", headers=gzipped),
        "broken gzip": Bad(path, gzip.compress(good)[:-12], 400, "ends too early", headers=gzipped),
        "no gzip at all": Bad(path, good, 400, "not valid gzip", headers=gzipped),
        "another encoding": Bad(path, zlib.compress(good), 400, "'deflate' is not taken", headers=encoded("deflate")),
        "no body": Bad(path, b"", 400, "model"),
        "only spaces": Bad(path, b"  ", 400, "empty"),
        "no JSON": Bad(path, b"model=gpt", 400, "not valid JSON"),
        "half a document": Bad(path, good[:-4], 400, "not valid JSON"),
        "two documents": Bad(path, good + good, 400, "not valid JSON"),
        "a list": Bad(path, b"[]", 400, "must be a JSON object"),
        "a key twice": Bad(path, raw(path, '"model":"other"'), 400, "'model' stands there more than once"),
        "NaN": Bad(path, raw(path, '"temperature":NaN'), 400, "NaN"),
        "an infinity": Bad(path, raw(path, '"temperature":1e999'), 400, "out of range"),
        "a number of many digits": Bad(path, raw(path, f'"seed":{"9" * 5000}'), 400, "too many digits"),
        "invalid UTF-8": Bad(path, good.replace(b"Hi", b"\xff\xfe"), 400, "invalid UTF-8"),
        "a byte order mark": Bad(path, b"\xef\xbb\xbf" + good, 400, "byte order mark"),
        "half a surrogate pair": Bad(path, raw(path, r'"user":"\ud800"'), 400, "surrogate"),
        "too deep": Bad(path, raw(path, f'"metadata":{deep(21)}'), 400, "MAX_JSON_DEPTH"),
        "far too deep": Bad(path, raw(path, f'"metadata":{deep(9_000)}'), 400, "MAX_JSON_KEYS"),
        "deeper than a parser goes": Bad(path, raw(path, f'"metadata":{"[" * 900}{"]" * 900}'), 400, "MAX_JSON_DEPTH"),
        "too many keys": Bad(path, raw(path, f'"logit_bias":[{"1," * 1000}1]'), 400, "MAX_JSON_KEYS"),
        "no model": Bad(path, {**question(path), "model": None}, 400, "model"),
        "a model that is a number": Bad(path, question(path, model=7), 400, "model"),
        "a long model": Bad(path, question(path, model="m" * 257), 400, "model: 257 characters, at most 256"),
        "a long user": Bad(path, question(path, user="u" * 5000), 400, "user: 5000 characters, at most 4096"),
        "many messages": Bad(path, turns(path, *[user()] * 21), 400, "MAX_MESSAGES"),
        "many tools": Bad(path, question(path, tools=[tool(path, object_schema)] * 11), 400, "MAX_TOOLS"),
        "a deep schema": Bad(path, question(path, tools=[tool(path, nested(9))]), 400, "MAX_SCHEMA_DEPTH"),
        "a large schema": Bad(
            path, question(path, tools=[tool(path, {"description": "d" * 2000})]), 413, "MAX_SCHEMA_BYTES"
        ),
        "many images": Bad(path, turns(path, user(*[image(path, "AAAA")] * 4)), 400, "MAX_IMAGES"),
        "a large image": Bad(path, turns(path, user(image(path, "A" * 1025))), 413, "MAX_IMAGE_BYTES"),
        "many headers": Bad(
            path, good, 400, "at most 200", headers={"x-api-key": TOKEN} | {f"x-{i}": "1" for i in range(201)}
        ),
        "a large header": Bad(path, good, 413, "x-large", headers={"x-api-key": TOKEN, "x-large": "v" * 17_000}),
        "a long query": Bad(f"{path}?{'q' * 8200}", good, 413, "the query: 8200 bytes"),
        "an unknown provider": Bad(
            path, good, 400, "'acme' is not one of", headers={"x-api-key": TOKEN, "x-bridge-provider": "acme"}
        ),
        "a long name of a provider": Bad(
            path, good, 400, "longer than 256", headers={"x-api-key": TOKEN, "x-bridge-provider": "p" * 257}
        ),
        "an illegal conversation": Bad(
            path, good, 400, "conversation id", headers={"x-api-key": TOKEN, "x-conversation-id": "a b"}
        ),
        "a long conversation": Bad(
            path, good, 400, "conversation id", headers={"x-api-key": TOKEN, "x-conversation-id": "c" * 129}
        ),
        "a provider without a key": Bad(path, question(path, model="gemini/gemini-x"), 401, "GEMINI_API_KEY"),
    }


def result(**fields: Any) -> dict[str, Any]:
    return user({"type": "tool_result", **fields})


ENDPOINTS: dict[str, Bad] = {
    # Messages
    "a result without an id": Bad(
        MESSAGES, turns(MESSAGES, result(content="x")), 400, "content.0.tool_result.tool_use_id"
    ),
    "a result that is a number": Bad(
        MESSAGES, turns(MESSAGES, result(tool_use_id="t", content=7)), 400, "content.0.tool_result.content"
    ),
    "a minted id of nobody's": Bad(
        MESSAGES, turns(MESSAGES, result(tool_use_id=f"toolu_a{'0' * 33}", content="x")), 400, f"toolu_a{'0' * 33}"
    ),
    "a result of a call nobody made": Bad(
        MESSAGES, turns(MESSAGES, result(tool_use_id="toolu_nobody", content="x")), 400, "toolu_nobody"
    ),
    "a long tool id": Bad(
        MESSAGES, turns(MESSAGES, result(tool_use_id="t" * 513, content="x")), 400, "tool_use_id: 513 characters"
    ),
    "an unknown block": Bad(MESSAGES, turns(MESSAGES, user({"type": "hologram"})), 400, "messages.0.content.0"),
    "an unknown role": Bad(MESSAGES, turns(MESSAGES, {"role": "robot", "content": "x"}), 400, "messages.0.role"),
    "no tokens at all": Bad(MESSAGES, question(MESSAGES, max_tokens=0), 400, "max_tokens"),
    "no messages": Bad(MESSAGES, {"model": "openai/gpt-x", "max_tokens": 9}, 400, "messages"),
    "a choice without a name": Bad(MESSAGES, question(MESSAGES, tool_choice={"type": "tool"}), 400, "tool_choice.name"),
    "a large metadata": Bad(
        "/v1/messages", question(MESSAGES, metadata={"user_id": "u" * 5000}), 400, "metadata.user_id"
    ),
    "an unknown thread": Bad(
        MESSAGES, question(MESSAGES, thread={"type": "continue", "previous_message_id": "msg_nobody"}), 404, "thread"
    ),
    "counting nothing": Bad(f"{MESSAGES}/count_tokens", b"", 400, "model"),
    "counting garbage": Bad(f"{MESSAGES}/count_tokens", question(MESSAGES, messages=7), 400, "messages"),
    "batches without Anthropic": Bad(f"{MESSAGES}/batches", {"requests": []}, 404, "Anthropic alone"),
    "the batches of nobody": Bad(f"{MESSAGES}/batches", b"", 404, "Anthropic alone", method="GET"),
    # Chat Completions
    "several answers": Bad(CHAT, question(CHAT, n=2), 400, "n: 2 answers"),
    "a chat without messages": Bad(CHAT, {"model": "anthropic/claude-x"}, 400, "messages"),
    "a chat message of a robot": Bad(CHAT, turns(CHAT, {"role": "robot", "content": "x"}), 400, "messages.0"),
    "a tool message without an id": Bad(CHAT, turns(CHAT, {"role": "tool", "content": "x"}), 400, "tool_call_id"),
    "a chat part of no kind": Bad(CHAT, turns(CHAT, user({"type": "hologram"})), 400, "messages.0.content.0"),
    "a long tool call id": Bad(
        CHAT, turns(CHAT, {"role": "tool", "tool_call_id": "t" * 513, "content": "x"}), 400, "513 characters"
    ),
    "embeddings of Claude": Bad(
        "/v1/embeddings", {"model": "anthropic/claude-x", "input": "x"}, 400, "anthropic has no embeddings"
    ),
    "embeddings of nothing": Bad("/v1/embeddings", b"{}", 400, "model"),
    # Responses
    "an input that is a number": Bad(RESPONSES, question(RESPONSES, input=7), 400, "input"),
    "an item of no kind": Bad(RESPONSES, turns(RESPONSES, {"type": "hologram", "data": "x"}), 400, "input.0.type"),
    "a response to nothing": Bad(
        RESPONSES, question(RESPONSES, previous_response_id="resp_nobody"), 400, "resp_nobody"
    ),
    "a long response id": Bad(
        RESPONSES, question(RESPONSES, previous_response_id="r" * 513), 400, "previous_response_id: 513"
    ),
    "an unknown response": Bad(f"{RESPONSES}/resp_nobody", b"", 404, "resp_nobody", method="GET"),
    "an unknown response to delete": Bad(f"{RESPONSES}/resp_nobody", b"", 404, "resp_nobody", method="DELETE"),
    "the items of an unknown response": Bad(
        f"{RESPONSES}/resp_nobody/input_items", b"", 404, "resp_nobody", method="GET"
    ),
    "a response id that is a path": Bad(f"{RESPONSES}/..%2F..%2Ffiles", b"", 404, "nothing at", method="GET"),
    # Everything else
    "an unknown path": Bad("/v1/nothing", b"", 404, "nothing at /v1/nothing"),
    "a path that climbs": Bad("/v1/messages/%2e%2e/files", b"", 404, "nothing at"),
    "an unknown path without a token": Bad("/v1/nothing", b"", 404, "nothing at", headers={}),
    "a long path": Bad(f"/anthropic/v1/models/{'m' * 2100}", b"", 413, "the path", method="GET"),
    "models of nobody": Bad("/v1/models", b"", 401, "token", method="GET", headers={"anthropic-version": "x"}),
    "a page of no size": Bad("/anthropic/v1/models?limit=x", b"", 400, "limit", method="GET"),
    "a route of no model": Bad("/v1/route", b"", 400, "model", method="GET"),
    "a route of no client": Bad("/v1/route?model=m&client=x", b"", 400, "client", method="GET"),
    "an illegal conversation to end": Bad("/v1/conversations/a%20b/terminate", b"", 400, "conversation id"),
    "a long conversation to end": Bad(f"/v1/conversations/{'c' * 129}/terminate", b"", 400, "conversation id"),
    "ending a conversation by GET": Bad("/v1/conversations/c/terminate", b"", 405, "takes POST", method="GET"),
}

# What passes through to a provider of the client's own protocol is not translated, so these do not apply there.
TABLE = {
    f"{name} ({path.rsplit('/', 1)[-1]})": bad
    for path in (MESSAGES, CHAT, RESPONSES)
    for name, bad in everywhere(path).items()
} | ENDPOINTS


def is_openai(path: str) -> bool:
    return any(part in path for part in (CHAT, RESPONSES, "/embeddings"))


@pytest.mark.req("C8", "C11", "C13", "FR5.2", "FR5.3")
@pytest.mark.parametrize("bad", TABLE.values(), ids=TABLE.keys())
def test_a_bad_request_is_refused_in_the_clients_own_terms(
    strict_bridge: str, upstream: ScriptedUpstream, bad: Bad
) -> None:
    headers = [(name.encode(), value.encode("latin-1")) for name, value in bad.headers.items()]
    answer = httpx2.request(bad.method, strict_bridge + bad.path, content=bad.content, headers=headers, timeout=20)
    body = answer.json()
    error = body["error"]
    types = OPENAI_TYPES if is_openai(bad.path) else TYPES
    assert (answer.status_code, error["type"]) == (bad.status, types[bad.status]), answer.text[:500]
    assert bad.says in error["message"]
    assert_dialect(bad.path, body)
    assert_discreet(answer)
    assert answer.headers["request-id"] == body["request_id"]
    assert answer.headers["x-should-retry"] == "false"
    assert error["retryable"] is False
    assert [sent.path for sent in upstream.received if sent.path != "/v1/models"] == []


def assert_dialect(path: str, body: dict[str, Any]) -> None:
    if is_openai(path):
        assert body.keys() == {"error", "request_id"}
        assert {"message", "type", "param", "code"} <= body["error"].keys()
    else:
        assert body.keys() == {"type", "error", "request_id"}
        assert body["type"] == "error"


def assert_discreet(answer: httpx2.Response) -> None:
    """Nothing of the bridge's insides, and nothing that a browser might take for a page."""
    assert re.fullmatch(r"req_[0-9a-f]{24}", answer.headers["request-id"])
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert not re.search(r"\d", answer.headers.get("server", ""))
    assert not re.search(r'Traceback|File "|site-packages|pydantic|errors\.pydantic\.dev', answer.text)
    assert len(answer.content) < 4000


@pytest.mark.req("C8")
def test_after_all_that_the_bridge_serves(strict_bridge: str, upstream: ScriptedUpstream) -> None:
    upstream.script = [{"reply": {"chat": {"text": "Hello"}}}]
    answer = httpx2.post(strict_bridge + MESSAGES, json=question(MESSAGES), headers={"x-api-key": TOKEN}, timeout=20)
    assert answer.json()["content"] == [{"type": "text", "text": "Hello"}]


@pytest.mark.req("C8")
def test_the_command_names_no_server(tmp_path: Path) -> None:
    with command_line(tmp_path) as greeting:
        for path in ("/health", "/nowhere"):
            assert "server" not in httpx2.get(f"{url_in(greeting)}{path}", timeout=20).headers
