"""What providers say when they refuse, in Anthropic's terms."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.protocols.anthropic.errors import render_error
from bridge.protocols.openai_errors import parse_error
from bridge.protocols.openai_errors import render_error as render_openai

VLLM = (
    "This model's maximum context length is 8192 tokens. However, you requested 132000 tokens "
    "(4000 in the messages, 128000 in the completion). Please reduce the length of the messages or completion."
)


@pytest.mark.req("C11")
@pytest.mark.parametrize(
    ("error", "begins"),
    [
        (
            {"message": "This model's maximum context length is 128000 tokens.", "code": "context_length_exceeded"},
            "prompt is too long",
        ),
        ({"message": VLLM}, "input length and `max_tokens` exceed context limit: 4000 + 128000 > 8192"),
        (
            {"message": "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."},
            "prompt is too long: 1200000 tokens > 1048576 maximum",
        ),
        (
            {"message": "maximum context length is 128000 tokens, your messages resulted in 150000 tokens"},
            "prompt is too long: 150000 tokens > 128000 maximum",
        ),
        (
            {"message": "maximum context length is 131072 (12000 of text input, 128000 in the output)"},
            "input length and `max_tokens` exceed context limit: 12000 + 128000 > 131072",
        ),
        (
            {"message": "'max_tokens' is too large: your request has 10 input tokens (128000 > 8192 - 10)."},
            "input length and `max_tokens` exceed context limit: 10 + 128000 > 8192",
        ),
        (
            {"message": "the request exceeds the available context size", "type": "exceed_context_size_error"},
            "prompt is too long",
        ),
    ],
)
def test_a_prompt_that_does_not_fit_is_said_so_that_claude_code_compacts(error: dict[str, Any], begins: str) -> None:
    status, body = render_error(parse_error(400, json.dumps({"error": error}).encode(), "acme"))
    told: Any = body["error"]
    assert (status, told["type"]) == (400, "invalid_request_error")
    assert told["message"].startswith(begins)
    assert error["message"][:40] in told["message"]


@pytest.mark.req("C11")
@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b'{"error": {"message": "no", "type": "t", "code": "c"}}', "acme answered 400: no"),
        (b'[{"error": {"code": 400, "message": "no", "status": "INVALID_ARGUMENT"}}]', "acme answered 400: no"),
        (b'{"object": "error", "message": "no"}', "acme answered 400: no"),
        (b'{"detail": "no"}', "acme answered 400: no"),
        (b'{"error": "no"}', "acme answered 400: no"),
        (
            b'{"error": {"message": "Provider returned error", "metadata": {"raw": "no"}}}',
            "Provider returned error: no",
        ),
        (b"no", "acme answered 400: no"),
        (b"<html>no</html>", "an HTML page"),
        (b"", "no further explanation"),
        (b"\xff\xfe", "acme answered 400"),
        (b"{}", "acme answered 400"),
    ],
)
def test_errors_of_every_shape_name_the_provider(body: bytes, says: str) -> None:
    error = parse_error(400, body, "acme")
    assert says in error.message
    assert error.provider == "acme"


def test_a_redirect_points_at_the_base_url() -> None:
    assert "check the base URL" in parse_error(302, b"", "acme").message


def test_long_errors_are_quoted_in_part() -> None:
    assert len(parse_error(500, b"x" * 100_000, "acme").message) < 600


@pytest.mark.req("C11")
def test_a_used_up_quota_is_not_worth_retrying() -> None:
    body = b'{"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}'
    error = parse_error(429, body, "acme", "20")
    assert (error.retryable, error.retry_after) == (False, "20")


@pytest.mark.req("C11")
def test_openai_clients_are_told_503_where_anthropic_has_529() -> None:
    error = parse_error(503, b"busy", "acme")
    assert render_error(error)[0] == 529
    assert render_openai(error)[0] == 503
