"""Message threads in a SQLite file."""

from __future__ import annotations

import base64
import time
from typing import TYPE_CHECKING, Any

import orjson

from bridge.state.keys import HEAD, turn_key
from bridge.state.lifetime import LEASE_SECONDS
from bridge.state.sqlite_file import PUT
from bridge.state.threads import thread_error

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

    from bridge.state.sqlite_file import SqliteFile


class SqliteThreads:
    """The thread store of a local run: each operation is one transaction."""

    def __init__(self, file: SqliteFile, ttl_seconds: int, clock: Callable[[], float] = time.time) -> None:
        self._file = file
        self._ttl = ttl_seconds
        self._clock = clock

    async def begin(self, partition: str, message_id: str, payload: bytes) -> None:
        await self._file.run(self._pass_on, partition, message_id, 0, payload)

    async def claim(self, partition: str, previous: str, lease: str) -> list[bytes]:
        claimed = await self._file.run(self._claim, partition, previous, lease)
        if isinstance(claimed, str):  # the refusal is raised here: an exception would undo the clean-up
            raise thread_error(claimed)
        return claimed

    async def extend(self, partition: str, lease: str, message_id: str, number: int, payload: bytes) -> None:
        held = await self._file.run(self._extend, partition, lease, message_id, number, payload)
        if not held:
            raise thread_error("thread_not_found")

    async def release(self, partition: str, lease: str) -> None:
        await self._file.run(self._release, partition, lease)

    def _claim(self, db: sqlite3.Connection, partition: str, previous: str, lease: str) -> list[bytes] | str:
        head = self._head(db, partition)
        if head is None:
            db.execute("DELETE FROM state WHERE pk = ?", (partition,))
            return "thread_not_found"
        turns = self._turns(db, partition)
        if head["newest"] != previous:
            return "thread_already_continued" if previous in (turn[0] for turn in turns) else "thread_not_found"
        if head.get("holder") and head["held_until"] > self._clock():
            return "thread_continue_in_flight"
        until = self._clock() + LEASE_SECONDS
        self._put(db, partition, HEAD, head | {"holder": lease, "held_until": until}, until + self._ttl)
        return [base64.b64decode(payload) for _, payload in turns]

    def _extend(
        self, db: sqlite3.Connection, partition: str, lease: str, message_id: str, number: int, payload: bytes
    ) -> bool:
        head = self._head(db, partition)
        if head is None or head.get("holder") != lease:
            return False
        self._pass_on(db, partition, message_id, number, payload)
        return True

    def _pass_on(self, db: sqlite3.Connection, partition: str, message_id: str, number: int, payload: bytes) -> None:
        turn = {"id": message_id, "payload": base64.b64encode(payload).decode()}
        self._put(db, partition, turn_key(number), turn)
        self._put(db, partition, HEAD, {"newest": message_id})
        db.execute("UPDATE state SET expires_at = ? WHERE pk = ?", (self._clock() + self._ttl, partition))

    def _release(self, db: sqlite3.Connection, partition: str, lease: str) -> None:
        head = self._head(db, partition)
        if head is not None and head.get("holder") == lease:
            self._put(db, partition, HEAD, {"newest": head["newest"]})

    def _head(self, db: sqlite3.Connection, partition: str) -> dict[str, Any] | None:
        statement = "SELECT item FROM state WHERE pk = ? AND sk = ? AND expires_at > ?"
        row = db.execute(statement, (partition, HEAD, self._clock())).fetchone()
        return orjson.loads(row[0]) if row else None

    def _turns(self, db: sqlite3.Connection, partition: str) -> list[tuple[str, str]]:
        statement = "SELECT item FROM state WHERE pk = ? AND sk LIKE ? ORDER BY sk"
        items = [orjson.loads(row[0]) for row in db.execute(statement, (partition, turn_key(0)[:5] + "%"))]
        return [(item["id"], item["payload"]) for item in items]

    def _put(
        self, db: sqlite3.Connection, partition: str, key: str, item: dict[str, Any], expires_at: float | None = None
    ) -> None:
        values = (partition, key, "", orjson.dumps(item).decode(), expires_at or self._clock() + self._ttl)
        db.execute(PUT, values)
