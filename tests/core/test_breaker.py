"""The circuit breaker as a state machine under a clock that the test turns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.upstream.breaker import Breaker, BreakerRule, State

RULE = BreakerRule(failures=3, within_seconds=30, open_seconds=15)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> Breaker:
    return Breaker(RULE, clock)


def fail(breaker: Breaker, times: int = 3) -> None:
    for _ in range(times):
        assert breaker.admit() == 0
        breaker.failed()


def test_it_opens_after_so_many_failures_and_says_for_how_long(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, 2)
    assert breaker.state is State.CLOSED
    fail(breaker, 1)
    assert breaker.state is State.OPEN
    assert breaker.admit() == 15
    clock.now += 10
    assert breaker.admit() == 5


def test_failures_that_are_far_apart_do_not_open_it(breaker: Breaker, clock: Clock) -> None:
    for _ in range(20):
        fail(breaker, 1)
        clock.now += 16
    assert breaker.state is State.CLOSED


def test_failures_count_within_a_window_that_moves(breaker: Breaker, clock: Clock) -> None:
    fail(breaker, 1)
    clock.now += 25
    fail(breaker, 1)
    clock.now += 6
    fail(breaker, 1)  # the first is 31 s old
    assert breaker.state is State.CLOSED
    clock.now += 20
    fail(breaker, 1)
    assert breaker.state is State.OPEN


def test_a_success_between_failures_keeps_it_closed(breaker: Breaker) -> None:
    for _ in range(10):
        fail(breaker, 2)
        breaker.succeeded()
    assert breaker.state is State.CLOSED


def test_half_open_lets_one_probe_through(breaker: Breaker, clock: Clock) -> None:
    fail(breaker)
    clock.now += 15
    assert breaker.admit() == 0
    assert breaker.state is State.HALF_OPEN
    assert breaker.admit() > 0


def test_a_probe_that_succeeds_closes_it(breaker: Breaker, clock: Clock) -> None:
    fail(breaker)
    clock.now += 15
    breaker.admit()
    breaker.succeeded()
    assert breaker.state is State.CLOSED
    fail(breaker, 2)
    assert breaker.admit() == 0


def test_a_probe_that_fails_opens_it_for_the_same_time_again(breaker: Breaker, clock: Clock) -> None:
    fail(breaker)
    clock.now += 15
    breaker.admit()
    breaker.failed()
    assert breaker.admit() == 15


def test_a_probe_that_is_given_up_is_followed_by_another(breaker: Breaker, clock: Clock) -> None:
    fail(breaker)
    clock.now += 15
    assert breaker.admit() == 0
    breaker.abandoned()
    assert breaker.admit() == 0
    assert breaker.admit() > 0


def test_a_probe_that_takes_minutes_does_not_keep_everyone_waiting(breaker: Breaker, clock: Clock) -> None:
    fail(breaker)
    clock.now += 15
    assert breaker.admit() == 0
    clock.now += 15
    assert breaker.admit() == 0


def test_calls_under_way_when_it_opens_do_not_keep_it_open_longer(breaker: Breaker, clock: Clock) -> None:
    fail(breaker)
    clock.now += 10
    breaker.failed()
    assert breaker.admit() == 5


def test_a_call_given_up_while_closed_changes_nothing(breaker: Breaker) -> None:
    fail(breaker, 2)
    breaker.abandoned()
    assert breaker.state is State.CLOSED
    fail(breaker, 1)
    assert breaker.state is State.OPEN


def test_zero_failures_switch_it_off(clock: Clock) -> None:
    off = Breaker(BreakerRule(failures=0), clock)
    fail(off, 50)
    assert off.state is State.CLOSED


@given(st.lists(st.sampled_from(["call", "fail", "succeed", "abandon", "wait"]), max_size=60))
def test_it_never_refuses_for_longer_than_it_stays_open(steps: list[str]) -> None:
    clock = Clock()
    breaker = Breaker(RULE, clock)
    for step in steps:
        match step:
            case "call":
                assert 0 <= breaker.admit() <= RULE.open_seconds
            case "fail":
                breaker.failed()
            case "succeed":
                breaker.succeeded()
            case "abandon":
                breaker.abandoned()
            case _:
                clock.now += 4
    clock.now += RULE.open_seconds
    assert breaker.admit() == 0
