"""What the store adds to a turn: each turn that needs it beside one that does not, a moment before, by one client."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from bench.measure import p95
from bench.soak_client import Question
from bench.soak_model import LONG_EVERY, Task
from bench.soak_talk import result

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bench.soak_client import Answer, Client, GivenCall


@dataclass(frozen=True, slots=True)
class Added:
    """Milliseconds that a kind of turn takes longer than one without tool state."""

    kind: str
    middle: float
    p95: float


@dataclass(frozen=True, slots=True)
class Sample:
    """One round: seconds of the turn without state, and of the turns with it."""

    plain: float
    write: float
    read: float
    both: float


async def measure_added(client: Client, rounds: int, at_once: int) -> tuple[float, list[Added]]:
    """The median of a turn without state in ms, and what the store adds."""
    numbers = iter(range(0, 1_000_000_000, LONG_EVERY * 10))

    async def run() -> list[Sample]:
        return [await _round(client, numbers) for _ in range(rounds // at_once)]

    runs = await asyncio.gather(*(run() for _ in range(at_once)))
    samples = [sample for samples in runs for sample in samples]
    added = [
        _added("read (trimmed result)", [sample.read - sample.plain for sample in samples]),
        _added("write (one tool call)", [sample.write - sample.plain for sample in samples]),
        _added("both (trimmed result, one tool call)", [sample.both - sample.plain for sample in samples]),
    ]
    return median(sample.plain for sample in samples) * 1e3, added


async def _round(client: Client, numbers: Iterator[int]) -> Sample:
    plain, _ = await _timed(client, next(numbers))
    write, answer = await _timed(client, next(numbers), calls=1)
    read, _ = await _timed(client, next(numbers), orphans=answer.calls)
    both, _ = await _timed(client, next(numbers), calls=1, orphans=answer.calls)
    return Sample(plain, write, read, both)


async def _timed(
    client: Client, number: int, *, calls: int = 0, orphans: Sequence[GivenCall] = ()
) -> tuple[float, Answer]:
    task = Task(number, 0, calls, len(orphans))
    content = [result(call.id, task.text) for call in orphans] or task.text
    question = Question(task, [{"role": "user", "content": content}])
    started = time.perf_counter()
    answer = await client.ask(question)
    return time.perf_counter() - started, answer


def _added(kind: str, seconds: Sequence[float]) -> Added:
    return Added(kind, median(seconds) * 1e3, p95(seconds) * 1e3)
