"""Message threads in every store: a line of turns, continued by one at a time."""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from uuid import uuid4

import pytest
from moto import mock_aws

from bridge.errors import BridgeError
from bridge.state.dynamodb_table import DynamoDbTable, connect
from bridge.state.dynamodb_threads import DynamoDbThreads
from bridge.state.lifetime import LEASE_SECONDS
from bridge.state.sqlite_file import SqliteFile
from bridge.state.sqlite_threads import SqliteThreads
from bridge.state.table import create_table
from dynamodb_local import CREDENTIALS

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from pathlib import Path

    from bridge.ports import ThreadStore

T = TypeVar("T")
MakeThreads: TypeAlias = "Callable[[], ThreadStore]"
TTL = 300


class Clock:
    def __init__(self) -> None:
        self.time = time.time()

    def __call__(self) -> float:
        return self.time


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["sqlite", "moto", "dynamodb_local"])
def make_threads(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> Iterator[MakeThreads]:
    if request.param == "sqlite":
        yield lambda: SqliteThreads(SqliteFile(str(tmp_path / "state.sqlite3")), TTL, clock)
        return
    name = f"threads-{uuid4().hex}"
    if request.param == "moto":
        for variable, value in CREDENTIALS.items():
            monkeypatch.setenv(variable, value)
        with mock_aws():
            create_table(connect(), name)
            yield lambda: DynamoDbThreads(DynamoDbTable(name), TTL, clock)
    else:
        request.getfixturevalue("aws_environment")
        create_table(connect(), name)
        yield lambda: DynamoDbThreads(DynamoDbTable(name), TTL, clock)


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
def test_of_two_continuations_at_once_one_wins(make_threads: MakeThreads) -> None:
    run(make_threads().begin("thread#1", "m1", b"one"))

    async def race() -> list[Any]:
        claims = (make_threads().claim("thread#1", "m1", f"lease-{number}") for number in range(4))
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
