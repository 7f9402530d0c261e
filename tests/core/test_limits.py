"""Rate limits and budgets per principal, over a real store."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from bridge.canonical.events import Usage
from bridge.errors import BridgeError, ErrorKind
from bridge.limits import Admission, Limiter, RateLimits, Standing, counted_tokens
from bridge.state.sqlite_counters import SqliteCounters
from bridge.state.sqlite_file import SqliteFile

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping, Sequence
    from pathlib import Path

    from bridge.providers import ProtocolName
    from bridge.state.counters import Added, Counter, CounterKey, KeyRange

T = TypeVar("T")
NOON = 1_800_014_400.0
"""Twelve hours into a UTC day, at the start of a minute."""
HALF_DAY = 12 * 3600


@dataclass
class Clock:
    time: float = NOON

    def __call__(self) -> float:
        return self.time


@dataclass
class Switch:
    """A store that works, refuses or hangs, and counts how often it was asked."""

    store: SqliteCounters
    state: str = "works"
    asked: int = 0

    async def add(
        self, key: CounterKey, amounts: Mapping[str, int], expires_at: int, limits: Mapping[str, int] | None = None
    ) -> Added:
        self.asked += 1
        if self.state == "down":
            raise BridgeError(ErrorKind.OVERLOADED, "the state store does not answer (test); try again")
        if self.state == "hangs":
            await asyncio.sleep(3600)
        return await self.store.add(key, amounts, expires_at, limits)

    async def aclose(self) -> None:
        pass

    async def read(self, ranges: Sequence[KeyRange], limit: int) -> list[Counter]:
        return await self.store.read(ranges, limit)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock) -> Switch:
    return Switch(SqliteCounters(SqliteFile(str(tmp_path / "state.sqlite3")), clock))


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def refused(limiter: Limiter, principal: str = "ann") -> BridgeError:
    with pytest.raises(BridgeError) as refusal:
        run(limiter.admit(principal))
    return refusal.value


@pytest.mark.req("C8")
def test_without_limits_the_store_is_never_asked(store: Switch, clock: Clock) -> None:
    store.state = "down"
    limiter = Limiter(store, RateLimits(), clock)
    admission = run(limiter.admit("ann"))
    assert admission.headers("anthropic") == admission.headers("openai_chat") == {}
    assert run(limiter.charge("ann", 1000)) == 0
    assert store.asked == 0


@pytest.mark.req("C8")
def test_exactly_as_many_requests_as_the_limit_says_are_let_in_at_once(store: Switch, clock: Clock) -> None:
    async def race() -> list[object]:
        limiters = [Limiter(store, RateLimits(requests_per_minute=5), clock) for _ in range(2)]
        return await asyncio.gather(*(limiters[n % 2].admit("ann") for n in range(20)), return_exceptions=True)

    outcomes = run(race())
    assert len([outcome for outcome in outcomes if isinstance(outcome, Admission)]) == 5
    assert len([error for error in outcomes if isinstance(error, BridgeError) and error.status == 429]) == 15


@pytest.mark.req("C8", "NFR5")
def test_a_principal_uses_up_its_own_limits_only(store: Switch, clock: Clock) -> None:
    limiter = Limiter(store, RateLimits(1, 10, 10), clock)
    run(limiter.admit("ann"))
    run(limiter.charge("ann", 10))
    assert refused(limiter, "ann").status == 429
    run(limiter.admit("ben"))


@pytest.mark.req("C8")
def test_windows_roll_with_the_clock(store: Switch, clock: Clock) -> None:
    limiter = Limiter(store, RateLimits(requests_per_minute=1), clock)
    for _ in range(3):
        run(limiter.admit("ann"))
        clock.time += 59.9
        refused(limiter)
        clock.time += 0.1


@pytest.mark.req("C8")
def test_a_window_counts_to_its_end_though_the_store_is_reached_after_it(tmp_path: Path, clock: Clock) -> None:
    late = SqliteCounters(SqliteFile(str(tmp_path / "state.sqlite3")), lambda: clock() + 5)
    limiter = Limiter(late, RateLimits(requests_per_minute=1), clock)
    run(limiter.admit("ann"))
    clock.time += 59
    refused(limiter)


@pytest.mark.req("C8", "C11")
@pytest.mark.parametrize(
    ("limits", "tokens", "setting", "wait", "retryable"),
    [
        (RateLimits(requests_per_minute=1), 0, "RATE_LIMIT_REQUESTS_PER_MINUTE", 60, True),
        (RateLimits(tokens_per_minute=7), 7, "RATE_LIMIT_TOKENS_PER_MINUTE", 60, True),
        (RateLimits(tokens_per_day=7), 8, "RATE_LIMIT_TOKENS_PER_DAY", HALF_DAY, False),
        (RateLimits(1, 7, 7), 9, "RATE_LIMIT_TOKENS_PER_DAY", HALF_DAY, False),
    ],
    ids=["requests", "tokens", "budget", "the_longest_wait_is_told"],
)
def test_a_refusal_says_which_limit_and_when_it_ends(
    store: Switch, clock: Clock, limits: RateLimits, tokens: int, setting: str, wait: int, retryable: bool
) -> None:
    limiter = Limiter(store, limits, clock)
    run(limiter.admit("ann"))
    run(limiter.charge("ann", tokens))
    error = refused(limiter)
    assert (error.kind, error.status, error.retryable) == (ErrorKind.RATE_LIMIT, 429, retryable)
    assert setting in error.message
    assert error.retry_after == str(wait)


@pytest.mark.req("C11")
@pytest.mark.parametrize(("later", "wait"), [(0.4, "60"), (30.5, "30"), (59.0, "1"), (59.999, "1")])
def test_the_wait_is_whole_seconds_and_never_none(store: Switch, clock: Clock, later: float, wait: str) -> None:
    limiter = Limiter(store, RateLimits(requests_per_minute=1), clock)
    run(limiter.admit("ann"))
    clock.time += later
    assert refused(limiter).retry_after == wait


@pytest.mark.req("C8")
def test_tokens_count_when_they_are_known(store: Switch, clock: Clock) -> None:
    limiter = Limiter(store, RateLimits(tokens_per_minute=100, tokens_per_day=150), clock)
    run(limiter.admit("ann"))
    assert run(limiter.charge("ann", 99)) == 0
    run(limiter.admit("ann"))
    run(limiter.charge("ann", 99))
    refused(limiter)
    clock.time += 60
    assert "RATE_LIMIT_TOKENS_PER_DAY" in refused(limiter).message
    clock.time += HALF_DAY - 60
    run(limiter.admit("ann"))


@pytest.mark.req("C8")
def test_a_request_that_the_budget_refuses_is_not_counted_in_its_minute(store: Switch, clock: Clock) -> None:
    both = Limiter(store, RateLimits(requests_per_minute=2, tokens_per_day=10), clock)
    run(both.admit("ann"))
    run(both.charge("ann", 10))
    for _ in range(3):
        assert "RATE_LIMIT_TOKENS_PER_DAY" in refused(both).message
    minute = Limiter(store, RateLimits(requests_per_minute=2), clock)
    assert run(minute.admit("ann")).standings[0].used == 2


@pytest.mark.req("C8")
def test_a_request_that_its_minute_refuses_uses_no_budget(store: Switch, clock: Clock) -> None:
    limiter = Limiter(store, RateLimits(requests_per_minute=1, tokens_per_day=10), clock)
    before = run(limiter.admit("ann")).standings[1]
    refused(limiter)
    clock.time += 60
    assert run(limiter.admit("ann")).standings[1] == before


@pytest.mark.req("FR5.5")
def test_with_limits_a_store_that_is_down_refuses_as_overloaded(store: Switch, clock: Clock) -> None:
    store.state = "down"
    error = refused(Limiter(store, RateLimits(1, 1, 1), clock))
    assert (error.kind, error.status) == (ErrorKind.OVERLOADED, 529)


@pytest.mark.req("FR5.4")
@pytest.mark.parametrize("state", ["down", "hangs"])
def test_a_charge_that_fails_is_counted_and_never_raised(
    store: Switch, clock: Clock, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bridge.limits.CHARGE_SECONDS", 0.05)
    limiter = Limiter(store, RateLimits(1, 100, 100), clock)
    store.state = state
    assert run(limiter.charge("ann", 5)) == 2
    store.state = "works"
    assert [standing.used for standing in run(limiter.admit("ann")).standings] == [1, 0, 0]


@pytest.mark.req("C8")
@pytest.mark.parametrize(
    ("protocol", "expected"),
    [
        (
            "anthropic",
            {
                "anthropic-ratelimit-requests-limit": "5",
                "anthropic-ratelimit-requests-remaining": "4",
                "anthropic-ratelimit-requests-reset": "2027-01-15T12:01:00Z",
                "anthropic-ratelimit-tokens-limit": "100",
                "anthropic-ratelimit-tokens-remaining": "100",
                "anthropic-ratelimit-tokens-reset": "2027-01-15T12:01:00Z",
            },
        ),
        (
            "openai_chat",
            {
                "x-ratelimit-limit-requests": "5",
                "x-ratelimit-remaining-requests": "4",
                "x-ratelimit-reset-requests": "48s",
                "x-ratelimit-limit-tokens": "100",
                "x-ratelimit-remaining-tokens": "100",
                "x-ratelimit-reset-tokens": "48s",
            },
        ),
    ],
)
def test_headers_are_those_that_clients_of_the_protocol_know(
    store: Switch, clock: Clock, protocol: ProtocolName, expected: dict[str, str]
) -> None:
    clock.time += 12
    admission = run(Limiter(store, RateLimits(5, 100, 1000), clock).admit("ann"))
    assert admission.headers(protocol) == expected
    if protocol == "openai_chat":
        assert admission.headers("openai_responses") == expected


@pytest.mark.req("C8")
@pytest.mark.parametrize(("left", "text"), [(1, "1s"), (60, "1m0s"), (3599, "59m59s"), (3600, "1h0m0s")])
def test_openai_clients_are_told_durations(left: int, text: str) -> None:
    admission = Admission((Standing("tokens", 10, 1, int(NOON) + left),), NOON)
    assert admission.headers("openai_chat")["x-ratelimit-reset-tokens"] == text


@pytest.mark.req("C8")
def test_the_limit_with_the_least_left_is_told_and_never_less_than_nothing(store: Switch, clock: Clock) -> None:
    limiter = Limiter(store, RateLimits(tokens_per_minute=100, tokens_per_day=120), clock)
    run(limiter.charge("ann", 90))
    clock.time += 60
    headers = run(limiter.admit("ann")).headers("anthropic")
    assert headers["anthropic-ratelimit-tokens-limit"] == "120"
    assert headers["anthropic-ratelimit-tokens-remaining"] == "30"
    assert Standing("tokens", 10, 25, 0).remaining == 0


@pytest.mark.req("C8")
def test_tokens_read_from_a_cache_do_not_count() -> None:
    usage = Usage(input_tokens=1, output_tokens=20, cache_read_tokens=300, cache_write_tokens=4000, reasoning_tokens=10)
    assert counted_tokens(usage) == 4021
