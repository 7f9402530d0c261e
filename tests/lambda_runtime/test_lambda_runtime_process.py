"""Start, end and imports of the process."""

from __future__ import annotations

import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from runtime_api import PATIENCE
from url_events import url_event

if TYPE_CHECKING:
    from runtime_api import RuntimeApi
    from runtime_process import Run

LOADED = "import sys, handler.lambda_runtime; print(*sorted(sys.modules))"


@pytest.mark.parametrize(("app", "error"), [("bad_init", "ValueError"), ("exiting_init", "SystemExit")])
def test_a_failed_start_is_reported_and_ends_the_process(api: RuntimeApi, run: Run, app: str, error: str) -> None:
    process = run(app)
    report = api.init_errors.get(timeout=PATIENCE)
    assert report.headers["lambda-runtime-function-error-type"] == f"Runtime.{error}"
    assert report.body["errorType"] == error
    assert report.body["errorMessage"] == "STATE_TABLE is not set"
    assert any(app in line for line in report.body["stackTrace"])
    assert process.exit_code() == 1
    assert "STATE_TABLE is not set" in process.output()


def test_sigterm_between_invocations_is_a_clean_end(api: RuntimeApi, run: Run) -> None:
    process = run("echo")
    api.push(url_event()).done()
    process.terminate()
    assert process.exit_code() == 0
    assert process.output() == ""


def test_sigterm_within_an_invocation_is_a_clean_end(api: RuntimeApi, run: Run) -> None:
    process = run("hangs_late")
    assert api.push(url_event()).chunk(1) == b"part"
    process.terminate()
    assert process.exit_code() == 0


def test_a_runtime_api_that_goes_away_ends_the_process(api: RuntimeApi, run: Run) -> None:
    process = run("echo")
    api.push(url_event()).done()
    api.vanish()
    assert process.exit_code() == 1
    assert "Runtime API" in process.output()


@pytest.mark.parametrize("app", ["echo", "bad_init"])
def test_a_runtime_api_that_is_not_there_ends_the_process(run: Run, app: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    process = run(app, address=address)
    assert process.exit_code() == 1
    assert f"cannot connect to {address}" in process.output()


def test_outside_lambda_the_module_says_so() -> None:
    command = [sys.executable, "-m", "handler.lambda_runtime"]
    ended = subprocess.run(command, env={}, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert ended.returncode == 1
    assert "AWS_LAMBDA_RUNTIME_API is not set" in ended.stderr


def test_only_the_standard_library_and_orjson_are_imported() -> None:
    command = [sys.executable, "-c", LOADED]
    loaded = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True).stdout
    ours = {name.partition(".")[0] for name in loaded.split()} - set(sys.stdlib_module_names)
    assert {"uvicorn", "boto3", "botocore", "httpx2", "httpx", "h11", "pydantic"}.isdisjoint(ours)
    before = [sys.executable, "-c", "import sys; print(*sorted(sys.modules))"]
    present = subprocess.run(before, capture_output=True, text=True, timeout=PATIENCE, check=True).stdout
    assert ours - {name.partition(".")[0] for name in present.split()} <= {"handler", "orjson", "org"}
