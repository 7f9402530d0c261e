"""The end of an invocation, brought forward a little so that it can be told."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager, nullcontext

from bridge.errors import DeadlineError

DEADLINE_MARGIN_SECONDS = 1.5


_WITHOUT_END: AbstractAsyncContextManager[None] = nullcontext()


def until(deadline: float | None) -> AbstractAsyncContextManager[None]:
    """Ends what it surrounds a moment before the deadline, as an error that the client can retry."""
    return _WITHOUT_END if deadline is None else _Until(deadline - DEADLINE_MARGIN_SECONDS)


class _Until(AbstractAsyncContextManager[None]):
    def __init__(self, when: float) -> None:
        self._timeout = asyncio.timeout_at(when)

    async def __aenter__(self) -> None:
        await self._timeout.__aenter__()

    async def __aexit__(self, *exc: object) -> None:
        try:
            await self._timeout.__aexit__(*exc)  # type: ignore[arg-type]
        except TimeoutError:
            if not self._timeout.expired():
                raise
            raise DeadlineError from None
