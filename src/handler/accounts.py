"""What each principal uses: limits before a request is served, counts when it is over."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from bridge.exchange import MAX_STATE_ERROR
from bridge.limits import counted_tokens
from bridge.values import dataclass

if TYPE_CHECKING:
    from bridge.canonical.events import Usage
    from bridge.exchange import Record
    from bridge.ledger import Ledger
    from bridge.limits import Admission, Limiter


@dataclass(frozen=True, slots=True)
class Accounts:
    """The limiter and the ledger; None where the ledger is switched off."""

    limiter: Limiter
    ledger: Ledger | None = None

    async def admit(self, record: Record) -> Admission:
        """Let a request in; BridgeError if its principal has used up a limit."""
        return await self.limiter.admit(record.principal)

    async def settle(self, record: Record) -> None:
        """Count what an answer used. Nothing is raised: the answer is out already."""
        usage = record.used
        if usage is None:
            return
        noted = self._note(record, usage)
        if self.limiter.counts_tokens:
            charged = self.limiter.charge(record.principal, counted_tokens(usage))
            record.state_failures += sum(await asyncio.gather(charged, noted))
        else:
            record.state_failures += await noted

    async def _note(self, record: Record, usage: Usage) -> int:
        """How many lines of the ledger could not be written."""
        if self.ledger is None:
            return 0
        if await self.ledger.note(record.principal, record.provider, record.wire_model, usage):
            return 0
        record.state_error = self.ledger.trouble[:MAX_STATE_ERROR]
        return 1

    async def aclose(self) -> None:
        if self.ledger is not None:
            await self.ledger.aclose()
