"""Additions that wait for each other: nothing of them is lost, counted twice or seen too late."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from bridge.errors import BridgeError
from bridge.state.counters import Added, CounterKey, KeyRange
from bridge.state.gathered_counters import MAX_GATHERED, GatheredCounters
from bridge.state.sqlite_counters import SqliteCounters
from bridge.state.sqlite_file import SqliteFile

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping
    from pathlib import Path

pytestmark = pytest.mark.req("LEDGER")
T = TypeVar("T")
KEY, OTHER = CounterKey("counter", "one"), CounterKey("counter", "two")
EXPIRY = 4_000_000_000
ALL = [KeyRange("counter", "\0", "~")]


class SlowStore(SqliteCounters):
    """The real store, a moment later: others come in between."""

    async def add(
        self, key: CounterKey, amounts: Mapping[str, int], expires_at: int, limits: Mapping[str, int] | None = None
    ) -> Added:
        await asyncio.sleep(0.01)
        return await super().add(key, amounts, expires_at, limits)


class CountingStore(SqliteCounters):
    """The real store, which counts its additions."""

    added = 0

    async def add(
        self, key: CounterKey, amounts: Mapping[str, int], expires_at: int, limits: Mapping[str, int] | None = None
    ) -> Added:
        self.added += 1
        return await super().add(key, amounts, expires_at, limits)


@pytest.fixture
def store(tmp_path: Path) -> CountingStore:
    return CountingStore(SqliteFile(str(tmp_path / "state.sqlite3")))


def run(work: Coroutine[Any, Any, T]) -> T:
    async def bounded() -> T:
        async with asyncio.timeout(20):
            return await work

    return asyncio.run(bounded())


async def values(store: SqliteCounters | GatheredCounters) -> dict[str, dict[str, int]]:
    return {counter.key.sort_key: counter.values for counter in await store.read(ALL, MAX_GATHERED * 2)}


async def written(store: SqliteCounters, expected: dict[str, dict[str, int]]) -> None:
    for _ in range(1000):
        if await values(store) == expected:
            return
        await asyncio.sleep(0.01)
    assert await values(store) == expected


def test_additions_to_a_counter_are_written_together_and_by_themselves(store: CountingStore) -> None:
    async def work() -> None:
        gathered = GatheredCounters(store, seconds=0.05)
        for _ in range(50):
            await gathered.add(KEY, {"n": 1, "in": 3}, EXPIRY)
        await gathered.add(OTHER, {"n": 1}, EXPIRY)
        await written(store, {"one": {"n": 50, "in": 150}, "two": {"n": 1}})
        assert store.added == 2
        await gathered.add(KEY, {"n": 1}, EXPIRY)
        await written(store, {"one": {"n": 51, "in": 150}, "two": {"n": 1}})

    run(work())


def test_whoever_reads_sees_everything_that_was_added(store: CountingStore) -> None:
    async def work() -> None:
        gathered = GatheredCounters(store, seconds=3600)
        await gathered.add(KEY, {"n": 2}, EXPIRY)
        assert await values(gathered) == {"one": {"n": 2}}
        await gathered.add(KEY, {"n": 1}, EXPIRY)
        await gathered.aclose()
        assert await values(store) == {"one": {"n": 3}}

    run(work())


def test_what_cannot_be_written_is_kept_and_told(tmp_path: Path) -> None:
    """A folder stands where the file should be; then it is gone."""
    place = tmp_path / "state.sqlite3"
    place.mkdir()
    store = SqliteCounters(SqliteFile(str(place)))

    async def work() -> None:
        gathered = GatheredCounters(store, seconds=3600)
        await gathered.add(KEY, {"n": 1}, EXPIRY)
        await gathered.add(OTHER, {"n": 5}, EXPIRY)
        with pytest.raises(BridgeError):
            await gathered.read(ALL, 10)
        with pytest.raises(BridgeError):
            await gathered.add(KEY, {"n": 1}, EXPIRY)
        place.rmdir()
        await gathered.add(KEY, {"n": 1}, EXPIRY)
        assert await values(gathered) == {"one": {"n": 3}, "two": {"n": 5}}

    run(work())


def test_an_addition_under_a_limit_does_not_wait(store: CountingStore) -> None:
    async def work() -> None:
        gathered = GatheredCounters(store, seconds=3600)
        assert await gathered.add(KEY, {"n": 1}, EXPIRY, {"n": 1}) == Added({"n": 1})
        assert await gathered.add(KEY, {"n": 1}, EXPIRY, {"n": 1}) == Added({"n": 1}, "n")

    run(work())


def test_not_more_is_gathered_than_fits(store: CountingStore) -> None:
    async def work() -> None:
        gathered = GatheredCounters(store, seconds=3600)
        for number in range(MAX_GATHERED + 1):
            await gathered.add(CounterKey("counter", f"{number:05}"), {"n": 1}, EXPIRY)
        assert store.added == MAX_GATHERED + 1

    run(work())


LINES = [CounterKey("counter", f"{number:02}") for number in range(20)]
EVERYTHING = {key.sort_key: {"n": 1} for key in LINES}


@pytest.fixture
def slow(tmp_path: Path) -> SlowStore:
    return SlowStore(SqliteFile(str(tmp_path / "state.sqlite3")))


async def gathered_on(store: SlowStore, seconds: float) -> GatheredCounters:
    gathered = GatheredCounters(store, seconds)
    for key in LINES:
        await gathered.add(key, {"n": 1}, EXPIRY)
    return gathered


def test_a_reader_that_is_cancelled_takes_nothing_with_it(slow: SlowStore) -> None:
    async def work() -> None:
        gathered = await gathered_on(slow, 3600)
        reader = asyncio.create_task(gathered.read(ALL, 100))
        await asyncio.sleep(0.05)
        reader.cancel()
        await asyncio.wait([reader])
        assert await values(gathered) == EVERYTHING

    run(work())


def test_a_reader_waits_for_a_write_that_is_under_way(slow: SlowStore) -> None:
    async def work() -> None:
        gathered = await gathered_on(slow, 0.01)
        await asyncio.sleep(0.05)
        assert await values(gathered) == EVERYTHING

    run(work())


def test_what_comes_during_a_write_is_seen_and_written_too(slow: SlowStore) -> None:
    async def work() -> None:
        gathered = await gathered_on(slow, 0.01)
        await asyncio.sleep(0.05)
        await gathered.add(LINES[0], {"n": 5}, EXPIRY)
        assert (await values(gathered))["00"] == {"n": 6}
        await gathered.add(LINES[1], {"n": 7}, EXPIRY)
        await written(slow, EVERYTHING | {"00": {"n": 6}, "01": {"n": 8}})

    run(work())


def test_closing_waits_for_a_write_that_is_under_way(slow: SlowStore) -> None:
    async def work() -> None:
        gathered = await gathered_on(slow, 0.01)
        await asyncio.sleep(0.05)
        await gathered.aclose()
        assert await values(slow) == EVERYTHING

    run(work())


def test_a_line_that_no_store_takes_costs_no_other(store: CountingStore) -> None:
    async def work() -> None:
        gathered = GatheredCounters(store, 3600)
        await gathered.add(KEY, {"n": 2**70}, EXPIRY)
        await gathered.add(OTHER, {"n": 1}, EXPIRY)
        assert await values(gathered) == {"two": {"n": 1}}
        await gathered.aclose()

    run(work())


def test_a_failure_is_told_once_and_tried_again_later_and_later(tmp_path: Path) -> None:
    place = tmp_path / "state.sqlite3"
    place.mkdir()
    told: list[str] = []

    async def work() -> None:
        gathered = GatheredCounters(SqliteCounters(SqliteFile(str(place))), 0.01, told.append)
        await gathered.add(KEY, {"n": 1}, EXPIRY)
        await asyncio.sleep(0.2)
        assert len(told) == 1
        assert "cannot be used" in told[0]
        place.rmdir()
        assert await values(gathered) == {"one": {"n": 1}}

    run(work())
