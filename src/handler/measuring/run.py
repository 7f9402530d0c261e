"""A measurement: the first request alone, then the others, some at a time, each side's turn by turn."""

from __future__ import annotations

import asyncio
from dataclasses import field
from typing import TYPE_CHECKING

from bridge.values import dataclass
from handler.measuring.asking import Target, ask, health_times, is_refusal, open_client
from handler.measuring.streams import Failure

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx2

    from handler.measuring.progress import Progress
    from handler.measuring.streams import Outcome


@dataclass(frozen=True, slots=True)
class Plan:
    """What is asked of whom, how often, how many at a time, and how long an answer may take."""

    bridge: Target
    direct: Target | None
    requests: int
    concurrency: int
    max_tokens: int
    seconds: float

    @property
    def total(self) -> int:
        return self.requests * (1 if self.direct is None else 2)


@dataclass(slots=True)
class Measured:
    """What has come so far."""

    bridge: list[Outcome] = field(default_factory=list)
    direct: list[Outcome] = field(default_factory=list)
    health: list[float] = field(default_factory=list)
    """Seconds of the way to the bridge and back."""
    under_way: int = 0
    stopped: bool = False
    """True if the user ended it."""

    @property
    def done(self) -> int:
        return len(self.bridge) + len(self.direct)

    @property
    def failed(self) -> int:
        return sum(isinstance(outcome, Failure) for outcome in (*self.bridge, *self.direct))


async def measure(plan: Plan, progress: Progress) -> Measured:
    """Carry out a plan. A cancellation, such as by Ctrl-C, ends it with what has come so far."""
    measured = Measured()
    async with open_client() as client:
        telling = asyncio.create_task(progress.tell(measured))
        try:
            await _Run(plan, measured, client).all()
        except asyncio.CancelledError:
            measured.stopped = True
        finally:
            telling.cancel()
            await asyncio.wait([telling])
    return measured


class _Run:
    def __init__(self, plan: Plan, measured: Measured, client: httpx2.AsyncClient) -> None:
        self._plan, self._measured, self._client = plan, measured, client

    async def all(self) -> None:
        plan, measured = self._plan, self._measured
        # Nothing may wake the bridge before: a cold start would be over when it is measured.
        await self._ask(plan.bridge, measured.bridge)
        if is_refusal(measured.bridge[0]):
            return
        measured.health = await health_times(self._client, plan.bridge.base_url)
        if plan.direct is not None:
            await self._ask(plan.direct, measured.direct)
        turns = iter(range(1, plan.requests))
        async with asyncio.TaskGroup() as workers:
            for _ in range(min(plan.concurrency, plan.requests - 1)):
                workers.create_task(self._work(turns))

    async def _work(self, turns: Iterator[int]) -> None:
        for turn in turns:
            # By turns, because whoever is asked second may find the provider's prompt cache warm.
            for target, outcomes in self._sides()[:: 1 if turn % 2 else -1]:
                await self._ask(target, outcomes)

    def _sides(self) -> list[tuple[Target, list[Outcome]]]:
        plan, measured = self._plan, self._measured
        sides = [(plan.bridge, measured.bridge)]
        if plan.direct is not None and not is_refusal(measured.direct[0]):
            sides.append((plan.direct, measured.direct))
        return sides

    async def _ask(self, target: Target, outcomes: list[Outcome]) -> None:
        self._measured.under_way += 1
        try:
            outcomes.append(await ask(self._client, target, self._plan.seconds))
        finally:
            self._measured.under_way -= 1
