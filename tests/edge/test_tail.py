"""`bridge tail`: log lines as people read them."""

from __future__ import annotations

import json
import logging
import re
from io import StringIO
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import EndpointConnectionError

from handler.cli import main
from handler.observability import make_logger
from handler.tail import TailError, deployed_lines, follow, readable

if TYPE_CHECKING:
    from pathlib import Path

REQUEST = {
    "level": "INFO",
    "timestamp": "2026-11-18 12:34:56,789+0000",
    "message": "POST /v1/messages",
    "trace_id": "req_1",
    "status": 200,
    "provider": "openai",
    "wire_model": "gpt-5",
    "principal": "laptop",
    "latency_ms": 1834.2,
    "ttft_ms": 412.0,
    "tool_call_count": 2,
    "input_tokens": 12345,
    "output_tokens": 678,
    "losses": ["top_k", "metadata"],
    "policies": [],
    "error_kind": "",
    "state_failures": 0,
}


def test_a_request_is_one_line() -> None:
    assert readable(json.dumps(REQUEST)) == (
        "12:34:56  200  POST /v1/messages  openai/gpt-5  1.83s (first byte 0.41s)  12,345 -> 678 tokens  tools 2  "
        "lost: top_k, metadata  laptop  req_1"
    )


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({"error_kind": "OVERLOADED", "status": 529}, ["529", "OVERLOADED"]),
        ({"state_failures": 1}, ["NOT STORED 1"]),
        ({"usage_estimated": True}, ["~12,345 -> ~678 tokens"]),
        ({"upstream_retries": 2, "fallbacks": 1}, ["retries 2", "fallbacks 1"]),
    ],
)
def test_what_is_unusual_stands_out(changes: dict[str, object], shown: list[str]) -> None:
    line = readable(json.dumps(REQUEST | changes)) or ""
    assert [part for part in shown if part not in line] == []


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ('{"_aws": {"CloudWatchMetrics": []}, "Requests": 1}', None),
        ('{"type": "platform.report", "record": {}}', None),
        ('{"level": "CRITICAL", "message": "init failed: X is not set"}', "CRITICAL  init failed: X is not set"),
        (
            '{"level": "ERROR", "message": "failed", "exception": "Traceback\\n  line"}',
            "ERROR  failed\nTraceback\n  line",
        ),
        ("12:00:00 POST /v1/messages status=200\n", "12:00:00 POST /v1/messages status=200"),
        (
            '{"level": "DEBUG", "message": "bridge.tools", "step": {"trace_id": "req_1", "calls": 2}}',
            "DEBUG  bridge.tools  trace_id=req_1  calls=2",
        ),
        ('{"level": "WARNING", "message": "bodies", "trace_id": "req_1", "request": "{}"}', "WARNING  bodies  req_1"),
        ("[1, 2]", "[1, 2]"),
        (
            "12:00:00 GET /x trace_id=req_1 status=404 latency_ms=oops",
            "12:00:00 GET /x trace_id=req_1 status=404 latency_ms=oops",
        ),
        (
            "12:00:00 bridge.route trace_id=req_1 provider=openai",
            "12:00:00 bridge.route trace_id=req_1 provider=openai",
        ),
    ],
    ids=[
        "metrics",
        "platform",
        "start",
        "traceback",
        "terminal form",
        "a step",
        "bodies",
        "no object",
        "broken",
        "a local step",
    ],
)
def test_other_lines_are_told_or_left_out(line: str, shown: str | None) -> None:
    assert readable(line) == shown


def test_a_line_of_a_local_bridge_reads_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    """As the terminal's own formatter writes it: values with spaces, nothing that is zero or empty."""
    fields = {name: value for name, value in REQUEST.items() if name not in ("level", "timestamp", "message")}
    fields |= {"losses": ("top_k", "metadata"), "route_reason": "no provider is configured: the demo model answers"}
    record = logging.LogRecord("toolbridge", logging.INFO, "", 0, "POST /v1/messages", None, None)
    record.__dict__["fields"] = fields
    logger = make_logger("info", as_json=False)
    line = logger.handlers[0].format(record)
    shown, expected = readable(line) or "", readable(json.dumps(REQUEST)) or ""
    assert shown.split("  ")[1:] == expected.split("  ")[1:]
    assert re.fullmatch(r"\d\d:\d\d:\d\d", shown.split("  ")[0])


@pytest.mark.parametrize("name", ["x ttft_ms='a'", "x input_tokens=many", "x tool_call_count=((((", "x losses=oops"])
def test_a_name_that_looks_like_a_field_breaks_nothing(name: str) -> None:
    line = f"12:00:00 POST /v1/messages trace_id=req_1 status=200 wire_model={name} latency_ms=3.5 ttft_ms=1.5"
    assert (readable(line) or "").startswith("12:00:00  200  POST /v1/messages  x  ")


def test_a_name_cannot_move_the_cursor() -> None:
    line = readable(json.dumps(REQUEST | {"wire_model": "gpt\x1b[2J\x07"})) or ""
    assert "\x1b" not in line
    assert "gpt?[2J?" in line


class Logs:
    """CloudWatch Logs as boto3 speaks of it; neither moto nor anything else here has Live Tail."""

    def __init__(self, *messages: str) -> None:
        self.messages = messages
        self.asked: dict[str, Any] = {}

    def describe_log_groups(self, **asked: str) -> dict[str, Any]:
        names = ("/aws/lambda/bridge", "/aws/lambda/bridge-staging")
        groups = [{"logGroupName": name, "logGroupArn": f"arn:{name}"} for name in names]
        return {
            "logGroups": [group for group in groups if group["logGroupName"].startswith(asked["logGroupNamePrefix"])]
        }

    def start_live_tail(self, **asked: Any) -> dict[str, Any]:
        self.asked = asked
        updates = [{"sessionUpdate": {"sessionResults": [{"message": message}]}} for message in self.messages]
        return {"responseStream": [{"sessionStart": {}}, *updates]}


def test_a_deployment_is_followed_by_its_log_group() -> None:
    logs, shown = Logs(json.dumps(REQUEST), '{"_aws": {}}', "plain"), StringIO()
    follow(deployed_lines("/aws/lambda/bridge", logs), shown.write)
    assert logs.asked == {"logGroupIdentifiers": ["arn:/aws/lambda/bridge"]}
    assert [line.split("  ")[-1] for line in shown.getvalue().splitlines()] == ["req_1", "plain"]


def test_what_cannot_be_followed_is_said() -> None:
    with pytest.raises(TailError, match="there is no log group /aws/lambda/other"):
        next(deployed_lines("/aws/lambda/other", Logs()))

    class Unreachable(Logs):
        def start_live_tail(self, **asked: Any) -> dict[str, Any]:
            raise EndpointConnectionError(endpoint_url="https://logs.example")

    with pytest.raises(TailError, match="cannot be followed: Could not connect"):
        next(deployed_lines("/aws/lambda/bridge", Unreachable()))


def test_the_command_reads_a_file_or_standard_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    log = tmp_path / "bridge.log"
    log.write_text(json.dumps(REQUEST) + "\n", "utf-8")
    assert main(["tail", str(log)]) == 0
    monkeypatch.setattr("sys.stdin", StringIO(log.read_text("utf-8")))
    assert main(["tail"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == second == readable(json.dumps(REQUEST))
    assert main(["tail", str(tmp_path / "absent.log")]) == 1
    assert "absent.log" in capsys.readouterr().err
