"""Tries again what may go better a moment later, as long as nothing of an answer has been handed on."""

from __future__ import annotations

import asyncio
import random
import re
import time
from typing import TYPE_CHECKING

from bridge.deadline import DEADLINE_MARGIN_SECONDS
from bridge.upstream.failures import NoAnswerError
from bridge.upstream.peeked import peek
from bridge.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from bridge.ports import UpstreamReply

_PASSING = frozenset({408, 409, 429})
_USED_UP = re.compile(rb"insufficient_quota|exceeded_current_quota_error|billing_hard_limit_reached")
PEEKED_BYTES = 16 * 1024
PEEK_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how soon; a provider that asks for a longer wait than `longest_wait` is left to the client."""

    retries: int = 2
    first_delay: float = 0.5
    longest_delay: float = 8.0
    longest_wait: float = 10.0


async def send_with_retries(
    send: Callable[[], Awaitable[UpstreamReply]],
    policy: RetryPolicy,
    deadline: float | None,
    *,
    on_retry: Callable[[], None] = lambda: None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    jitter: Callable[[], float] = random.random,
) -> UpstreamReply:
    """The first answer that is good, that retrying cannot help, or that is the last; `deadline` is loop time."""
    for attempt in range(policy.retries):
        try:
            reply = await send()
            if reply.status < 400:
                return reply
        except NoAnswerError:
            wait = _fitting(backoff(attempt, policy, jitter()), deadline)
            if wait is None:
                raise
        else:
            wait = _fitting(wait_before_retry(reply, attempt, policy, jitter()), deadline)
            if wait is None:
                return reply
            if reply.status == 429:
                reply = await peek(reply, PEEKED_BYTES, PEEK_SECONDS)
                if _USED_UP.search(reply.seen):
                    return reply
            await reply.aclose()
        await sleep(wait)
        on_retry()
    return await send()


def wait_before_retry(reply: UpstreamReply, attempt: int, policy: RetryPolicy, jitter: float) -> float | None:
    """Seconds until the next attempt; None if this reply is the one to hand on."""
    if not may_pass(reply.status, reply.headers):
        return None
    asked = retry_after_seconds(reply.headers, time.time())
    if asked is None:
        return backoff(attempt, policy, jitter)
    return None if asked > policy.longest_wait else asked + jitter * policy.first_delay


def may_pass(status: int, headers: Mapping[str, str]) -> bool:
    """True if the same request may succeed later; the provider's own word goes first."""
    match headers.get("x-should-retry", "").lower():
        case "true":
            return status >= 400
        case "false":
            return False
        case _:
            return status in _PASSING or status >= 500


def backoff(attempt: int, policy: RetryPolicy, jitter: float) -> float:
    """Exponential, with full jitter: `jitter` is anywhere from 0 to 1."""
    return min(policy.longest_delay, policy.first_delay * 2.0**attempt) * jitter


def retry_after_seconds(headers: Mapping[str, str], now: float) -> float | None:
    """What the provider asks for, in milliseconds, seconds or as a date; `now` is the time of day."""
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    asked = headers.get("retry-after")
    seconds = _number(asked)
    if asked is None or seconds is not None:
        return seconds
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(asked).timestamp() - now)
    except ValueError:
        return None


def _number(text: str | None) -> float | None:
    if text is None or not re.fullmatch(r"\s*\d{1,9}(\.\d{1,9})?\s*", text, re.ASCII):
        return None
    return float(text)


def _fitting(wait: float | None, deadline: float | None) -> float | None:
    """The wait, if there is time left after it."""
    if wait is None or deadline is None:
        return wait
    left = deadline - DEADLINE_MARGIN_SECONDS - asyncio.get_running_loop().time()
    return wait if wait < left else None
