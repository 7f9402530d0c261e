"""Documents in a SQLite file."""

from __future__ import annotations

import base64
import time
from typing import TYPE_CHECKING

from bridge.state.keys import part_key
from bridge.state.sqlite_file import PUT

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Sequence

    from bridge.state.sqlite_file import SqliteFile


class SqliteDocuments:
    """The document store of a local run."""

    def __init__(self, file: SqliteFile, ttl_seconds: int, clock: Callable[[], float] = time.time) -> None:
        self._file = file
        self._ttl = ttl_seconds
        self._clock = clock

    async def put(self, key: str, payload: bytes) -> None:
        await self._file.run(self._put, key, payload)

    async def put_new(self, key: str, payload: bytes) -> bool:
        return await self._file.run(self._put_new, key, payload)

    async def get(self, keys: Sequence[str]) -> dict[str, bytes]:
        return await self._file.run(self._get, keys)

    async def delete(self, key: str) -> bool:
        return await self._file.run(self._delete, key)

    def _put(self, db: sqlite3.Connection, key: str, payload: bytes) -> None:
        values = (key, part_key(0), "", base64.b64encode(payload).decode(), self._clock() + self._ttl)
        db.execute(PUT, values)

    def _put_new(self, db: sqlite3.Connection, key: str, payload: bytes) -> bool:
        statement = "SELECT 1 FROM state WHERE pk = ? AND sk = ? AND expires_at > ?"
        if db.execute(statement, (key, part_key(0), self._clock())).fetchone():
            return False
        self._put(db, key, payload)
        return True

    def _get(self, db: sqlite3.Connection, keys: Sequence[str]) -> dict[str, bytes]:
        now, found = self._clock(), {}
        for key in keys:
            statement = "SELECT item, expires_at FROM state WHERE pk = ? AND sk = ? AND expires_at > ?"
            row = db.execute(statement, (key, part_key(0), now)).fetchone()
            if row is None:
                continue
            found[key] = base64.b64decode(row[0])
            if row[1] - now <= self._ttl / 2:
                db.execute("UPDATE state SET expires_at = ? WHERE pk = ?", (now + self._ttl, key))
        return found

    def _delete(self, db: sqlite3.Connection, key: str) -> bool:
        deleted = db.execute("DELETE FROM state WHERE pk = ? AND sk = ? RETURNING expires_at", (key, part_key(0)))
        row = deleted.fetchone()
        return row is not None and row[0] > self._clock()
