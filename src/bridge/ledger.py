"""The usage ledger: what each principal used of which model on which UTC day, and about what it cost."""

from __future__ import annotations

import asyncio
import csv
import time
from datetime import UTC, date, datetime, timedelta
from fnmatch import fnmatchcase
from functools import lru_cache
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from bridge.errors import BridgeError, invalid_request
from bridge.state.counters import LedgerLine, ledger_ranges
from bridge.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from bridge.canonical.events import Usage
    from bridge.canonical.json import JsonObject
    from bridge.state.counters import Counter, CounterStore

NOTE_SECONDS = 5.0
MAX_DAYS = 366
MAX_ROWS = 20_000
KEPT_DAYS = 400
MOST_AT_ONCE = 10**12
"""What one answer may count: a provider that tells of more is wrong."""
_MICRO = 1_000_000
# What a spreadsheet would take for a formula.
_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n")


@dataclass(frozen=True, slots=True)
class Price:
    """USD per million tokens, which is also micro-dollars per token."""

    input: float
    output: float
    cache_read: float
    cache_write: float

    def cost(self, usage: Usage) -> int:
        """Micro-dollars for an answer."""
        return round(
            usage.input_tokens * self.input
            + usage.output_tokens * self.output
            + usage.cache_read_tokens * self.cache_read
            + usage.cache_write_tokens * self.cache_write
        )


@dataclass(frozen=True, slots=True, eq=False)
class Prices:
    """Prices by pattern of provider and model; the first that matches counts."""

    rows: tuple[tuple[str, Price], ...]

    @lru_cache(maxsize=256)  # noqa: B019  (there is one list for the life of the process)
    def of(self, provider: str, model: str) -> Price | None:
        name = f"{provider}/{model}".lower()
        return next((price for pattern, price in self.rows if fnmatchcase(name, pattern)), None)


def parse_prices(data: bytes) -> Prices:
    """A price list in the form of prices.json; ValueError says which row is wrong."""
    table = orjson.loads(data)
    return Prices(tuple((pattern, _price(pattern, row)) for pattern, row in table["prices"]))


@lru_cache(maxsize=1)
def list_prices() -> Prices:
    """The price list that comes with the bridge: prices.json."""
    return parse_prices(Path(__file__).with_name("prices.json").read_bytes())


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """One line of a report. `cost_microdollars` leaves out the `unpriced` requests, for which no price was known."""

    day: date
    principal: str
    provider: str
    model: str
    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    estimated_requests: int = 0
    """Requests whose tokens the bridge had to estimate."""
    cost_microdollars: int = 0
    unpriced: int = 0

    @property
    def priced(self) -> bool:
        return self.unpriced == 0

    @property
    def cost_usd(self) -> float | None:
        """The estimated cost; None if no request had a price."""
        return None if self.unpriced and self.unpriced == self.requests else self.cost_microdollars / _MICRO

    def to_json(self) -> JsonObject:
        return {
            "day": self.day.isoformat(),
            "principal": self.principal,
            "provider": self.provider,
            "model": self.model,
            "requests": self.requests,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cache_read_tokens": self.cache_read_tokens,
            "cache_write_tokens": self.cache_write_tokens,
            "estimated_requests": self.estimated_requests,
            "cost_usd": self.cost_usd,
            "priced": self.priced,
        }


class Ledger:
    """Notes the usage of answers and reports it."""

    def __init__(
        self, store: CounterStore, prices: Prices | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self._store = store
        self._prices = prices
        self._clock = clock
        self.trouble = ""
        """Why the last answer that could not be noted was not."""

    async def note(self, principal: str, provider: str, model: str, usage: Usage) -> bool:
        """Add an answer to its line; False if that failed. Never raises, never waits for long."""
        day = datetime.fromtimestamp(self._clock(), UTC).date()
        price = (self._prices or list_prices()).of(provider, model)
        key = LedgerLine(day, principal, provider, model).key()
        try:
            async with asyncio.timeout(NOTE_SECONDS):
                await self._store.add(key, _amounts(usage, price), _expiry(day))
        except (BridgeError, TimeoutError) as error:
            self.trouble = f"the ledger: {error if isinstance(error, BridgeError) else 'the store does not answer'}"
            return False
        return True

    async def aclose(self) -> None:
        """Write what is not written yet."""
        await self._store.aclose()

    async def report(self, principal: str | None, first_day: date, last_day: date) -> list[LedgerRow]:
        """The lines of some days, both included: of one principal, or of everybody."""
        if last_day < first_day:
            raise invalid_request(f"the last day ({last_day}) is before the first ({first_day})")
        if (last_day - first_day).days >= MAX_DAYS:
            raise invalid_request(f"a report covers {MAX_DAYS} days at most; ask for fewer")
        counters = await self._store.read(ledger_ranges(principal, first_day, last_day), MAX_ROWS)
        return sorted(map(_row, counters), key=lambda row: (row.day, row.principal, row.provider, row.model))


def to_csv(rows: Iterable[LedgerRow]) -> str:
    """A report as a table that spreadsheets take as text and numbers, never as formulas."""
    text = StringIO()
    names = list(LedgerRow(date.min, "", "", "").to_json())
    writer = csv.DictWriter(text, names, quoting=csv.QUOTE_NONNUMERIC)
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in row.to_json().items()} for row in rows)
    return text.getvalue()


def _cell(value: object) -> object:
    match value:
        case str() if value.startswith(_FORMULA_STARTS):
            return f"'{value}"
        case bool():
            return "true" if value else "false"
    return value


def _price(pattern: str, row: Mapping[str, float]) -> Price:
    known = {"input", "output", "cache_read", "cache_write"}
    values = (row.get("input"), row.get("output"), *row.values())
    if not known.issuperset(row) or not all(isinstance(value, int | float) and value >= 0 for value in values):
        raise ValueError(f"prices: {pattern}: takes input, output, cache_read and cache_write, in USD per million")
    return Price(row["input"], row["output"], row.get("cache_read", row["input"]), row.get("cache_write", row["input"]))


def _amounts(usage: Usage, price: Price | None) -> dict[str, int]:
    """What an answer adds to its line; short names and no zeros keep items small."""
    amounts = {
        "in": usage.input_tokens,
        "out": usage.output_tokens,
        "cr": usage.cache_read_tokens,
        "cw": usage.cache_write_tokens,
        "est": int(usage.estimated),
        "cost": price.cost(usage) if price else 0,
        "unpriced": int(price is None),
    }
    return {"n": 1, **{name: min(amount, MOST_AT_ONCE) for name, amount in amounts.items() if amount}}


def _row(counter: Counter) -> LedgerRow:
    line, values = LedgerLine.from_key(counter.key), counter.values
    return LedgerRow(
        line.day,
        line.principal,
        line.provider,
        line.model,
        requests=values.get("n", 0),
        input_tokens=values.get("in", 0),
        output_tokens=values.get("out", 0),
        cache_read_tokens=values.get("cr", 0),
        cache_write_tokens=values.get("cw", 0),
        estimated_requests=values.get("est", 0),
        cost_microdollars=values.get("cost", 0),
        unpriced=values.get("unpriced", 0),
    )


@lru_cache(maxsize=4)
def _expiry(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp() + timedelta(KEPT_DAYS).total_seconds())
