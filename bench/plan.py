"""How much is measured. Every run is bounded in count and in time."""

from __future__ import annotations

from dataclasses import dataclass

STREAMS = (1, 8, 32)
PACED_STREAMS = 32


@dataclass(frozen=True, slots=True)
class Size:
    """A conversation of a given length, about 2.5 KB a message."""

    label: str
    messages: int


SIZES = (Size("100 KB", 40), Size("1 MB", 400), Size("5 MB", 2000))


@dataclass(frozen=True, slots=True)
class Plan:
    """Counts of one run; of repeated measurements the median is reported."""

    name: str
    starts: int
    first_tokens: int
    rounds: int
    burst_tokens: int
    burst_answers: int  # per stream
    paced_answers: int  # per stream
    large_requests: int
    memory_streams: tuple[int, int]
    tool_calls: tuple[int, ...]  # in one conversation
    conversation_turns: int
    seconds: float = 10.0  # no new request after that, in any one measurement


FULL = Plan("full", 9, 400, 3, 2000, 2, 3, 15, (1_000, 10_000), (10, 100, 1_000), 100)
QUICK = Plan("quick", 2, 40, 1, 500, 1, 1, 3, (50, 200), (5, 20), 5, seconds=3.0)
