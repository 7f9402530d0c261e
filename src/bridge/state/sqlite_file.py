"""A SQLite file: the embedded default of a local run. Survives restarts and a second process."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from bridge.errors import BridgeError, ErrorKind

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")

# The state in a file of an unknown version is begun anew, since it is short-lived. Counters stay: they last.
_VERSION = 4
_FROM_VERSION_3 = """
ALTER TABLE state ADD COLUMN owner_hash TEXT;
ALTER TABLE state ADD COLUMN started_at REAL;
ALTER TABLE state ADD COLUMN conversation TEXT;
CREATE INDEX state_owner ON state (owner_hash, started_at) WHERE owner_hash IS NOT NULL
"""
PUT = "INSERT OR REPLACE INTO state (pk, sk, epoch, item, expires_at) VALUES (?, ?, ?, ?, ?)"
_SCHEMA = """
DROP TABLE IF EXISTS state;
CREATE TABLE state (
    pk TEXT NOT NULL,
    sk TEXT NOT NULL,
    epoch TEXT NOT NULL,
    item TEXT NOT NULL,
    expires_at REAL NOT NULL,
    owner_hash TEXT,
    started_at REAL,
    conversation TEXT,
    PRIMARY KEY (pk, sk)
) WITHOUT ROWID;
CREATE INDEX state_expiry ON state (expires_at);
CREATE INDEX state_owner ON state (owner_hash, started_at) WHERE owner_hash IS NOT NULL;
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
    """One connection of this process, used by one operation at a time; other processes have their own."""

    def __init__(self, path: str) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._file_number = 0

    async def run(self, work: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(self._in_transaction, lambda connection: work(connection, *args, **kwargs))

    def close(self) -> None:
        """Close what is kept open between operations."""
        with self._lock:
            self._drop()

    def _in_transaction(self, work: Callable[[sqlite3.Connection], T]) -> T:
        with self._lock:
            try:
                connection = self._connected()
                connection.execute("BEGIN IMMEDIATE")
                _prepare(connection)
                result = work(connection)
                connection.execute("COMMIT")
            except BaseException as error:
                self._drop()  # and with it what the transaction did
                if not isinstance(error, sqlite3.Error | OSError):
                    raise
                text = f"the state file {self.path} cannot be used: {error}"
                raise BridgeError(ErrorKind.OVERLOADED, text) from error
        return result

    def _connected(self) -> sqlite3.Connection:
        """The connection, made anew where the file is not the one that it was made for."""
        if self._connection is not None and self._file_number == _file_number(self.path):
            return self._connection
        self._drop()
        self._connection = _connect(self.path)
        self._file_number = _file_number(self.path)
        return self._connection

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _file_number(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return 0


def _connect(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    connection = sqlite3.connect(path, timeout=5, isolation_level=None, check_same_thread=False)
    with suppress(sqlite3.OperationalError):  # another process is switching this new file to WAL right now
        connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")  # enough for a killed process; power loss takes what is short-lived
    return connection


def _prepare(connection: sqlite3.Connection) -> None:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == _VERSION:
        return
    for statement in (_FROM_VERSION_3 if version == 3 else _SCHEMA).split(";"):
        connection.execute(statement)
    connection.execute(f"PRAGMA user_version = {_VERSION}")
