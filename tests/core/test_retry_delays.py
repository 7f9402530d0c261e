"""When and after what wait a call is made again, as pure rules."""

from __future__ import annotations

import pytest

from bridge.upstream.retry import RetryPolicy, backoff, may_pass, retry_after_seconds

POLICY = RetryPolicy(retries=9, first_delay=0.5, longest_delay=8)
NOW = 1_767_225_600.0  # 2026-01-01T00:00:00Z


@pytest.mark.parametrize(("attempt", "longest"), [(0, 0.5), (1, 1.0), (2, 2.0), (4, 8.0), (5, 8.0), (50, 8.0)])
def test_the_backoff_doubles_to_a_bound_with_full_jitter(attempt: int, longest: float) -> None:
    assert backoff(attempt, POLICY, 0.0) == 0
    assert backoff(attempt, POLICY, 0.5) == longest / 2
    assert backoff(attempt, POLICY, 1.0) == longest


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3),
        ({"retry-after": "0"}, 0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": " 2 "}, 2),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9),
        ({"retry-after": "Thu, 01 Jan 2026 00:00:30 GMT"}, 30),
        ({"retry-after": "Wed, 31 Dec 2025 00:00:00 GMT"}, 0),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "1e9"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "9" * 400}, None),
    ],
    ids=str,
)
def test_what_a_provider_asks_for(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_seconds(headers, NOW) == seconds


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 520, 529])
def test_what_may_pass(status: int) -> None:
    assert may_pass(status, {})
    assert not may_pass(status, {"x-should-retry": "false"})


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 413, 422])
def test_what_stays_wrong(status: int) -> None:
    assert not may_pass(status, {})
    assert may_pass(status, {"x-should-retry": "true"})


def test_a_good_answer_is_never_asked_for_again() -> None:
    assert not may_pass(200, {"x-should-retry": "true"})
