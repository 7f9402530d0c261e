"""What the stores stand on: SQLite, moto's DynamoDB and AWS's own DynamoDB Local."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.state.dynamodb_table import DynamoDbTable
    from bridge.state.sqlite_file import SqliteFile

Backend: TypeAlias = "Callable[[], SqliteFile | DynamoDbTable]"


class Clock:
    """Time that stands still until it is told to go on. DynamoDB Local deletes what is past by its own clock."""

    def __init__(self) -> None:
        self.time = time.time()

    def __call__(self) -> float:
        return self.time
