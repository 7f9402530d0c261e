"""Nothing secret and nothing that was said is ever logged: canaries in every place, and the whole output searched."""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from scripted.server import ScriptedUpstream

# The bridge in a process of its own, with every logger of that process at its most talkative unless told otherwise.
RUNNER = """
import asyncio, logging, os, sys
from handler.http1.server import HttpServer, listen
from handler.settings import load_settings
from handler.wiring import build_app

if not os.environ.get("QUIET"):
    logging.basicConfig(level=logging.DEBUG)
if crash := os.environ.get("CRASH"):
    import bridge.pipeline
    from bridge.protocols.openai_chat.stream_decoder import ChatStreamDecoder
    def explode(*arguments, **options):
        raise RuntimeError("out of order")
    owner, name = (bridge.pipeline, "route") if crash == "route" else (ChatStreamDecoder, "close")
    setattr(owner, name, explode)
listener = listen("127.0.0.1", 0)
print("listening on", listener.getsockname()[1], flush=True)
app = build_app(load_settings(os.environ), as_json=sys.argv[1] == "json")
asyncio.run(HttpServer(app).serve(listener))
"""

TOKEN, OPENAI_KEY, ANTHROPIC_KEY = "canary-worker-token", "sk-proj-canary-openai", "sk-ant-canary-anthropic"
OWN_KEY, WRONG_TOKEN = "sk-canary-own-key", "canary-wrong-token"
PICTURE = base64.b64encode(b"canary-picture-bytes-canary-picture-bytes").decode()
SIGNED = "https://bucket.example/picture.png?X-Amz-Signature=canary-signature"
CANARIES = (
    "canary",
    PICTURE[:24],
    base64.b64encode(b"canary").decode()[:8],
)


class Process:
    """A bridge whose output is kept."""

    def __init__(self, process: subprocess.Popen[bytes], output: Path) -> None:
        self._process = process
        self._output = output
        self.url = f"http://127.0.0.1:{self._port()}"
        self.request_ids: list[str] = []

    def send(self, path: str, body: Any, method: str = "POST", **headers: str) -> httpx2.Response:
        named = {"x-worker-token": TOKEN} | {name.replace("_", "-"): value for name, value in headers.items()}
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        answer = httpx2.request(method, self.url + path, content=content, headers=named, timeout=20)
        self.request_ids.append(answer.headers.get("x-bridge-request-id") or answer.headers["request-id"])
        return answer

    def output(self) -> str:
        """Everything it printed, from start to end."""
        self._process.terminate()
        self._process.wait(timeout=20)
        return self._output.read_text()

    def _port(self) -> str:
        until = time.monotonic() + 20
        while not (found := re.search(r"listening on (\d+)\n", self._output.read_text())):
            assert self._process.poll() is None, self._output.read_text()
            assert time.monotonic() < until
            time.sleep(0.02)
        return found[1]


@contextmanager
def bridge_process(folder: Path, upstream: str, form: str, **environment: str) -> Iterator[Process]:
    settings = {
        "PATH": os.environ["PATH"],
        "LOG_LEVEL": "debug",
        "STATE_FILE": str(folder / "state.sqlite3"),
        "WORKER_TOKEN": f"ann:{TOKEN}",
        "OPENAI_API_KEY": OPENAI_KEY,
        "ANTHROPIC_API_KEY": ANTHROPIC_KEY,
        "UPSTREAM_OPENAI_BASE_URL": upstream,
        "UPSTREAM_ANTHROPIC_BASE_URL": upstream,
        "UPSTREAM_RETRIES": "0",
        "CIRCUIT_BREAKER": "off",
    }
    output = folder / "output"
    with output.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-c", RUNNER, form], env=settings | environment, stdout=file, stderr=subprocess.STDOUT
        )
    try:
        yield Process(process, output)
    finally:
        process.kill()
        process.wait()


# --- what is said ------------------------------------------------------------------------------------------------

MESSAGES, CHAT, RESPONSES = "/v1/messages", "/v1/chat/completions", "/v1/responses"
MODELS = ("openai/gpt-x", "anthropic/claude-x")
SCHEMA = {"type": "object", "properties": {"canary_property": {"description": "canary schema"}}}


def messages(model: str, stream: bool) -> dict[str, Any]:
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}}
    linked = {"type": "image", "source": {"type": "url", "url": SIGNED}}
    document = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "canary document"}}
    call = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"where": "canary argument"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "canary result"}]}
    return {
        "model": model,
        "max_tokens": 9,
        "stream": stream,
        "system": "canary system",
        "metadata": {"user_id": "canary-user"},
        "tools": [{"name": "look", "description": "canary description", "input_schema": SCHEMA}],
        "unknown_field": "canary unknown",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "canary question"}, picture, linked, document]},
            {"role": "assistant", "content": [{"type": "text", "text": "canary answer"}, call]},
            {"role": "user", "content": [result]},
        ],
    }


def chat(model: str, stream: bool) -> dict[str, Any]:
    function = {"name": "look", "arguments": '{"where":"canary argument"}'}
    parts = [
        {"type": "text", "text": "canary question"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PICTURE}"}},
        {"type": "image_url", "image_url": {"url": SIGNED}},
    ]
    return {
        "model": model,
        "stream": stream,
        "user": "canary-user",
        "tools": [{"type": "function", "function": {"name": "look", "parameters": SCHEMA}}],
        "messages": [
            {"role": "system", "content": "canary system"},
            {"role": "user", "content": parts},
            {"role": "assistant", "tool_calls": [{"id": "call_1", "type": "function", "function": function}]},
            {"role": "tool", "tool_call_id": "call_1", "content": "canary result"},
        ],
    }


def responses(model: str, stream: bool) -> dict[str, Any]:
    call = {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": '{"where":"canary argument"}'}
    return {
        "model": model,
        "stream": stream,
        "instructions": "canary instructions",
        "metadata": {"note": "canary note"},
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "canary question"}]},
            call,
            {"type": "function_call_output", "call_id": "call_1", "output": "canary result"},
        ],
    }


BODIES = {MESSAGES: messages, CHAT: chat, RESPONSES: responses}
TURN = {"text": "canary answer", "tool_calls": [{"name": "look", "arguments": {"where": "canary call"}}]}
SAID = f"canary: {OPENAI_KEY} {ANTHROPIC_KEY} {OWN_KEY} is no key, and {SIGNED} is no picture"
REFUSAL = {"type": "error", "error": {"type": "invalid_request_error", "message": SAID, "code": "canary_code"}}
DELTA = {"choices": [{"index": 0, "delta": {"content": "canary answer"}, "finish_reason": None}]}
GOOD = [
    {"when": {"path": "*/chat/completions"}, "reply": {"chat": TURN}},
    {"when": {"path": "*/messages"}, "reply": {"messages": {"text": "canary answer"}}},
    {"reply": {"json": {"data": [{"id": "canary-model"}], "input_tokens": 3}}},
]
TURNS = {
    "answers": GOOD,
    "refusals": [{"reply": {"status": 400, "json": REFUSAL}}],
    "refused keys": [{"reply": {"status": 401, "json": REFUSAL, "headers": {"www-authenticate": "canary"}}}],
    "limits": [{"reply": {"status": 429, "json": REFUSAL, "headers": {"retry-after": "99"}}}],
    "failures": [{"reply": {"status": 503, "body": f"<html>{SAID}</html>"}}],
    "errors under a 200": [{"reply": {"json": REFUSAL}}],
    "no answers": [{"reply": {"cut": "reset"}}],
    "streams that break": [{"reply": {"sse": [DELTA, {"$delay_ms": 20}, {"$cut": "reset"}]}}],
    "streams that tell of errors": [{"reply": {"sse": [DELTA, {"$delay_ms": 20}, REFUSAL]}}],
    "streams of garbage": [{"reply": {"sse": [DELTA, {"$raw": "data: canary {garbage\\n\\n"}]}}],
    "answers of garbage": [{"reply": {"body": "canary garbage"}}],
}
OWN = {"x_api_key": OWN_KEY, "authorization": "Bearer canary-bearer", "cookie": "canary=cookie"}


def converse(bridge: Process) -> None:
    """Every protocol to every provider, streamed and whole, with a key of the client's own and without."""
    for path, body in BODIES.items():
        for model in MODELS:
            for stream in (False, True):
                bridge.send(path, body(model, stream))
        bridge.send(path, body(MODELS[0], stream=True), **OWN)
    bridge.send("/v1/messages/count_tokens", messages(MODELS[0], stream=False))
    bridge.send("/v1/embeddings", {"model": "openai/e", "input": "canary input"})
    bridge.send("/v1/messages/batches", {"requests": [{"params": messages(MODELS[1], stream=False)}]})
    bridge.send("/v1/models", b"", "GET")


def be_refused(bridge: Process) -> None:
    """Requests that the bridge itself refuses."""
    good = json.dumps(messages(MODELS[0], stream=False)).encode()
    bridge.send(MESSAGES, good, x_worker_token=WRONG_TOKEN)
    bridge.send(MESSAGES, good, x_worker_token="", authorization=f"Basic {WRONG_TOKEN}")
    bridge.send(MESSAGES, good[:-3])
    bridge.send(MESSAGES, b'{"canary key": 1, "canary key": "canary value"}')
    bridge.send(MESSAGES, gzip.compress(good)[:-9], content_encoding="gzip")
    bridge.send(MESSAGES, good, content_encoding="canary")
    bridge.send(MESSAGES, good, x_conversation_id="canary with spaces")
    bridge.send(MESSAGES, good, x_bridge_provider="canary")
    bridge.send(MESSAGES, {**messages(MODELS[0], stream=False), "max_tokens": "canary"})
    bridge.send(MESSAGES, {**messages(MODELS[0], stream=False), "messages": [{"role": "canary", "content": 7}]})
    bridge.send(
        CHAT, {**chat(MODELS[1], stream=False), "messages": [{"role": "user", "content": [{"type": "canary"}]}]}
    )
    bridge.send(RESPONSES, {**responses(MODELS[0], stream=False), "previous_response_id": "resp_canary"})
    bridge.send(MESSAGES, {"model": MODELS[0], "max_tokens": 9, "messages": [
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_canary", "content": "canary"}]}
    ]})  # fmt: skip


def assert_silent(output: str, bridge: Process) -> None:
    """Every request is in the log, and nothing of what was in it."""
    for request_id in bridge.request_ids:
        assert request_id in output
    for canary in CANARIES:
        found = re.search(f".{{0,200}}{re.escape(canary)}.{{0,200}}", output, re.IGNORECASE)
        assert found is None, found and found.group()


@pytest.mark.req("C8", "C9")
@pytest.mark.parametrize("form", ["json", "terminal"])
def test_conversations_leave_no_trace_of_what_was_said(tmp_path: Path, upstream: ScriptedUpstream, form: str) -> None:
    with bridge_process(tmp_path, upstream.url, form) as bridge:
        for script in TURNS.values():
            upstream.script = script
            converse(bridge)
        assert_silent(bridge.output(), bridge)
    assert len(upstream.received) > 10 * len(TURNS)


@pytest.mark.req("C8", "C9")
@pytest.mark.parametrize("form", ["json", "terminal"])
def test_nobody_else_writes_lines_of_the_log(tmp_path: Path, upstream: ScriptedUpstream, form: str) -> None:
    upstream.script = GOOD
    with bridge_process(tmp_path, upstream.url, form, QUIET="1") as bridge:
        bridge.send("/v1/nothing%0Aforged%20line", b"", "GET")
        bridge.send(MESSAGES, messages("openai/x\nforged line", stream=False))
        bridge.send(MESSAGES, {**messages(MODELS[0], stream=False), "x\nforged line": 1})
        output = bridge.output()
    assert bridge.request_ids[1] in output
    assert not re.search("^forged", output, re.MULTILINE)


@pytest.mark.req("C8", "C9")
@pytest.mark.parametrize("form", ["json", "terminal"])
def test_a_query_leaves_no_trace(tmp_path: Path, upstream: ScriptedUpstream, form: str) -> None:
    upstream.script = GOOD
    with bridge_process(tmp_path, upstream.url, form, QUIET="1") as bridge:
        for path, body in BODIES.items():
            bridge.send(f"{path}?key=canary-in-the-query", body(MODELS[0], stream=True), **OWN)
        bridge.send("/v1/models?after_id=canary", b"", "GET")
        bridge.send("/v1/nothing?key=canary", b"", "GET")
        assert_silent(bridge.output(), bridge)


@pytest.mark.req("C8", "C9", "DIAG")
@pytest.mark.parametrize("form", ["json", "terminal"])
def test_bodies_are_logged_without_their_secrets_where_an_operator_asks(
    tmp_path: Path, upstream: ScriptedUpstream, form: str
) -> None:
    picture = base64.b64encode(b"canary-picture" * 30).decode()
    server = {"type": "url", "name": "x", "url": "https://x.example/mcp", "authorization_token": "canary-mcp-token"}
    block = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": picture}}
    said = f"a question with {OWN_KEY}, Bearer canary-bearer and {SIGNED}"
    turns = [{"role": "user", "content": [{"type": "text", "text": said}, block]}]
    body = {"model": MODELS[0], "max_tokens": 9, "messages": turns, "mcp_servers": [server]}
    upstream.script = [{"reply": {"status": 400, "json": {"error": {"message": f"an answer with {SAID}"}}}}]
    with bridge_process(tmp_path, upstream.url, form, QUIET="1", LOG_BODIES="1") as bridge:
        bridge.send(MESSAGES, body)
        bridge.send(MESSAGES, {key: value for key, value in body.items() if key != "mcp_servers"})
        output = bridge.output()
    assert "a question with" in output
    assert "an answer with" in output
    for secret in (OWN_KEY, OPENAI_KEY, ANTHROPIC_KEY, TOKEN, "canary-bearer", "canary-signature", "canary-mcp-token"):
        assert secret not in output
    assert picture[:40] not in output


@pytest.mark.req("C8", "C9")
@pytest.mark.parametrize("form", ["json", "terminal"])
def test_refusals_leave_no_trace_of_what_was_refused(tmp_path: Path, upstream: ScriptedUpstream, form: str) -> None:
    with bridge_process(tmp_path, upstream.url, form) as bridge:
        be_refused(bridge)
        assert_silent(bridge.output(), bridge)
    assert upstream.received == []


@pytest.mark.req("C8", "C9", "C11")
@pytest.mark.parametrize("form", ["json", "terminal"])
@pytest.mark.parametrize("crash", ["route", "decoder"])
@pytest.mark.parametrize("heartbeat", ["10", "0.05"])
def test_a_crash_leaves_its_cause_in_the_log_and_nothing_that_was_said(
    tmp_path: Path, upstream: ScriptedUpstream, form: str, crash: str, heartbeat: str
) -> None:
    upstream.script = [{"reply": {"delay_ms": 200, "sse": [DELTA, {"$delay_ms": 20}]}}]
    with bridge_process(tmp_path, upstream.url, form, CRASH=crash, HEARTBEAT_SECONDS=heartbeat) as bridge:
        answer = bridge.send(MESSAGES, messages(MODELS[0], stream=True))
        output = bridge.output()
    assert "out of order" not in answer.text
    assert "the bridge failed" in answer.text
    assert "RuntimeError" in output
    assert_silent(output, bridge)


@pytest.mark.req("C3", "C9")
@pytest.mark.parametrize("form", ["json", "terminal"])
def test_what_a_client_says_of_itself_is_logged_and_not_forwarded(
    tmp_path: Path, upstream: ScriptedUpstream, form: str
) -> None:
    upstream.script = GOOD
    with bridge_process(tmp_path, upstream.url, form) as bridge:
        bridge.send(MESSAGES, messages(MODELS[0], stream=False), x_client_meta='{"team": "meta-for-the-log"}')
        assert "meta-for-the-log" in bridge.output()
    assert "meta-for-the-log" not in json.dumps([sent.headers for sent in upstream.received])
