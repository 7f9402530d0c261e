"""What the log tells at debug level, and the escape hatch that logs bodies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx2
import pytest

from support import running_bridge

if TYPE_CHECKING:
    import logging
    from pathlib import Path

    from scripted.server import ScriptedUpstream

BODY = {
    "model": "openai/gpt-4.1",
    "max_tokens": 100,
    "tools": [{"name": "Read", "input_schema": {"type": "object", "properties": {}}}],
    "messages": [{"role": "user", "content": "canary-question with sk-proj-canary123456"}],
}
CALL = {"name": "Read", "arguments": {"path": "canary-path"}}


def serve(upstream: ScriptedUpstream, tmp_path: Path, **settings: str) -> None:
    upstream.script = [{"reply": {"chat": {"text": "canary-answer", "tool_calls": [CALL]}}}]
    with running_bridge(tmp_path, UPSTREAM_OPENAI_BASE_URL=upstream.url, **settings) as url:
        assert httpx2.post(f"{url}/v1/messages", json=BODY).status_code == 200


@pytest.mark.req("DIAG")
def test_the_steps_of_an_exchange_are_told_without_content(
    upstream: ScriptedUpstream, tmp_path: Path, bridge_log: list[logging.LogRecord]
) -> None:
    serve(upstream, tmp_path, LOG_LEVEL="debug", LOOP_GUARD="standard")
    steps = {
        record.getMessage(): record.__dict__["fields"] for record in bridge_log if "bridge." in record.getMessage()
    }
    assert steps["bridge.input"] | {"user_turns": 1, "Text": 1, "tools": 1} == steps["bridge.input"]
    assert steps["bridge.route"]["provider"] == "openai"
    assert steps["bridge.policies"]["applied"] == ("loop_guard.guardrail",)
    assert steps["bridge.upstream"]["status"] == 200
    assert (steps["bridge.tools"]["calls"], steps["bridge.tools"]["names"]) == (1, ("Read",))
    assert "canary" not in str([record.__dict__ for record in bridge_log])


@pytest.mark.req("DIAG")
def test_steps_that_were_not_taken_are_not_told(tmp_path: Path, bridge_log: list[logging.LogRecord]) -> None:
    with running_bridge(tmp_path, LOG_LEVEL="debug") as url:
        assert httpx2.get(f"{url}/health").status_code == 200
    assert [record.getMessage() for record in bridge_log] == ["GET /health"]


@pytest.mark.req("C8", "DIAG")
def test_bodies_are_logged_only_on_demand_and_without_secrets(
    upstream: ScriptedUpstream, tmp_path: Path, bridge_log: list[logging.LogRecord]
) -> None:
    serve(upstream, tmp_path, LOG_LEVEL="info", LOG_BODIES="1")
    (bodies,) = [record.__dict__["fields"] for record in bridge_log if record.getMessage() == "bodies"]
    assert "canary-question" in bodies["request"]
    assert "canary-answer" in bodies["response"]
    assert "sk-proj-canary123456" not in str(bodies)
    assert any("LOG_BODIES is on" in record.getMessage() for record in bridge_log)
