"""The parts of the edge at work together: retries, fallbacks, breakers, heartbeats, limits, and who may do what."""

from __future__ import annotations

import json
import socket
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import anthropic
import httpx2
import openai
import pytest

from bridge.limits import Limiter
from bridge.state.claims import conversation_token, mint
from bridge.upstream.breaker import BreakerRule
from dynamodb_local import CREDENTIALS
from scripted.server import serving
from support import opened, running_bridge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from scripted.server import ScriptedUpstream

MESSAGES, CHAT, RESPONSES = "/v1/messages", "/v1/chat/completions", "/v1/responses"
ENDPOINTS = (MESSAGES, CHAT, RESPONSES)
HELLO = {"reply": {"chat": {"text": "Hello"}}}
SILENT = {"reply": {"delay_ms": 20_000, "chat": {"text": "too late"}}}
NOWHERE = "http://127.0.0.1:9"


def question(path: str, stream: bool = False, model: str = "openai/gpt-x") -> dict[str, Any]:
    said = [{"role": "user", "content": "Hi"}]
    body: dict[str, Any] = {"model": model, "stream": stream}
    match path:
        case "/v1/messages":
            return body | {"max_tokens": 9, "messages": said}
        case "/v1/chat/completions":
            return body | {"messages": said}
        case _:
            return body | {"input": said}


def ask(url: str, path: str = MESSAGES, key: str = "sk-client", **options: Any) -> httpx2.Response:
    return httpx2.post(url + path, json=question(path, **options), headers={"x-api-key": key}, timeout=20)


def error_of(answer: httpx2.Response) -> dict[str, Any]:
    error: dict[str, Any] = answer.json()["error"]
    return error


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < until, "it did not happen within 5 s"
        time.sleep(0.02)


def claude(url: str) -> anthropic.Anthropic:
    return opened(anthropic.Anthropic(base_url=url, api_key="sk-client", max_retries=0))


def gpt(url: str) -> openai.OpenAI:
    return opened(openai.OpenAI(base_url=f"{url}/v1", api_key="sk-client", max_retries=0))


def sequence(*replies: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"when": {"call": number}, "reply": reply} for number, reply in enumerate(replies, 1)]


def failing(status: int, **headers: str) -> dict[str, Any]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return {"status": status, "headers": named, "json": {"error": {"message": f"it said {status}"}}}


# --- retries -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def patient_bridge(tmp_path_factory: pytest.TempPathFactory, _scripted_upstream: ScriptedUpstream) -> Iterator[str]:
    """A bridge that tries twice more."""
    settings = {"UPSTREAM_OPENAI_BASE_URL": _scripted_upstream.url, "UPSTREAM_RETRIES": "2"}
    with running_bridge(tmp_path_factory.mktemp("patient"), **settings) as bridge:
        yield bridge


@pytest.mark.req("C12")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ENDPOINTS)
def test_a_provider_that_recovers_is_asked_until_it_answers(
    patient_bridge: str, upstream: ScriptedUpstream, path: str, stream: bool
) -> None:
    soon = {"retry_after_ms": "1"}
    upstream.script = sequence(failing(529, **soon), failing(503, **soon), HELLO["reply"])
    answer = ask(patient_bridge, path, stream=stream)
    assert answer.status_code == 200, answer.text
    assert "Hello" in answer.text
    assert len(upstream.received) == 3


@pytest.mark.req("C12", "C11")
@pytest.mark.parametrize("path", ENDPOINTS)
def test_a_provider_that_asks_for_a_long_wait_is_left_to_the_client(
    patient_bridge: str, upstream: ScriptedUpstream, path: str
) -> None:
    upstream.script = [{"reply": failing(429, retry_after="31")}]
    answer = ask(patient_bridge, path)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "31")
    assert "it said 429" in error_of(answer)["message"]
    assert len(upstream.received) == 1


@pytest.mark.req("C12")
@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
@pytest.mark.parametrize("path", [MESSAGES, CHAT])
def test_a_request_that_is_wrong_is_asked_once(
    patient_bridge: str, upstream: ScriptedUpstream, path: str, status: int
) -> None:
    upstream.script = [{"reply": failing(status)}]
    assert 400 <= ask(patient_bridge, path).status_code < 500
    assert len(upstream.received) == 1


# --- fallbacks ---------------------------------------------------------------------------------------------------

FAILURES = {
    "503": failing(503),
    "529": failing(529),
    "500": failing(500),
    "429": failing(429),
    "no answer": {"cut": "reset"},
}


@pytest.fixture(scope="module")
def second() -> Iterator[ScriptedUpstream]:
    """Another provider, that speaks Anthropic's protocol."""
    with serving([{"reply": {"messages": {"text": "Hello from another"}}}]) as upstream:
        yield upstream


@pytest.fixture(scope="module")
def backed_bridge(
    tmp_path_factory: pytest.TempPathFactory, _scripted_upstream: ScriptedUpstream, second: ScriptedUpstream
) -> Iterator[str]:
    """A bridge whose OpenAI is stood in for by Claude."""
    settings = {
        "UPSTREAM_OPENAI_BASE_URL": _scripted_upstream.url,
        "UPSTREAM_ANTHROPIC_BASE_URL": second.url,
        "FALLBACK_MODELS": "anthropic/claude-b",
    }
    with running_bridge(tmp_path_factory.mktemp("backed"), **settings) as bridge:
        yield bridge


@pytest.mark.req("C12", "C11")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES.keys())
@pytest.mark.parametrize("path", ENDPOINTS)
def test_another_provider_stands_in_for_one_that_fails(
    backed_bridge: str,
    upstream: ScriptedUpstream,
    second: ScriptedUpstream,
    path: str,
    failure: dict[str, Any],
    stream: bool,
) -> None:
    second.received.clear()
    upstream.script = [{"reply": failure}]
    answer = ask(backed_bridge, path, stream=stream)
    assert (answer.status_code, answer.headers["x-bridge-fallback"]) == (200, "anthropic/claude-b")
    assert "another" in answer.text
    assert "it said" not in answer.text
    assert [sent.json["model"] for sent in second.received] == ["claude-b"]
    assert len(upstream.received) <= (2 if "cut" in failure else 1)  # a kept connection that ended is replaced once


@pytest.mark.req("C12", "C15")
def test_the_sdks_read_what_another_provider_says(
    backed_bridge: str, upstream: ScriptedUpstream, second: ScriptedUpstream
) -> None:
    upstream.script = [{"reply": failing(503)}]
    said: list[Any] = [{"role": "user", "content": "Hi"}]
    with claude(backed_bridge).messages.stream(model="openai/gpt-x", max_tokens=9, messages=said) as stream:
        assert stream.get_final_text() == "Hello from another"
    chunks = gpt(backed_bridge).chat.completions.create(model="openai/gpt-x", messages=said, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Hello from another"
    whole = gpt(backed_bridge).responses.create(model="openai/gpt-x", input="Hi")
    assert whole.output_text == "Hello from another"


@pytest.mark.req("C12")
def test_nothing_stands_in_where_the_provider_answers(
    backed_bridge: str, upstream: ScriptedUpstream, second: ScriptedUpstream
) -> None:
    second.received.clear()
    for reply, status in ((HELLO["reply"], 200), (failing(400), 400), (failing(401), 401), (failing(404), 404)):
        upstream.script = [{"reply": reply}]
        answer = ask(backed_bridge)
        assert answer.status_code == status
        assert "x-bridge-fallback" not in answer.headers
    assert second.received == []


@pytest.mark.req("C12", "C11")
def test_a_provider_that_is_not_there_is_stood_in_for(tmp_path: Path, second: ScriptedUpstream) -> None:
    settings = {
        "UPSTREAM_OPENAI_BASE_URL": NOWHERE,
        "UPSTREAM_ANTHROPIC_BASE_URL": second.url,
        "FALLBACK_MODELS": "openai/other,anthropic/claude-b",
    }
    with running_bridge(tmp_path, **settings) as url:
        answer = ask(url)
    assert answer.headers["x-bridge-fallback"] == "anthropic/claude-b"
    assert answer.json()["content"] == [{"type": "text", "text": "Hello from another"}]


@pytest.mark.req("C12", "C11")
def test_the_last_failure_is_told_when_all_fail(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    upstream.script = [
        {"when": {"model": "gpt-x"}, "reply": failing(500)},
        {"when": {"model": "gpt-y"}, "reply": failing(429, retry_after="5")},
    ]
    settings = {"UPSTREAM_OPENAI_BASE_URL": upstream.url, "FALLBACK_MODELS": "openai/gpt-y"}
    with running_bridge(tmp_path, **settings) as url:
        answer = ask(url)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "5")
    assert [sent.json["model"] for sent in upstream.received] == ["gpt-x", "gpt-y"]


@pytest.mark.req("C12", "C11")
@pytest.mark.parametrize("path", [MESSAGES, CHAT])
def test_nobody_stands_in_after_the_first_byte(
    backed_bridge: str, upstream: ScriptedUpstream, second: ScriptedUpstream, path: str
) -> None:
    second.received.clear()
    delta = {"choices": [{"index": 0, "delta": {"content": "Hello"}, "finish_reason": None}]}
    upstream.script = [{"reply": {"sse": [delta, {"$delay_ms": 50}, {"$cut": "reset"}]}}]
    answer = ask(backed_bridge, path, stream=True)
    assert answer.status_code == 200
    assert '"error"' in answer.text
    assert second.received == []


@pytest.mark.req("C12")
def test_a_failure_that_is_stood_in_for_leaves_no_connection_behind(
    backed_bridge: str, upstream: ScriptedUpstream, second: ScriptedUpstream
) -> None:
    """A failure may announce a stream, begin it, and say nothing more."""
    upstream.script = [{"reply": {"status": 503, "sse": [{"error": {"message": "busy"}}, {"$hang_ms": 60_000}]}}]
    before = upstream.disconnects
    for _ in range(3):
        assert ask(backed_bridge, CHAT, stream=True).headers["x-bridge-fallback"] == "anthropic/claude-b"
    wait_for(lambda: upstream.disconnects == before + 3)


@pytest.mark.req("C11", "C8")
@pytest.mark.parametrize("path", ENDPOINTS)
def test_a_redirect_is_the_operators_to_repair_and_not_the_clients_to_follow(
    bridge_url: str, upstream: ScriptedUpstream, path: str
) -> None:
    upstream.script = [{"reply": {"status": 307, "headers": {"location": "https://evil.example/"}, "body": "moved"}}]
    answer = ask(bridge_url, path)
    assert answer.status_code == 502
    assert "location" not in answer.headers
    assert "evil.example" not in answer.text


QUOTED_KEY = "sk-quoted-key-of-the-bridge"
QUOTING = {"message": f"{QUOTED_KEY} is no key of ours", "code": 401}
BEGUN = {"choices": [{"index": 0, "delta": {"content": "Hello"}, "finish_reason": None}]}


@pytest.mark.req("C8")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "reply",
    [
        {"status": 401, "json": {"error": QUOTING}},
        {"status": 500, "body": f"<p>{QUOTED_KEY}</p>"},
        {"json": {"error": QUOTING}},
        {"sse": [{"error": QUOTING}]},
        {"sse": [BEGUN, {"$delay_ms": 30}, {"error": QUOTING}]},
    ],
    ids=["refusal", "page", "error under a 200", "error as a stream", "error in a stream"],
)
def test_a_key_that_a_provider_quotes_never_reaches_a_client(
    tmp_path: Path, upstream: ScriptedUpstream, reply: dict[str, Any], stream: bool
) -> None:
    upstream.script = [{"reply": reply}]
    with running_bridge(tmp_path, UPSTREAM_OPENAI_BASE_URL=upstream.url, OPENAI_API_KEY=QUOTED_KEY) as url:
        answer = ask(url, MESSAGES, stream=stream)
    assert "error" in answer.text
    assert QUOTED_KEY not in answer.text


# --- the breaker -------------------------------------------------------------------------------------------------


@pytest.mark.req("C12", "C11")
def test_a_provider_that_is_dead_is_left_alone(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    upstream.script = [{"reply": failing(500)}]
    with running_bridge(tmp_path, UPSTREAM_OPENAI_BASE_URL=upstream.url, CIRCUIT_BREAKER="on") as url:
        assert [ask(url).status_code for _ in range(10)] == [500] * 10
        left_alone, chat = ask(url), ask(url, CHAT)
    assert (left_alone.status_code, error_of(left_alone)["type"]) == (529, "overloaded_error")
    assert "left alone" in error_of(left_alone)["message"]
    assert 1 <= int(left_alone.headers["retry-after"]) <= 15
    assert "x-should-retry" not in left_alone.headers
    assert chat.status_code == 503
    assert len(upstream.received) == 10


@pytest.mark.req("C12")
def test_a_provider_that_recovers_is_called_again(
    tmp_path: Path, upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("handler.wiring.BreakerRule", lambda: BreakerRule(failures=2, open_seconds=0.3))
    upstream.script = [*sequence(failing(500), failing(500)), HELLO]
    with running_bridge(tmp_path, UPSTREAM_OPENAI_BASE_URL=upstream.url, CIRCUIT_BREAKER="on") as url:
        assert [ask(url).status_code for _ in range(3)] == [500, 500, 529]
        wait_for(lambda: ask(url).status_code == 200)
        assert ask(url).status_code == 200
    assert len(upstream.received) == 4


# --- signs of life -----------------------------------------------------------------------------------------------

SIGNS = {MESSAGES: "event: ping\n", CHAT: ": keep-alive\n", RESPONSES: ": keep-alive\n"}


@pytest.fixture(scope="module")
def lively_bridge(tmp_path_factory: pytest.TempPathFactory, _scripted_upstream: ScriptedUpstream) -> Iterator[str]:
    """A bridge that cannot bear silence, with one provider of each protocol."""
    url = _scripted_upstream.url
    settings = {"UPSTREAM_OPENAI_BASE_URL": url, "UPSTREAM_ANTHROPIC_BASE_URL": url, "HEARTBEAT_SECONDS": "0.05"}
    with running_bridge(tmp_path_factory.mktemp("lively"), **settings) as bridge:
        yield bridge


def slow(**reply: Any) -> list[dict[str, Any]]:
    """One answer for each protocol, 0.4 s late."""
    kinds = {"*/chat/completions": "chat", "*/messages": "messages", "*/responses": "responses"}
    text = {"text": "Hello"}
    return [
        {"when": {"path": path}, "reply": {"delay_ms": 400, **(reply or {kind: text})}} for path, kind in kinds.items()
    ]


@pytest.mark.req("C12")
@pytest.mark.parametrize("model", ["openai/gpt-x", "anthropic/claude-x"])
@pytest.mark.parametrize("path", ENDPOINTS)
def test_a_stream_shows_signs_of_life_before_its_first_token(
    lively_bridge: str, upstream: ScriptedUpstream, path: str, model: str
) -> None:
    upstream.script = slow()
    answer = ask(lively_bridge, path, stream=True, model=model)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.text.startswith(SIGNS[path])
    before, _, after = answer.text.partition("Hello")
    assert before.count(SIGNS[path]) >= 3
    assert SIGNS[path] not in after.partition("\n\n")[0]


@pytest.mark.req("C12", "C15")
@pytest.mark.parametrize("model", ["openai/gpt-x", "anthropic/claude-x"])
def test_the_sdks_skip_the_signs_of_life(lively_bridge: str, upstream: ScriptedUpstream, model: str) -> None:
    upstream.script = slow()
    said: list[Any] = [{"role": "user", "content": "Hi"}]
    with claude(lively_bridge).messages.stream(model=model, max_tokens=9, messages=said) as stream:
        assert stream.get_final_text() == "Hello"
    chunks = gpt(lively_bridge).chat.completions.create(model=model, messages=said, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "Hello"
    with gpt(lively_bridge).responses.stream(model=model, input="Hi") as events:
        assert events.get_final_response().output_text == "Hello"


@pytest.mark.req("C12", "C11")
@pytest.mark.parametrize("model", ["openai/gpt-x", "anthropic/claude-x"])
def test_the_sdks_raise_an_error_that_comes_late(lively_bridge: str, upstream: ScriptedUpstream, model: str) -> None:
    upstream.script = slow(
        status=429, json={"type": "error", "error": {"type": "rate_limit_error", "message": "slower!"}}
    )
    said: list[Any] = [{"role": "user", "content": "Hi"}]
    with (
        pytest.raises(anthropic.APIStatusError, match="slower!"),
        claude(lively_bridge).messages.stream(model=model, max_tokens=9, messages=said) as stream,
    ):
        stream.get_final_text()
    with pytest.raises(openai.APIError, match="slower!"):
        list(gpt(lively_bridge).chat.completions.create(model=model, messages=said, stream=True))
    answer = ask(lively_bridge, RESPONSES, stream=True, model=model)
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
    assert events[-1]["type"] in ("error", "response.failed")
    assert "slower!" in json.dumps(events[-1])


@pytest.mark.req("C12", "C11")
@pytest.mark.parametrize(("path", "model"), [(MESSAGES, "anthropic/claude-x"), (CHAT, "openai/gpt-x")])
def test_a_document_that_comes_late_in_place_of_a_stream_is_an_error(
    lively_bridge: str, upstream: ScriptedUpstream, path: str, model: str
) -> None:
    upstream.script = slow(json={"id": "x", "content": []})
    answer = ask(lively_bridge, path, stream=True, model=model)
    told = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    assert "document where a stream was asked for" in told[-1]["error"]["message"]
    assert '{"id":' not in answer.text.replace("data: {", "")


@pytest.mark.req("C12", "C11")
def test_an_answer_that_is_no_stream_keeps_its_status_however_late(
    lively_bridge: str, upstream: ScriptedUpstream
) -> None:
    upstream.script = slow(status=429, json={"error": {"message": "slower!"}})
    answer = ask(lively_bridge)
    assert (answer.status_code, error_of(answer)["type"]) == (429, "rate_limit_error")


# --- limits ------------------------------------------------------------------------------------------------------


@pytest.fixture
def half_past(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits' clock stands in the middle of a minute, so that no window ends while they are counted."""
    now = time.time()
    monkeypatch.setattr("handler.wiring.Limiter", partial(Limiter, clock=lambda: now - now % 60 + 30))


TOKENS = {"WORKER_TOKEN": "ann:ann-token-123,bob:bob-token-456"}
ANN, BOB = "ann-token-123", "bob-token-456"


@pytest.mark.req("C8", "C11", "C15", "NFR5")
@pytest.mark.usefixtures("half_past")
def test_requests_per_minute(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    upstream.script = [HELLO]
    settings = {"UPSTREAM_OPENAI_BASE_URL": upstream.url, "RATE_LIMIT_REQUESTS_PER_MINUTE": "2", **TOKENS}
    with running_bridge(tmp_path, **settings) as url:
        first, chat = ask(url, key=ANN), ask(url, CHAT, key=ANN)
        third, fourth = ask(url, key=ANN), ask(url, CHAT, key=ANN)
        other = ask(url, key=BOB)
    assert [answer.status_code for answer in (first, chat, third, fourth, other)] == [200, 200, 429, 429, 200]
    assert first.headers["anthropic-ratelimit-requests-limit"] == "2"
    assert first.headers["anthropic-ratelimit-requests-remaining"] == "1"
    assert first.headers["anthropic-ratelimit-requests-reset"].endswith(":00Z")
    assert chat.headers["x-ratelimit-limit-requests"] == "2"
    assert chat.headers["x-ratelimit-remaining-requests"] == "0"
    assert chat.headers["x-ratelimit-reset-requests"] == "30s"
    for refused in (third, fourth):
        assert refused.headers["retry-after"] == "30"
        assert "x-should-retry" not in refused.headers
        assert error_of(refused)["type"] == "rate_limit_error"
        assert "RATE_LIMIT_REQUESTS_PER_MINUTE" in error_of(refused)["message"]
    assert other.headers["anthropic-ratelimit-requests-remaining"] == "1"
    assert len(upstream.received) == 3


@pytest.mark.req("C11", "C15")
@pytest.mark.usefixtures("half_past")
def test_a_refusal_for_a_limit_tells_of_the_limit(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    upstream.script = [HELLO]
    settings = {"UPSTREAM_OPENAI_BASE_URL": upstream.url, "RATE_LIMIT_REQUESTS_PER_MINUTE": "1", **TOKENS}
    with running_bridge(tmp_path, **settings) as url:
        ask(url, key=ANN)
        refused, chat = ask(url, key=ANN), ask(url, CHAT, key=ANN)
    assert refused.headers["anthropic-ratelimit-requests-limit"] == "1"
    assert refused.headers["anthropic-ratelimit-requests-remaining"] == "0"
    assert chat.headers["x-ratelimit-limit-requests"] == "1"
    assert chat.headers["x-ratelimit-remaining-requests"] == "0"


@pytest.mark.req("C8")
@pytest.mark.usefixtures("half_past")
@pytest.mark.parametrize(
    ("path", "body"),
    [("/v1/embeddings", {"model": "openai/e", "input": "x"}), ("/v1/messages/batches", {"requests": []})],
)
def test_whatever_costs_money_is_limited(
    tmp_path: Path, upstream: ScriptedUpstream, path: str, body: dict[str, Any]
) -> None:
    upstream.script = [{"reply": {"json": {"data": []}}}]
    settings = {"UPSTREAM_OPENAI_BASE_URL": upstream.url, "UPSTREAM_ANTHROPIC_BASE_URL": upstream.url, **TOKENS}
    with running_bridge(tmp_path, RATE_LIMIT_REQUESTS_PER_MINUTE="1", **settings) as url:
        answers = [httpx2.post(url + path, json=body, headers={"x-api-key": ANN}, timeout=20) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 429]


@pytest.mark.req("C8", "NFR5")
@pytest.mark.usefixtures("half_past")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("setting", "retries"), [("RATE_LIMIT_TOKENS_PER_MINUTE", None), ("RATE_LIMIT_TOKENS_PER_DAY", "false")]
)
def test_tokens_per_window(
    tmp_path: Path, upstream: ScriptedUpstream, setting: str, retries: str | None, stream: bool
) -> None:
    upstream.script = [HELLO]
    settings = {"UPSTREAM_OPENAI_BASE_URL": upstream.url, setting: "1", **TOKENS}
    with running_bridge(tmp_path, **settings) as url:
        first = ask(url, key=ANN, stream=stream)
        wait_for(lambda: ask(url, key=ANN, stream=stream).status_code == 429)  # tokens are known when an answer ends
        refused, other = ask(url, CHAT, key=ANN, stream=stream), ask(url, key=BOB, stream=stream)
    assert first.status_code == other.status_code == 200
    assert first.headers["anthropic-ratelimit-tokens-limit"] == "1"
    assert setting in error_of(refused)["message"]
    assert int(refused.headers["retry-after"]) >= 30
    assert refused.headers.get("x-should-retry") == retries


# --- before and after the body -----------------------------------------------------------------------------------


def send_head(url: str, *lines: str) -> bytes:
    """The start of an answer to a request whose body never comes."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        head = "\r\n".join([f"POST {MESSAGES} HTTP/1.1", f"host: {host}", *lines, "", ""])
        connection.sendall(head.encode())
        return connection.recv(65_536)


@pytest.mark.req("C8")
@pytest.mark.parametrize("framing", ["content-length: 4000000", "transfer-encoding: chunked"])
def test_a_wrong_token_is_refused_before_the_body_comes(tmp_path: Path, framing: str) -> None:
    with running_bridge(tmp_path, **TOKENS) as url:
        answer = send_head(url, framing, "x-api-key: wrong-token")
    assert answer.startswith(b"HTTP/1.1 401 ")


@pytest.mark.req("C8")
def test_a_size_over_the_cap_is_refused_before_the_body_comes(bridge_url: str) -> None:
    assert send_head(bridge_url, "content-length: 5242881").startswith(b"HTTP/1.1 413 ")


@pytest.mark.req("C12")
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ENDPOINTS)
def test_a_client_that_leaves_before_the_first_token_ends_the_call(
    bridge_url: str, upstream: ScriptedUpstream, path: str, stream: bool
) -> None:
    leave_early(bridge_url, upstream, path, stream)


@pytest.mark.req("C12")
@pytest.mark.parametrize("path", ENDPOINTS)
def test_a_client_that_leaves_after_a_sign_of_life_ends_the_call(
    lively_bridge: str, upstream: ScriptedUpstream, path: str
) -> None:
    leave_early(lively_bridge, upstream, path, stream=True)


def leave_early(url: str, upstream: ScriptedUpstream, path: str, stream: bool) -> None:
    """Wait for a moment, hear nothing but signs of life, and go."""
    upstream.script = [SILENT]
    before = upstream.disconnects
    host, port = url.removeprefix("http://").split(":")
    body = json.dumps(question(path, stream)).encode()
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
        wait_for(lambda: len(upstream.received) == 1)
        time.sleep(0.15)
    wait_for(lambda: upstream.disconnects == before + 1)
    assert len(upstream.received) == 1


# --- browsers ----------------------------------------------------------------------------------------------------

GOOD, EVIL = "https://good.example", "https://evil.example"


@pytest.mark.req("C8")
def test_browsers_of_allowed_origins_may_read_every_answer(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    upstream.script = [HELLO]
    settings = {"UPSTREAM_OPENAI_BASE_URL": upstream.url, "ALLOW_ORIGINS": f"{GOOD},https://other.example", **TOKENS}
    preflight = {"access-control-request-method": "POST", "access-control-request-headers": "x-api-key,content-type"}
    with running_bridge(tmp_path, **settings) as url:
        asked = httpx2.options(url + MESSAGES, headers={"origin": GOOD, **preflight})
        denied = httpx2.options(url + MESSAGES, headers={"origin": EVIL, **preflight})
        for origin, allowed in ((GOOD, GOOD), (EVIL, None), ("null", None), (f"{GOOD}.evil.example", None)):
            for key, status in ((ANN, 200), ("wrong-token", 401)):
                for stream in (False, True):
                    headers = {"origin": origin, "x-api-key": key}
                    answer = httpx2.post(url + MESSAGES, json=question(MESSAGES, stream), headers=headers)
                    assert answer.status_code == status
                    assert answer.headers.get("access-control-allow-origin") == allowed
                    assert "access-control-allow-credentials" not in answer.headers
    assert (asked.status_code, asked.content) == (204, b"")
    assert asked.headers["access-control-allow-headers"] == "x-api-key,content-type"
    assert "POST" in asked.headers["access-control-allow-methods"]
    assert asked.headers["vary"] == "origin"
    assert not [name for name in denied.headers if name.startswith("access-control")]


@pytest.mark.req("C8")
def test_no_browser_may_read_anything_unless_told(bridge_url: str) -> None:
    for answer in (
        httpx2.options(bridge_url + MESSAGES, headers={"origin": GOOD}),
        httpx2.get(f"{bridge_url}/health", headers={"origin": GOOD}),
    ):
        assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.req("X1")
@pytest.mark.parametrize(("path", "status"), [("/health", 200), ("/", 200), (MESSAGES, 405), ("/nowhere", 404)])
def test_head_says_what_get_would_without_a_body(bridge_url: str, path: str, status: int) -> None:
    answer = httpx2.head(bridge_url + path)
    assert (answer.status_code, answer.content) == (status, b"")
    assert int(answer.headers["content-length"]) > 0
    assert answer.headers["request-id"].startswith("req_")


# --- whose state it is -------------------------------------------------------------------------------------------

WEATHER = {"name": "get_weather", "input_schema": {"type": "object"}}
CALL = {"chat": {"tool_calls": [{"name": "get_weather", "arguments": {"city": "Paris"}}]}}


def result_of(tool_use_id: str) -> dict[str, Any]:
    """A turn whose history was trimmed: only the store knows what was called."""
    block = {"type": "tool_result", "tool_use_id": tool_use_id, "content": "Sunny"}
    return question(MESSAGES) | {"messages": [{"role": "user", "content": [block]}], "tools": [WEATHER]}


@pytest.mark.req("NFR5", "FR6.3", "C8", "C11")
def test_what_one_principal_left_behind_is_nothing_to_another(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    upstream.script = [{"when": {"last_role": "tool"}, "reply": HELLO["reply"]}, {"reply": CALL}]
    ann, bob = {"x-api-key": ANN, "x-conversation-id": "shared"}, {"x-api-key": BOB, "x-conversation-id": "shared"}
    with running_bridge(tmp_path, UPSTREAM_OPENAI_BASE_URL=upstream.url, **TOKENS) as url:

        def post(path: str, headers: dict[str, str], body: dict[str, Any]) -> httpx2.Response:
            return httpx2.post(url + path, json=body, headers=headers, timeout=20)

        call = post(MESSAGES, ann, question(MESSAGES) | {"tools": [WEATHER]}).json()["content"][0]
        stolen = post(MESSAGES, bob, result_of(call["id"]))
        ended_by_bob = post("/v1/conversations/shared/terminate", bob, {})
        kept = post(MESSAGES, ann, result_of(call["id"]))
        ended = post("/v1/conversations/shared/terminate", ann, {})
        gone = post(MESSAGES, ann, result_of(call["id"]))
    assert (stolen.status_code, error_of(stolen)["type"]) == (400, "invalid_request_error")
    assert call["id"] in error_of(stolen)["message"]
    assert "get_weather" not in stolen.text
    assert "Paris" not in stolen.text
    assert (ended_by_bob.status_code, ended_by_bob.json()["deleted_items"]) == (200, 0)
    assert kept.status_code == 200
    assert ended.json()["deleted_items"] > 0
    assert gone.status_code == 400


@pytest.mark.req("NFR5", "P1")
def test_a_stored_response_is_its_owners(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    upstream.script = [HELLO]
    ann, bob = {"x-api-key": ANN}, {"x-api-key": BOB}
    with running_bridge(tmp_path, UPSTREAM_OPENAI_BASE_URL=upstream.url, **TOKENS) as url:
        made = httpx2.post(url + RESPONSES, json=question(RESPONSES), headers=ann, timeout=20).json()["id"]
        stored = f"{url}{RESPONSES}/{made}"
        read, deleted = httpx2.get(stored, headers=bob), httpx2.delete(stored, headers=bob)
        continued = httpx2.post(
            url + RESPONSES, json=question(RESPONSES) | {"previous_response_id": made}, headers=bob, timeout=20
        )
        own = httpx2.get(stored, headers=ann)
    assert [answer.status_code for answer in (read, deleted, continued, own)] == [404, 404, 400, 200]
    assert "Hello" not in read.text + deleted.text + continued.text
    assert len(upstream.received) == 1


THROTTLED = {
    "status": 400,
    "json": {"__type": "com.amazonaws.dynamodb.v20120810#ThrottlingException", "message": "slow down"},
}


@pytest.mark.req("FR5.5", "C11")
@pytest.mark.parametrize("fault", [THROTTLED, {"status": 503, "body": "down"}], ids=["throttled", "down"])
def test_a_store_that_gives_up_is_overload(
    tmp_path: Path, upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch, fault: dict[str, Any]
) -> None:
    upstream.script = [HELLO]
    minted = mint(conversation_token("trimmed"), bytes(9), has_data=False)
    tool_turn = {"role": "tool", "tool_call_id": minted, "content": "Sunny"}
    with serving([{"reply": fault}]) as store:
        for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL_DYNAMODB": store.url}.items():
            monkeypatch.setenv(name, value)
        settings = {"UPSTREAM_OPENAI_BASE_URL": upstream.url, "UPSTREAM_ANTHROPIC_BASE_URL": upstream.url}
        with running_bridge(tmp_path, STATE_TABLE="state", **settings) as url:
            claude_like = httpx2.post(url + MESSAGES, json=result_of(minted), timeout=20)
            body = question(CHAT, model="anthropic/claude-x") | {"messages": [tool_turn]}
            gpt_like = httpx2.post(url + CHAT, json=body, timeout=20)
            asked = len(store.received)
    assert (claude_like.status_code, error_of(claude_like)["type"]) == (529, "overloaded_error")
    assert (gpt_like.status_code, error_of(gpt_like)["type"]) == (503, "server_error")
    for answer in (claude_like, gpt_like):
        assert "state store" in error_of(answer)["message"]
        assert "x-should-retry" not in answer.headers
    assert asked >= 6
    assert upstream.received == []
