"""The built package as Lambda runs it: exec wrapper, AWS's emulator, the files in events/, DynamoDB Local."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest

from bridge.state.dynamodb_table import connect
from bridge.state.table import create_table
from emulator import build_host_package, emulator
from support import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emulator import Answer, Emulator
    from scripted.server import ScriptedUpstream

# What the managed runtime brings: boto3 and what it needs, and nothing else of this environment.
RUNTIME_PACKAGES = ("boto3", "botocore", "s3transfer", "jmespath", "dateutil", "urllib3", "six.py")


def event(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((ROOT / "events" / f"{name}.json").read_text())
    return loaded


@pytest.fixture(scope="module")
def runtime_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runtime")
    site_packages = Path(boto3.__file__).parents[1]
    for name in RUNTIME_PACKAGES:
        (folder / name).symlink_to(site_packages / name)
    return folder


def command(package: Path) -> list[str]:
    """What Lambda runs, with this interpreter in the place of Lambda's."""
    return [str(package / "exec_wrapper"), str(Path(sys.executable).resolve()), "/var/runtime/bootstrap.py"]


@pytest.fixture
def function(
    host_package: Path, runtime_folder: Path, upstream: ScriptedUpstream, aws_environment: dict[str, str]
) -> Iterator[Emulator]:
    create_table(connect(), "events")
    environment = aws_environment | {
        "LAMBDA_TASK_ROOT": str(host_package),
        "LAMBDA_RUNTIME_DIR": str(runtime_folder),
        "STATE_TABLE": "events",
        "WORKER_TOKEN": "events:local-test-token",
        "UPSTREAM_OPENAI_BASE_URL": upstream.url,
        "OPENAI_API_KEY": "sk-held",
    }
    with emulator(command(host_package), environment) as running:
        yield running


def test_every_endpoint_answers_its_event(function: Emulator, upstream: ScriptedUpstream) -> None:
    upstream.script = [
        {"when": {"path": "*/models"}, "reply": {"json": {"data": [{"id": "gpt-x"}]}}},
        {"when": {"last_role": "tool"}, "reply": {"chat": {"text": "It is sunny."}}},
        {"reply": {"chat": {"text": "Hello from Lambda"}}},
    ]
    assert function.invoke(event("health")).json == {"status": "ok"}
    whole = function.invoke(event("messages"))
    assert (whole.status, whole.json["content"]) == (200, [{"type": "text", "text": "Hello from Lambda"}])
    assert_streamed(function.invoke(event("messages-stream")), "Hello from Lambda")
    assert "It is sunny." in text_of(function.invoke(event("messages-tool-result")))
    chat = function.invoke(event("chat-completions"))
    assert chat.status == 200
    assert chat.headers["content-type"].startswith("text/event-stream")
    assert chat.body.endswith(b"data: [DONE]\n\n")
    responses = function.invoke(event("responses"))
    assert (responses.status, b"event: response.completed" in responses.body) == (200, True)
    assert function.invoke(event("route")).json["provider"] == "openai"
    assert function.invoke(event("count-tokens")).json["input_tokens"] > 0
    assert function.invoke(event("models")).json["data"][0]["id"] == "openai/gpt-x"
    assert function.invoke(event("conversations")).json == {"object": "list", "data": [], "has_more": False}
    bad = function.invoke(event("bad-json"))
    assert (bad.status, bad.json["error"]["type"]) == (400, "invalid_request_error")
    stranger = function.invoke(event("missing-auth"))
    assert (stranger.status, stranger.json["error"]["type"]) == (401, "authentication_error")
    assert all(received.headers["authorization"] == "Bearer sk-held" for received in upstream.received)
    assert "local-test-token" not in str([received.headers for received in upstream.received])


def text_of(answer: Answer) -> str:
    if answer.headers["content-type"].startswith("text/event-stream"):
        return streamed_text(answer)
    return str(answer.json["content"][0]["text"])


def streamed_text(answer: Answer) -> str:
    data = [json.loads(line[6:]) for line in answer.body.decode().splitlines() if line.startswith("data: ")]
    return "".join(item["delta"].get("text", "") for item in data if item["type"] == "content_block_delta")


def assert_streamed(answer: Answer, text: str) -> None:
    prelude, _, payload = answer.raw.partition(bytes(8))
    assert json.loads(prelude)["statusCode"] == 200
    assert payload == answer.body
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert streamed_text(answer) == text
    assert answer.body.endswith(b'data: {"type":"message_stop"}\n\n')


@pytest.mark.req("FR6.3", "FR3.1", "S5")
def test_a_tool_call_is_kept_in_the_table_until_it_is_terminated(
    function: Emulator, upstream: ScriptedUpstream
) -> None:
    upstream.script = [
        {"when": {"last_role": "tool"}, "reply": {"chat": {"text": "It is sunny."}}},
        {"reply": {"chat": {"tool_calls": [{"name": "get_weather", "arguments": {"city": "Paris"}}]}}},
    ]
    asked = event("messages")
    asked["headers"]["x-conversation-id"] = "conv-events"
    call = function.invoke(asked).json["content"][-1]
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": "sunny"}
    trimmed = {"model": "openai/gpt-x", "max_tokens": 9, "messages": [{"role": "user", "content": [result]}]}
    answered = event("messages") | {"body": json.dumps(trimmed)}
    assert text_of(function.invoke(answered)) == "It is sunny."
    (listed,) = function.invoke(event("conversations")).json["data"]
    assert (listed["id"], listed["tools"]) == ("conv-events", [{"name": "get_weather", "calls": 1}])
    assert function.invoke(event("terminate")).json["deleted_items"] == 1
    assert function.invoke(event("terminate")).json["deleted_items"] == 0
    assert function.invoke(event("conversations")).json["data"] == []
    assert "terminated" in function.invoke(answered).json["error"]["message"]


@pytest.mark.req("C10", "C8")
@pytest.mark.parametrize(
    ("environment", "says"),
    [
        ({}, "STATE_TABLE is not set"),
        ({"STATE_TABLE": "events", "OPENAI_API_KEY": "sk-canary"}, "WORKER_TOKEN is not set"),
        ({"STATE_TABLE": "events", "STATE_TTL_SECONDS": "soon"}, "STATE_TTL_SECONDS"),
    ],
)
def test_a_deployment_that_cannot_serve_says_why(
    host_package: Path, runtime_folder: Path, environment: dict[str, str], says: str
) -> None:
    place = {"LAMBDA_TASK_ROOT": str(host_package), "LAMBDA_RUNTIME_DIR": str(runtime_folder)}
    with emulator(command(host_package), place | environment) as running:
        answer = running.invoke(event("health"))
        assert says in answer.raw.decode()
        assert "sk-canary" not in answer.raw.decode() + running.output()


def start_tracing(package: Path, runtime_folder: Path) -> str:
    """What comes of it with the package and the runtime alone, without what else this interpreter has installed."""
    environment = {"PYTHONPATH": f"{package}:{runtime_folder}", "LAMBDA_TASK_ROOT": str(package)}
    code = "from handler.tracing import Tracing; Tracing('x'); import aws_xray_sdk; print(aws_xray_sdk.__file__)"
    run = subprocess.run(
        [sys.executable, "-S", "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    return run.stdout + run.stderr


@pytest.mark.req("NFR7")
def test_tracing_without_its_library_says_how_to_get_it(host_package: Path, runtime_folder: Path) -> None:
    assert "make build WITH_TRACING=1" in start_tracing(host_package, runtime_folder)


@pytest.mark.req("NFR7")
def test_a_package_with_tracing_traces(
    tmp_path: Path, runtime_folder: Path, upstream: ScriptedUpstream, aws_environment: dict[str, str]
) -> None:
    package = build_host_package(tmp_path / "package", "--with-tracing")
    assert start_tracing(package, runtime_folder).startswith(str(package))
    upstream.script = [{"reply": {"chat": {"text": "Hello from Lambda"}}}]
    environment = aws_environment | {
        "LAMBDA_TASK_ROOT": str(package),
        "LAMBDA_RUNTIME_DIR": str(runtime_folder),
        "STATE_TABLE": "events",
        "WORKER_TOKEN": "events:local-test-token",
        "UPSTREAM_OPENAI_BASE_URL": upstream.url,
        "OPENAI_API_KEY": "sk-held",
        "LEDGER": "off",
        "TRACING": "on",
    }
    with emulator(command(package), environment) as running:
        assert_streamed(running.invoke(event("messages-stream")), "Hello from Lambda")
