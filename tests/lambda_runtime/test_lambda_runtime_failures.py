"""Failures before the first byte are HTTP errors, after it trailers; the loop goes on in any case."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pytest
from runtime_apps import SECRET
from url_events import url_event

if TYPE_CHECKING:
    from runtime_api import Exchange, RuntimeApi
    from runtime_process import Channel, Run

SOON = 1.25  # seconds to the deadline, of which the runtime keeps 0.25


def error_of(exchange: Exchange) -> Any:
    """The error of a response that is nothing but one."""
    assert exchange.done().trailers == {}
    assert exchange.prelude["headers"]["content-type"] == "application/json"
    content = json.loads(exchange.payload)
    assert content["type"] == "error"
    return content["error"]


def trailers_of(exchange: Exchange) -> tuple[str, Any]:
    """The error type and the decoded error body of a stream that failed."""
    trailers = exchange.done().trailers
    body = json.loads(base64.b64decode(trailers["lambda-runtime-function-error-body"], validate=True))
    return trailers["lambda-runtime-function-error-type"], body


@pytest.mark.parametrize("app", ["raises_early", "cancels_itself", "never_starts", "body_first", "bad_headers"])
def test_a_failure_before_the_first_byte_is_a_500(api: RuntimeApi, run: Run, app: str) -> None:
    process = run(app)
    for _ in range(2):
        exchange = api.push(url_event())
        assert error_of(exchange)["type"] == "api_error"
        assert exchange.prelude["statusCode"] == 500
        assert SECRET.encode() not in exchange.payload
    assert process.is_running()


@pytest.mark.parametrize(
    ("app", "error_type", "payload"),
    [
        ("raises_late", "Runtime.ValueError", b"part"),
        ("never_ends", "Runtime.StreamError", b"part"),
        ("starts_twice", "Runtime.RuntimeError", b""),
    ],
)
def test_a_failure_after_it_ends_the_stream_with_trailers(
    api: RuntimeApi, run: Run, app: str, error_type: str, payload: bytes
) -> None:
    run(app)
    for _ in range(2):
        exchange = api.push(url_event())
        announced, body = trailers_of(exchange)
        assert announced == body["errorType"] == error_type
        assert body["errorMessage"]
        assert SECRET not in json.dumps(body)
        assert (exchange.prelude["statusCode"], exchange.payload) == (200, payload)


def test_a_failure_after_the_end_is_only_logged(api: RuntimeApi, run: Run) -> None:
    process = run("raises_after_the_end")
    for _ in range(2):
        exchange = api.push(url_event()).done()
        assert (exchange.payload, exchange.trailers) == (b"whole", {})
    assert SECRET in process.output()


def test_the_cause_is_logged_as_one_json_line(api: RuntimeApi, run: Run) -> None:
    process = run("raises_early")
    exchange = api.push(url_event()).done()
    [line] = process.output().splitlines()
    record = json.loads(line)
    assert record["level"] == "ERROR"
    assert record["function_request_id"] == exchange.request_id
    assert record["exception"].endswith(f"ValueError: {SECRET}")


@pytest.mark.parametrize("event", [{}, {"key1": "value1"}, [], b"not json"])
def test_another_event_is_answered_with_400(api: RuntimeApi, run: Run, event: object) -> None:
    run("echo")
    exchange = api.push(event)
    assert error_of(exchange)["type"] == "invalid_request_error"
    assert exchange.prelude["statusCode"] == 400
    assert api.push(url_event()).done().prelude["statusCode"] == 201


def test_sending_after_the_end_fails_in_the_app(api: RuntimeApi, run: Run, channel: Channel) -> None:
    run("sends_after_the_end")
    exchange = api.push(url_event())
    channel.accept()
    assert channel.hear() == "ResponseClosedError"
    assert exchange.done().payload == b"whole"


def test_a_cut_response_fails_in_the_app_and_the_loop_goes_on(api: RuntimeApi, run: Run, channel: Channel) -> None:
    process = run("until_cut")
    for _ in range(2):
        api.push(url_event(), cut_after=3)
        channel.accept()
        assert channel.hear() == "ResponseClosedError"
    assert "response not delivered" in process.output()
    assert process.is_running()


def test_a_refused_response_is_logged_and_the_loop_goes_on(api: RuntimeApi, run: Run) -> None:
    process = run("echo")
    api.push(url_event(), ack_status=413).done()
    assert api.push(url_event()).done().prelude["statusCode"] == 201
    assert "the response was refused: 413" in process.output()


@pytest.mark.req("C12")
def test_at_the_deadline_a_response_not_begun_is_a_504(api: RuntimeApi, run: Run) -> None:
    process = run("hangs_early")
    exchange = api.push(url_event(), deadline_seconds=SOON)
    assert error_of(exchange)["type"] == "timeout_error"
    assert exchange.prelude["statusCode"] == 504
    assert "Runtime.DeadlineExceeded" in process.output()


@pytest.mark.req("C12")
def test_at_the_deadline_a_stream_ends_with_trailers(api: RuntimeApi, run: Run) -> None:
    run("hangs_late")
    for _ in range(2):
        exchange = api.push(url_event(), deadline_seconds=SOON)
        announced, body = trailers_of(exchange)
        assert announced == body["errorType"] == "Runtime.DeadlineExceeded"
        assert exchange.payload == b"part"


@pytest.mark.req("C12")
def test_an_app_that_is_cancelled_may_still_end_its_stream(api: RuntimeApi, run: Run) -> None:
    run("ends_legally_when_cancelled")
    exchange = api.push(url_event(), deadline_seconds=SOON).done()
    assert (exchange.payload, exchange.trailers) == (b"legal end", {})


@pytest.mark.req("C12")
def test_work_after_the_response_is_cut_at_the_deadline_too(api: RuntimeApi, run: Run) -> None:
    run("hangs_after_the_end")
    for _ in range(2):
        exchange = api.push(url_event(), deadline_seconds=SOON).done()
        assert (exchange.payload, exchange.trailers) == (b"whole", {})


@pytest.mark.req("C12")
def test_an_app_that_ignores_cancellation_does_not_hold_up_the_loop(api: RuntimeApi, run: Run) -> None:
    process = run("ignores_cancellation")
    assert error_of(api.push(url_event(), deadline_seconds=SOON))["type"] == "timeout_error"
    assert "cancellation ignored" in process.output()
    assert api.push(url_event("/echo")).done().prelude["statusCode"] == 201
    process.terminate()
    assert process.exit_code() == 0


@pytest.mark.req("C12")
def test_a_deadline_that_has_passed(api: RuntimeApi, run: Run) -> None:
    run("hangs_early")
    exchange = api.push(url_event(), deadline_seconds=-1.0)
    assert error_of(exchange)["type"] == "timeout_error"


def test_without_a_deadline_the_app_has_all_the_time(api: RuntimeApi, run: Run) -> None:
    run("empty")
    assert api.push(url_event(), deadline_seconds=None).done().prelude["statusCode"] == 204
