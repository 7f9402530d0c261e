"""A circuit breaker: a provider that fails again and again is left alone for a while."""

from __future__ import annotations

from collections import deque
from enum import Enum, auto
from typing import TYPE_CHECKING, assert_never

from bridge.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class BreakerRule:
    """So many failures within so many seconds, with no success between them, open it for so long; 0 never do."""

    failures: int = 10
    within_seconds: float = 30.0
    open_seconds: float = 15.0


class State(Enum):
    CLOSED = auto()
    OPEN = auto()
    HALF_OPEN = auto()


class Breaker:
    """The state of one provider's host. Every call that is admitted reports how it went."""

    def __init__(self, rule: BreakerRule, clock: Callable[[], float]) -> None:
        self._rule, self._clock = rule, clock
        self._failures: deque[float] = deque(maxlen=rule.failures)
        self._state = State.CLOSED
        self._until = 0.0

    @property
    def state(self) -> State:
        return self._state

    def admit(self) -> float:
        """0 if the call may be made, else the seconds until one may be.

        A probe that has not reported for the time the breaker stays open is followed by another: some answers
        take minutes, and the rest should not wait for them.
        """
        if self._state is State.CLOSED:
            return 0.0
        left = self._until - self._clock()
        if left > 0:
            return left
        self._enter(State.HALF_OPEN)
        return 0.0

    def succeeded(self) -> None:
        """The host answered."""
        self._failures.clear()
        self._state = State.CLOSED

    def failed(self) -> None:
        """The host could not be reached or said that it is broken."""
        match self._state:
            case State.CLOSED:
                self._count(self._clock())
            case State.HALF_OPEN:
                self._enter(State.OPEN)
            case State.OPEN:
                pass  # a call that was under way when it opened
            case _:
                assert_never(self._state)

    def abandoned(self) -> None:
        """The call ended without telling anything; if it was the probe, the next one may be made."""
        if self._state is State.HALF_OPEN:
            self._until = self._clock()

    def _count(self, now: float) -> None:
        self._failures.append(now)
        full = len(self._failures) == self._rule.failures
        if self._failures and full and now - self._failures[0] <= self._rule.within_seconds:
            self._failures.clear()
            self._enter(State.OPEN)

    def _enter(self, state: State) -> None:
        self._state = state
        self._until = self._clock() + self._rule.open_seconds
