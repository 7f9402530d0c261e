"""Counters: numbers that many processes add to. What they are called, and what is asked of a store of them.

    rate# <hash of the principal>       minute#<start> | day#<start>              one item per window of a rate limit
    ledger# <month> # <shard>           <day>#<principal>#<provider>#<model>      one item per line of the ledger

A window is part of its key, so a new one begins at zero. The ledger is spread over shards by principal, so that no
partition takes every write. A principal's own lines are one short range per day; everybody's are one range per month
and shard.
"""

from __future__ import annotations

import re
from dataclasses import field
from datetime import date, timedelta
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote, unquote

from bridge.errors import BridgeError, invalid_request
from bridge.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

LEDGER_SHARDS = 8
MINUTE, DAY = 60, 24 * 3600
_WINDOW_NAMES = {MINUTE: "minute", DAY: "day"}
# Clocks differ a little, and a write may be tried again for a moment: a window must outlive its last use.
_WINDOW_SLACK = 60
# DynamoDB takes sort keys of 1,024 bytes.
_PART_CHARACTERS = {"principal": 400, "provider": 100, "model": 400}
_AFTER_SEPARATOR = "$"  # the character after '#': quoted parts hold neither


@dataclass(frozen=True, slots=True, order=True)
class CounterKey:
    """Where one counter stands."""

    partition: str
    sort_key: str


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The counters of a partition from one sort key to another, both included."""

    partition: str
    first: str
    last: str


@dataclass(frozen=True, slots=True)
class Counter:
    """A counter with the numbers that it holds."""

    key: CounterKey
    values: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Added:
    """The numbers after an addition; `refused` names the field whose limit kept it from taking place."""

    values: dict[str, int]
    refused: str | None = None


class CounterStore(Protocol):
    """Counters that any process may add to at once. What is past its expiry counts as absent, deleted or not."""

    async def add(
        self,
        key: CounterKey,
        amounts: Mapping[str, int],
        expires_at: int,
        limits: Mapping[str, int] | None = None,
    ) -> Added:
        """Add to the fields of a counter, all or none, if every field in `limits` is below its limit; absent is 0.

        Without amounts nothing is written: the limits are only compared with what is there.
        """

    async def read(self, ranges: Sequence[KeyRange], limit: int) -> list[Counter]:
        """The counters of some ranges in the order of their keys; BridgeError if there are more than `limit`."""

    async def aclose(self) -> None:
        """Write what is not written yet."""


def reached_limit(values: Mapping[str, int], limits: Mapping[str, int]) -> str | None:
    """The first field that is not below its limit."""
    return next((name for name, limit in limits.items() if values.get(name, 0) >= limit), None)


def summed(values: Mapping[str, int], amounts: Mapping[str, int]) -> dict[str, int]:
    return {**values, **{name: values.get(name, 0) + amount for name, amount in amounts.items()}}


def too_many(limit: int) -> BridgeError:
    return invalid_request(f"the range holds more than {limit} lines; ask for fewer days")


@dataclass(frozen=True, slots=True)
class Window:
    """One window of a rate limit: a minute or a UTC day of one principal."""

    key: CounterKey
    ends_at: int

    @property
    def expires_at(self) -> int:
        return self.ends_at + _WINDOW_SLACK


def window_at(principal: str, seconds: int, now: float) -> Window:
    """The window of this length (`MINUTE`, `DAY`) that a moment lies in."""
    start = int(now) // seconds * seconds
    partition = "rate#" + sha256(principal.encode()).hexdigest()[:40]
    return Window(CounterKey(partition, f"{_WINDOW_NAMES[seconds]}#{start}"), start + seconds)


@dataclass(frozen=True, slots=True, order=True)
class LedgerLine:
    """What the ledger counts apart."""

    day: date
    principal: str
    provider: str
    model: str

    @lru_cache(maxsize=256)  # noqa: B019  (lines repeat, and are few)
    def key(self) -> CounterKey:
        parts = {"principal": self.principal, "provider": self.provider, "model": self.model}
        quoted = (_quoted(text, _PART_CHARACTERS[name]) for name, text in parts.items())
        return CounterKey(_partition(self.day, _shard(self.principal)), "#".join((self.day.isoformat(), *quoted)))

    @classmethod
    def from_key(cls, key: CounterKey) -> LedgerLine:
        day, *parts = key.sort_key.split("#")
        principal, provider, model = (unquote(part) for part in parts)
        return cls(date.fromisoformat(day), principal, provider, model)


def ledger_ranges(principal: str | None, first: date, last: date) -> list[KeyRange]:
    """Where the lines of some days stand: those of one principal, or everybody's."""
    if principal is None:
        return [
            KeyRange(_partition(start, shard), start.isoformat(), end.isoformat() + _AFTER_SEPARATOR)
            for start, end in _months(first, last)
            for shard in range(LEDGER_SHARDS)
        ]
    shard, own = _shard(principal), _quoted(principal, _PART_CHARACTERS["principal"])
    days = [first + timedelta(number) for number in range((last - first).days + 1)]
    return [KeyRange(_partition(day, shard), f"{day}#{own}#", f"{day}#{own}{_AFTER_SEPARATOR}") for day in days]


def _months(first: date, last: date) -> Iterator[tuple[date, date]]:
    """The parts of a span of days that lie in one month each."""
    while first <= last:
        next_month = (first.replace(day=1) + timedelta(31)).replace(day=1)
        yield first, min(last, next_month - timedelta(1))
        first = next_month


def _partition(day: date, shard: int) -> str:
    return f"ledger#{day:%Y-%m}#{shard}"


def _shard(principal: str) -> int:
    return sha256(principal.encode()).digest()[0] % LEDGER_SHARDS


def _quoted(text: str, limit: int) -> str:
    """A part of a key without separators; one that is too long is cut, and a digest keeps it unlike any other."""
    quoted = quote(text, safe="", errors="replace")
    if len(quoted) <= limit:
        return quoted
    digest = sha256(text.encode("utf-8", "replace")).hexdigest()[:32]
    return re.sub(r"%.?$", "", quoted[: limit - 33]) + "~" + digest
