"""Rate limits and budgets per principal: requests and tokens per minute, tokens per UTC day.

Windows are fixed: a minute or a day of the clock. Requests are counted when they come, so exactly as many are let in as
the limit says, however many processes serve. Tokens are known when an answer ends and count in the window of that
moment: the requests that were let in before then may go beyond the limit, those after it are refused.
"""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import suppress
from dataclasses import field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from bridge.errors import BridgeError, ErrorKind
from bridge.state.counters import DAY, MINUTE, window_at
from bridge.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bridge.canonical.events import Usage
    from bridge.providers import ProtocolName
    from bridge.state.counters import Added, CounterStore, Window

CHARGE_SECONDS = 5.0
REQUESTS, TOKENS = "requests", "tokens"
_SETTINGS = {
    (MINUTE, REQUESTS): ("requests per minute", "RATE_LIMIT_REQUESTS_PER_MINUTE"),
    (MINUTE, TOKENS): ("tokens per minute", "RATE_LIMIT_TOKENS_PER_MINUTE"),
    (DAY, TOKENS): ("tokens per day", "RATE_LIMIT_TOKENS_PER_DAY"),
}


@dataclass(frozen=True, slots=True)
class RateLimits:
    """What each principal may use; None is no limit."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    tokens_per_day: int | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a principal stands with one limit."""

    counted: str
    limit: int
    used: int
    ends_at: int

    @property
    def remaining(self) -> int:
        return max(0, self.limit - self.used)


@dataclass(frozen=True, slots=True)
class Admission:
    """A request that was let in, and what is left of its principal's limits."""

    standings: tuple[Standing, ...] = ()
    at: float = 0.0

    def headers(self, protocol: ProtocolName) -> dict[str, str]:
        """The limits as clients of a protocol know them; of several on one thing, the one with the least left."""
        headers: dict[str, str] = {}
        for counted in (REQUESTS, TOKENS):
            standings = [standing for standing in self.standings if standing.counted == counted]
            if not standings:
                continue
            tightest = min(standings, key=lambda standing: standing.remaining)
            if protocol == "anthropic":
                headers |= _anthropic_headers(tightest)
            else:
                headers |= _openai_headers(tightest, self.at)
        return headers


_UNLIMITED = Admission()


@dataclass(frozen=True, slots=True)
class _Rule:
    """The limits of one length of window. What they count of a request when it comes is in `entry`."""

    seconds: int
    limits: Mapping[str, int]
    entry: Mapping[str, int] = field(default_factory=dict)

    def standings(self, window: Window, added: Added) -> list[Standing]:
        return [
            Standing(counted, limit, added.values.get(counted, 0), window.ends_at)
            for counted, limit in self.limits.items()
        ]


class Limiter:
    """Lets requests in as long as their principal is below its limits. Without limits the store is never asked."""

    def __init__(self, store: CounterStore, limits: RateLimits, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock
        self._rules = _rules(limits)

    @property
    def counts_tokens(self) -> bool:
        return any(TOKENS in rule.limits for rule in self._rules)

    async def admit(self, principal: str) -> Admission:
        """Count a request; BridgeError 429 if a limit is reached, 529 if the store does not answer."""
        if not self._rules:
            return _UNLIMITED
        now = self._clock()
        windows = [window_at(principal, rule.seconds, now) for rule in self._rules]
        entries = [self._enter(rule, window) for rule, window in zip(self._rules, windows, strict=True)]
        entered = list(zip(self._rules, windows, await asyncio.gather(*entries), strict=True))
        standings = (standing for rule, window, added in entered for standing in rule.standings(window, added))
        admission = Admission(tuple(standings), now)
        refusals = [(rule, window, added.refused) for rule, window, added in entered if added.refused is not None]
        if refusals:
            await self._give_back([(rule, window) for rule, window, added in entered if added.refused is None])
            error = _refusal(*max(refusals, key=lambda refusal: refusal[1].ends_at), now)
            error.admission = admission
            raise error
        return admission

    async def charge(self, principal: str, tokens: int) -> int:
        """Count the tokens of an answer; how many windows could not be charged. Never raises, never waits for long."""
        charged = [rule for rule in self._rules if TOKENS in rule.limits]
        if not charged or tokens <= 0:
            return 0
        now = self._clock()
        return sum(await asyncio.gather(*(self._charge(window_at(principal, r.seconds, now), tokens) for r in charged)))

    async def _enter(self, rule: _Rule, window: Window) -> Added:
        return await self._store.add(window.key, rule.entry, window.expires_at, rule.limits)

    async def _give_back(self, entered: list[tuple[_Rule, Window]]) -> None:
        """Take a request that another limit refuses out of the windows that it was counted in."""
        for rule, window in entered:
            amounts = {counted: -amount for counted, amount in rule.entry.items()}
            if amounts:
                with suppress(BridgeError):  # it is refused either way
                    await self._store.add(window.key, amounts, window.expires_at)

    async def _charge(self, window: Window, tokens: int) -> int:
        try:
            async with asyncio.timeout(CHARGE_SECONDS):
                await self._store.add(window.key, {TOKENS: tokens}, window.expires_at)
        except (BridgeError, TimeoutError):
            return 1
        return 0


def counted_tokens(usage: Usage) -> int:
    """The tokens of an answer that limits count: all but those read from a cache, as Anthropic counts them."""
    return usage.input_tokens + usage.cache_write_tokens + usage.output_tokens


def _rules(limits: RateLimits) -> tuple[_Rule, ...]:
    per_minute = _given({REQUESTS: limits.requests_per_minute, TOKENS: limits.tokens_per_minute})
    per_day = _given({TOKENS: limits.tokens_per_day})
    entry = {REQUESTS: 1} if REQUESTS in per_minute else {}
    return tuple(rule for rule in (_Rule(MINUTE, per_minute, entry), _Rule(DAY, per_day)) if rule.limits)


def _given(limits: Mapping[str, int | None]) -> dict[str, int]:
    return {counted: limit for counted, limit in limits.items() if limit is not None}


class LimitReachedError(BridgeError):
    """A limit is reached; `admission` says where the principal stands."""

    admission = Admission()


def _refusal(rule: _Rule, window: Window, counted: str, now: float) -> LimitReachedError:
    what, setting = _SETTINGS[rule.seconds, counted]
    wait = _seconds_left(window.ends_at, now)
    return LimitReachedError(
        ErrorKind.RATE_LIMIT,
        f"the limit of {rule.limits[counted]} {what} is reached ({setting}); it starts over in {wait} s",
        retry_after=str(wait),
        retryable=rule.seconds == MINUTE,
    )


def _seconds_left(ends_at: int, now: float) -> int:
    return max(1, math.ceil(ends_at - now))


def _anthropic_headers(standing: Standing) -> dict[str, str]:
    prefix = f"anthropic-ratelimit-{standing.counted}"
    return {
        f"{prefix}-limit": str(standing.limit),
        f"{prefix}-remaining": str(standing.remaining),
        f"{prefix}-reset": f"{datetime.fromtimestamp(standing.ends_at, UTC):%Y-%m-%dT%H:%M:%SZ}",
    }


def _openai_headers(standing: Standing, now: float) -> dict[str, str]:
    return {
        f"x-ratelimit-limit-{standing.counted}": str(standing.limit),
        f"x-ratelimit-remaining-{standing.counted}": str(standing.remaining),
        f"x-ratelimit-reset-{standing.counted}": _duration(_seconds_left(standing.ends_at, now)),
    }


def _duration(seconds: int) -> str:
    """As OpenAI writes it: 12s, 6m0s, 1h2m3s."""
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m{seconds}s"
    return f"{minutes}m{seconds}s" if minutes else f"{seconds}s"
