"""The memory when the store fails, and how seldom it is asked."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from bridge.conversation import Conversation
from bridge.errors import BridgeError
from bridge.exchange import Record
from bridge.protocols.anthropic.parse_request import parse_request
from bridge.state.claims import conversation_token, mint
from bridge.state.memory import ToolMemory
from bridge.state.sqlite import SqliteStore
from bridge.state.sqlite_file import SqliteFile
from dynamodb_local import CREDENTIALS
from support import running_bridge

if TYPE_CHECKING:
    from pathlib import Path

    from bridge.canonical.request import Request
    from scripted.server import ScriptedUpstream

TOKEN = conversation_token("talk")
TALK = Conversation("talk", TOKEN)
PLAIN, FLAGGED = (mint(TOKEN, bytes([number] * 8), has_data=bool(number)) for number in (0, 1))


def request(*messages: Any) -> Request:
    return parse_request(json.dumps({"model": "m", "max_tokens": 1, "messages": list(messages)}).encode())


def turn(tool_id: str) -> list[Any]:
    call = {"type": "tool_use", "id": tool_id, "name": "Read", "input": {}}
    return [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": [call]}, answer(tool_id)]


def answer(tool_id: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": tool_id, "content": "ok"}]}


@pytest.mark.req("NFR1", "FR4.1")
@pytest.mark.parametrize(
    ("messages", "reads"),
    [
        (turn(PLAIN), 0),
        (turn("toolu_01Anthropic"), 0),
        ([*turn(PLAIN), *turn(FLAGGED)], 1),
        ([*turn(FLAGGED), *turn(FLAGGED)], 1),
    ],
    ids=["history says it all", "ids of others", "data to replay", "one read for several"],
)
def test_the_store_is_read_only_when_something_is_missing(tmp_path: Path, messages: list[Any], reads: int) -> None:
    record = Record()
    memory = ToolMemory(SqliteStore(SqliteFile(str(tmp_path / "s")), 60), "ann", "openai/gpt", record)
    asyncio.run(memory.recall(request(*messages), TALK))
    assert record.store_reads == reads
    assert (tmp_path / "s").exists() == bool(reads)


@pytest.mark.req("FR5.5", "S4")
def test_a_store_that_is_down_stops_only_what_cannot_do_without(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    record = Record()
    memory = ToolMemory(SqliteStore(SqliteFile(str(tmp_path / "file" / "s")), 60), "ann", "openai/gpt", record)
    asyncio.run(memory.recall(request(*turn(FLAGGED)), TALK))
    assert record.state_failures == 1
    with pytest.raises(BridgeError) as refused:
        asyncio.run(memory.recall(request(answer(PLAIN)), TALK))
    assert refused.value.status == 529


@pytest.mark.req("FR5.4", "FR5.5")
@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_is_delivered_although_it_cannot_be_stored(
    upstream: ScriptedUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    for name, value in (CREDENTIALS | {"AWS_ENDPOINT_URL_DYNAMODB": "http://127.0.0.1:9"}).items():
        monkeypatch.setenv(name, value)
    upstream.script = [{"reply": {"chat": {"tool_calls": [{"name": "f", "arguments": {}}]}}}]
    body = {"model": "openai/gpt-x", "max_tokens": 9, "stream": stream, "messages": [{"role": "user", "content": "Hi"}]}
    with running_bridge(tmp_path, UPSTREAM_OPENAI_BASE_URL=upstream.url, STATE_TABLE="gone") as url:
        delivered = httpx2.post(f"{url}/v1/messages", json=body, timeout=30)
        lost = httpx2.post(f"{url}/v1/messages", json=body | {"messages": [answer(PLAIN)]}, timeout=30)
    assert delivered.status_code == 200
    if stream:
        assert delivered.text.rstrip().endswith('data: {"type":"message_stop"}')
    else:
        assert delivered.headers["x-bridge-state"].startswith("not stored")
    assert (lost.status_code, lost.json()["error"]["type"]) == (529, "overloaded_error")
