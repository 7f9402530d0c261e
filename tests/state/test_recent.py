"""The list of a principal's conversations: one contract on SQLite, moto's DynamoDB and AWS's own DynamoDB Local."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from uuid import uuid4

import pytest

from bridge.errors import BridgeError, ErrorKind
from bridge.state.dynamodb import DynamoDbStore
from bridge.state.dynamodb_listing import MOST_PAGES, MOST_PAGES_OF_CALLS
from bridge.state.dynamodb_table import READ_BATCH, DynamoDbTable
from bridge.state.keys import owner_key, partition_key
from bridge.state.records import CALLS_COUNTED, Origin, Recent, ToolRecord
from bridge.state.sqlite import SqliteStore
from bridge.state.sqlite_file import SqliteFile
from bridge.state.table import create_table
from dynamodb_local import CREDENTIALS, dynamodb_local

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from backends import Backend, Clock

    from bridge.ports import ConversationStore

T = TypeVar("T")
MakeStore: TypeAlias = "Callable[[], ConversationStore]"
TTL = 1800
ANN, BOB = owner_key("ann"), owner_key("bob")


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def _store_on(place: SqliteFile | DynamoDbTable, clock: Clock) -> ConversationStore:
    return SqliteStore(place, TTL, clock) if isinstance(place, SqliteFile) else DynamoDbStore(place, TTL, clock)


@pytest.fixture
def make_store(backend: Backend, clock: Clock) -> MakeStore:
    """Stores on the same data: each call stands for another process."""
    return lambda: _store_on(backend(), clock)


@pytest.fixture
def store(make_store: MakeStore) -> ConversationStore:
    return make_store()


def call(tool_id: str, name: str = "Read") -> ToolRecord:
    return ToolRecord(tool_id, name, '{"path":"a secret place"}', "openai")


def partition_of(name: str, principal: str = "ann") -> str:
    return partition_key(principal, name)


def talk(store: ConversationStore, name: str, *calls: ToolRecord, principal: str = "ann") -> None:
    """One save of a conversation, which begins with it if it is not alive."""
    origin = Origin(owner_key(principal), name)
    run(store.save(partition_of(name, principal), calls or [call("t1")], None, origin))


def names(recent: Recent) -> list[str]:
    return [conversation.id for conversation in recent.conversations]


@pytest.mark.req("FR1.1")
def test_the_newest_conversations_come_first_with_their_tools_and_times(make_store: MakeStore, clock: Clock) -> None:
    started = clock.time
    talk(make_store(), "one", call("t1"), call("t2", "Grep"), call("t3"))
    clock.time += 10
    talk(make_store(), "two")
    recent = run(make_store().recent(ANN, 20))
    assert (names(recent), recent.has_more) == (["two", "one"], False)
    one = recent.conversations[1]
    assert (one.calls, one.more_calls) == ({"Read": 2, "Grep": 1}, False)
    assert one.started_at == pytest.approx(started, abs=0.01)
    assert one.expires_at == pytest.approx(started + TTL * 1.25, abs=2)


@pytest.mark.req("NFR5")
def test_a_list_holds_nothing_of_what_was_said(store: ConversationStore) -> None:
    talk(store, "one", ToolRecord("t1", "Read", '{"path":"canary"}', "canary", "canary", "canary"))
    assert "canary" not in str(run(store.recent(ANN, 20)))


@pytest.mark.req("NFR5")
def test_nobody_lists_anothers_conversations(store: ConversationStore) -> None:
    talk(store, "shared-name", call("t1", "Mine"))
    assert run(store.recent(BOB, 20)) == Recent([])
    talk(store, "shared-name", call("t1", "Theirs"), principal="bob")
    run(store.terminate(partition_of("shared-name", "bob")))
    assert names(run(store.recent(BOB, 20))) == []
    (mine,) = run(store.recent(ANN, 20)).conversations
    assert mine.calls == {"Mine": 1}


@pytest.mark.req("NFR5")
def test_a_principal_cannot_be_read_back_from_what_lists_are_kept_under() -> None:
    assert owner_key("ann") != owner_key("ann ")
    assert "ann" not in owner_key("ann")


@pytest.mark.req("FR6.3")
def test_a_terminated_conversation_is_gone_at_once(make_store: MakeStore) -> None:
    talk(make_store(), "one")
    talk(make_store(), "two")
    run(make_store().terminate(partition_of("one")))
    assert names(run(make_store().recent(ANN, 20))) == ["two"]


@pytest.mark.req("FR6.2")
def test_an_expired_conversation_is_gone_although_nothing_deleted_it(store: ConversationStore, clock: Clock) -> None:
    talk(store, "one")
    clock.time += TTL * 0.9
    talk(store, "two")
    clock.time += TTL * 0.9
    assert names(run(store.recent(ANN, 20))) == ["two"]


@pytest.mark.req("FR6.1")
def test_to_be_listed_keeps_nothing_alive(store: ConversationStore, clock: Clock) -> None:
    talk(store, "one")
    for _ in range(3):
        clock.time += TTL * 0.6
        shown = names(run(store.recent(ANN, 20)))
    assert shown == []


@pytest.mark.req("FR6.2")
@pytest.mark.parametrize("end", ["expiry", "termination"])
def test_one_that_begins_anew_is_listed_once_with_its_new_calls(
    store: ConversationStore, clock: Clock, end: str
) -> None:
    talk(store, "one", call("t1", "Old"), call("t2", "Old"))
    if end == "termination":
        run(store.terminate(partition_of("one")))
    clock.time += TTL * 2 if end == "expiry" else 5
    talk(store, "one", call("t3", "New"))
    (again,) = run(store.recent(ANN, 20)).conversations
    assert again.calls == {"New": 1}
    assert again.started_at == pytest.approx(clock.time, abs=0.01)


@pytest.mark.req("FR6.1")
def test_activity_moves_the_expiry_and_leaves_the_start(store: ConversationStore, clock: Clock) -> None:
    talk(store, "one")
    (before,) = run(store.recent(ANN, 20)).conversations
    clock.time += TTL * 0.9
    talk(store, "one", call("t2"))
    (after,) = run(store.recent(ANN, 20)).conversations
    assert after.started_at == before.started_at
    assert after.expires_at > before.expires_at + TTL * 0.8


@pytest.mark.parametrize(("count", "has_more"), [(2, False), (3, False), (4, True)])
def test_no_more_are_listed_than_asked_for(store: ConversationStore, clock: Clock, count: int, has_more: bool) -> None:
    for number in range(count):
        talk(store, f"talk-{number}")
        clock.time += 1
    recent = run(store.recent(ANN, 3))
    assert names(recent) == [f"talk-{number}" for number in reversed(range(count))][:3]
    assert recent.has_more is has_more


def test_living_ones_are_found_behind_many_that_ended(store: ConversationStore, clock: Clock) -> None:
    talk(store, "living")
    for number in range(12):
        clock.time += 1
        talk(store, f"ended-{number}")
        run(store.terminate(partition_of(f"ended-{number}")))
    assert run(store.recent(ANN, 2)) == Recent(run(store.recent(ANN, 20)).conversations)
    assert names(run(store.recent(ANN, 2))) == ["living"]


def test_a_conversation_that_began_without_an_origin_is_not_listed_and_works(store: ConversationStore) -> None:
    """What was stored before there was a list."""
    run(store.save(partition_of("old"), [call("t1")]))
    talk(store, "old", call("t2"))
    assert names(run(store.recent(ANN, 20))) == []
    assert list(run(store.load({partition_of("old"): ["t1", "t2"]})).records) == ["t1", "t2"]


def test_signed_texts_are_no_calls(store: ConversationStore) -> None:
    talk(store, "one", ToolRecord("text_0", "", "", "gemini/gemini", data="{}"), call("t1"))
    (one,) = run(store.recent(ANN, 20)).conversations
    assert one.calls == {"Read": 1}


@pytest.mark.req("NFR2")
@pytest.mark.parametrize("beyond", [0, 1])
def test_calls_are_counted_up_to_a_bound(store: ConversationStore, beyond: int) -> None:
    talk(store, "long", *(call(f"t{number:04}") for number in range(CALLS_COUNTED + beyond)))
    (long,) = run(store.recent(ANN, 20)).conversations
    assert (long.calls, long.more_calls) == ({"Read": CALLS_COUNTED}, beyond > 0)


def test_calls_are_counted_behind_more_of_an_earlier_life(store: ConversationStore) -> None:
    """Clients name their conversations: one that was ended begins again under its name."""
    talk(store, "daily", *(call(f"a{number:04}", "Old") for number in range(CALLS_COUNTED + 50)))
    run(store.terminate(partition_of("daily")))
    talk(store, "daily", call("z1", "New"))
    (daily,) = run(store.recent(ANN, 20)).conversations
    assert (daily.calls, daily.more_calls) == ({"New": 1}, False)


def test_large_calls_are_counted_too(store: ConversationStore) -> None:
    """DynamoDB reads a megabyte at a time."""
    large = [ToolRecord(f"t{number:02}", "Write", "x" * 100_000, "openai") for number in range(15)]
    talk(store, "large", *large)
    (one,) = run(store.recent(ANN, 20)).conversations
    assert (one.calls, one.more_calls) == ({"Write": 15}, False)


# --- what it costs, counted at the client of DynamoDB ------------------------------------------------


class CountedTable:
    """A table of DynamoDB Local, and which operations were asked of it since the last look."""

    def __init__(self, name: str) -> None:
        self.table = DynamoDbTable(name)
        self._asked: list[dict[str, Any]] = []
        self.index_units: dict[str, float] = {}
        events = self.table.client.meta.events
        events.register("provide-client-params.dynamodb", self._note)
        for operation in ("PutItem", "UpdateItem"):
            events.register(f"after-call.dynamodb.{operation}", self._weigh)

    def _note(self, params: dict[str, Any], model: Any, **_: Any) -> dict[str, Any]:
        self._asked.append({"operation": model.name, **params})
        weighed = model.name in ("PutItem", "UpdateItem")
        return params | {"ReturnConsumedCapacity": "INDEXES"} if weighed else params

    def _weigh(self, parsed: dict[str, Any], model: Any, **_: Any) -> None:
        indexes = parsed.get("ConsumedCapacity", {}).get("GlobalSecondaryIndexes", {})
        units = sum(index["CapacityUnits"] for index in indexes.values())
        self.index_units[model.name] = self.index_units.get(model.name, 0) + units

    def taken(self) -> list[dict[str, Any]]:
        asked, self._asked = self._asked, []
        return asked

    def counts(self) -> Counter[str]:
        return Counter(request["operation"] for request in self.taken())


@pytest.fixture
def counted(aws_environment: dict[str, str]) -> Iterator[CountedTable]:
    name = f"state-{uuid4().hex}"
    made = CountedTable(name)
    create_table(made.table.client, name)
    made.taken()
    yield made
    made.table.close()


@pytest.mark.req("NFR1", "NFR2")
def test_a_save_costs_the_same_round_trips_with_an_origin_as_without(counted: CountedTable, clock: Clock) -> None:
    store = DynamoDbStore(counted.table, TTL, clock)
    origin = Origin(ANN, "one")
    for number, given in enumerate((None, origin)):
        partition = partition_of(f"talk-{number}")
        run(store.save(partition, [call("t1")], None, given))
        assert counted.counts() == {"UpdateItem": 1, "PutItem": 2}, "the first turn"
        run(store.save(partition, [call("t2")], None, given))
        assert counted.counts() == {"UpdateItem": 1, "PutItem": 1}, "a later turn"
        known = run(store.load({partition: ["t1"]})).alive[partition]
        counted.taken()
        run(store.save(partition, [call("t3")], known, given))
        assert counted.counts() == {"PutItem": 1}, "a turn that has read"


@pytest.mark.req("NFR2", "SM4")
def test_only_the_beginning_of_a_conversation_writes_to_the_index(counted: CountedTable, clock: Clock) -> None:
    store = DynamoDbStore(counted.table, TTL, clock)
    talk(store, "one")
    clock.time += TTL * 0.9
    talk(store, "one", call("t2"))
    run(store.load({partition_of("one"): ["t1"]}))
    run(store.terminate(partition_of("one")))
    assert {"PutItem": 3, "UpdateItem": 3}.items() <= counted.counts().items()
    assert counted.index_units == {"PutItem": 1, "UpdateItem": 0}
    described = counted.table.client.describe_table(TableName=counted.table.name)["Table"]
    (index,) = described["GlobalSecondaryIndexes"]
    assert index["Projection"] == {"ProjectionType": "KEYS_ONLY"}, "what touches change is not in it"
    assert index["ItemCount"] == 1, "tool calls are not in it"


@pytest.mark.req("NFR2")
def test_a_list_reads_names_and_neither_arguments_nor_data(counted: CountedTable) -> None:
    store = DynamoDbStore(counted.table, TTL)
    talk(store, "one")
    counted.taken()
    run(store.recent(ANN, 20))
    index, metas, calls = counted.taken()
    assert (index["operation"], index["IndexName"], index["Limit"]) == ("Query", "by_owner", 21)
    assert metas["operation"] == "BatchGetItem"
    assert (calls["operation"], calls["ProjectionExpression"]) == ("Query", "tool")


@pytest.mark.req("NFR2")
def test_a_list_gives_up_on_a_conversation_whose_calls_are_too_large(counted: CountedTable) -> None:
    store = DynamoDbStore(counted.table, TTL)
    talk(store, "huge", *(ToolRecord(f"t{number:02}", "Write", "x" * 350_000, "openai") for number in range(12)))
    counted.taken()
    (huge,) = run(store.recent(ANN, 20)).conversations
    assert huge.more_calls
    assert counted.counts() == {"Query": 1 + MOST_PAGES_OF_CALLS, "BatchGetItem": 1}


@pytest.mark.req("NFR2")
def test_a_list_is_one_page_and_one_query_for_each_that_it_shows(counted: CountedTable, clock: Clock) -> None:
    store = DynamoDbStore(counted.table, TTL, clock)
    for number in range(30):
        clock.time += 1
        talk(store, f"talk-{number}")
    counted.taken()
    assert len(run(store.recent(ANN, 20)).conversations) == 20
    assert counted.counts() == {"Query": 1 + 20, "BatchGetItem": 1}


@pytest.mark.req("NFR2")
def test_a_list_gives_up_behind_very_many_that_ended(counted: CountedTable, clock: Clock) -> None:
    pages = (MOST_PAGES - 1) * READ_BATCH + 3
    client, name = counted.table.client, counted.table.name
    talk(DynamoDbStore(counted.table, TTL, clock), "living")
    for start in range(0, pages, 25):
        writes = [_ended(number, clock.time) for number in range(start, min(start + 25, pages))]
        client.batch_write_item(RequestItems={name: [{"PutRequest": {"Item": item}} for item in writes]})
    counted.taken()
    recent = run(DynamoDbStore(counted.table, TTL, clock).recent(ANN, 2))
    assert recent == Recent([], has_more=True)
    assert counted.counts() == {"Query": MOST_PAGES, "BatchGetItem": MOST_PAGES}


def _ended(number: int, now: float) -> dict[str, Any]:
    """META of a terminated conversation that began after now."""
    return {
        "pk": {"S": f"conv#{number}"},
        "sk": {"S": "META"},
        "epoch": {"S": "e"},
        "ended": {"BOOL": True},
        "expires_at": {"N": str(int(now) + TTL)},
        "owner_hash": {"S": ANN},
        "started_at": {"N": str(int(now) + 1 + number)},
        "conversation": {"S": f"ended-{number}"},
    }


# --- a table of an older version ---------------------------------------------------------------------


@pytest.fixture
def old_table(monkeypatch: pytest.MonkeyPatch) -> Iterator[DynamoDbTable]:
    """A table without the index, in a DynamoDB Local of its own: one with many tables fills no new index."""
    with dynamodb_local() as endpoint:
        for name, value in (CREDENTIALS | {"AWS_ENDPOINT_URL_DYNAMODB": endpoint}).items():
            monkeypatch.setenv(name, value)
        yield from _table_without_index()


def _table_without_index() -> Iterator[DynamoDbTable]:
    table = DynamoDbTable(f"state-{uuid4().hex}")
    table.client.create_table(
        TableName=table.name,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[
            {"AttributeName": "pk", "AttributeType": "S"},
            {"AttributeName": "sk", "AttributeType": "S"},
        ],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
    )
    yield table
    table.close()


def test_a_table_without_the_index_says_so_and_serves_all_else(old_table: DynamoDbTable) -> None:
    store = DynamoDbStore(old_table, TTL)
    talk(store, "one")
    assert list(run(store.load({partition_of("one"): ["t1"]})).records) == ["t1"]
    with pytest.raises(BridgeError, match="has no index 'by_owner'") as refused:
        run(store.recent(ANN, 20))
    assert refused.value.kind is ErrorKind.NOT_FOUND
    assert run(store.terminate(partition_of("one"))) == 1


def test_a_table_of_an_older_version_gets_the_index(old_table: DynamoDbTable, clock: Clock) -> None:
    store = DynamoDbStore(old_table, TTL, clock)
    run(store.save(partition_of("older"), [call("t1")]))
    talk(store, "one")
    assert create_table(old_table.client, old_table.name) is False
    _wait_for_index(old_table)
    clock.time += 1
    talk(store, "two")
    assert names(run(store.recent(ANN, 20))) == ["two", "one"]


def _wait_for_index(table: DynamoDbTable) -> None:
    for _ in range(100):
        (index,) = table.client.describe_table(TableName=table.name)["Table"]["GlobalSecondaryIndexes"]
        if index["IndexStatus"] == "ACTIVE":
            return
        time.sleep(0.1)
    raise AssertionError("the index was not filled within 10 s")
