"""What was measured, as a table for people and as JSON for machines."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import orjson

from handler.measuring.figures import added, spread, summarize
from handler.running_bridge import token_hint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from handler.measuring.asking import Target
    from handler.measuring.figures import Added, First, Spread, Summary
    from handler.measuring.run import Measured, Plan

PROTOCOL_WORDS = {"anthropic": "messages", "openai_chat": "chat", "openai_responses": "responses"}
COLD_START_MS = 50.0
"""A first token that comes later by less than this needs no explanation."""
_HEADINGS = ("min", "median", "p95", "max")
_FIGURES = {
    "first_token": "first token, ms",
    "total": "whole answer, ms",
    "longest_gap": "longest gap between chunks, ms",
    "tokens_per_second": "output tokens per second",
    "chunks_per_second": "chunks per second",
}
_UNITS = {"first_token": "first_token_ms", "total": "total_ms", "longest_gap": "longest_gap_ms"}


def announcement(plan: Plan) -> str:
    """What is about to be sent, before it is."""
    each = f"at most {plan.max_tokens} output tokens each, {plan.concurrency} at a time"
    text = f"sends {_count(plan.requests, 'request')} to {_told(plan.bridge)}, {each}"
    if plan.direct is not None:
        text += f"; and as many to {_told(plan.direct)}"
    return f"{text}. Models cost money. Ctrl-C stops it.\n"


def text_report(plan: Plan, measured: Measured) -> str:
    """The report for people."""
    bridge = summarize(measured.bridge)
    parts = [_side(plan.bridge, bridge), _table(bridge), _first_line(bridge.first), _health_line(measured)]
    if plan.direct is not None and measured.direct:
        direct = summarize(measured.direct)
        parts += [_side(plan.direct, direct), _table(direct), _added_lines(added(bridge, direct))]
    return "\n".join(part for part in (*parts, _ending(plan, measured)) if part)


def json_report(plan: Plan, measured: Measured) -> str:
    """The report for machines; times in milliseconds."""
    bridge = summarize(measured.bridge)
    direct = summarize(measured.direct) if plan.direct is not None else None
    difference = added(bridge, direct) if direct is not None else None
    said = {
        "requests": plan.requests,
        "concurrency": plan.concurrency,
        "max_tokens": plan.max_tokens,
        "stopped": measured.stopped,
        "bridge": _object(plan.bridge, bridge),
        "health_ms": _spread_object(spread([seconds * 1e3 for seconds in measured.health])),
        "direct": _object(plan.direct, direct) if plan.direct is not None and direct is not None else None,
        "added": None if difference is None else _milliseconds(asdict(difference)),
    }
    return orjson.dumps(said, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()


def _told(target: Target) -> str:
    return f"{target.base_url} (model {target.model}, {PROTOCOL_WORDS[target.protocol]})"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _side(target: Target, summary: Summary) -> str:
    lines = [f"{target.name}: {_told(target)}"]
    lines.append(f"  {summary.answered} of {summary.asked} answered, {_count(summary.output_tokens, 'output token')}")
    if summary.without_content:
        lines.append(
            f"  {summary.without_content} without content: reasoning may use up --max-tokens before a word is said"
        )
    lines += [f"  failed: {count} x {kind}: {summary.reasons[kind]}" for kind, count in summary.failures.items()]
    if target.name == "bridge" and "http 401" in summary.failures:
        lines.append(f"  {token_hint(target.secret)}")
    return "\n".join(lines) + "\n"


def _table(summary: Summary) -> str:
    spreads = [(title, getattr(summary, name)) for name, title in _FIGURES.items()]
    rows = [(title, *_numbers(values)) for title, values in spreads if values is not None]
    return "".join(_line(row) for row in (("", *_HEADINGS), *rows)) if rows else ""


def _numbers(values: Spread) -> Sequence[str]:
    numbers = (values.least, values.median, values.p95, values.most)
    return ["n/a" if value is None else f"{value:,.1f}" for value in numbers]


def _line(cells: Sequence[str]) -> str:
    title, *numbers = cells
    return (f"  {title:32}" + "".join(number.rjust(11) for number in numbers)).rstrip() + "\n"


def _first_line(first: First | None) -> str:
    if first is None or first.later_by is None:
        return ""
    how = "later" if first.later_by >= 0 else "earlier"
    text = (
        f"  first request (not in the table): first token after {first.first_token:,.1f} ms, "
        f"{abs(first.later_by):,.1f} ms {how} than the median of the other {first.others}\n"
    )
    why = "  It was slower than every other: a cold start, or the time to connect.\n"
    is_slow = first.later_than_all and first.others > 1 and first.later_by >= COLD_START_MS
    return text + (why if is_slow else "")


def _health_line(measured: Measured) -> str:
    health = spread([seconds * 1e3 for seconds in measured.health])
    if health is None:
        return ""
    return (
        f"  of each of these times the way to the bridge and back (GET /health) takes about {health.median:,.1f} ms\n"
    )


def _added_lines(difference: Added | None) -> str:
    if difference is None:
        return ""
    return (
        f"added by the bridge, in the median: {difference.first_token:+,.1f} ms to the first token, "
        f"{difference.total:+,.1f} ms to the whole answer\n"
        f"  First tokens of the provider itself lie {difference.provider_range:,.1f} ms apart.\n"
    )


def _ending(plan: Plan, measured: Measured) -> str:
    if measured.stopped:
        return f"stopped after {measured.done} of {plan.total}\n"
    missing = plan.total - measured.done
    return f"{_count(missing, 'request')} not sent: the first was refused, and so would these be\n" if missing else ""


def _object(target: Target, summary: Summary) -> dict[str, Any]:
    told = {"url": target.base_url, "model": target.model, "protocol": PROTOCOL_WORDS[target.protocol]}
    counts = {name: getattr(summary, name) for name in ("asked", "answered", "without_content", "output_tokens")}
    spreads = {_UNITS.get(name, name): _spread_object(getattr(summary, name)) for name in _FIGURES}
    failures = [
        {"kind": kind, "count": count, "first": summary.reasons[kind]} for kind, count in summary.failures.items()
    ]
    return {**told, **counts, "first": _first_object(summary.first), **spreads, "failures": failures}


def _first_object(first: First | None) -> dict[str, Any] | None:
    if first is None:
        return None
    times = {"first_token": first.first_token, "total": first.total, "later_by": first.later_by}
    return {**_milliseconds(times), "later_than_all": first.later_than_all}


def _spread_object(values: Spread | None) -> dict[str, float | None] | None:
    if values is None:
        return None
    numbers = (values.least, values.median, values.p95, values.most)
    return {name: None if number is None else round(number, 3) for name, number in zip(_HEADINGS, numbers, strict=True)}


def _milliseconds(times: Mapping[str, float | None]) -> dict[str, float | None]:
    return {f"{name}_ms": None if value is None else round(value, 3) for name, value in times.items()}
