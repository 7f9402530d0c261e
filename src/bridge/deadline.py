"""The end of an invocation, brought forward a little so that it can be told."""

from __future__ import annotations

import asyncio

from bridge.errors import DeadlineError

DEADLINE_MARGIN_SECONDS = 1.5


class until:  # noqa: N801  (reads as a preposition where it is used)
    """Ends what it surrounds a moment before the deadline, as an error that the client can retry."""

    def __init__(self, deadline: float | None) -> None:
        when = None if deadline is None else deadline - DEADLINE_MARGIN_SECONDS
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
