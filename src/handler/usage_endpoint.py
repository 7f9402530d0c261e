"""GET /v1/usage: what was used on which day, one's own or, for an administrator, everybody's."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

import orjson

from bridge.errors import BridgeError, ErrorKind, invalid_request
from bridge.exchange import Answer
from bridge.ledger import to_csv

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.canonical.json import JsonObject
    from bridge.exchange import Record
    from bridge.ledger import LedgerRow
    from handler.endpoints import Edge
    from handler.request import HttpRequest

DEFAULT_DAYS = 7
_PARAMETERS = ("from", "to", "format")
_SUMMED = ("requests", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "estimated_requests")


async def show_usage(edge: Edge, request: HttpRequest, _record: Record) -> Answer:
    """The lines of the ledger between two days, as JSON or as a table for spreadsheets."""
    query = dict(parse_qsl(request.query, keep_blank_values=True))
    _refuse_unknown(query)
    first, last = days_of(query.get("from"), query.get("to"), datetime.now(UTC).date())
    ledger = edge.accounts.ledger
    if ledger is None:
        raise BridgeError(ErrorKind.NOT_FOUND, "usage is not counted here: the bridge runs with LEDGER=off")
    own = request.identity.principal
    principal = None if own in edge.admins else own
    rows = await ledger.report(principal, first, last)
    private = {"cache-control": "no-store"}
    if query.get("format") == "csv":
        name = f'attachment; filename="usage-{first}-{last}.csv"'
        headers = {"content-type": "text/csv; charset=utf-8", "content-disposition": name}
        return Answer(200, private | headers, to_csv(rows).encode())
    body = orjson.dumps(usage_report(rows, principal, first, last))
    return Answer(200, private | {"content-type": "application/json"}, body)


def days_of(first: str | None, last: str | None, today: date) -> tuple[date, date]:
    """The days that a request means: up to today, and a week of them, unless it says otherwise."""
    last_day = _day("to", last) if last else today
    first_day = _day("from", first) if first else last_day - timedelta(DEFAULT_DAYS - 1)
    return first_day, last_day


def usage_report(rows: Sequence[LedgerRow], principal: str | None, first: date, last: date) -> JsonObject:
    """A report with its sums; `principal` is null where it covers everybody."""
    total: JsonObject = {name: sum(getattr(row, name) for row in rows) for name in _SUMMED}
    total["cost_usd"] = round(sum(row.cost_usd or 0.0 for row in rows), 6)
    total["priced"] = all(row.priced for row in rows)
    return {
        "object": "usage",
        "from": first.isoformat(),
        "to": last.isoformat(),
        "principal": principal,
        "rows": [row.to_json() for row in rows],
        "total": total,
    }


def _refuse_unknown(query: dict[str, str]) -> None:
    for name in query:
        if name not in _PARAMETERS:
            raise invalid_request(f"{name[:64]}: not a parameter; /v1/usage takes {', '.join(_PARAMETERS)}")
    if query.get("format", "json") not in ("json", "csv"):
        raise invalid_request("format: takes json or csv")


def _day(name: str, text: str) -> date:
    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).date()
    except ValueError:
        raise invalid_request(f"{name}: takes a day as YYYY-MM-DD, such as 2026-11-18") from None
