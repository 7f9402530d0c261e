"""Counters in a SQLite file: each operation is one transaction."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import orjson

from bridge.state.counters import Added, Counter, CounterKey, reached_limit, summed, too_many

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Mapping, Sequence

    from bridge.state.counters import KeyRange
    from bridge.state.sqlite_file import SqliteFile


class SqliteCounters:
    """The counters of a local run."""

    def __init__(self, file: SqliteFile, clock: Callable[[], float] = time.time) -> None:
        self._file = file
        self._clock = clock

    async def add(
        self,
        key: CounterKey,
        amounts: Mapping[str, int],
        expires_at: int,
        limits: Mapping[str, int] | None = None,
    ) -> Added:
        return await self._file.run(self._add, key, amounts, expires_at, limits or {})

    async def read(self, ranges: Sequence[KeyRange], limit: int) -> list[Counter]:
        found = await self._file.run(self._read, ranges, limit)
        if len(found) > limit:
            raise too_many(limit)
        return sorted(found, key=lambda counter: counter.key)

    async def aclose(self) -> None:
        pass  # nothing waits here

    def _add(
        self,
        db: sqlite3.Connection,
        key: CounterKey,
        amounts: Mapping[str, int],
        expires_at: int,
        limits: Mapping[str, int],
    ) -> Added:
        statement = "SELECT item FROM counters WHERE pk = ? AND sk = ? AND expires_at > ?"
        row = db.execute(statement, (key.partition, key.sort_key, self._clock())).fetchone()
        values = orjson.loads(row[0]) if row else {}
        refused = reached_limit(values, limits)
        if refused is not None or not amounts:
            return Added(values, refused)
        if row is None:  # seldom: a counter begins
            db.execute("DELETE FROM counters WHERE expires_at <= ?", (self._clock(),))
        values = summed(values, amounts)
        item = orjson.dumps(values).decode()
        db.execute(
            "INSERT OR REPLACE INTO counters VALUES (?, ?, ?, ?)", (key.partition, key.sort_key, item, expires_at)
        )
        return Added(values)

    def _read(self, db: sqlite3.Connection, ranges: Sequence[KeyRange], limit: int) -> list[Counter]:
        statement = "SELECT sk, item FROM counters WHERE pk = ? AND sk BETWEEN ? AND ? AND expires_at > ? LIMIT ?"
        found: list[Counter] = []
        for span in ranges:
            left = limit + 1 - len(found)
            rows = db.execute(statement, (span.partition, span.first, span.last, self._clock(), left))
            found += [Counter(CounterKey(span.partition, key), orjson.loads(item)) for key, item in rows]
        return found
