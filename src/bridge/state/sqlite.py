"""The state in a SQLite file: the embedded default of a local run. Survives restarts and a second process."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar
from uuid import uuid4

from bridge.errors import BridgeError, ErrorKind
from bridge.state.keys import META, TOOL_PREFIX, tool_key
from bridge.state.lifetime import Lifetime
from bridge.state.records import Found, Liveness, ToolRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

P = ParamSpec("P")
T = TypeVar("T")

_TERMINATED = "terminated"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS state (
    pk TEXT NOT NULL,
    sk TEXT NOT NULL,
    epoch TEXT NOT NULL,
    item TEXT NOT NULL,
    expires_at REAL NOT NULL,
    PRIMARY KEY (pk, sk)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS state_expiry ON state (expires_at);
"""


class SqliteStore:
    """One file; a connection per operation, so that threads and processes need not know of each other."""

    def __init__(self, path: str, ttl_seconds: int, clock: Callable[[], float] = time.time) -> None:
        self._path = Path(path)
        self._lifetime = Lifetime(ttl_seconds, clock)

    async def check(self) -> str:
        await self._run(lambda connection: connection.execute("SELECT 1 FROM state LIMIT 1").fetchall())
        return f"SQLite file {self._path}"

    async def save(self, partition: str, records: Sequence[ToolRecord]) -> int:
        return await self._run(self._save, partition, records)

    async def load(self, wanted: Mapping[str, Sequence[str]]) -> Found:
        return await self._run(self._load, wanted)

    async def forget(self, partition: str, tool_id: str) -> bool:
        statement = "DELETE FROM state WHERE pk = ? AND sk = ?"
        return await self._run(lambda db: db.execute(statement, (partition, tool_key(tool_id))).rowcount > 0)

    async def terminate(self, partition: str) -> int:
        return await self._run(self._terminate, partition)

    async def _run(self, work: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(self._in_transaction, lambda connection: work(connection, *args, **kwargs))

    def _in_transaction(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            with closing(self._connect()) as connection:
                connection.execute("BEGIN IMMEDIATE")
                result = work(connection)
                connection.execute("COMMIT")
                return result
        except (sqlite3.Error, OSError) as error:
            raise BridgeError(ErrorKind.OVERLOADED, f"the state file {self._path} cannot be used: {error}") from error

    def _connect(self) -> sqlite3.Connection:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self._path, timeout=5, isolation_level=None)
        connection.executescript(f"PRAGMA journal_mode=WAL; {_SCHEMA}")
        return connection

    def _save(self, db: sqlite3.Connection, partition: str, records: Sequence[ToolRecord]) -> int:
        epoch = self._living_epoch(db, partition)
        return sum(self._write_once(db, partition, epoch, record) for record in records)

    def _living_epoch(self, db: sqlite3.Connection, partition: str) -> str:
        """The epoch of the conversation, which begins anew if it is not alive."""
        meta = self._liveness(db, partition)
        if meta.epoch is not None and meta.state == "alive":
            self._touch(db, partition, meta)
            return meta.epoch
        epoch = uuid4().hex
        db.execute("DELETE FROM state WHERE expires_at <= ?", (self._lifetime.now(),))
        db.execute(
            "INSERT OR REPLACE INTO state VALUES (?, ?, ?, '', ?)", (partition, META, epoch, self._lifetime.extended())
        )
        return epoch

    def _write_once(self, db: sqlite3.Connection, partition: str, epoch: str, record: ToolRecord) -> int:
        key = tool_key(record.id)
        row = db.execute("SELECT epoch, item FROM state WHERE pk = ? AND sk = ?", (partition, key)).fetchone()
        if row and row[0] == epoch:
            return int(ToolRecord.from_json(record.id, row[1]).name != record.name)
        values = (partition, key, epoch, record.to_json(), self._lifetime.item_expiry())
        db.execute("INSERT OR REPLACE INTO state VALUES (?, ?, ?, ?, ?)", values)
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
