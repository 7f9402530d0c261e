"""Figures of many answers: their spread, what failed, what the bridge added."""

from __future__ import annotations

import math
from collections import Counter
from statistics import median
from typing import TYPE_CHECKING

from bridge.values import dataclass
from handler.measuring.streams import Answer, Failure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from handler.measuring.streams import Outcome

P95_LEAST_VALUES = 20


@dataclass(frozen=True, slots=True)
class Spread:
    """How values lie; where there are few, a p95 would be the largest of them by another name."""

    least: float
    median: float
    p95: float | None
    most: float


@dataclass(frozen=True, slots=True)
class First:
    """The first request, in milliseconds, and how much later its first token came than the others' in the median."""

    first_token: float
    total: float
    later_by: float | None
    later_than_all: bool
    others: int


@dataclass(frozen=True, slots=True)
class Summary:
    """One side's answers; times in milliseconds. The first answer is not in the spreads unless it is the only one."""

    asked: int
    answered: int
    without_content: int
    output_tokens: int
    first: First | None
    first_token: Spread | None
    total: Spread | None
    longest_gap: Spread | None
    tokens_per_second: Spread | None
    chunks_per_second: Spread | None
    failures: Mapping[str, int]
    reasons: Mapping[str, str]
    """What was said about the first failure of each kind."""


@dataclass(frozen=True, slots=True)
class Added:
    """Medians through the bridge minus medians of the provider itself, and how far the provider's own lie apart."""

    first_token: float
    total: float
    provider_range: float


def spread(values: Sequence[float]) -> Spread | None:
    """The spread of some values; None of none."""
    if not values:
        return None
    ordered = sorted(values)
    p95 = ordered[math.ceil(len(ordered) * 0.95) - 1] if len(ordered) >= P95_LEAST_VALUES else None
    return Spread(ordered[0], median(ordered), p95, ordered[-1])


def summarize(outcomes: Sequence[Outcome]) -> Summary:
    """The figures of one side, in the order in which its requests were sent."""
    answers = [outcome for outcome in outcomes if isinstance(outcome, Answer)]
    failures = [outcome for outcome in outcomes if isinstance(outcome, Failure)]
    leading = outcomes[0] if outcomes else None
    rest = [answer for answer in answers if answer is not leading] or answers
    spoken = [answer for answer in rest if answer.first_token is not None]
    return Summary(
        asked=len(outcomes),
        answered=len(answers),
        without_content=sum(answer.first_token is None for answer in answers),
        output_tokens=sum(answer.output_tokens or 0 for answer in answers),
        first=_first(leading, rest) if isinstance(leading, Answer) else None,
        first_token=spread(_first_tokens(rest)),
        total=spread([answer.total * 1e3 for answer in rest]),
        longest_gap=spread([answer.longest_gap * 1e3 for answer in spoken if answer.chunks > 1]),
        tokens_per_second=spread([rate for answer in spoken if (rate := _rate(answer, answer.output_tokens))]),
        chunks_per_second=spread([rate for answer in spoken if (rate := _rate(answer, answer.chunks))]),
        failures=dict(Counter(failure.kind for failure in failures).most_common()),
        reasons={failure.kind: failure.text for failure in reversed(failures)},
    )


def added(bridge: Summary, direct: Summary) -> Added | None:
    """What the bridge added; None where either side gave nothing to compare."""
    through, itself = bridge.first_token, direct.first_token
    if through is None or itself is None or bridge.total is None or direct.total is None:
        return None
    return Added(through.median - itself.median, bridge.total.median - direct.total.median, itself.most - itself.least)


def _first(leading: Answer, rest: Sequence[Answer]) -> First | None:
    if leading.first_token is None:
        return None
    others = _first_tokens([answer for answer in rest if answer is not leading])
    own = leading.first_token * 1e3
    if not others:
        return First(own, leading.total * 1e3, None, later_than_all=False, others=0)
    return First(own, leading.total * 1e3, own - median(others), later_than_all=own > max(others), others=len(others))


def _first_tokens(answers: Sequence[Answer]) -> list[float]:
    return [answer.first_token * 1e3 for answer in answers if answer.first_token is not None]


def _rate(answer: Answer, count: int | None) -> float | None:
    """So many per second from the first token to the end; None for what came all at once or was not counted."""
    seconds = answer.total - (answer.first_token or 0.0)
    return count / seconds if count and answer.chunks > 1 and seconds > 0 else None
