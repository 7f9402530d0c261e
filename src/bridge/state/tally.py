"""What the stores count for the exchange at hand, however deep below it they work, also on their threads."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bridge.exchange import Record

_record: ContextVar[Record | None] = ContextVar("record", default=None)


def count_for(record: Record) -> None:
    """Count what this task and those it starts do from now on in a record."""
    _record.set(record)


def count_retry() -> None:
    record = _record.get()
    if record is not None:
        record.store_retries += 1


def count_start() -> None:
    """A conversation began, or began anew after its end."""
    record = _record.get()
    if record is not None:
        record.conversations_started += 1
