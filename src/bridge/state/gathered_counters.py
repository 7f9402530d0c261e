"""Counters whose additions are gathered for a moment and then written together, off the way of the next request.

For a process that goes on after an answer. What was gathered and not written when it is killed is not counted.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from bridge.errors import BridgeError, ErrorKind
from bridge.state.counters import Added, summed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from bridge.state.counters import Counter, CounterKey, CounterStore, KeyRange

GATHER_SECONDS = 0.25
LONGEST_PAUSE_SECONDS = 30.0
MAX_GATHERED = 1_000


class GatheredCounters:
    """A store of counters in front of another. Additions under a limit never wait; whoever reads sees all of them.

    One task at a time writes, and nobody who waits for it can cancel it: what it has in hand would be lost.
    """

    def __init__(
        self,
        store: CounterStore,
        seconds: float = GATHER_SECONDS,
        on_failure: Callable[[str], None] = lambda _reason: None,
    ) -> None:
        self._store, self._seconds, self._on_failure = store, seconds, on_failure
        self._pause = seconds
        self._gathered: dict[CounterKey, tuple[dict[str, int], int]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None
        self._failure: BridgeError | None = None

    async def add(
        self,
        key: CounterKey,
        amounts: Mapping[str, int],
        expires_at: int,
        limits: Mapping[str, int] | None = None,
    ) -> Added:
        """As the store does it; what the counter holds is not known yet where nothing is limited."""
        if limits is not None or not amounts:
            return await self._store.add(key, amounts, expires_at, limits)
        self._gather(key, amounts, expires_at)
        self._write_later()
        if len(self._gathered) > MAX_GATHERED:
            await self._flush()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        return Added({})

    async def read(self, ranges: Sequence[KeyRange], limit: int) -> list[Counter]:
        await self._flush()
        return await self._store.read(ranges, limit)

    async def aclose(self) -> None:
        await self._flush()
        await self._store.aclose()

    async def _flush(self) -> None:
        """Return when everything that was gathered before is written, or has failed to be."""
        if self._writing is not None:
            await asyncio.shield(self._writing)
        if self._gathered:
            await asyncio.shield(self._begin_writing())

    def _write_later(self) -> None:
        if self._timer is None and self._writing is None:
            self._timer = asyncio.get_running_loop().call_later(self._pause, self._begin_writing)

    def _begin_writing(self) -> asyncio.Task[None]:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._writing is None:
            self._writing = asyncio.ensure_future(self._write(list(self._gathered)))
        return self._writing

    async def _write(self, keys: list[CounterKey]) -> None:
        """Write some counters. What cannot be written stays, and the next addition is told."""
        try:
            for key in keys:
                amounts, expires_at = self._gathered.pop(key)
                try:
                    await self._store.add(key, amounts, expires_at)
                except BridgeError as error:
                    self._gather(key, amounts, expires_at)
                    self._fail(error)
                    return
                except Exception:  # noqa: BLE001  (a line that no store takes must not cost the others)
                    self._fail(BridgeError(ErrorKind.API, "a counter holds what cannot be written"))
            self._pause = self._seconds
        finally:
            self._writing = None
            if self._gathered:
                self._write_later()

    def _fail(self, error: BridgeError) -> None:
        """Tell the first time; a store that goes on failing is left alone for longer and longer."""
        if self._pause == self._seconds:
            self._on_failure(error.message)
        self._failure = error
        self._pause = min(self._pause * 2, LONGEST_PAUSE_SECONDS)

    def _gather(self, key: CounterKey, amounts: Mapping[str, int], expires_at: int) -> None:
        before, _ = self._gathered.get(key, ({}, 0))
        self._gathered[key] = (summed(before, amounts), expires_at)
