"""Counters whose additions are gathered for a moment and then written together, off the way of the next request.

For a process that goes on after an answer. What was gathered and not written when it is killed is not counted.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from bridge.errors import BridgeError
from bridge.state.counters import Added, summed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bridge.state.counters import Counter, CounterKey, CounterStore, KeyRange

GATHER_SECONDS = 0.25
MAX_GATHERED = 1_000


class GatheredCounters:
    """A store of counters in front of another. Additions under a limit, and reading, never wait here."""

    def __init__(self, store: CounterStore, seconds: float = GATHER_SECONDS) -> None:
        self._store, self._seconds = store, seconds
        self._gathered: dict[CounterKey, tuple[dict[str, int], int]] = {}
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
        if self._writing is None:
            self._writing = asyncio.ensure_future(self._write_soon())
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
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None
        await self._flush()
        await self._store.aclose()

    async def _flush(self) -> None:
        """Write what was gathered. What cannot be written stays, and the next addition is told."""
        gathered, self._gathered = self._gathered, {}
        while gathered:
            key, (amounts, expires_at) = gathered.popitem()
            try:
                await self._store.add(key, amounts, expires_at)
            except BridgeError as error:
                self._failure = error
                self._gather(key, amounts, expires_at)
                for left, (more, until) in gathered.items():
                    self._gather(left, more, until)
                return

    def _gather(self, key: CounterKey, amounts: Mapping[str, int], expires_at: int) -> None:
        before, _ = self._gathered.get(key, ({}, 0))
        self._gathered[key] = (summed(before, amounts), expires_at)

    async def _write_soon(self) -> None:
        await asyncio.sleep(self._seconds)
        self._writing = None
        await self._flush()
