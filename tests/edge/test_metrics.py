"""One EMF document per request: what is counted, how finely, and what it costs."""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from botocore.exceptions import ClientError

from bridge.canonical.content import ToolResult
from bridge.canonical.events import Usage
from bridge.canonical.request import Request, Turn
from bridge.conversation import Conversation
from bridge.deadline import until
from bridge.errors import BridgeError, ErrorKind
from bridge.exchange import Record
from bridge.state.claims import conversation_token, mint
from bridge.state.dynamodb_table import DynamoDbTable
from bridge.state.memory import ToolMemory
from bridge.state.records import ToolRecord
from bridge.state.sqlite import SqliteStore
from bridge.state.sqlite_file import SqliteFile
from bridge.state.tally import count_for, count_start
from handler.metrics import METRICS, NAMESPACE, MetricsWriter, Outcome, make_metrics, measured, model_family
from support import running_bridge

if TYPE_CHECKING:
    from pathlib import Path

    from scripted.server import ScriptedUpstream

GOOD = Outcome(200, 1200.0, 300.0, 4000)
ANSWERED = Record(provider="openai", wire_model="gpt-5", upstream_status=200)


def written(record: Record, outcome: Outcome = GOOD, *, warm: bool = True) -> dict[str, Any]:
    lines: list[str] = []
    writer = MetricsWriter("fn", lines.append)
    if warm:
        writer.emit(Record(), GOOD)
    writer.emit(record, outcome)
    document: dict[str, Any] = json.loads(lines[-1])
    return document


def sets_of(document: dict[str, Any]) -> dict[str, list[list[str]]]:
    """The dimension sets under which each metric is counted."""
    directives = document["_aws"]["CloudWatchMetrics"]
    return {metric["Name"]: part["Dimensions"] for part in directives for metric in part["Metrics"]}


@pytest.mark.req("C9", "NFR7")
def test_a_document_is_legal_emf() -> None:
    usage = Usage(100, 20, 30, 5)
    document = written(Record(provider="openai", wire_model="gpt-5", usage=usage, tool_call_count=2, store_reads=1))
    assert abs(document["_aws"]["Timestamp"] / 1000 - time.time()) < 60
    counted: list[str] = []
    for directive in document["_aws"]["CloudWatchMetrics"]:
        assert directive["Namespace"] == NAMESPACE
        assert all(name in document for dimensions in directive["Dimensions"] for name in dimensions)
        for metric in directive["Metrics"]:
            counted.append(metric["Name"])
            assert isinstance(document[metric["Name"]], int | float)
            assert metric["Unit"] == METRICS[metric["Name"]].unit
    assert len(counted) == len(set(counted)) <= 100
    values = {name: document[name] for name in counted}
    assert values == {
        "Requests": 1,
        "ToolCalls": 2,
        "StoreReads": 1,
        "InputTokens": 100,
        "OutputTokens": 20,
        "CacheReadTokens": 30,
        "CacheWriteTokens": 5,
        "Latency": 1200.0,
        "TimeToFirstToken": 300.0,
        "StreamedBytes": 4000,
    }


@pytest.mark.req("C9")
def test_metrics_are_broken_down_only_as_far_as_is_looked_at() -> None:
    document = written(Record(provider="openai", wire_model="gpt-5", usage=Usage(1, 1), store_reads=1))
    sets = sets_of(document)
    assert sets["StoreReads"] == [["service"]]
    assert sets["Latency"] == [["service"], ["service", "provider"]]
    assert sets["InputTokens"] == [["service"], ["service", "provider"], ["service", "provider", "model"]]
    assert (document["service"], document["provider"], document["model"]) == ("fn", "openai", "gpt")


@pytest.mark.req("C9")
def test_a_request_that_reached_no_provider_has_no_latency_to_compare() -> None:
    document = written(Record(), Outcome(200, 3.0, 2.0, 15))
    assert sets_of(document) == {"Requests": [["service"]]}
    assert "provider" not in document


@pytest.mark.req("C9")
@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("claude-opus-4-1-20250805", "claude-opus"),
        ("anthropic/claude-3-5-haiku-latest", "claude-haiku"),
        ("claude-sonnet-4-5", "claude-sonnet"),
        ("claude-next", "claude"),
        ("gpt-5.4-mini", "gpt"),
        ("openai/gpt-oss-120b", "gpt-oss"),
        ("o3-mini", "o"),
        ("gemini-2.5-pro", "gemini-pro"),
        ("models/gemini-3-flash-preview", "gemini-flash"),
        ("deepseek/deepseek-r1:free", "deepseek"),
        ("oops", "other"),
        ("whatever a client makes up", "other"),
        ("", "other"),
    ],
)
def test_models_are_counted_by_family(model: str, family: str) -> None:
    assert model_family(model) == family


@pytest.mark.req("C9")
def test_names_that_clients_make_up_do_not_become_dimensions() -> None:
    made_up = (
        [f"gpt-{n}" for n in range(200)] + [f"claude-opus-{n}" for n in range(200)] + [f"x{n}" for n in range(200)]
    )
    assert {model_family(name) for name in made_up} == {"gpt", "claude-opus", "other"}


@pytest.mark.req("C9")
@pytest.mark.parametrize("kind", [*ErrorKind.__members__, "CRASH"])
def test_every_kind_of_error_has_a_metric(kind: str) -> None:
    counted = measured(Record(error_kind=kind), Outcome(500, 1.0, 1.0, 1))
    assert set(counted) - set(METRICS) == set()
    assert counted["Errors"] == 1
    assert ("Faults" in counted) == (kind in {"API", "TIMEOUT", "OVERLOADED", "CRASH"})


@pytest.mark.req("C9")
@pytest.mark.parametrize(
    ("record", "status", "names"),
    [
        (Record(error_kind="RATE_LIMIT"), 429, {"RateLimitHits", "RateLimitErrors", "Errors"}),
        (Record(error_kind="RATE_LIMIT", upstream_status=429), 429, {"UpstreamThrottles", "RateLimitErrors", "Errors"}),
        (Record(upstream_status=529), 529, {"OverloadedErrors", "Errors", "Faults"}),
        (Record(upstream_status=404), 404, {"NotFoundErrors", "Errors"}),
        (
            Record(error_kind="TIMEOUT", deadline_endings=1),
            200,
            {"DeadlineEndings", "TimeoutErrors", "Errors", "Faults"},
        ),
    ],
    ids=["own limit", "provider's limit", "passed through fault", "passed through refusal", "deadline in a stream"],
)
def test_errors_are_counted_for_what_they_are(record: Record, status: int, names: set[str]) -> None:
    assert set(measured(record, Outcome(status, 1.0, 1.0, 1))) == names | {"Requests"}


@pytest.mark.req("NFR7")
def test_what_a_record_counts_is_a_metric() -> None:
    counters = {part.name for part in fields(Record) if part.type in ("int", "float", "bool")} - {"upstream_status"}
    ones: dict[str, Any] = dict.fromkeys(counters, 1)
    full = measured(Record(**ones, losses=("a",), policies=("b", "c")), GOOD)
    assert len(full) == len(counters) + 3  # Requests, Losses, PolicyDecisions
    assert full["PolicyDecisions"] == 2


@pytest.mark.req("C9")
def test_every_value_is_a_number_for_cloudwatch() -> None:
    record = Record(provider="openai", rerouted=True, error_kind="OVERLOADED", upstream_status=429)
    lines: list[str] = []
    MetricsWriter("fn", lines.append).emit(record, GOOD)
    document = json.loads(lines[0])
    assert (document["Reroutes"], document["Faults"], document["UpstreamThrottles"]) == (1, 1, 1)
    assert "true" not in lines[0]


@pytest.mark.req("C9")
def test_the_first_request_of_a_process_is_its_cold_start() -> None:
    assert written(Record(), warm=False)["ColdStarts"] == 1
    assert "ColdStarts" not in written(Record())


@pytest.mark.parametrize(
    ("chosen", "as_json", "wanted"),
    [("auto", True, True), ("auto", False, False), ("on", False, True), ("off", True, False)],
)
def test_metrics_are_written_on_lambda_or_where_asked_for(chosen: str, as_json: bool, wanted: bool) -> None:
    assert (make_metrics(chosen, as_json=as_json, service="s") is not None) is wanted


def test_nothing_of_powertools_is_imported_before_it_is_needed() -> None:
    code = "import sys, handler.metrics, handler.observability; print('aws_lambda_powertools' in sys.modules)"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.strip() == "False"


@pytest.mark.req("C9")
def test_a_document_takes_little_time() -> None:
    writer = MetricsWriter("fn", lambda line: None)
    taken = []
    for _ in range(300):
        started = time.perf_counter()
        writer.emit(ANSWERED, GOOD)
        taken.append(time.perf_counter() - started)
    assert statistics.median(taken) < 150e-6


@pytest.mark.req("C9", "NFR7")
def test_a_bridge_writes_one_document_for_each_request(
    upstream: ScriptedUpstream, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    upstream.script = [
        {"when": {"last_role": "tool"}, "reply": {"chat": {"text": "Sunny."}}},
        {"reply": {"chat": {"tool_calls": [{"name": "get_weather", "arguments": {"city": "Paris"}}]}}},
    ]
    ask = {"model": "openai/gpt-5", "max_tokens": 50, "messages": [{"role": "user", "content": "Weather?"}]}
    with running_bridge(tmp_path, UPSTREAM_OPENAI_BASE_URL=upstream.url, METRICS="on") as url:
        headers = {"x-conversation-id": "conv-metrics"}
        call = httpx2.post(f"{url}/v1/messages", json=ask, headers=headers).json()["content"][-1]
        result = {"type": "tool_result", "tool_use_id": call["id"], "content": "sunny"}
        trimmed = ask | {"messages": [{"role": "user", "content": [result]}], "stream": True}
        assert "Sunny." in httpx2.post(f"{url}/v1/messages", json=trimmed, headers=headers).text
        httpx2.post(f"{url}/v1/conversations/conv-metrics/terminate")
        lost = trimmed | {"messages": [{"role": "user", "content": [{**result, "tool_use_id": "toolu_nobody"}]}]}
        assert httpx2.post(f"{url}/v1/messages", json=lost, headers=headers).status_code == 400
    first, second, third, fourth = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert (first["ToolCalls"], first["StoreWrites"], first["ConversationsStarted"]) == (1, 1, 1)
    assert first["StoreWriteLatency"] > 0
    assert (second["RepairedCalls"], second["StoreReads"]) == (1, 1)
    assert second["StoreReadLatency"] > 0
    assert "ConversationsStarted" not in second
    assert third["ConversationsTerminated"] == 1
    assert fourth["InvalidRequestErrors"] == 1
    assert (first["provider"], first["model"]) == ("openai", "gpt")


def orphan(tool_id: str) -> Request:
    return Request("m", (Turn("user", (ToolResult(tool_id),)),), None)


@pytest.mark.req("NFR7", "FR6.1-6.2")
def test_what_the_store_does_not_find_is_counted_by_its_reason(tmp_path: Path) -> None:
    now = [1000.0]
    record = Record()
    store = SqliteStore(SqliteFile(str(tmp_path / "state")), 60, lambda: now[0])
    memory = ToolMemory(store, "ann", "openai/gpt", record)
    talk = Conversation("conv-a", conversation_token("conv-a"))
    kept, never_kept = (mint(talk.token, bytes([number] * 9), has_data=False) for number in (1, 2))

    async def turns() -> None:
        await memory.save(talk, [ToolRecord(kept, "look", "{}", "openai/gpt")])
        await memory.recall(orphan(kept), talk)
        assert (record.store_misses, record.expired_reads) == (0, 0)
        with pytest.raises(BridgeError, match="not known here"):
            await memory.recall(orphan(never_kept), talk)
        now[0] += 200
        with pytest.raises(BridgeError, match="expired"):
            await memory.recall(orphan(kept), talk)

    asyncio.run(turns())
    assert (record.store_misses, record.expired_reads, record.conversations_expired) == (1, 1, 1)


@pytest.mark.req("NFR7")
def test_the_store_counts_for_the_exchange_at_hand_also_on_its_threads() -> None:
    table, record, other = DynamoDbTable("t"), Record(), Record()
    throttled = ClientError({"Error": {"Code": "ThrottlingException", "Message": ""}}, "GetItem")
    faults = [throttled, throttled]

    def work() -> str:
        if faults:
            raise faults.pop()
        count_start()
        return "done"

    async def exchange() -> str:
        count_for(record)
        return await table.run(work)

    async def both() -> str:
        done = await asyncio.create_task(exchange())
        count_for(other)
        return done

    assert asyncio.run(both()) == "done"
    table.close()
    assert (record.store_retries, record.conversations_started) == (2, 1)
    assert (other.store_retries, other.conversations_started) == (0, 0)


@pytest.mark.req("C9", "C12")
def test_an_answer_that_the_deadline_ends_is_counted_apart_from_other_timeouts() -> None:
    record = Record()
    record.fail(BridgeError(ErrorKind.TIMEOUT, "the provider was silent"))
    assert (record.error_kind, record.deadline_endings) == ("TIMEOUT", 0)

    async def run_out_of_time() -> None:
        async with until(asyncio.get_running_loop().time()):
            await asyncio.sleep(5)

    with pytest.raises(BridgeError) as ended:
        asyncio.run(run_out_of_time())
    record.fail(ended.value)
    assert (record.error_kind, record.deadline_endings) == ("TIMEOUT", 1)
