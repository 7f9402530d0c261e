"""Which core does what: the system under test has one to itself where the machine has two."""

from __future__ import annotations

import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class Cores:
    """A core for each part; None where nothing can or need be pinned."""

    upstream: int | None = None
    system: int | None = None
    load: int | None = None

    def __str__(self) -> str:
        if self.system is None:
            return "not pinned (one core, or no way to pin here): figures include the load generator's own time"
        return f"upstream on core {self.upstream}, load generator on {self.load}, system under test on {self.system}"


def assign_cores() -> Cores:
    """Share out the cores that this process may use."""
    if not hasattr(os, "sched_getaffinity"):
        return Cores()
    match sorted(os.sched_getaffinity(0)):
        case [upstream, system, load, *_]:
            return Cores(upstream, system, load)
        case [shared, system]:
            return Cores(shared, system, shared)
        case _:
            return Cores()


@contextmanager
def pinned(core: int | None) -> Iterator[None]:
    """Run this thread, and with it what it starts, on one core."""
    if core is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
