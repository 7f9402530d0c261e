"""What Anthropic says when it refuses, for clients of either protocol."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.errors import ErrorKind
from bridge.protocols.anthropic.errors import parse_error, render_error
from bridge.protocols.openai_errors import render_error as render_openai


def refusal(kind: str, message: str = "no", **error: Any) -> bytes:
    return json.dumps(
        {"type": "error", "error": {"type": kind, "message": message, **error}, "request_id": "req_1"}
    ).encode()


@pytest.mark.req("C11")
@pytest.mark.parametrize(
    ("status", "kind", "expected", "told", "retryable"),
    [
        (400, "invalid_request_error", ErrorKind.INVALID_REQUEST, 400, False),
        (401, "authentication_error", ErrorKind.AUTHENTICATION, 401, False),
        (402, "billing_error", ErrorKind.BILLING, 402, False),
        (403, "permission_error", ErrorKind.PERMISSION, 403, False),
        (404, "not_found_error", ErrorKind.NOT_FOUND, 404, False),
        (408, "timeout_error", ErrorKind.TIMEOUT, 504, True),
        (409, "conflict_error", ErrorKind.INVALID_REQUEST, 409, True),
        (413, "request_too_large", ErrorKind.TOO_LARGE, 413, False),
        (422, "invalid_request_error", ErrorKind.INVALID_REQUEST, 400, False),
        (429, "rate_limit_error", ErrorKind.RATE_LIMIT, 429, True),
        (500, "api_error", ErrorKind.API, 500, True),
        (500, "overloaded_error", ErrorKind.OVERLOADED, 529, True),
        (502, "unheard_of", ErrorKind.API, 502, True),
        (503, "unheard_of", ErrorKind.OVERLOADED, 529, True),
        (504, "timeout_error", ErrorKind.TIMEOUT, 504, True),
        (529, "overloaded_error", ErrorKind.OVERLOADED, 529, True),
    ],
)
def test_a_refusal_keeps_its_kind(status: int, kind: str, expected: ErrorKind, told: int, *, retryable: bool) -> None:
    error = parse_error(status, refusal(kind), "anthropic", "7")
    assert (error.kind, error.status, error.retryable) == (expected, told, retryable)
    assert error.message == f"anthropic answered {status}: no"
    assert (error.provider, error.retry_after) == ("anthropic", "7")
    assert error.provider_details == {"type": kind, "request_id": "req_1"}


@pytest.mark.req("C11")
def test_an_overload_is_503_to_clients_of_openai() -> None:
    error = parse_error(529, refusal("overloaded_error", "Overloaded"), "anthropic")
    assert render_openai(error)[0] == 503
    assert render_error(error)[0] == 529


@pytest.mark.req("C11")
@pytest.mark.parametrize(
    "message",
    [
        "prompt is too long: 208310 tokens > 200000 maximum",
        "input length and `max_tokens` exceed context limit: 190000 + 32000 > 200000, decrease input length",
    ],
)
def test_a_prompt_that_does_not_fit_has_the_code_that_openai_clients_look_for(message: str) -> None:
    error = parse_error(400, refusal("invalid_request_error", message), "anthropic")
    told: Any = render_openai(error)[1]["error"]
    assert told["code"] == "context_length_exceeded"
    assert message in told["message"]


@pytest.mark.req("C11")
def test_the_code_of_an_error_is_kept() -> None:
    body = refusal("rate_limit_error", details={"error_code": "enforced_spend_limit_reached"})
    error = parse_error(429, body, "anthropic")
    assert error.provider_details == {
        "type": "rate_limit_error",
        "error_code": "enforced_spend_limit_reached",
        "request_id": "req_1",
    }
    assert error.retryable is False


@pytest.mark.req("C11")
@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b'{"message": "no"}', "anthropic answered 400: no"),
        (b'{"detail": "no"}', "anthropic answered 400: no"),
        (b'{"error": "no"}', "anthropic answered 400: no"),
        (b'{"error": ["no"]}', 'anthropic answered 400: ["no"]'),
        (b'{"error": {"message": 5, "details": 5, "type": 5}, "request_id": 5}', "anthropic answered 400: 5"),
        (b"no", "anthropic answered 400: no"),
        (b"<html>no</html>", "an HTML page"),
        (b"", "no further explanation"),
        (b"{}", "anthropic answered 400: {}"),
        (b"\xff\xfe", "anthropic answered 400"),
    ],
)
def test_errors_of_every_shape_name_the_provider(body: bytes, says: str) -> None:
    error = parse_error(400, body, "anthropic")
    assert says in error.message
    assert error.provider == "anthropic"
    assert error.provider_details is None


def test_a_redirect_points_at_the_base_url() -> None:
    error = parse_error(307, b"", "anthropic")
    assert error.status == 502
    assert "check the base URL" in error.message


def test_long_errors_are_quoted_in_part() -> None:
    body = refusal("x" * 1000, "y" * 100_000, details={"error_code": "z" * 1000})
    error = parse_error(500, body, "anthropic")
    assert len(error.message) < 600
    assert len(json.dumps(error.provider_details)) < 400
    assert len(parse_error(500, b"y" * 100_000, "anthropic").message) < 600
