"""A bridge that is running somewhere, at `BRIDGE_URL`, with whatever model it has behind it.

`BRIDGE_TOKEN` opens it, `BRIDGE_MODEL` is asked for. These tests make three short calls to a model, which may cost.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import anthropic
import httpx2
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

URL = os.environ.get("BRIDGE_URL", "").rstrip("/")
MODEL = os.environ.get("BRIDGE_MODEL", "claude-sonnet-5-5")
PASSWORD = "pineapple-47"
TOOL: Any = {
    "name": "get_password",
    "description": "Returns the password of the day.",
    "input_schema": {"type": "object", "properties": {}, "additionalProperties": False},
}

pytestmark = [pytest.mark.clients, pytest.mark.skipif(not URL, reason="BRIDGE_URL is not set")]


@pytest.fixture
def client() -> Iterator[anthropic.Anthropic]:
    token = os.environ.get("BRIDGE_TOKEN", "none")
    with anthropic.Anthropic(base_url=URL, api_key=token, timeout=60, max_retries=1) as made:
        yield made


def test_it_is_healthy() -> None:
    answer = httpx2.get(f"{URL}/health", timeout=30)
    assert (answer.status_code, answer.json()["status"]) == (200, "ok")


def test_it_answers(client: anthropic.Anthropic) -> None:
    raw = client.messages.with_raw_response.create(
        model=MODEL, max_tokens=500, messages=[{"role": "user", "content": "Say hello."}]
    )
    message = raw.parse()
    assert "".join(block.text for block in message.content if block.type == "text").strip()
    assert message.usage.output_tokens > 0
    assert raw.headers["request-id"]


def test_it_streams(client: anthropic.Anthropic) -> None:
    question: Any = [{"role": "user", "content": "Write three sentences about the sea."}]
    with client.messages.stream(model=MODEL, max_tokens=500, messages=question) as stream:
        pieces = [piece for piece in stream.text_stream if piece]
        message = stream.get_final_message()
    assert len(pieces) > 1
    assert message.stop_reason in ("end_turn", "max_tokens")


def test_it_goes_round_with_a_tool(client: anthropic.Anthropic) -> None:
    messages: list[Any] = [{"role": "user", "content": "Get the password of the day and tell it to me."}]
    forced: Any = {"type": "tool", "name": TOOL["name"]}
    asked = client.messages.create(model=MODEL, max_tokens=500, tools=[TOOL], tool_choice=forced, messages=messages)
    (call,) = [block for block in asked.content if block.type == "tool_use"]
    result = {"type": "tool_result", "tool_use_id": call.id, "content": f"The password is {PASSWORD}"}
    messages += [{"role": "assistant", "content": asked.content}, {"role": "user", "content": [result]}]
    answer = client.messages.create(model=MODEL, max_tokens=500, tools=[TOOL], messages=messages)
    assert PASSWORD in "".join(block.text for block in answer.content if block.type == "text")
