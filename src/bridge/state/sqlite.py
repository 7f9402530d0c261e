"""The state in a SQLite file: the embedded default of a local run. Survives restarts and a second process."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

from bridge.errors import BridgeError, ErrorKind
from bridge.state.keys import partition_key

_SCHEMA = """
CREATE TABLE IF NOT EXISTS state (
    pk TEXT NOT NULL,
    sk TEXT NOT NULL,
    item TEXT NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (pk, sk)
) WITHOUT ROWID
"""


class SqliteStore:
    """One file; a connection per operation, so that threads and processes need not know of each other."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    async def check(self) -> str:
        await asyncio.to_thread(self._execute, "SELECT 1")
        return f"SQLite file {self._path}"

    async def terminate(self, principal: str, conversation_id: str) -> int:
        partition = partition_key(principal, conversation_id)
        return await asyncio.to_thread(self._execute, "DELETE FROM state WHERE pk = ?", partition)

    def _execute(self, statement: str, *values: str) -> int:
        try:
            with closing(self._connect()) as connection, connection:
                return max(connection.execute(statement, values).rowcount, 0)
        except (sqlite3.Error, OSError) as error:
            raise BridgeError(ErrorKind.OVERLOADED, f"the state file {self._path} cannot be used: {error}") from error

    def _connect(self) -> sqlite3.Connection:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self._path, timeout=5)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(_SCHEMA)
        return connection
