"""One contract over every counter store: SQLite, moto's DynamoDB and AWS's own DynamoDB Local."""

from __future__ import annotations

import asyncio
import multiprocessing
import sqlite3
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge.canonical.events import Usage
from bridge.errors import BridgeError, ErrorKind
from bridge.ledger import Ledger
from bridge.limits import Limiter, RateLimits
from bridge.state.counters import (
    LEDGER_SHARDS,
    Added,
    Counter,
    CounterKey,
    KeyRange,
    LedgerLine,
    ledger_ranges,
    window_at,
)
from bridge.state.dynamodb_counters import DynamoDbCounters
from bridge.state.dynamodb_table import DynamoDbTable
from bridge.state.sqlite_counters import SqliteCounters
from bridge.state.sqlite_file import SqliteFile

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from backends import Backend, Clock

    from bridge.state.counters import CounterStore

T = TypeVar("T")
MakeCounters: TypeAlias = "Callable[[], CounterStore]"
KEY = CounterKey("counter", "one")
LIFE = 1000


def _counters_on(place: SqliteFile | DynamoDbTable, clock: Callable[[], float]) -> CounterStore:
    return SqliteCounters(place, clock) if isinstance(place, SqliteFile) else DynamoDbCounters(place, clock)


@pytest.fixture
def make_counters(backend: Backend, clock: Clock) -> MakeCounters:
    """Stores on the same data: each call stands for another process."""
    return lambda: _counters_on(backend(), clock)


@pytest.fixture
def counters(make_counters: MakeCounters) -> CounterStore:
    return make_counters()


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def everything(store: CounterStore, partition: str = "counter") -> dict[str, dict[str, int]]:
    found = run(store.read([KeyRange(partition, "\0", "~")], 1000))
    return {counter.key.sort_key: counter.values for counter in found}


@pytest.mark.req("LEDGER")
def test_additions_of_several_processes_add_up(make_counters: MakeCounters, clock: Clock) -> None:
    expiry = int(clock()) + LIFE
    assert run(make_counters().add(KEY, {"a": 2, "b": 1}, expiry)) == Added({"a": 2, "b": 1})
    assert run(make_counters().add(KEY, {"a": 3, "status": 4}, expiry)) == Added({"a": 5, "b": 1, "status": 4})
    assert run(make_counters().add(KEY, {"a": -1}, expiry)).values["a"] == 4
    assert everything(make_counters()) == {"one": {"a": 4, "b": 1, "status": 4}}


@pytest.mark.req("C8")
def test_an_addition_at_the_limit_changes_nothing_and_says_which_limit(counters: CounterStore, clock: Clock) -> None:
    expiry = int(clock()) + LIFE
    assert run(counters.add(KEY, {"a": 5}, expiry, {"a": 3})) == Added({"a": 5}), "below the limit before it"
    assert run(counters.add(KEY, {"a": 1, "b": 1}, expiry, {"b": 1, "a": 3})) == Added({"a": 5}, "a")
    assert everything(counters) == {"one": {"a": 5}}


@pytest.mark.req("C8")
@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_of_nothing_admits_nothing(counters: CounterStore, clock: Clock, limit: int) -> None:
    assert run(counters.add(KEY, {"a": 1}, int(clock()) + LIFE, {"a": limit})) == Added({}, "a")
    assert everything(counters) == {}


@pytest.mark.req("C8")
def test_without_amounts_limits_are_compared_and_nothing_is_written(counters: CounterStore, clock: Clock) -> None:
    expiry = int(clock()) + LIFE
    assert run(counters.add(KEY, {}, expiry, {"a": 1})) == Added({})
    assert everything(counters) == {}
    run(counters.add(KEY, {"a": 1}, expiry))
    assert run(counters.add(KEY, {}, expiry, {"a": 1})) == Added({"a": 1}, "a")
    assert run(counters.add(KEY, {}, expiry, {"a": 2})) == Added({"a": 1})
    clock.time += LIFE
    assert run(counters.add(KEY, {}, expiry + LIFE, {"a": 1})) == Added({}), "what is expired is absent"


@pytest.mark.req("C8")
def test_an_expired_counter_begins_anew_whether_or_not_it_was_deleted(counters: CounterStore, clock: Clock) -> None:
    run(counters.add(KEY, {"a": 3, "b": 1}, int(clock()) + LIFE, {"a": 3}))
    clock.time += LIFE - 1
    assert everything(counters) == {"one": {"a": 3, "b": 1}}
    clock.time += 1
    assert everything(counters) == {}
    assert run(counters.add(KEY, {"a": 1}, int(clock()) + LIFE, {"a": 0})) == Added({}, "a")
    assert run(counters.add(KEY, {"a": 1}, int(clock()) + LIFE, {"a": 3})) == Added({"a": 1})
    assert everything(counters) == {"one": {"a": 1}}


@pytest.mark.req("NFR5")
def test_counters_of_other_keys_are_other_counters(counters: CounterStore, clock: Clock) -> None:
    keys = [CounterKey("counter", "one"), CounterKey("counter", "two"), CounterKey("other", "one")]
    for amount, key in enumerate(keys, 1):
        run(counters.add(key, {"a": amount}, int(clock()) + LIFE))
    assert everything(counters) == {"one": {"a": 1}, "two": {"a": 2}}
    assert everything(counters, "other") == {"one": {"a": 3}}


@pytest.mark.req("LEDGER")
def test_ranges_include_both_ends_and_come_back_sorted(counters: CounterStore, clock: Clock) -> None:
    for name in ("d", "b", "a", "c", "B"):
        run(counters.add(CounterKey("p", name), {"a": 1}, int(clock()) + LIFE))
    run(counters.add(CounterKey("o", "x"), {"a": 1}, int(clock()) + LIFE))
    found = run(counters.read([KeyRange("p", "b", "c"), KeyRange("none", "a", "z"), KeyRange("o", "a", "z")], 3))
    assert found == [
        Counter(CounterKey("o", "x"), {"a": 1}),
        Counter(CounterKey("p", "b"), {"a": 1}),
        Counter(CounterKey("p", "c"), {"a": 1}),
    ]
    assert run(counters.read([], 3)) == []


@pytest.mark.req("LEDGER")
@pytest.mark.parametrize("spans", [[KeyRange("p", "a", "z")], [KeyRange("p", "a", "b"), KeyRange("p", "c", "z")]])
def test_more_lines_than_asked_for_are_an_error_not_a_part(
    counters: CounterStore, clock: Clock, spans: list[KeyRange]
) -> None:
    for name in "abcd":
        run(counters.add(CounterKey("p", name), {"a": 1}, int(clock()) + LIFE))
    assert len(run(counters.read(spans, 4))) == 4
    with pytest.raises(BridgeError, match="more than 3 lines") as refused:
        run(counters.read(spans, 3))
    assert refused.value.status == 400


@pytest.mark.req("LEDGER")
def test_a_range_of_several_pages_comes_back_whole(racing_backend: Backend, clock: Clock) -> None:
    store = _counters_on(racing_backend(), clock)
    padding = "x" * 1000
    keys = [CounterKey("p", f"{number:04}{padding}") for number in range(1300)]

    async def fill() -> None:
        for start in range(0, len(keys), 16):
            batch = keys[start : start + 16]
            await asyncio.gather(*(store.add(key, {"a": 1}, int(clock()) + LIFE) for key in batch))

    run(fill())
    assert [counter.key for counter in run(store.read([KeyRange("p", "0", "9")], 2000))] == keys


Operation: TypeAlias = tuple[str, dict[str, int], dict[str, int], int]
_FIELDS = st.sampled_from(["a", "b"])
_OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["one", "two"]),
        st.dictionaries(_FIELDS, st.integers(-2, 5)),
        st.dictionaries(_FIELDS, st.integers(-1, 8)),
        st.sampled_from([0, 0, 0, LIFE // 2, LIFE]),
    ),
    max_size=10,
)


@dataclass
class Model:
    """What a counter store does, said in plain Python."""

    items: dict[str, tuple[dict[str, int], int]] = field(default_factory=dict)

    def add(self, name: str, amounts: dict[str, int], limits: dict[str, int], now: int) -> Added:
        values, expires_at = self.items.get(name, ({}, 0))
        values = dict(values) if expires_at > now else {}
        for counted, limit in limits.items():
            if values.get(counted, 0) >= limit:
                return Added(values, counted)
        for counted, amount in amounts.items():
            values[counted] = values.get(counted, 0) + amount
        if amounts:
            self.items[name] = (values, now + LIFE)
        return Added(values)


@pytest.mark.req("C8")
@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(operations=_OPERATIONS)
def test_every_store_does_what_the_model_does(
    counters: CounterStore, clock: Clock, operations: list[Operation]
) -> None:
    model, partition = Model(), uuid4().hex
    for name, amounts, limits, wait in operations:
        clock.time += wait
        expected = model.add(name, amounts, limits, int(clock()))
        assert run(counters.add(CounterKey(partition, name), amounts, int(clock()) + LIFE, limits)) == expected
    alive = {name: values for name, (values, expires_at) in model.items.items() if expires_at > int(clock())}
    assert everything(counters, partition) == alive


@pytest.mark.req("C8")
def test_a_limit_admits_exactly_as_many_as_it_says(racing_backend: Backend, clock: Clock) -> None:
    async def race() -> list[Added]:
        stores = [_counters_on(racing_backend(), clock) for _ in range(3)]
        adds = [stores[n % 3].add(KEY, {"a": 1}, int(clock()) + LIFE, {"a": 7}) for n in range(30)]
        return list(await asyncio.gather(*adds))

    outcomes = run(race())
    assert sorted(added.values["a"] for added in outcomes if added.refused is None) == [1, 2, 3, 4, 5, 6, 7]
    assert [added for added in outcomes if added.refused] == [Added({"a": 7}, "a")] * 23


@pytest.mark.req("C8")
def test_of_those_who_find_an_expired_counter_one_begins_it_anew(racing_backend: Backend, clock: Clock) -> None:
    run(_counters_on(racing_backend(), clock).add(KEY, {"a": 9}, int(clock()) + LIFE))
    clock.time += LIFE

    async def race() -> list[Added]:
        stores = [_counters_on(racing_backend(), clock) for _ in range(2)]
        return list(await asyncio.gather(*(stores[n % 2].add(KEY, {"a": 1}, int(clock()) + LIFE) for n in range(8))))

    assert sorted(added.values["a"] for added in run(race())) == [1, 2, 3, 4, 5, 6, 7, 8]


def _fixed_time() -> float:
    return 4_000_000_000.0


def _work_in_another_process(kind: str, name: str) -> int:
    """Twenty requests of one principal; how many were let in."""
    place = SqliteFile(name) if kind == "sqlite" else DynamoDbTable(name)
    store = _counters_on(place, _fixed_time)
    limiter = Limiter(store, RateLimits(requests_per_minute=15, tokens_per_day=10**6), _fixed_time)
    ledger = Ledger(store, clock=_fixed_time)

    async def one() -> int:
        noted = ledger.note("ann", "openai", "gpt-4o", Usage(input_tokens=2, output_tokens=1))
        admitted, kept = await asyncio.gather(limiter.admit("ann"), noted, return_exceptions=True)
        assert kept is True, kept
        assert not isinstance(admitted, BridgeError) or admitted.status == 429, admitted
        return int(not isinstance(admitted, BaseException))

    async def all_of_them() -> int:
        return sum(await asyncio.gather(*(one() for _ in range(20))))

    try:
        return asyncio.run(all_of_them())
    finally:
        if isinstance(place, DynamoDbTable):
            place.close()


@pytest.mark.req("C8", "LEDGER", "NFR5")
def test_two_processes_share_one_limit_and_one_ledger(racing_backend: Backend) -> None:
    place = racing_backend()
    where = ("sqlite", str(place.path)) if isinstance(place, SqliteFile) else ("dynamodb", place.name)
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as processes:
        admitted = [future.result() for future in [processes.submit(_work_in_another_process, *where) for _ in "ab"]]
    assert sum(admitted) == 15
    store = _counters_on(place, _fixed_time)
    window = window_at("ann", 60, _fixed_time())
    assert run(store.add(window.key, {}, 0, {})).values == {"requests": 15}
    (row,) = run(Ledger(store, clock=_fixed_time).report("ann", date(2096, 10, 2), date(2096, 10, 2)))
    assert (row.requests, row.input_tokens, row.output_tokens) == (40, 80, 40)


@pytest.mark.req("LEDGER")
@pytest.mark.parametrize("limits", [None, {"a": 1}], ids=["without_limit", "at_its_limit"])
def test_an_addition_whose_answer_was_lost_is_not_made_twice(
    aws_environment: dict[str, str], clock: Clock, limits: dict[str, int] | None
) -> None:
    table = _new_table()
    lost = iter([True, True])

    def lose_the_answer(**_: Any) -> None:
        from botocore.exceptions import ConnectionClosedError

        if next(lost, False):
            raise ConnectionClosedError(endpoint_url="the answer was on its way")

    table.client.meta.events.register("after-call.dynamodb.UpdateItem", lose_the_answer)
    store = DynamoDbCounters(table, clock)
    assert run(store.add(KEY, {"a": 1}, int(clock()) + LIFE, limits)) == Added({"a": 1})
    assert next(lost, None) is None, "both answers were lost"
    table.close()


@pytest.mark.req("FR5.5")
def test_a_store_that_does_not_answer_is_overloaded(
    monkeypatch: pytest.MonkeyPatch, aws_environment: dict[str, str], clock: Clock
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", "http://127.0.0.1:1")
    table = DynamoDbTable("none")
    store = DynamoDbCounters(table, clock)
    for work in (
        store.add(KEY, {"a": 1}, 1),
        store.add(KEY, {}, 1, {"a": 1}),
        store.read([KeyRange("p", "a", "b")], 1),
    ):
        with pytest.raises(BridgeError) as failed:
            run(work)
        assert failed.value.kind is ErrorKind.OVERLOADED
    table.close()


@pytest.mark.req("LEDGER")
def test_counters_survive_a_new_version_of_the_state_file(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "state.sqlite3"
    store = SqliteCounters(SqliteFile(str(path)), clock)
    run(store.add(KEY, {"a": 1}, int(clock()) + LIFE))
    other = sqlite3.connect(path)
    other.execute("PRAGMA user_version = 1")
    other.close()
    assert everything(store) == {"one": {"a": 1}}


def test_expired_counters_leave_the_state_file_when_one_begins(tmp_path: Path, clock: Clock) -> None:
    path = tmp_path / "state.sqlite3"
    store = SqliteCounters(SqliteFile(str(path)), clock)
    run(store.add(KEY, {"a": 1}, int(clock()) + LIFE))
    clock.time += LIFE
    run(store.add(CounterKey("counter", "two"), {"a": 1}, int(clock()) + LIFE))
    file = sqlite3.connect(path)
    assert file.execute("SELECT sk FROM counters").fetchall() == [("two",)]
    file.close()


_NAMES = st.one_of(st.text(max_size=12), st.text("a#%~$/é\0 ", max_size=600))
_DAYS = st.dates(date(2024, 1, 1), date(2030, 12, 31))


@pytest.mark.req("LEDGER", "NFR5")
@given(line=st.builds(LedgerLine, _DAYS, _NAMES, _NAMES, _NAMES), other=_NAMES)
def test_a_line_is_in_the_ranges_of_its_principal_only(line: LedgerLine, other: str) -> None:
    key = line.key()
    assert len(key.sort_key.encode()) <= 1024
    assert _holds(ledger_ranges(line.principal, line.day, line.day), key) == 1
    assert _holds(ledger_ranges(None, line.day, line.day), key) == 1
    assert _holds(ledger_ranges(other, line.day, line.day), key) == int(other == line.principal)
    before = line.day - timedelta(1)
    assert _holds(ledger_ranges(line.principal, before, before), key) == 0
    assert _holds(ledger_ranges(None, before, before), key) == 0
    if max(len(line.principal), len(line.provider), len(line.model)) <= 12:
        assert LedgerLine.from_key(key) == line


@pytest.mark.req("LEDGER")
@given(first=_DAYS, days=st.integers(0, 366), at=st.integers(-3, 370), principal=st.sampled_from(["ann", "a#b", ""]))
def test_ranges_hold_the_days_asked_for_and_no_others(first: date, days: int, at: int, principal: str) -> None:
    last, day = first + timedelta(days), first + timedelta(at)
    key = LedgerLine(day, principal, "openai", "gpt").key()
    expected = int(first <= day <= last)
    assert _holds(ledger_ranges(principal, first, last), key) == expected
    assert _holds(ledger_ranges(None, first, last), key) == expected
    assert len(ledger_ranges(None, first, last)) <= 14 * LEDGER_SHARDS


@pytest.mark.req("NFR2")
def test_principals_are_spread_over_every_shard() -> None:
    partitions = {LedgerLine(date(2026, 1, 1), f"p{number}", "x", "y").key().partition for number in range(200)}
    assert len(partitions) == LEDGER_SHARDS


def _holds(ranges: list[KeyRange], key: CounterKey) -> int:
    return sum(span.partition == key.partition and span.first <= key.sort_key <= span.last for span in ranges)


def _new_table() -> DynamoDbTable:
    from bridge.state.dynamodb_table import connect
    from bridge.state.table import create_table

    name, client = f"state-{uuid4().hex}", connect()
    create_table(client, name)
    client.close()
    return DynamoDbTable(name)
