"""The usage ledger, over a real store."""

from __future__ import annotations

import asyncio
import csv
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from io import StringIO
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge.canonical.events import Usage
from bridge.errors import BridgeError, ErrorKind
from bridge.ledger import KEPT_DAYS, Ledger, LedgerRow, Price, Prices, list_prices, parse_prices, to_csv
from bridge.state.sqlite_counters import SqliteCounters
from bridge.state.sqlite_file import SqliteFile

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path

    from bridge.state.counters import CounterStore

T = TypeVar("T")
TODAY = date(2026, 11, 30)
PRICES = Prices((("openai/gpt*", Price(2, 10, 0.5, 2)), ("*/cheap", Price(0.1, 0.4, 0.1, 0.1))))


@dataclass
class Clock:
    time: float = datetime(2026, 11, 30, 12, tzinfo=UTC).timestamp()

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> CounterStore:
    return SqliteCounters(SqliteFile(str(tmp_path / "state.sqlite3")), clock)


@pytest.fixture
def ledger(store: CounterStore, clock: Clock) -> Ledger:
    return Ledger(store, PRICES, clock)


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


@pytest.mark.req("LEDGER")
def test_answers_add_up_by_principal_provider_model_and_day(ledger: Ledger, clock: Clock) -> None:
    usage = Usage(100, 10, 1000, 50)
    for principal, provider, model in [
        ("ann", "openai", "gpt-4o"),
        ("ann", "openai", "gpt-4o"),
        ("ann", "openrouter", "openai/gpt-4o"),
        ("ben", "openai", "gpt-4o"),
    ]:
        assert run(ledger.note(principal, provider, model, usage)) is True
    clock.time += 24 * 3600
    run(ledger.note("ann", "openai", "gpt-4o", Usage(1, 2, estimated=True)))
    tomorrow = TODAY + timedelta(1)
    cost = 100 * 2 + 10 * 10 + 1000 * 0.5 + 50 * 2
    first = LedgerRow(TODAY, "ann", "openai", "gpt-4o", 2, 200, 20, 2000, 100, 0, int(2 * cost))
    second = LedgerRow(TODAY, "ann", "openrouter", "openai/gpt-4o", 1, 100, 10, 1000, 50, unpriced=1)
    third = LedgerRow(TODAY, "ben", "openai", "gpt-4o", 1, 100, 10, 1000, 50, 0, int(cost))
    fourth = LedgerRow(tomorrow, "ann", "openai", "gpt-4o", 1, 1, 2, estimated_requests=1, cost_microdollars=22)
    assert run(ledger.report("ann", TODAY, tomorrow)) == [first, second, fourth]
    assert run(ledger.report(None, TODAY, tomorrow)) == [first, second, third, fourth]
    assert run(ledger.report(None, TODAY, TODAY)) == [first, second, third]
    assert run(ledger.report("ann", tomorrow, tomorrow)) == [fourth]


@pytest.mark.req("LEDGER", "NFR5")
@pytest.mark.parametrize("other", ["an", "ann#", "ann#openai", "ann%23", "ANN", "", "anna", "ann/openai"])
def test_a_report_shows_nobody_elses_lines(ledger: Ledger, other: str) -> None:
    run(ledger.note("ann", "openai", "gpt-4o", Usage(1)))
    run(ledger.note(other, "openai", "gpt-4o", Usage(2)))
    assert [row.principal for row in run(ledger.report("ann", TODAY, TODAY))] == ["ann"]
    assert [row.input_tokens for row in run(ledger.report(other, TODAY, TODAY))] == [2]


@pytest.mark.req("LEDGER")
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    answers=st.lists(
        st.tuples(st.sampled_from(["ann", "ben"]), st.sampled_from(["gpt-4o", "x#y"]), st.integers(0, 9)), max_size=20
    )
)
def test_sums_are_exact_when_many_note_at_once(tmp_path: Path, answers: list[tuple[str, str, int]]) -> None:
    file = tmp_path / f"{uuid4().hex}.sqlite3"
    clock = Clock()
    ledgers = [Ledger(SqliteCounters(SqliteFile(str(file)), clock), PRICES, clock) for _ in range(2)]

    async def note_all() -> list[LedgerRow]:
        notes = [
            ledgers[index % 2].note(principal, "openai", model, Usage(tokens))
            for index, (principal, model, tokens) in enumerate(answers)
        ]
        assert all(await asyncio.gather(*notes))
        return await ledgers[0].report(None, TODAY, TODAY)

    rows = {(row.principal, row.model): (row.requests, row.input_tokens) for row in run(note_all())}
    lines = {(principal, model) for principal, model, _ in answers}
    assert rows == {
        line: (
            sum(answer[:2] == line for answer in answers),
            sum(answer[2] for answer in answers if answer[:2] == line),
        )
        for line in lines
    }


@pytest.mark.req("LEDGER")
def test_a_day_is_a_utc_day(ledger: Ledger, clock: Clock) -> None:
    midnight = datetime(2026, 12, 1, tzinfo=UTC).timestamp()
    for clock.time in (midnight - 0.001, midnight):
        run(ledger.note("ann", "openai", "gpt-4o", Usage(1)))
    rows = run(ledger.report("ann", TODAY, TODAY + timedelta(1)))
    assert [(row.day, row.requests) for row in rows] == [(TODAY, 1), (TODAY + timedelta(1), 1)]


@pytest.mark.req("LEDGER")
def test_lines_are_kept_for_longer_than_a_report_covers(ledger: Ledger, clock: Clock) -> None:
    run(ledger.note("ann", "openai", "gpt-4o", Usage(1)))
    clock.time += 366 * 24 * 3600
    assert len(run(ledger.report("ann", TODAY, TODAY))) == 1
    clock.time += (KEPT_DAYS - 366) * 24 * 3600
    assert run(ledger.report("ann", TODAY, TODAY)) == []


@pytest.mark.req("LEDGER")
@pytest.mark.parametrize("principal", ["ann", None])
def test_a_report_covers_a_year_at_most(ledger: Ledger, principal: str | None) -> None:
    run(ledger.note("ann", "openai", "gpt-4o", Usage(1)))
    assert len(run(ledger.report(principal, TODAY - timedelta(365), TODAY))) == 1
    for first, last in ((TODAY - timedelta(366), TODAY), (TODAY, TODAY - timedelta(1)), (date.min, date.max)):
        with pytest.raises(BridgeError) as refused:
            run(ledger.report(principal, first, last))
        assert (refused.value.kind, refused.value.status) == (ErrorKind.INVALID_REQUEST, 400)


@pytest.mark.req("LEDGER", "FR5.4")
def test_a_note_that_fails_says_so_and_never_raises(tmp_path: Path, clock: Clock) -> None:
    (tmp_path / "file").write_text("not a folder")
    ledger = Ledger(SqliteCounters(SqliteFile(str(tmp_path / "file" / "state.sqlite3")), clock), PRICES, clock)
    assert run(ledger.note("ann", "openai", "gpt-4o", Usage(1))) is False


@pytest.mark.req("LEDGER")
def test_a_line_without_a_price_says_so(ledger: Ledger) -> None:
    run(ledger.note("ann", "elsewhere", "unknown", Usage(1)))
    (row,) = run(ledger.report("ann", TODAY, TODAY))
    assert (row.priced, row.cost_usd) == (False, None)
    half = LedgerRow(TODAY, "ann", "x", "y", requests=2, cost_microdollars=5, unpriced=1)
    assert (half.priced, half.cost_usd) == (False, 0.000005)
    free = LedgerRow(TODAY, "ann", "x", "y", requests=2)
    assert (free.priced, free.cost_usd) == (True, 0.0)


@pytest.mark.req("LEDGER")
def test_a_row_as_json() -> None:
    row = LedgerRow(TODAY, "ann", "openai", "gpt-4o", 1, 2, 3, 4, 5, 0, 1_500_000)
    assert row.to_json() == {
        "day": "2026-11-30",
        "principal": "ann",
        "provider": "openai",
        "model": "gpt-4o",
        "requests": 1,
        "input_tokens": 2,
        "output_tokens": 3,
        "cache_read_tokens": 4,
        "cache_write_tokens": 5,
        "estimated_requests": 0,
        "cost_usd": 1.5,
        "priced": True,
    }
    assert orjson.loads(orjson.dumps(row.to_json())) == row.to_json()


@pytest.mark.req("LEDGER", "C8")
@pytest.mark.parametrize("model", ["=1+1", "+1", "-1", "@x", "\t=1", "\r=1", "\n=1", '=HYPERLINK("http://x")'])
def test_csv_never_holds_a_formula(model: str) -> None:
    (row,) = csv.DictReader(StringIO(to_csv([LedgerRow(TODAY, "ann", "openai", model)]), newline=""))
    assert row["model"] == "'" + model


@pytest.mark.req("LEDGER")
@pytest.mark.parametrize("name", ["gpt-4o", "a,b", 'a"b', "a;=1", "a\nb", "é"])
def test_csv_reads_back_as_it_was(name: str) -> None:
    rows = [
        LedgerRow(TODAY, name, "openai", "m", 3, cost_microdollars=12),
        LedgerRow(TODAY, "b", "openai", name, 1, unpriced=1),
    ]
    first, second = csv.DictReader(StringIO(to_csv(rows), newline=""))
    assert (first["principal"], first["requests"], float(first["cost_usd"]), first["priced"]) == (
        name,
        "3",
        0.000012,
        "true",
    )
    assert (second["model"], second["cost_usd"], second["priced"]) == (name, "", "false")


@pytest.mark.req("LEDGER")
@pytest.mark.parametrize(
    ("provider", "model", "expected"),
    [
        ("anthropic", "claude-opus-4-20250514", (15, 75)),
        ("anthropic", "claude-opus-4-1-20250805", (15, 75)),
        ("anthropic", "claude-opus-4-5-20251101", (5, 25)),
        ("openrouter", "anthropic/claude-opus-4.6", (5, 25)),
        ("bedrock", "us.anthropic.claude-sonnet-4-5-20250929-v1:0", (3, 15)),
        ("anthropic", "Claude-Haiku-4-5", (1, 5)),
        ("openai", "gpt-4o", (2.5, 10)),
        ("openai", "gpt-4o-mini-2024-07-18", (0.15, 0.6)),
        ("openai", "gpt-4.1-nano", (0.1, 0.4)),
        ("openrouter", "openai/gpt-5-mini", (0.25, 2)),
        ("openai", "gpt-5-2025-08-07", (1.25, 10)),
        ("gemini", "gemini-2.5-flash", (0.3, 2.5)),
        ("gemini", "gemini-2.5-flash-lite", (0.1, 0.4)),
        ("gemini", "gemini-2.5-pro", (1.25, 10)),
        ("openrouter", "meta-llama/llama-4:free", (0, 0)),
        ("openai", "gpt-4o-audio-preview", None),
        ("openai", "gpt-oss-120b", None),
        ("openai", "my-own-model", None),
    ],
)
def test_the_price_list_knows_the_models_it_names(
    provider: str, model: str, expected: tuple[float, float] | None
) -> None:
    price = list_prices().of(provider, model)
    assert (price and (price.input, price.output)) == expected


@pytest.mark.req("LEDGER")
def test_prices_of_caches_are_those_of_input_unless_given() -> None:
    prices = parse_prices(b'{"prices": [["a/*", {"input": 3, "output": 15}], ["*", {"input": 1, "output": 1}]]}')
    assert prices.of("a", "x") == Price(3, 15, 3, 3)
    assert prices.of("b", "x") == Price(1, 1, 1, 1)


@pytest.mark.req("LEDGER")
@pytest.mark.parametrize("row", ['{"input": 1}', '{"input": -1, "output": 1}', '{"input": 1, "output": 1, "typo": 2}'])
def test_a_wrong_row_of_a_price_list_is_named(row: str) -> None:
    with pytest.raises(ValueError, match=r"prices: x/\*"):
        parse_prices(f'{{"prices": [["x/*", {row}]]}}'.encode())


@pytest.mark.req("LEDGER")
def test_cost_is_whole_micro_dollars() -> None:
    price = Price(3, 15, 0.3, 3.75)
    assert price.cost(Usage(1_000_000, 0)) == 3_000_000
    assert price.cost(Usage(1, 1, 1, 1)) == 22
    assert isinstance(price.cost(Usage(1)), int)
