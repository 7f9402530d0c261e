"""Message threads in every store: a line of turns, continued by one at a time."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import pytest

from bridge.errors import BridgeError
from bridge.state.dynamodb_threads import DynamoDbThreads
from bridge.state.lifetime import LEASE_SECONDS
from bridge.state.sqlite_file import SqliteFile
from bridge.state.sqlite_threads import SqliteThreads

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from backends import Backend, Clock

    from bridge.ports import ThreadStore
    from bridge.state.dynamodb_table import DynamoDbTable

T = TypeVar("T")
MakeThreads: TypeAlias = "Callable[[], ThreadStore]"
TTL = 300


@pytest.fixture
def make_threads(backend: Backend, clock: Clock) -> MakeThreads:
    """Stores on the same data: each call stands for another process."""
    return lambda: _threads_on(backend(), clock)


def _threads_on(place: SqliteFile | DynamoDbTable, clock: Clock) -> ThreadStore:
    return SqliteThreads(place, TTL, clock) if isinstance(place, SqliteFile) else DynamoDbThreads(place, TTL, clock)


@pytest.fixture
def threads(make_threads: MakeThreads) -> ThreadStore:
    return make_threads()


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def refused(work: Coroutine[Any, Any, Any]) -> str | None:
    with pytest.raises(BridgeError) as refusal:
        run(work)
    return refusal.value.code


@pytest.mark.req("T1")
def test_turns_come_back_in_order_in_another_process(make_threads: MakeThreads) -> None:
    run(make_threads().begin("thread#1", "m1", b"one"))
    assert run(make_threads().claim("thread#1", "m1", "lease")) == [b"one"]
    run(make_threads().extend("thread#1", "lease", "m2", 1, b"two"))
    assert run(make_threads().claim("thread#1", "m2", "next")) == [b"one", b"two"]


@pytest.mark.req("T1")
def test_a_turn_larger_than_an_item_is_split(threads: ThreadStore) -> None:
    large = os.urandom(900 * 1024)
    run(threads.begin("thread#1", "m1", large))
    assert run(threads.claim("thread#1", "m1", "lease")) == [large]


@pytest.mark.req("T1")
def test_of_two_continuations_at_once_one_wins(racing_backend: Backend, clock: Clock) -> None:
    run(_threads_on(racing_backend(), clock).begin("thread#1", "m1", b"one"))

    async def race() -> list[Any]:
        stores = [_threads_on(racing_backend(), clock) for _ in range(4)]
        claims = (one.claim("thread#1", "m1", f"lease-{number}") for number, one in enumerate(stores))
        return await asyncio.gather(*claims, return_exceptions=True)

    outcomes = run(race())
    lost = [outcome for outcome in outcomes if isinstance(outcome, BridgeError)]
    assert [error.code for error in lost] == ["thread_continue_in_flight"] * 3


@pytest.mark.req("T1")
def test_a_lease_is_given_back_or_runs_out(threads: ThreadStore, clock: Clock) -> None:
    run(threads.begin("thread#1", "m1", b"one"))
    run(threads.claim("thread#1", "m1", "first"))
    assert refused(threads.claim("thread#1", "m1", "second")) == "thread_continue_in_flight"
    run(threads.release("thread#1", "not-mine"))
    assert refused(threads.claim("thread#1", "m1", "second")) == "thread_continue_in_flight"
    run(threads.release("thread#1", "first"))
    assert run(threads.claim("thread#1", "m1", "second")) == [b"one"]
    clock.time += LEASE_SECONDS + 1
    assert run(threads.claim("thread#1", "m1", "third")) == [b"one"]
    assert refused(threads.extend("thread#1", "second", "m2", 1, b"late")) == "thread_not_found"


@pytest.mark.req("T1")
def test_what_was_continued_or_never_was_is_told_apart(threads: ThreadStore) -> None:
    run(threads.begin("thread#1", "m1", b"one"))
    run(threads.claim("thread#1", "m1", "lease"))
    run(threads.extend("thread#1", "lease", "m2", 1, b"two"))
    assert refused(threads.claim("thread#1", "m1", "x")) == "thread_already_continued"
    assert refused(threads.claim("thread#1", "m9", "x")) == "thread_not_found"
    assert refused(threads.claim("thread#9", "m1", "x")) == "thread_not_found"


@pytest.mark.req("T1")
def test_a_thread_is_forgotten_and_deleted_after_its_time(threads: ThreadStore, clock: Clock) -> None:
    run(threads.begin("thread#1", "m1", b"one"))
    clock.time += TTL - 1
    run(threads.claim("thread#1", "m1", "lease"))
    run(threads.extend("thread#1", "lease", "m2", 1, b"two"))
    clock.time += TTL + 1
    assert refused(threads.claim("thread#1", "m2", "x")) == "thread_not_found"
    clock.time -= TTL
    assert refused(threads.claim("thread#1", "m2", "x")) == "thread_not_found", "it was deleted, not only hidden"
