"""How long a provider may take, and the watch that ends a wait which takes longer."""

from __future__ import annotations

import asyncio
import math
from enum import Enum
from typing import TYPE_CHECKING

from bridge.errors import BridgeError, ErrorKind
from bridge.values import dataclass

if TYPE_CHECKING:
    from types import TracebackType


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Limits in seconds; None is no limit. Models that reason may be silent for minutes before they speak."""

    connect: float | None = 10.0
    first_byte: float | None = 600.0
    """From the start of a call to the first byte of the answer's body."""
    idle: float | None = 300.0
    """Between two pieces of the body."""
    total: float | None = None


class Limit(Enum):
    """A limit: what the client is told when it is reached. The name is part of the setting's."""

    CONNECT = "no connection within {seconds:g} s"
    FIRST_BYTE = "no answer within {seconds:g} s"
    IDLE = "the answer stopped for {seconds:g} s before it was complete"
    TOTAL = "the answer was not complete within {seconds:g} s"


def timeout_message(provider: str, limit: Limit, timeouts: Timeouts) -> str:
    """Who was too slow, and the setting that says how slow is too slow."""
    said = limit.value.format(seconds=getattr(timeouts, limit.name.lower()))
    return f"{provider}: {said}; UPSTREAM_{limit.name}_TIMEOUT_SECONDS sets this limit"


class Patience:
    """Surrounds each wait of one call. One timer serves many waits, because a stream has thousands."""

    __slots__ = (
        "_cancelling",
        "_expired",
        "_first_byte_at",
        "_idle",
        "_limit",
        "_loop",
        "_provider",
        "_task",
        "_timeouts",
        "_timer",
        "_total_at",
        "_until",
    )

    def __init__(self, timeouts: Timeouts, provider: str) -> None:
        self._loop = asyncio.get_running_loop()
        now = self._loop.time()
        self._timeouts, self._provider = timeouts, provider
        self._first_byte_at = now + _seconds(timeouts.first_byte)
        self._total_at = now + _seconds(timeouts.total)
        self._idle = _seconds(timeouts.idle)
        self._limit = Limit.FIRST_BYTE
        self._until = math.inf
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[object] | None = None
        self._cancelling = 0
        self._expired: Limit | None = None

    def answer_began(self) -> None:
        """From now on the limit is the one between two pieces."""
        self._limit = Limit.IDLE

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def __enter__(self) -> None:
        task = self._task = asyncio.current_task(self._loop)
        assert task is not None  # noqa: S101 - only coroutines wait
        self._cancelling = task.cancelling()
        until = self._loop.time() + self._idle if self._limit is Limit.IDLE else self._first_byte_at
        self._until = until if until < self._total_at else self._total_at
        if self._timer is None or self._until < self._timer.when():
            self._arm()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        if self._expired is None or task is None:
            return
        expired, self._expired = self._expired, None
        if task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            message = timeout_message(self._provider, expired, self._timeouts)
            raise BridgeError(ErrorKind.TIMEOUT, message, provider=self._provider) from None

    def _arm(self) -> None:
        """Look again when this wait may be over, or one that begins now with the limit between pieces: the sooner."""
        self.close()
        when = min(self._until, self._loop.time() + self._idle)
        if when < math.inf:
            self._timer = self._loop.call_at(when, self._look)

    def _look(self) -> None:
        """The timer's moment: nothing is waited for, or a later wait has more time, or it is over."""
        self._timer = None
        if self._task is None:
            return
        if self._loop.time() < self._until:
            self._arm()
            return
        self._expired = Limit.TOTAL if self._until == self._total_at else self._limit
        self._task.cancel()


def _seconds(limit: float | None) -> float:
    return math.inf if limit is None else limit
