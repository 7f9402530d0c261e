"""Tool calls in a SQLite file: the same rules as in DynamoDB, each operation one transaction."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING
from uuid import uuid4

from bridge.state.keys import META, TOOL_PREFIX, tool_key
from bridge.state.lifetime import Lifetime
from bridge.state.records import CALLS_COUNTED, ConversationSummary, Found, Liveness, Recent, ToolRecord
from bridge.state.sqlite_file import PUT
from bridge.state.tally import count_start

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Mapping, Sequence

    from bridge.state.records import Origin
    from bridge.state.sqlite_file import SqliteFile

_TERMINATED = "terminated"
_PUT_META = """
INSERT OR REPLACE INTO state (pk, sk, epoch, item, expires_at, owner_hash, started_at, conversation)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""
_RECENT = """
SELECT pk, epoch, conversation, started_at, expires_at FROM state
WHERE owner_hash = ? AND expires_at > ? AND item <> ? ORDER BY started_at DESC LIMIT ?
"""
_CALLED = """
SELECT json_extract(item, '$.n') FROM state
WHERE pk = ? AND sk LIKE ? AND epoch = ? AND json_extract(item, '$.n') IS NOT NULL LIMIT ?
"""


class SqliteStore:
    """The conversation store of a local run."""

    def __init__(self, file: SqliteFile, ttl_seconds: int, clock: Callable[[], float] = time.time) -> None:
        self._file = file
        self._lifetime = Lifetime(ttl_seconds, clock)

    async def check(self) -> str:
        await self._file.run(lambda connection: connection.execute("SELECT 1 FROM state LIMIT 1").fetchall())
        return f"SQLite file {self._file.path}"

    async def save(
        self,
        partition: str,
        records: Sequence[ToolRecord],
        known: Liveness | None = None,  # noqa: ARG002
        origin: Origin | None = None,
    ) -> int:
        return await self._file.run(self._save, partition, records, origin)

    async def load(self, wanted: Mapping[str, Sequence[str]]) -> Found:
        return await self._file.run(self._load, wanted)

    async def forget(self, partition: str, tool_id: str) -> bool:
        statement = "DELETE FROM state WHERE pk = ? AND sk = ?"
        return await self._file.run(lambda db: db.execute(statement, (partition, tool_key(tool_id))).rowcount > 0)

    async def terminate(self, partition: str) -> int:
        return await self._file.run(self._terminate, partition)

    async def recent(self, owner: str, limit: int) -> Recent:
        return await self._file.run(self._recent, owner, limit)

    async def aclose(self) -> None:
        self._file.close()

    def _save(
        self, db: sqlite3.Connection, partition: str, records: Sequence[ToolRecord], origin: Origin | None
    ) -> int:
        epoch = self._living_epoch(db, partition, origin)
        return sum(self._write_once(db, partition, epoch, record) for record in records)

    def _living_epoch(self, db: sqlite3.Connection, partition: str, origin: Origin | None) -> str:
        """The epoch of the conversation, which begins anew if it is not alive."""
        meta = self._liveness(db, partition)
        if meta.epoch is not None and meta.state == "alive":
            self._touch(db, partition, meta)
            return meta.epoch
        epoch = uuid4().hex
        db.execute("DELETE FROM state WHERE expires_at <= ?", (self._lifetime.now(),))
        listing = (origin.owner, self._lifetime.now(), origin.conversation_id) if origin else (None, None, None)
        values = (partition, META, epoch, "", self._lifetime.extended(), *listing)
        db.execute(_PUT_META, values)
        count_start()
        return epoch

    def _write_once(self, db: sqlite3.Connection, partition: str, epoch: str, record: ToolRecord) -> int:
        key = tool_key(record.id)
        row = db.execute("SELECT epoch, item FROM state WHERE pk = ? AND sk = ?", (partition, key)).fetchone()
        if row and row[0] == epoch:
            return int(ToolRecord.from_json(record.id, row[1]).name != record.name)
        values = (partition, key, epoch, record.to_json(), self._lifetime.item_expiry())
        db.execute(PUT, values)
        return 0

    def _load(self, db: sqlite3.Connection, wanted: Mapping[str, Sequence[str]]) -> Found:
        found = Found()
        for partition, ids in wanted.items():
            meta = self._liveness(db, partition)
            for tool_id in ids:
                statement = "SELECT epoch, item FROM state WHERE pk = ? AND sk = ?"
                row = db.execute(statement, (partition, tool_key(tool_id))).fetchone()
                absence = meta.absence(row[0] if row else None)
                if absence is None:
                    found.records[tool_id] = ToolRecord.from_json(tool_id, row[1])
                else:
                    found.absent[tool_id] = absence
            self._touch(db, partition, meta)
            if meta.state == "alive":
                found.alive[partition] = meta
        return found

    def _liveness(self, db: sqlite3.Connection, partition: str) -> Liveness:
        statement = "SELECT epoch, item, expires_at FROM state WHERE pk = ? AND sk = ?"
        row = db.execute(statement, (partition, META)).fetchone()
        if row is None:
            return Liveness(None, "unknown")
        return self._lifetime.judge(row[0], row[2], terminated=row[1] == _TERMINATED)

    def _touch(self, db: sqlite3.Connection, partition: str, meta: Liveness) -> None:
        if meta.state == "alive" and self._lifetime.needs_touch(meta.expires_at):
            db.execute(
                "UPDATE state SET expires_at = ? WHERE pk = ? AND sk = ?", (self._lifetime.extended(), partition, META)
            )

    def _terminate(self, db: sqlite3.Connection, partition: str) -> int:
        """Tool calls go; META stays for a while as a note that says why nothing is found."""
        deleted = db.execute("DELETE FROM state WHERE pk = ? AND sk LIKE ?", (partition, f"{TOOL_PREFIX}%")).rowcount
        values = (_TERMINATED, self._lifetime.extended(), partition, META, _TERMINATED)
        db.execute("UPDATE state SET item = ?, expires_at = ? WHERE pk = ? AND sk = ? AND item <> ?", values)
        return deleted

    def _recent(self, db: sqlite3.Connection, owner: str, limit: int) -> Recent:
        rows = db.execute(_RECENT, (owner, self._lifetime.now(), _TERMINATED, limit + 1)).fetchall()
        return Recent([self._summary(db, *row) for row in rows[:limit]], has_more=len(rows) > limit)

    def _summary(
        self, db: sqlite3.Connection, partition: str, epoch: str, name: str, started_at: float, expires_at: float
    ) -> ConversationSummary:
        rows = db.execute(_CALLED, (partition, f"{TOOL_PREFIX}%", epoch, CALLS_COUNTED + 1)).fetchall()
        calls = Counter(tool for (tool,) in rows[:CALLS_COUNTED])
        return ConversationSummary(name, started_at, expires_at, dict(calls), len(rows) > CALLS_COUNTED)
