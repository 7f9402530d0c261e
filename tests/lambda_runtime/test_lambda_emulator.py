"""The runtime under AWS's own Runtime Interface Emulator."""

from __future__ import annotations

import base64
import hashlib
import sys
from pathlib import Path

import psutil
import pytest
from url_events import url_event

from emulator import emulator

APPS = str(Path(__file__).with_name("runtime_apps.py"))


def command(app: str) -> list[str]:
    return [sys.executable, APPS, app]


def test_a_streamed_answer() -> None:
    with emulator(command("echo"), {}) as function:
        first = function.invoke(url_event("/gr%C3%BC%C3%9Fe", "POST", body="hello"))
        second = function.invoke(url_event("/second"))
    assert (first.status, first.headers["vary"]) == (201, "origin, accept")
    assert first.cookies == ["a=1; Path=/", "b=2"]
    assert first.raw.endswith(bytes(8) + first.body)
    assert first.json["scope"]["path"] == "/grüße"
    assert base64.b64decode(first.json["body"]) == b"hello"
    assert second.json["scope"]["path"] == "/second"
    assert second.json["pid"] == first.json["pid"]
    assert not psutil.pid_exists(first.json["pid"])


def test_an_event_near_the_limit() -> None:
    body = "x" * (6 * 1024 * 1024 - 10_000)
    with emulator(command("digest"), {}) as function:
        answer = function.invoke(url_event("/", "POST", body=body))
    assert answer.body.decode() == hashlib.sha256(body.encode()).hexdigest()


def test_an_empty_answer() -> None:
    with emulator(command("empty"), {}) as function:
        answer = function.invoke(url_event())
    assert (answer.status, answer.body) == (204, b"")


def test_failures() -> None:
    with emulator(command("raises_early"), {}) as function:
        failed = function.invoke(url_event())
        refused = function.invoke({})
    assert (failed.status, failed.json["error"]["type"]) == (500, "api_error")
    assert (refused.status, refused.json["error"]["type"]) == (400, "invalid_request_error")


def test_a_stream_that_breaks_off_is_followed_by_the_next_invocation() -> None:
    with emulator(command("raises_late"), {}) as function:
        answers = [function.invoke(url_event()) for _ in range(2)]
        assert function.output().count("Runtime.ValueError") == 2
    assert [answer.body for answer in answers] == [b"part", b"part"]


@pytest.mark.req("C12")
def test_the_deadline() -> None:
    """The emulator's clock also counts the start of the process, so a first request wakes it."""
    with emulator(command("hangs_when_asked"), {"AWS_LAMBDA_FUNCTION_TIMEOUT": "3"}) as function:
        assert function.invoke(url_event()).body == b"awake"
        answers = [function.invoke(url_event("/hang")) for _ in range(2)]
        assert "Task timed out" not in function.output()
    assert [answer.status for answer in answers] == [504, 504]


def test_a_failed_start() -> None:
    with emulator(command("bad_init"), {}) as function:
        answer = function.invoke(url_event())
    assert answer.status == 502
    assert answer.json["errorType"] == "ValueError"
    assert answer.json["errorMessage"] == "STATE_TABLE is not set"
