"""Every store contract runs on each backend."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import pytest
from backends import Clock
from moto import mock_aws

from bridge.state.dynamodb_table import DynamoDbTable, connect
from bridge.state.sqlite_file import SqliteFile
from bridge.state.table import create_table
from dynamodb_local import CREDENTIALS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from backends import Backend


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["sqlite", "moto", "dynamodb_local"])
def backend(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    """A fresh, empty place; each call opens it anew, as another process would."""
    yield from _opened(request, tmp_path, monkeypatch)


@pytest.fixture(params=["sqlite", "dynamodb_local"])
def racing_backend(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Backend]:
    """A place to race for: moto checks a condition and writes in two steps, so it cannot tell who wins."""
    yield from _opened(request, tmp_path, monkeypatch)


def _opened(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    name = f"state-{uuid4().hex}"
    if request.param == "sqlite":
        yield lambda: SqliteFile(str(tmp_path / "deep" / "state.sqlite3"))
    elif request.param == "moto":
        for variable, value in CREDENTIALS.items():
            monkeypatch.setenv(variable, value)
        with mock_aws():
            yield from _tables(name)
    else:
        request.getfixturevalue("aws_environment")
        yield from _tables(name)


def _tables(name: str) -> Iterator[Backend]:
    client = connect()
    create_table(client, name)
    client.close()
    opened: list[DynamoDbTable] = []

    def another() -> DynamoDbTable:
        opened.append(DynamoDbTable(name))
        return opened[-1]

    yield another
    for table in opened:
        table.close()
