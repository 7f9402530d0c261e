"""One contract over every store: SQLite, moto's DynamoDB and AWS's own DynamoDB Local."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge.errors import BridgeError, ErrorKind
from bridge.state.dynamodb import DynamoDbStore
from bridge.state.dynamodb_table import DynamoDbTable
from bridge.state.keys import partition_key
from bridge.state.records import ToolRecord
from bridge.state.sqlite import SqliteStore
from bridge.state.sqlite_file import SqliteFile
from bridge.state.table import create_table
from dynamodb_local import CREDENTIALS

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from backends import Backend, Clock

    from bridge.ports import ConversationStore

T = TypeVar("T")
MakeStore: TypeAlias = "Callable[[], ConversationStore]"
TTL = 1800


@pytest.fixture
def make_store(backend: Backend, clock: Clock) -> MakeStore:
    """Stores on the same data: each call stands for another process."""
    return lambda: _store_on(backend(), clock)


def _store_on(place: SqliteFile | DynamoDbTable, clock: Clock) -> ConversationStore:
    return SqliteStore(place, TTL, clock) if isinstance(place, SqliteFile) else DynamoDbStore(place, TTL, clock)


@pytest.fixture
def store(make_store: MakeStore) -> ConversationStore:
    return make_store()


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def record(tool_id: str, name: str = "Read", **more: Any) -> ToolRecord:
    return ToolRecord(tool_id, name, '{"path":"a"}', "openai", **more)


A, B = partition_key("ann", "token-a"), partition_key("ann", "token-b")


@pytest.mark.req("FR1.1")
def test_a_store_that_is_there_says_what_it_is(store: ConversationStore) -> None:
    assert run(store.check())


@pytest.mark.req("FR1.2", "FR1.3", "NFR3")
def test_what_is_saved_is_found_by_another_process(make_store: MakeStore) -> None:
    full = record("t1", upstream_id="call_0", data='{"sig": "x"}')
    assert run(make_store().save(A, [full, record("t2", "Grep")])) == 0
    run(make_store().save(B, [record("t3")]))
    found = run(make_store().load({A: ["t1", "t2"], B: ["t3", "t4"]}))
    assert found.records == {"t1": full, "t2": record("t2", "Grep"), "t3": record("t3")}
    assert found.absent == {"t4": "unknown"}


@pytest.mark.req("FR1.2")
def test_a_second_write_never_wins(store: ConversationStore) -> None:
    run(store.save(A, [record("t1", "Read")]))
    assert run(store.save(A, [record("t1", "Read")])) == 0
    assert run(store.save(A, [record("t1", "Write")])) == 1
    assert run(store.load({A: ["t1"]})).records["t1"].name == "Read"


@pytest.mark.req("FR1.2", "T1")
def test_of_two_writers_at_once_one_wins(racing_backend: Backend, clock: Clock) -> None:
    async def race() -> list[int]:
        stores = [_store_on(racing_backend(), clock) for _ in range(4)]
        writes = (one.save(A, [record("t1", f"name-{number}")]) for number, one in enumerate(stores))
        return list(await asyncio.gather(*writes))

    assert sorted(run(race())) == [0, 1, 1, 1]
    found = run(_store_on(racing_backend(), clock).load({A: ["t1"]}))
    assert found.records["t1"].name.startswith("name-")


@pytest.mark.req("FR1.3")
def test_more_ids_than_one_read_takes(store: ConversationStore) -> None:
    ids = [f"t{number}" for number in range(130)]
    run(store.save(A, [record(tool_id) for tool_id in ids]))
    assert list(run(store.load({A: ids})).records) == ids


@pytest.mark.req("FR1.4")
def test_one_call_can_be_forgotten(store: ConversationStore) -> None:
    run(store.save(A, [record("t1"), record("t2")]))
    assert run(store.forget(A, "t1")) is True
    assert run(store.forget(A, "t1")) is False
    found = run(store.load({A: ["t1", "t2"]}))
    assert (list(found.records), found.absent) == (["t2"], {"t1": "unknown"})


@pytest.mark.req("FR1.5", "FR6.3")
@pytest.mark.parametrize("count", [1, 60])
def test_terminate_forgets_a_conversation_however_long(store: ConversationStore, count: int) -> None:
    ids = [f"t{number}" for number in range(count)]
    run(store.save(A, [record(tool_id) for tool_id in ids]))
    run(store.save(B, [record("t0")]))
    assert run(store.terminate(A)) == count
    assert run(store.terminate(A)) == 0
    assert set(run(store.load({A: ids})).absent.values()) == {"terminated"}
    assert list(run(store.load({B: ["t0"]})).records) == ["t0"]


@pytest.mark.req("FR6.2")
def test_a_terminated_conversation_can_begin_anew(store: ConversationStore) -> None:
    run(store.save(A, [record("t1")]))
    run(store.terminate(A))
    run(store.save(A, [record("t2")]))
    found = run(store.load({A: ["t1", "t2"]}))
    assert list(found.records) == ["t2"]


@pytest.mark.req("FR1.5")
def test_terminating_what_never_was_changes_nothing(store: ConversationStore) -> None:
    assert run(store.terminate(A)) == 0
    assert run(store.load({A: ["t1"]})).absent == {"t1": "unknown"}


@pytest.mark.req("FR6.1", "FR6.2")
def test_a_conversation_expires_after_inactivity(store: ConversationStore, clock: Clock) -> None:
    run(store.save(A, [record("t1")]))
    clock.time += TTL
    assert list(run(store.load({A: ["t1"]})).records) == ["t1"], "alive for the whole TTL"
    clock.time += TTL * 1.25 + 5
    assert run(store.load({A: ["t1"]})).absent == {"t1": "expired"}


@pytest.mark.req("FR6.1")
@pytest.mark.parametrize("activity", ["load", "save"])
def test_any_activity_keeps_the_whole_conversation_alive(store: ConversationStore, clock: Clock, activity: str) -> None:
    run(store.save(A, [record("t1")]))
    for number in range(6):
        clock.time += TTL * 0.9
        if activity == "load":
            run(store.load({A: ["t9"]}))
        else:
            run(store.save(A, [record(f"n{number}")]))
    assert list(run(store.load({A: ["t1"]})).records) == ["t1"]


@pytest.mark.req("FR6.2")
def test_reusing_an_expired_id_starts_afresh(store: ConversationStore, clock: Clock) -> None:
    run(store.save(A, [record("t1", "Old")]))
    clock.time += TTL * 2
    run(store.save(A, [record("t2")]))
    assert run(store.load({A: ["t1"]})).absent == {"t1": "expired"}
    assert run(store.save(A, [record("t1", "New")])) == 0
    assert run(store.load({A: ["t1"]})).records["t1"].name == "New"


@pytest.mark.req("FR6.2")
def test_a_touch_never_brings_a_conversation_to_life(store: ConversationStore, clock: Clock) -> None:
    run(store.load({A: ["t1"]}))
    assert run(store.load({A: ["t1"]})).absent == {"t1": "unknown"}
    run(store.save(A, [record("t1")]))
    clock.time += TTL * 2
    run(store.load({A: ["t1"]}))
    assert run(store.load({A: ["t1"]})).absent == {"t1": "expired"}


@pytest.mark.req("NFR5")
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.text(min_size=1, max_size=8), st.text(max_size=8)), min_size=2, max_size=4, unique=True))
def test_nobody_reaches_anothers_state(store: ConversationStore, owners: list[tuple[str, str]]) -> None:
    partitions = [partition_key(f"{principal}-{uuid4().hex}", token) for principal, token in owners]
    run(store.save(partitions[0], [record("t1", "Mine")]))
    for other in partitions[1:]:
        assert run(store.load({other: ["t1"]})).absent == {"t1": "unknown"}
        assert run(store.forget(other, "t1")) is False
        assert run(store.terminate(other)) == 0
        run(store.save(other, [record("t1", "Theirs")]))
    assert run(store.load({partitions[0]: ["t1"]})).records["t1"].name == "Mine"


def test_keys_of_different_owners_differ_although_their_texts_join_alike() -> None:
    assert partition_key("an", "nc1") != partition_key("ann", "c1")


@pytest.mark.req("FR1.6", "NFR2")
def test_a_write_does_not_grow_with_the_conversation(aws_environment: dict[str, str]) -> None:
    name = f"state-{uuid4().hex}"
    table = DynamoDbTable(name)
    create_table(table.client, name)
    store = DynamoDbStore(table, TTL)
    run(store.save(A, [record(f"t{number:03}") for number in range(40)]))
    items = table.client.query(
        TableName=name, KeyConditionExpression="pk = :pk", ExpressionAttributeValues={":pk": {"S": A}}
    )["Items"]
    calls = [item for item in items if item["sk"]["S"].startswith("tool#")]
    assert len(calls) == 40, "one item per call"
    assert len({len(str(item)) for item in calls}) == 1, "the last is as large as the first"
    assert all("expires_at" in item for item in items)
    table.close()


@pytest.mark.req("NFR4")
def test_an_ordinary_call_is_small() -> None:
    assert len(record("t" * 40, upstream_id="call_" + "x" * 24).to_json()) < 200


@pytest.mark.req("FR5.5")
def test_a_missing_table_is_named(aws_environment: dict[str, str]) -> None:
    with pytest.raises(BridgeError, match="'nowhere' does not exist"):
        run(DynamoDbStore(DynamoDbTable("nowhere"), TTL).check())


@pytest.mark.req("FR5.5")
def test_a_store_that_is_down_is_overloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (CREDENTIALS | {"AWS_ENDPOINT_URL_DYNAMODB": "http://127.0.0.1:9"}).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(BridgeError) as failed:
        run(DynamoDbStore(DynamoDbTable("state"), TTL).load({A: ["t1"]}))
    assert failed.value.kind is ErrorKind.OVERLOADED


def test_a_state_file_that_cannot_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(BridgeError, match="cannot be used"):
        run(SqliteStore(SqliteFile(str(tmp_path / "file" / "state.sqlite3")), TTL).check())


def test_a_state_file_of_an_older_version_is_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "state.sqlite3"
    old = sqlite3.connect(path)
    old.execute("CREATE TABLE state (pk TEXT, sk TEXT, item TEXT, expires_at INTEGER)")
    old.close()
    store = SqliteStore(SqliteFile(str(path)), TTL)
    run(store.save(A, [record("t1")]))
    assert list(run(store.load({A: ["t1"]})).records) == ["t1"]


@pytest.mark.req("FR1.1")
def test_many_processes_may_begin_one_file_at_once(tmp_path: Path) -> None:
    async def race() -> list[int]:
        stores = [SqliteStore(SqliteFile(str(tmp_path / "state.sqlite3")), TTL) for _ in range(8)]
        return list(await asyncio.gather(*(one.save(A, [record(f"t{n}")]) for n, one in enumerate(stores))))

    assert run(race()) == [0] * 8


@pytest.mark.req("NFR1", "SM3", "FR6.1")
def test_what_a_load_found_saves_the_next_save_a_write(store: ConversationStore, clock: Clock) -> None:
    run(store.save(A, [record("t1")]))
    known = run(store.load({A: ["t1"]})).alive[A]
    run(store.save(A, [record("t2")], known))
    assert list(run(store.load({A: ["t1", "t2"]})).records) == ["t1", "t2"]
    clock.time += TTL * 0.9
    run(store.save(A, [record("t3")], known))
    clock.time += TTL * 0.9
    assert list(run(store.load({A: ["t1", "t3"]})).records) == ["t1", "t3"], "a stale one is extended"
