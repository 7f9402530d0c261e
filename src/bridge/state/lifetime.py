"""How long a conversation lives: one rule for every store.

META's expiry decides. A touch sets it to the TTL and a quarter, and is left out while more than the TTL remains, so
that most turns of a busy conversation write nothing for it. Items have a later expiry of their own, for clean-up only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.state.records import Liveness
from bridge.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

ITEM_SECONDS = 7 * 24 * 3600
LEASE_SECONDS = 900  # as long as a Lambda invocation may last


@dataclass(frozen=True, slots=True)
class Lifetime:
    ttl_seconds: int
    clock: Callable[[], float]

    def now(self) -> float:
        return self.clock()

    def extended(self) -> int:
        """The expiry that activity gives a conversation now."""
        return int(self.clock() + self.ttl_seconds * 1.25) + 1

    def item_expiry(self) -> int:
        return int(self.clock() + max(ITEM_SECONDS, 4 * self.ttl_seconds))

    def needs_touch(self, expires_at: float) -> bool:
        return expires_at - self.clock() <= self.ttl_seconds

    def judge(self, epoch: str, expires_at: float, *, terminated: bool) -> Liveness:
        """What META says now: it counts until its expiry, whether or not it was deleted by then."""
        if terminated:
            return Liveness(epoch, "terminated", expires_at)
        return Liveness(epoch, "alive" if expires_at > self.clock() else "expired", expires_at)
