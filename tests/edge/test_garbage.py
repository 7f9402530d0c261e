"""Garbage at every endpoint: an answer, or a refusal that the client can read; never a crash, never silence."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from handler.settings import load_settings
from handler.wiring import build_app
from scripted.server import ScriptedUpstream, serving
from support import FIXTURES, PLAIN, running_bridge

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LONGEST_SECONDS = 10
CHAT_DELTA = {"choices": [{"index": 0, "delta": {"content": "Hello"}, "finish_reason": None}]}
CHAT_END = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
CHAT_WHOLE = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}]}
MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [],
    "stop_reason": "end_turn",
}
USAGE = {"usage": {"input_tokens": 1, "output_tokens": 1}}
MESSAGE_EVENTS = [
    {"$event": "message_start", "data": {"type": "message_start", "message": MESSAGE | USAGE}},
    {"$event": "message_delta", "data": {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, **USAGE}},
    {"$event": "message_stop", "data": {"type": "message_stop"}},
]
RESPONSE = {"id": "resp_1", "object": "response", "status": "completed", "model": "m", "output": []}
RESPONSE_EVENTS = [
    {"type": "response.created", "sequence_number": 0, "response": RESPONSE | {"status": "in_progress"}},
    {"type": "response.completed", "sequence_number": 1, "response": RESPONSE},
]
# Answers well whatever it is asked: what goes wrong is the bridge's doing.
WELL = [
    {"when": {"path": "*/chat/completions", "stream": True}, "reply": {"sse": [CHAT_DELTA, CHAT_END, "[DONE]"]}},
    {"when": {"path": "*/chat/completions"}, "reply": {"json": CHAT_WHOLE}},
    {"when": {"path": "*/messages", "stream": True}, "reply": {"sse": MESSAGE_EVENTS}},
    {"when": {"path": "*/messages"}, "reply": {"json": MESSAGE | USAGE}},
    {"when": {"path": "*/responses", "stream": True}, "reply": {"sse": RESPONSE_EVENTS}},
    {"when": {"path": "*/responses"}, "reply": {"json": RESPONSE}},
    {"reply": {"json": {"data": [], "input_tokens": 1}}},
]

MESSAGES, CHAT, RESPONSES = "/v1/messages", "/v1/chat/completions", "/v1/responses"
POSTED = (MESSAGES, CHAT, RESPONSES, "/v1/messages/count_tokens", "/v1/embeddings", "/v1/messages/batches")
PATHS = (
    *POSTED,
    "/v1/models",
    "/v1/models/gpt-x",
    "/v1/route",
    "/v1/conversations/c/terminate",
    "/v1/responses/resp_x",
)
OPENAI = ("/chat/completions", "/responses", "/embeddings")


# --- what is sent ------------------------------------------------------------------------------------------------


def recorded() -> dict[str, list[Any]]:
    """Requests of real clients by endpoint."""
    found: dict[str, list[Any]] = {path: [] for path in POSTED}
    for file in sorted((FIXTURES / "wire").glob("*/*/*.json")):
        request = json.loads(file.read_text())
        path = request["path"].partition("?")[0]
        if path in found and isinstance(request.get("body"), dict):
            found[path].append(request["body"])
    found["/v1/embeddings"].append({"model": "openai/text-embedding-3-small", "input": ["one", "two"]})
    found["/v1/messages/batches"].append({"requests": [{"custom_id": "a", "params": found[MESSAGES][0]}]})
    return found


RECORDED = recorded()
MODELS = (
    "openai/gpt-x",
    "anthropic/claude-x",
    "claude-opus-4-5",
    "gpt-5.4",
    "or:x",
    "gemini-2.5-pro",
    "",
    "/",
    "x/y/z",
)
numbers = st.one_of(st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False))
words = st.sampled_from(
    ["", "text", "tool_use", "tool_result", "image", "document", "thinking", "function", "message", "reasoning",
     "function_call", "function_call_output", "item_reference", "user", "assistant", "system", "tool", "developer",
     "data:", "data:image/png;base64,AAAA", "https://x", "{", "[", "\x00", "auto", "none", "required", "any", "enabled"]
)  # fmt: skip
shapes = st.sampled_from([[], {}, [[]], [{}], [None], {"type": "text"}, {"type": []}, {"name": ""}, {"$ref": "#"}])
odd_values = st.one_of(st.none(), st.booleans(), numbers, words, shapes, st.text(max_size=8))


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place inside a JSON value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, inner in inside for place in places(inner, (*path, key)))]


def put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    changed = value.copy()
    changed[path[0]] = put(value[path[0]], path[1:], new)
    return changed


def drop(value: Any, path: tuple[Any, ...]) -> Any:
    if len(path) > 1:
        return put(value, path[:1], drop(value[path[0]], path[1:]))
    changed = value.copy()
    del changed[path[0]]
    return changed


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


@st.composite
def mutated(draw: st.DrawFn) -> tuple[str, bytes]:
    """A request of a real client, changed in a few places, for a provider of either protocol."""
    path = draw(st.sampled_from([path for path in POSTED if RECORDED[path]]))
    body = draw(st.sampled_from(RECORDED[path]))
    if draw(st.integers(0, 3)):
        body = body | {"model": draw(st.sampled_from(MODELS)), "stream": draw(st.booleans())}
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.sampled_from(places(body)))
        kind = draw(st.sampled_from(["put", "drop", "graft"]))
        if kind == "drop" and place:
            body = drop(body, place)
        elif kind == "graft":
            donor = draw(st.sampled_from(RECORDED[draw(st.sampled_from([MESSAGES, CHAT, RESPONSES]))]))
            body = put(body, place, at(donor, draw(st.sampled_from(places(donor)))))
        else:
            body = put(body, place, draw(odd_values))
    return path, json.dumps(body).encode()


noise = st.one_of(
    st.binary(max_size=200),
    st.builds(lambda start, rest: start + rest, st.sampled_from([b"{", b"[", b'{"model":"', b"\x1f\x8b"]), st.binary()),
    st.recursive(odd_values, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=8), inner)).map(
        lambda value: json.dumps(value).encode()
    ),
)

KNOWN_HEADERS = (
    "x-conversation-id", "x-claude-code-session-id", "session_id", "x-bridge-provider", "x-bridge-model",
    "x-castari-wire-model", "x-client-meta", "content-encoding", "content-type", "anthropic-version", "anthropic-beta",
    "x-api-key", "authorization", "x-worker-token", "origin", "access-control-request-headers", "user-agent",
    "accept", "accept-encoding", "idempotency-key", "traceparent", "openai-organization", "x-stainless-lang", "expect",
)  # fmt: skip
VALUE = st.characters(min_codepoint=0x20, max_codepoint=0xFF, exclude_characters="\x7f")
values = st.one_of(
    st.text(VALUE, max_size=40),
    st.sampled_from(
        ["gzip", "identity", "openai", "anthropic", "gemini", "Bearer", "Bearer x", "{}", "[1]", "*", "null"]
    ),
)
names = st.sampled_from(KNOWN_HEADERS) | st.text(
    "abcdefghijklmnopqrstuvwxyz0123456789-_!#$%&'*+.^`|~", min_size=1, max_size=20
)
some_headers = st.dictionaries(names, values.map(str.strip), max_size=4)


# --- what comes back ---------------------------------------------------------------------------------------------


class Bridge:
    """The app in this process, on a loop of its own, before an upstream that answers well."""

    def __init__(self, folder: Path) -> None:
        self._loop = asyncio.new_event_loop()
        self._upstream = ScriptedUpstream(WELL, keep=1)
        self._run(self._upstream.start())
        url = self._upstream.url
        environment = {
            "STATE_FILE": str(folder / "state.sqlite3"),
            "UPSTREAM_OPENAI_BASE_URL": url,
            "UPSTREAM_ANTHROPIC_BASE_URL": url,
            "UPSTREAM_GEMINI_BASE_URL": url,
        }
        self._app = build_app(load_settings(PLAIN | environment), as_json=False)
        transport = httpx2.ASGITransport(self._app)  # type: ignore[arg-type]
        self._client = httpx2.AsyncClient(transport=transport, base_url="http://bridge", timeout=None)

    def _run(self, work: Any) -> Any:
        return self._loop.run_until_complete(work)

    def send(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> httpx2.Response:
        async def send() -> httpx2.Response:
            encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
            async with asyncio.timeout(LONGEST_SECONDS):
                return await self._client.request(method, path, content=body, headers=encoded)

        answer: httpx2.Response = self._run(send())
        return answer

    def close(self) -> None:
        messages: list[Any] = [{"type": "lifespan.shutdown"}]

        async def receive() -> Any:
            return messages.pop()

        async def said(_: Any) -> None:
            pass

        self._run(self._app({"type": "lifespan"}, receive, said))
        self._run(self._client.aclose())
        self._run(self._upstream.stop())
        self._loop.close()


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bridge]:
    served = Bridge(tmp_path_factory.mktemp("garbage"))
    yield served
    served.close()


def assert_answered(answer: httpx2.Response, path: str) -> None:
    """A good answer, or a refusal in the endpoint's own terms; never the bridge's or the provider's failure."""
    told = f"{answer.status_code} {answer.text[:400]}"
    assert answer.headers["request-id"], told
    if answer.status_code < 300:
        assert_complete(answer)
        return
    assert 400 <= answer.status_code < 500, told
    body = answer.json()
    assert isinstance(body["error"]["message"], str), told
    assert isinstance(body["error"]["type"], str), told
    if any(part in path for part in OPENAI):
        assert "type" not in body, told
    elif "/models" not in path:  # there the headers decide
        assert body["type"] == "error", told
    assert "Traceback" not in answer.text


def assert_complete(answer: httpx2.Response) -> None:
    if not answer.headers.get("content-type", "").startswith("text/event-stream"):
        is_page = answer.headers.get("content-type", "").startswith("text/html")
        assert answer.status_code == 204 or is_page or isinstance(answer.json(), dict)
        return
    ends = ('"type":"message_stop"', "data: [DONE]", '"type":"response.completed"', '"type":"response.incomplete"')
    last = answer.text.strip().rpartition("\n\n")[2].replace(" ", "").replace("data:", "data: ")
    assert any(end in last for end in ends), answer.text[-400:]


quick = settings(
    max_examples=300,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@pytest.mark.req("C8", "C11", "C13")
@quick
@given(request=mutated())
def test_requests_changed_in_a_few_places(bridge: Bridge, request: tuple[str, bytes]) -> None:
    path, body = request
    assert_answered(bridge.send("POST", path, body, {}), path)


@pytest.mark.req("C8", "C11", "C13")
@quick
@given(path=st.sampled_from(PATHS), body=noise, method=st.sampled_from(["POST", "GET", "DELETE", "PUT", "OPTIONS"]))
def test_noise_as_a_body(bridge: Bridge, path: str, body: bytes, method: str) -> None:
    assert_answered(bridge.send(method, path, body, {}), path)


@pytest.mark.req("C8", "C11")
@pytest.mark.parametrize("model", MODELS[:2])
@pytest.mark.parametrize("name", ["user-agent", "x-other"])
def test_a_header_beyond_ascii_is_no_failure_of_the_bridge(bridge: Bridge, name: str, model: str) -> None:
    body = json.dumps({"model": model, "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}).encode()
    for path in (MESSAGES, CHAT):
        assert_answered(bridge.send("POST", path, body, {name: "Café"}), path)


@pytest.mark.req("C8", "C11", "C13")
@quick
@given(path=st.sampled_from(POSTED), headers=some_headers, pick=st.randoms(use_true_random=False))
def test_noise_in_headers(bridge: Bridge, path: str, headers: dict[str, str], pick: Any) -> None:
    body = {**pick.choice(RECORDED[path] or RECORDED[MESSAGES]), "model": pick.choice(MODELS[:2])}
    assert_answered(bridge.send("POST", path, json.dumps(body).encode(), headers), path)


@pytest.mark.req("C8", "C11", "C13")
@quick
@given(
    path=st.text(st.characters(codec="utf-8"), max_size=30), query=st.text(st.characters(codec="utf-8"), max_size=20)
)
def test_noise_as_an_address(bridge: Bridge, path: str, query: str) -> None:
    from urllib.parse import quote

    for prefix in ("/", "/v1/models/", "/v1/messages/", "/v1/responses/", "/v1/conversations/"):
        address = prefix + quote(path)
        assert_answered(bridge.send("GET", f"{address}?{quote(query)}", b"", {}), address)


# --- over a socket -----------------------------------------------------------------------------------------------


@contextmanager
def served(folder: Path) -> Iterator[str]:
    with serving(WELL) as upstream:
        url = upstream.url
        with running_bridge(folder, UPSTREAM_OPENAI_BASE_URL=url, UPSTREAM_ANTHROPIC_BASE_URL=url) as bridge:
            yield bridge


@pytest.fixture(scope="module")
def bridge_socket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with served(tmp_path_factory.mktemp("socket")) as url:
        yield url


few = settings(quick, max_examples=30)


@pytest.mark.req("C8", "C11", "C13")
@few
@given(request=st.one_of(mutated(), st.tuples(st.sampled_from(POSTED), noise)), headers=some_headers)
def test_garbage_over_a_socket(bridge_socket: str, request: tuple[str, bytes], headers: dict[str, str]) -> None:
    path, body = request
    encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers.items() if name != "expect"]
    answer = httpx2.post(bridge_socket + path, content=body, headers=encoded, timeout=LONGEST_SECONDS)
    assert_answered(answer, path)


@pytest.mark.req("C8", "C13")
@few
@given(
    head=st.sampled_from([b"", b"POST /v1/messages HTTP/1.1\r\n", b"POST /v1/messages HTTP/1.1\r\nhost: x\r\n"]),
    rest=st.binary(max_size=300),
)
def test_what_is_no_http_ends_and_harms_nobody(bridge_socket: str, head: bytes, rest: bytes) -> None:
    host, port = bridge_socket.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=LONGEST_SECONDS) as connection:
        connection.sendall(head + rest + b"\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)
        said = b""
        while piece := connection.recv(65_536):
            said += piece
    assert not said.startswith(b"HTTP/1.1 5"), said[:300]
    assert httpx2.get(f"{bridge_socket}/health", timeout=LONGEST_SECONDS).json() == {"status": "ok"}
