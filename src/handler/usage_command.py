"""`bridge usage`: the ledger as a table on a terminal, from a running bridge or from the store itself."""

from __future__ import annotations

import asyncio
from dataclasses import field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from bridge.errors import BridgeError
from bridge.values import dataclass
from handler.printing import printable
from handler.running_bridge import RunningBridgeError, add_bridge_options, ask_bridge
from handler.usage_endpoint import days_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from bridge.canonical.json import JsonObject, JsonValue
    from handler.settings import Settings

_COLUMNS = (
    ("day", "day"),
    ("principal", "principal"),
    ("provider", "provider"),
    ("model", "model"),
    ("requests", "requests"),
    ("input_tokens", "input"),
    ("output_tokens", "output"),
    ("cache_read_tokens", "cache read"),
    ("cache_write_tokens", "cache write"),
    ("cost_usd", "about USD"),
)
_NUMBERS_FROM = 4


@dataclass(frozen=True, slots=True)
class UsageQuery:
    """What was asked for on the command line."""

    first: str | None = None
    last: str | None = None
    csv: bool = False
    url: str | None = None
    token: str | None = field(default=None, repr=False)


def add_usage_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """Declare the command and its options."""
    command = commands.add_parser(
        "usage",
        help="what was used, by day, principal and model",
        description="Print the ledger: that of a running bridge where one is named, as far as its token may see it; "
        "else everybody's, from the store that the settings name.",
    )
    add_bridge_options(command, otherwise="the store")
    command.add_argument("--from", dest="first", metavar="DAY", help="first day, YYYY-MM-DD (default: a week)")
    command.add_argument("--to", dest="last", metavar="DAY", help="last day, YYYY-MM-DD (default: today, UTC)")
    command.add_argument("--csv", action="store_true", help="comma-separated values instead of a table")
    return command


def show(query: UsageQuery, settings: Settings) -> str:
    """The report as text; RunningBridgeError says why there is none."""
    try:
        if query.url:
            return _from_bridge(query, query.url)
        return asyncio.run(_from_store(query, settings))
    except BridgeError as error:
        raise RunningBridgeError(error.message) from None


async def _from_store(query: UsageQuery, settings: Settings) -> str:
    from bridge.ledger import Ledger, to_csv
    from handler.usage_endpoint import usage_report
    from handler.wiring import make_stores

    first, last = days_of(query.first, query.last, datetime.now(UTC).date())
    stores = make_stores(settings)
    try:
        rows = await Ledger(stores.counters).report(None, first, last)
    finally:
        await stores.tools.aclose()
    return to_csv(rows) if query.csv else table(usage_report(rows, None, first, last))


def _from_bridge(query: UsageQuery, url: str) -> str:
    asked = {"from": query.first, "to": query.last, "format": "csv" if query.csv else None}
    answer = ask_bridge(url, query.token, "/v1/usage", asked)
    return answer.text if query.csv else table(answer.json())


def table(report: Mapping[str, JsonValue]) -> str:
    """A report in columns, its sums last."""
    rows = [row for row in _list(report["rows"]) if isinstance(row, dict)]
    if not rows:
        return f"nothing was used from {report['from']} to {report['to']}\n"
    total = report["total"]
    cells = [[title for _, title in _COLUMNS], *(_cells(row) for row in rows)]
    if isinstance(total, dict):
        cells.append(_cells({"day": "total", **total}))
    widths = [max(len(line[column]) for line in cells) for column in range(len(_COLUMNS))]
    return "".join(_line(line, widths) for line in cells)


def _list(value: JsonValue) -> Sequence[JsonValue]:
    return value if isinstance(value, list) else []


def _cells(row: JsonObject) -> list[str]:
    return [_cell(name, row.get(name, "")) for name, _ in _COLUMNS]


def _cell(name: str, value: JsonValue) -> str:
    if name == "cost_usd":
        return "?" if value is None else f"{value:.4f}"
    return f"{value:,}" if isinstance(value, int) else printable(str(value))


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = [
        cell.rjust(width) if column >= _NUMBERS_FROM else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return "  ".join(padded).rstrip() + "\n"
