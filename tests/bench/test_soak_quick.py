"""A short soak: trimmed tool turns over bridges that are killed, on a store that fails. All complete, none is wrong."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import orjson
import pytest
from bench.soak_cost import Cost
from bench.soak_model import Book, Task, read_task
from bench.soak_proxy import BAD_DAY, NO_FAULTS
from bench.soak_units import measure_operation

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.req("SM2", "NFR3", "SM4", "NFR2", "FR4.1")
def test_a_short_soak_completes_every_turn_with_the_right_names() -> None:
    command = [sys.executable, "-m", "bench.soak", "--quick", "--turns", "400"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    lines = dict(re.findall(r"^  (\w[\w ]+?)  +(.+)$", run.stdout, re.M))
    assert (lines["wrong names"], lines["wrong arguments"], lines["lost calls"]) == ("0", "0", "0")
    assert int(lines["kills"]) >= 1
    assert int(re.findall(r"throttled (\d+)", lines["faults injected"])[0]) >= 1
    assert "| trimmed, 1 result | 1 | 0 | 2 | 0 | 0.25 |" in run.stdout
    assert "| history suffices, answer without calls | 0 | 0 | 0 | 0 | 0.00 |" in run.stdout
    short, long = re.findall(r"makes 1 call; \d+ calls before (.+)", run.stdout)
    assert short == long


@pytest.mark.req("SM4")
def test_costs_are_counted_by_the_rules_of_dynamodb() -> None:
    key = {"pk": {"S": "p" * 10}, "sk": {"S": "s" * 10}}
    put = orjson.dumps({"TableName": "t", "Item": key | {"item": {"S": "x" * 1000}, "expires_at": {"N": "1763460000"}}})
    written = measure_operation("PutItem", put, 200, b"{}")
    assert (written.write_units, written.largest_item_bytes) == (2, 12 + 12 + 1004 + 16)
    refused = b'{"__type":"com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException"}'
    update = measure_operation("UpdateItem", orjson.dumps({"TableName": "t", "Key": key}), 400, refused)
    assert (update.write_units, update.condition_failed) == (1, True)
    asked = orjson.dumps({"RequestItems": {"t": {"Keys": [key, key, key]}}})
    items = [key | {"item": {"S": "x" * 5000}}, key]
    read = measure_operation("BatchGetItem", asked, 200, orjson.dumps({"Responses": {"t": items}}))
    assert (read.read_units, read.write_units, read.is_read) == (2 + 1 + 1, 0, True)
    assert Cost("a turn", 1, 2, 2, 2).dollars == pytest.approx(1.5)


def test_a_wrong_call_in_what_the_model_sees_is_found() -> None:
    task = Task(7, 1, 2, 2)
    right, other = task.expected_calls()
    assert read_task(f"as said: {task.text}") == task
    book = Book({"toolu_1": right, "toolu_2": other})

    def shown(tool_id: str, name: str, arguments: object) -> dict[str, object]:
        return {"id": tool_id, "function": {"name": name, "arguments": orjson.dumps(arguments).decode()}}

    calls = [shown("toolu_1", right.name, right.arguments), shown("toolu_2", other.name, other.arguments)]
    results = [{"role": "tool", "tool_call_id": tool_id} for tool_id in ("toolu_1", "toolu_2")]
    assert book.check([{"role": "assistant", "tool_calls": calls}, *results], task)
    swapped = [shown("toolu_1", other.name, other.arguments), shown("toolu_2", other.name, {})]
    assert not book.check([{"role": "assistant", "tool_calls": swapped}, *results], task)
    assert not book.check(results, task)
    assert (book.wrong_names, book.wrong_arguments, book.lost_calls) == (1, 1, 2)


def test_faults_come_as_often_as_they_are_asked_for() -> None:
    dice = random.Random(1)
    drawn = Counter(BAD_DAY.draw(dice) for _ in range(20_000))
    for kind in ("throttled", "failed", "reset", "unprocessed", "delayed"):
        assert drawn[kind] / 20_000 == pytest.approx(getattr(BAD_DAY, kind), rel=0.2)
    assert {NO_FAULTS.draw(dice) for _ in range(1000)} == {None}
