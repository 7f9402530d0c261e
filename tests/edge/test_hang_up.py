"""A client that hangs up: the provider is left too, and what was used until then is counted as far as it is known."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from support import running_bridge

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from scripted.server import ScriptedUpstream

pytestmark = pytest.mark.req("LEDGER", "C12")
ASK = "word " * 200
TURN = [{"role": "user", "content": ASK}]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/messages": {"max_tokens": 99, "messages": TURN},
    "/v1/chat/completions": {"messages": TURN},
    "/v1/responses": {"input": ASK},
}
CHAT = {"choices": [{"index": 0, "delta": {"content": "twelve chars"}, "finish_reason": None}]}
SAID = [
    {"type": "message_start", "message": {"usage": {"input_tokens": 77, "output_tokens": 1}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    *[{"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "twelve chars"}}] * 20,
]
HANG = {"$hang_ms": 20_000}
REPLIES: dict[str, dict[str, Any]] = {"openai": {"sse": [*[CHAT] * 20, HANG]}, "anthropic": {"sse": [*SAID, HANG]}}


@pytest.fixture
def bridge(tmp_path: Path, upstream: ScriptedUpstream) -> Iterator[str]:
    settings = {"UPSTREAM_OPENAI_BASE_URL": upstream.url, "UPSTREAM_ANTHROPIC_BASE_URL": upstream.url}
    with running_bridge(tmp_path, **settings) as url:
        yield url


def usage(url: str) -> dict[str, Any]:
    """The only line of the ledger, as soon as it is there."""
    for _ in range(200):
        lines = httpx2.get(f"{url}/v1/usage", headers={"x-api-key": "k"}).json()["rows"]
        if lines:
            (line,) = lines
            return dict(line)
        time.sleep(0.05)
    raise AssertionError("nothing was counted")


def leave(url: str, path: str, model: str, *, after: str) -> None:
    """Ask for a stream, and go away when it has said something."""
    body = BODIES[path] | {"model": model, "stream": True}
    timeout = httpx2.Timeout(20, read=0.5 if after == "nothing" else 20)
    try:
        with httpx2.stream("POST", f"{url}{path}", json=body, headers={"x-api-key": "k"}, timeout=timeout) as answer:
            seen = ""
            for piece in answer.iter_text():
                seen += piece
                if seen.count("twelve") >= 20:
                    return
    except httpx2.ReadTimeout:
        assert after == "nothing"


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("provider", REPLIES)
def test_what_was_streamed_is_counted(bridge: str, upstream: ScriptedUpstream, path: str, provider: str) -> None:
    upstream.script = [{"reply": REPLIES[provider]}]
    leave(bridge, path, f"{provider}/some-model", after="text")
    line = usage(bridge)
    assert (line["requests"], line["estimated_requests"]) == (1, 1)
    assert 15 <= line["output_tokens"] <= 90
    assert line["input_tokens"] == 77 if provider == "anthropic" else 200 <= line["input_tokens"] <= 400


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("path", BODIES)
def test_a_prompt_that_nobody_waited_for_is_counted(
    bridge: str, upstream: ScriptedUpstream, path: str, stream: bool
) -> None:
    upstream.script = [{"reply": {"delay_ms": 20_000, "chat": {"text": "too late"}}}]
    body = BODIES[path] | {"model": "openai/some-model", "stream": stream}
    with pytest.raises(httpx2.ReadTimeout):
        httpx2.post(f"{bridge}{path}", json=body, headers={"x-api-key": "k"}, timeout=0.7)
    line = usage(bridge)
    assert line["estimated_requests"] == 1
    assert 200 <= line["input_tokens"] <= 400


def test_the_log_tells_who_left(tmp_path: Path, upstream: ScriptedUpstream, bridge_log: list[Any]) -> None:
    upstream.script = [{"reply": REPLIES["openai"]}]
    with running_bridge(tmp_path, UPSTREAM_OPENAI_BASE_URL=upstream.url, LOG_LEVEL="info") as url:
        leave(url, "/v1/messages", "openai/some-model", after="text")
        usage(url)
    (line,) = [record.fields for record in bridge_log if record.fields["client_gone"]]
    assert line["usage_estimated"]
    assert line["output_tokens"] > 0


def test_a_budget_holds_for_those_who_hang_up(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    upstream.script = [{"reply": REPLIES["openai"]}]
    settings = {"UPSTREAM_OPENAI_BASE_URL": upstream.url, "RATE_LIMIT_TOKENS_PER_DAY": "250"}
    with running_bridge(tmp_path, **settings) as url:
        leave(url, "/v1/messages", "openai/some-model", after="text")
        usage(url)
        body = BODIES["/v1/messages"] | {"model": "openai/some-model"}
        refused = httpx2.post(f"{url}/v1/messages", json=body, headers={"x-api-key": "k"})
    assert refused.status_code == 429
    assert "tokens per day" in json.loads(refused.content)["error"]["message"]
