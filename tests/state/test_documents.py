"""Documents in every store: of any size, alive while they are used."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from bridge.state.dynamodb_documents import PART_BYTES, DynamoDbDocuments
from bridge.state.sqlite_documents import SqliteDocuments
from bridge.state.sqlite_file import SqliteFile

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from backends import Backend, Clock

    from bridge.ports import DocumentStore

T = TypeVar("T")
TTL = 3600


@pytest.fixture
def documents(backend: Backend, clock: Clock) -> Callable[[], DocumentStore]:
    """Stores on the same data: each call stands for another process."""

    def opened() -> DocumentStore:
        place = backend()
        if isinstance(place, SqliteFile):
            return SqliteDocuments(place, TTL, clock)
        return DynamoDbDocuments(place, TTL, clock)

    return opened


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


@pytest.mark.req("P1")
@pytest.mark.parametrize("size", [0, 1, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES + 7])
def test_a_document_comes_back_whole_in_another_process(documents: Callable[[], DocumentStore], size: int) -> None:
    payload = os.urandom(size)
    run(documents().put("resp#a", payload))
    assert run(documents().get(["resp#a", "resp#unknown"])) == {"resp#a": payload}


def test_many_documents_in_one_look(documents: Callable[[], DocumentStore]) -> None:
    store = documents()

    async def fill() -> None:
        await asyncio.gather(*(store.put(f"resp#{number}", b"%d" % number) for number in range(130)))

    run(fill())
    found = run(documents().get([f"resp#{number}" for number in range(130)]))
    assert found == {f"resp#{number}": b"%d" % number for number in range(130)}


def test_a_deleted_document_is_gone_with_all_its_parts(documents: Callable[[], DocumentStore]) -> None:
    run(documents().put("resp#a", os.urandom(2 * PART_BYTES)))
    assert run(documents().delete("resp#a")) is True
    assert run(documents().get(["resp#a"])) == {}
    assert run(documents().delete("resp#a")) is False


def test_what_is_used_lives_on_and_what_is_not_is_forgotten(
    documents: Callable[[], DocumentStore], clock: Clock
) -> None:
    store = documents()
    run(store.put("resp#used", b"used"))
    run(store.put("resp#left", b"left"))
    clock.time += TTL * 0.6
    assert run(store.get(["resp#used"])) == {"resp#used": b"used"}
    clock.time += TTL * 0.6
    assert run(documents().get(["resp#used", "resp#left"])) == {"resp#used": b"used"}
    assert run(documents().delete("resp#left")) is False
    clock.time += TTL * 1.1
    assert run(documents().get(["resp#used"])) == {}
