"""A client whose first request starts the function: AWS's emulator, DynamoDB Local, Claude Code and the SDK."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING
from uuid import uuid4

import anthropic
import pytest

from bridge.state.dynamodb_table import connect
from bridge.state.table import create_table
from clients.claude_code import run
from clients.conftest import MODELS, Served
from clients.function_url import function_url
from clients.turns import Call, asked, rounds
from emulator import emulator
from support import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from clients.processes import Desk
    from scripted.server import ScriptedUpstream

pytestmark = pytest.mark.clients


@pytest.fixture
def cold(upstream: ScriptedUpstream, aws_environment: dict[str, str]) -> Iterator[Served]:
    """A function that has not been started yet."""
    table = f"cold-{uuid4().hex}"
    client = connect()
    create_table(client, table)
    client.close()
    environment = aws_environment | {
        "PYTHONPATH": str(ROOT / "src"),
        "STATE_TABLE": table,
        "UPSTREAM_OPENAI_BASE_URL": upstream.url,
        "MODEL_MAP": json.dumps({"*": MODELS["gpt"]}),
    }
    with (
        emulator([sys.executable, "-m", "handler.lambda_runtime"], environment) as function,
        function_url(function) as url,
    ):
        yield Served("gpt", url, upstream)


@pytest.mark.req("C13", "C15")
def test_claude_code_starts_a_function_and_works_on(cold: Served, desk: Desk) -> None:
    readme = {"file_path": str(desk.folder / "README.md")}
    cold.says(("Let me read.", Call("Read", readme)), ("In August.",))
    assert run(desk, cold, "When is the harvest?").succeeded().out == "In August.\n"
    first, second = asked(cold.upstream)
    assert rounds(first) == []
    ((read,),) = rounds(second)
    assert (read.name, read.arguments) == ("Read", readme)
    assert "The harvest is due in August." in read.result


@pytest.mark.req("C13", "FR4.1")
def test_a_trimmed_history_finds_its_call_in_the_table(cold: Served) -> None:
    cold.says((None, Call("look", {"at": "sky"})), ("Blue.",))
    with anthropic.Anthropic(base_url=cold.url, api_key="k", max_retries=0, timeout=30) as client:
        tools = [{"name": "look", "input_schema": {"type": "object", "properties": {}}}]
        first = client.messages.create(
            model="any", max_tokens=100, tools=tools, messages=[{"role": "user", "content": "Colour?"}]
        )
        (use,) = [block for block in first.content if block.type == "tool_use"]
        result = {"type": "tool_result", "tool_use_id": use.id, "content": "it is blue"}
        with client.messages.stream(
            model="any", max_tokens=100, tools=tools, messages=[{"role": "user", "content": [result]}]
        ) as stream:
            assert stream.get_final_text() == "Blue."
    ((look,),) = rounds(asked(cold.upstream)[-1])
    assert (look.name, look.arguments, look.result) == ("look", {"at": "sky"}, "it is blue")
