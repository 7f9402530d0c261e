"""The `claude-agent-sdk`: tools that live in the caller's process, and answers of a given shape."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from clients.processes import run_library
from clients.turns import Call, asked, declared, rounds

if TYPE_CHECKING:
    from clients.conftest import Served
    from clients.processes import Desk

pytestmark = pytest.mark.clients

STOCK = "mcp__shop__stock"
VARIABLES = dict.fromkeys(("IS_SANDBOX", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_TELEMETRY"), "1")
SCHEMA = {
    "type": "object",
    "properties": {"crates": {"type": "integer"}},
    "required": ["crates"],
    "additionalProperties": False,
}


def at(desk: Desk, served: Served) -> Desk:
    return desk.with_variables(VARIABLES | {"ANTHROPIC_BASE_URL": served.url, "ANTHROPIC_API_KEY": "sk-client"})


@pytest.mark.req("C15", "FR5.1", "S6")
def test_tools_in_the_callers_process_are_run_and_told(any_model: Served, desk: Desk) -> None:
    any_model.says(
        (None, Call("ToolSearch", {"query": f"select:{STOCK}"})),
        ("Looking.", Call(STOCK, {"fruit": "pear"}), Call(STOCK, {"fruit": "durian"})),
        (None, Call(STOCK, {"fruit": "plum"})),
        ("Pears and plums.",),
    )
    said = run_library(at(desk, any_model), "agent_sdk", {"prompt": "What is in stock?"})
    assert (said["version"], said["error"], said["result"]) == ("0.2.183", False, "Pears and plums.")
    assert said["texts"] == ["Looking.", "Pears and plums."]
    assert sorted(used["fruit"] for used in said["used"]) == ["durian", "pear", "plum"]
    bodies = asked(any_model.upstream)
    assert len(bodies) == 4
    # The client defers such tools: the model is told their names, and gets the one that it looks for.
    assert STOCK not in declared(bodies[0])
    assert STOCK in json.dumps(bodies[0])
    assert STOCK in declared(bodies[1])
    _, (pear, durian), (plum,) = rounds(bodies[-1])
    assert (pear.arguments, pear.result) == ({"fruit": "pear"}, "4 crates of pear")
    assert (plum.arguments, plum.result) == ({"fruit": "plum"}, "4 crates of plum")
    assert durian.arguments == {"fruit": "durian"}
    assert "durian is not allowed in here" in durian.result


@pytest.mark.req("C5.1")
def test_an_answer_has_the_shape_that_was_asked_for(gpt: Served, desk: Desk) -> None:
    gpt.says((None, Call("StructuredOutput", {"crates": 4})), ("Done.",))
    said = run_library(
        at(desk, gpt),
        "agent_sdk",
        {"prompt": "How many crates?", "output_format": {"type": "json_schema", "schema": SCHEMA}},
    )
    assert (said["error"], said["structured"]) == (False, {"crates": 4})
    first = asked(gpt.upstream)[0]
    (tool,) = [tool["function"] for tool in first["tools"] if tool["function"]["name"] == "StructuredOutput"]
    assert tool["parameters"]["properties"] == SCHEMA["properties"]
