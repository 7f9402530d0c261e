"""X-Ray spans, as the daemon gets them, and what tracing costs when it is off: nothing."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import httpx2
import pytest

from support import running_bridge

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from scripted.server import ScriptedUpstream

PARENT = "557abcec3ee5a047"
TRACE = f"Root=1-5759e988-bd862e3fe1be46a994272793;Parent={PARENT};Sampled=1"
CLIENT_TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture
def daemon() -> Iterator[socket.socket]:
    """What stands in for X-Ray's daemon: the UDP socket that Lambda gives to a function."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.settimeout(5)
        yield listener


def received(daemon: socket.socket, count: int) -> dict[str, dict[str, object]]:
    packets = [daemon.recv(65_536).decode().partition("\n")[2] for _ in range(count)]
    return {packet["name"]: packet for packet in map(json.loads, packets)}


SPANS = """
import asyncio
from bridge.errors import invalid_request
from handler.tracing import Tracing

async def work(tracing, name, seconds):
    with tracing.span(name) as said:
        said["records"] = 1
        await asyncio.sleep(seconds)

async def main():
    tracing = Tracing("toolbridge")
    await asyncio.gather(work(tracing, "slow", 0.2), work(tracing, "quick", 0.02))
    try:
        with tracing.span("refused"):
            raise invalid_request("words of a client")
    except Exception:
        pass

asyncio.run(main())
"""


@pytest.mark.req("C9")
def test_spans_that_overlap_end_each_at_its_own_time(daemon: socket.socket, tmp_path: Path) -> None:
    pytest.importorskip("aws_xray_sdk", reason="aws-lambda-powertools[tracer] is not installed")
    environment = {
        "LAMBDA_TASK_ROOT": str(tmp_path),
        "_X_AMZN_TRACE_ID": TRACE,
        "AWS_XRAY_DAEMON_ADDRESS": f"127.0.0.1:{daemon.getsockname()[1]}",
        "PYTHONPATH": ":".join(sys.path),
    }
    subprocess.run([sys.executable, "-c", SPANS], env=environment, check=True)
    spans = received(daemon, 3)
    assert {span["parent_id"] for span in spans.values()} == {PARENT}
    lasted = {name: float(str(span["end_time"])) - float(str(span["start_time"])) for name, span in spans.items()}
    assert lasted["quick"] < 0.15 < lasted["slow"]
    assert spans["quick"]["annotations"] == {"records": 1}
    assert (spans["refused"]["fault"], spans["refused"]["annotations"]) == (True, {"error_kind": "INVALID_REQUEST"})
    assert "words of a client" not in json.dumps(spans)


def test_switched_off_nothing_of_it_is_imported(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from handler.settings import load_settings\n"
        "from handler.wiring import build_edge\n"
        "build_edge(load_settings({'STATE_FILE': 'state', 'OPENAI_API_KEY': 'k'}), as_json=False)\n"
        "print([name for name in sys.modules if 'xray' in name or name == 'handler.tracing'])"
    )
    environment = {"PYTHONPATH": ":".join(sys.path)}
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "[]"


@pytest.mark.req("C9")
def test_a_bridge_that_is_traced_serves_as_ever(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    pytest.importorskip("aws_xray_sdk", reason="aws-lambda-powertools[tracer] is not installed")
    upstream.script = [{"reply": {"chat": {"tool_calls": [{"name": "look", "arguments": {}}]}}}]
    ask = {"model": "openai/gpt-x", "max_tokens": 9, "messages": [{"role": "user", "content": "Look"}]}
    with running_bridge(tmp_path, UPSTREAM_OPENAI_BASE_URL=upstream.url, TRACING="on") as url:
        answer = httpx2.post(f"{url}/v1/messages", json=ask)
    assert answer.json()["stop_reason"] == "tool_use"


@pytest.mark.req("C9")
@pytest.mark.parametrize("path", ["/v1/messages", "/v1/chat/completions"], ids=["translated", "passed through"])
def test_a_clients_trace_goes_on_to_the_provider(bridge_url: str, upstream: ScriptedUpstream, path: str) -> None:
    upstream.script = [{"reply": {"chat": {"text": "Hi"}}}]
    ask = {"model": "openai/gpt-x", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    headers = {"traceparent": CLIENT_TRACE, "tracestate": "vendor=1", "x-secret": "stays here"}
    assert httpx2.post(bridge_url + path, json=ask, headers=headers).status_code == 200
    sent = upstream.received[-1].headers
    assert (sent["traceparent"], sent["tracestate"]) == (CLIENT_TRACE, "vendor=1")
    assert "x-secret" not in sent
