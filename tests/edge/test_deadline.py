"""A request that would outlive its invocation ends legally before it."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from bridge.deadline import DEADLINE_MARGIN_SECONDS
from handler.settings import load_settings
from handler.wiring import build_app

if TYPE_CHECKING:
    from pathlib import Path

    from handler.asgi import Message
    from scripted.server import ScriptedUpstream

DELTA = {"choices": [{"index": 0, "delta": {"content": "Hello"}, "finish_reason": None}]}


async def invoke(tmp_path: Path, upstream: ScriptedUpstream, path: str, body: dict[str, Any]) -> list[Message]:
    """What the app sends for a request whose time is up almost at once."""
    environment = {
        "UPSTREAM_OPENAI_BASE_URL": upstream.url,
        "STATE_FILE": str(tmp_path / "state.sqlite3"),
        "LOG_LEVEL": "error",
    }
    app = build_app(load_settings(environment), as_json=False)
    loop = asyncio.get_running_loop()
    scope = {
        "type": "http",
        "method": "POST",
        "path": path,
        "headers": [],
        "extensions": {"toolbridge.invocation": {"deadline": loop.time() + DEADLINE_MARGIN_SECONDS + 0.3}},
    }
    requests = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]
    sent: list[Message] = []

    async def receive() -> Message:
        if requests:
            return requests.pop()
        return await asyncio.Future()

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    await shut(app)
    return sent


async def shut(app: Any) -> None:
    messages = [{"type": "lifespan.shutdown"}]

    async def receive() -> Message:
        return messages.pop()

    async def send(_message: Message) -> None: ...

    await app({"type": "lifespan"}, receive, send)


REQUEST = {"model": "gpt-x", "max_tokens": 9, "stream": True, "messages": [{"role": "user", "content": "Hi"}]}


@pytest.mark.req("C12")
@pytest.mark.parametrize("path", ["/v1/messages", "/v1/chat/completions"])
def test_after_the_first_byte_the_stream_ends_with_an_error(
    path: str, tmp_path: Path, upstream: ScriptedUpstream
) -> None:
    upstream.script = [{"reply": {"sse": [DELTA, {"$hang_ms": 20_000}]}}]
    start, *bodies = asyncio.run(invoke(tmp_path, upstream, path, REQUEST))
    assert start["status"] == 200
    payload = b"".join(body["body"] for body in bodies).decode()
    assert "Hello" in payload
    last = json.loads(payload.strip().splitlines()[-1].removeprefix("data: "))
    assert last["error"]["type"] == "timeout_error"
    assert "message_stop" not in payload
    assert bodies[-1]["more_body"] is False


@pytest.mark.req("C12")
def test_before_the_first_byte_it_is_a_504(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    upstream.script = [{"reply": {"delay_ms": 20_000, "chat": {"text": "late"}}}]
    start, body = asyncio.run(invoke(tmp_path, upstream, "/v1/messages", REQUEST | {"stream": False}))
    assert start["status"] == 504
    assert json.loads(body["body"])["error"]["type"] == "timeout_error"
