"""One contract over every store: SQLite, moto's DynamoDB and AWS's own DynamoDB Local."""

from __future__ import annotations

import asyncio
import sqlite3
from typing import TYPE_CHECKING, Protocol
from uuid import uuid4

import boto3
import pytest
from moto import mock_aws

from bridge.errors import BridgeError, ErrorKind
from bridge.state.dynamodb import DynamoDbStore, connect
from bridge.state.keys import partition_key
from bridge.state.sqlite import SqliteStore
from bridge.state.table import create_table
from dynamodb_local import CREDENTIALS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from bridge.ports import ConversationStore


class Backend(Protocol):
    """A store, with a way to put items under it that the contract does not need."""

    store: ConversationStore

    def put(self, principal: str, conversation: str, count: int) -> None: ...

    def count(self, principal: str, conversation: str) -> int: ...


class SqliteBackend:
    def __init__(self, path: Path) -> None:
        self.store = SqliteStore(str(path / "deep" / "state.sqlite3"))
        self._path = path / "deep" / "state.sqlite3"
        asyncio.run(self.store.check())

    def put(self, principal: str, conversation: str, count: int) -> None:
        rows = [(partition_key(principal, conversation), f"tool#{number}", "{}", 2**40) for number in range(count)]
        connection = sqlite3.connect(self._path)
        with connection:
            connection.executemany("INSERT INTO state VALUES (?, ?, ?, ?)", rows)
        connection.close()

    def count(self, principal: str, conversation: str) -> int:
        connection = sqlite3.connect(self._path)
        key = partition_key(principal, conversation)
        (found,) = connection.execute("SELECT count(*) FROM state WHERE pk = ?", (key,)).fetchone()
        connection.close()
        return int(found)


class DynamoDbBackend:
    def __init__(self) -> None:
        self._name = f"state-{uuid4().hex}"
        create_table(connect(), self._name)
        self.store = DynamoDbStore(self._name)
        self._table = boto3.resource("dynamodb").Table(self._name)

    def put(self, principal: str, conversation: str, count: int) -> None:
        with self._table.batch_writer() as batch:
            for number in range(count):
                batch.put_item(
                    Item={"pk": partition_key(principal, conversation), "sk": f"tool#{number}", "expires_at": 2**40}
                )

    def count(self, principal: str, conversation: str) -> int:
        query = {"KeyConditionExpression": "pk = :pk", "Select": "COUNT", "ConsistentRead": True}
        values = {":pk": partition_key(principal, conversation)}
        return int(self._table.query(**query, ExpressionAttributeValues=values)["Count"])


@pytest.fixture(params=["sqlite", "moto", "dynamodb_local"])
def backend(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    if request.param == "sqlite":
        yield SqliteBackend(tmp_path)
    elif request.param == "moto":
        for name, value in CREDENTIALS.items():
            monkeypatch.setenv(name, value)
        with mock_aws():
            yield DynamoDbBackend()
    else:
        request.getfixturevalue("aws_environment")
        yield DynamoDbBackend()


@pytest.mark.req("FR1.1")
def test_a_store_that_is_there_says_what_it_is(backend: Backend) -> None:
    assert asyncio.run(backend.store.check())


@pytest.mark.req("FR1.5", "FR6.3")
@pytest.mark.parametrize("count", [1, 60])
def test_terminate_forgets_a_conversation_however_long(backend: Backend, count: int) -> None:
    backend.put("ann", "c1", count)
    assert asyncio.run(backend.store.terminate("ann", "c1")) == count
    assert backend.count("ann", "c1") == 0
    assert asyncio.run(backend.store.terminate("ann", "c1")) == 0


@pytest.mark.req("NFR5")
def test_terminate_touches_nobody_elses(backend: Backend) -> None:
    backend.put("ann", "c1", 2)
    backend.put("ann", "c2", 2)
    assert asyncio.run(backend.store.terminate("bob", "c1")) == 0
    assert asyncio.run(backend.store.terminate("an", "nc1")) == 0
    assert (backend.count("ann", "c1"), backend.count("ann", "c2")) == (2, 2)


@pytest.mark.req("FR5.5")
def test_a_missing_table_is_named(aws_environment: dict[str, str]) -> None:
    with pytest.raises(BridgeError, match="'nowhere' does not exist"):
        asyncio.run(DynamoDbStore("nowhere").check())


@pytest.mark.req("FR5.5")
def test_a_store_that_is_down_is_overloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (CREDENTIALS | {"AWS_ENDPOINT_URL_DYNAMODB": "http://127.0.0.1:9"}).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(BridgeError) as failed:
        asyncio.run(DynamoDbStore("state").check())
    assert failed.value.kind is ErrorKind.OVERLOADED


def test_a_state_file_that_cannot_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(BridgeError, match="cannot be used"):
        asyncio.run(SqliteStore(str(tmp_path / "file" / "state.sqlite3")).check())
