"""A SQLite file: the embedded default of a local run. Survives restarts and a second process."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from bridge.errors import BridgeError, ErrorKind

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")

# The state in a file of another version is begun anew: it expires within the hour anyway. Counters stay: they last.
_VERSION = 3
_SCHEMA = """
DROP TABLE IF EXISTS state;
CREATE TABLE state (
    pk TEXT NOT NULL,
    sk TEXT NOT NULL,
    epoch TEXT NOT NULL,
    item TEXT NOT NULL,
    expires_at REAL NOT NULL,
    PRIMARY KEY (pk, sk)
) WITHOUT ROWID;
CREATE INDEX state_expiry ON state (expires_at);
CREATE TABLE IF NOT EXISTS counters (
    pk TEXT NOT NULL,
    sk TEXT NOT NULL,
    item TEXT NOT NULL,
    expires_at INTEGER NOT NULL,
    PRIMARY KEY (pk, sk)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS counters_expiry ON counters (expires_at)
"""


class SqliteFile:
    """A connection per operation, so that threads and processes need not know of each other."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)

    async def run(self, work: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(self._in_transaction, lambda connection: work(connection, *args, **kwargs))

    def _in_transaction(self, work: Callable[[sqlite3.Connection], T]) -> T:
        try:
            with closing(self._connect()) as connection:
                connection.execute("BEGIN IMMEDIATE")
                _prepare(connection)
                result = work(connection)
                connection.execute("COMMIT")
                return result
        except (sqlite3.Error, OSError) as error:
            raise BridgeError(ErrorKind.OVERLOADED, f"the state file {self.path} cannot be used: {error}") from error

    def _connect(self) -> sqlite3.Connection:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self.path, timeout=5, isolation_level=None)
        with suppress(sqlite3.OperationalError):  # another process is switching this new file to WAL right now
            connection.execute("PRAGMA journal_mode=WAL")
        return connection


def _prepare(connection: sqlite3.Connection) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == _VERSION:
        return
    for statement in _SCHEMA.split(";"):
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {_VERSION}")
