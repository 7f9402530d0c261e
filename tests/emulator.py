"""AWS's own Runtime Interface Emulator around a command, on free ports.

    with emulator([sys.executable, "-m", "handler.lambda_runtime"], {"STATE_TABLE": "t"}) as lambda_:
        answer = lambda_.invoke(event)

The emulator starts the command at the first invocation, buffers a streamed response, and says nothing
of error trailers: a stream that broke off looks like a short one.
"""

from __future__ import annotations

import http.client
import json
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
START_SECONDS = 20.0
STOP_SECONDS = 10.0
INVOKE_SECONDS = 60.0
_PRELUDE_END = bytes(8)
_ARCHITECTURES = {"x86_64": "x86_64", "amd64": "x86_64", "arm64": "arm64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True)
class Answer:
    """What the function answered; `raw` is what the emulator gave.

    Without a prelude in `raw` (the function did not start, or timed out) all is the emulator's own.
    """

    status: int
    headers: dict[str, str]
    body: bytes
    raw: bytes
    cookies: list[str] = field(default_factory=list)

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Emulator:
    """A running emulator."""

    port: int
    log: Path

    def invoke(self, event: dict[str, Any]) -> Answer:
        """Invoke the function with an event."""
        path = "/2015-03-31/functions/function/invocations"
        client = http.client.HTTPConnection("127.0.0.1", self.port, timeout=INVOKE_SECONDS)
        with closing(client):
            try:
                client.request("POST", path, body=json.dumps(event))
                response = client.getresponse()
                raw = response.read()
            except (OSError, http.client.HTTPException) as error:
                raise AssertionError(f"no answer from the emulator: {error!r}\n{self.output()}") from error
        return read_answer(response.status, dict(response.headers), raw)

    def output(self) -> str:
        """What the emulator and the function have written so far."""
        return self.log.read_text(errors="replace")


def read_answer(status: int, headers: dict[str, str], raw: bytes) -> Answer:
    """Take a streamed response apart."""
    head, end, body = raw.partition(_PRELUDE_END)
    if not end:
        return Answer(status, headers, raw, raw)
    prelude = json.loads(head)
    return Answer(prelude["statusCode"], prelude["headers"], body, raw, prelude["cookies"])


def find_binary() -> Path:
    """The emulator for this machine, as aws-sam-cli brings it."""
    architecture = _ARCHITECTURES[platform.machine().lower()]
    pattern = f".tools/sam/lib/python*/site-packages/samcli/local/rapid/aws-lambda-rie-{architecture}"
    found = sorted(ROOT.glob(pattern))
    assert found, f"no emulator at {ROOT / pattern}: run `make setup`"
    return found[0]


@contextmanager
def emulator(command: list[str], env: dict[str, str]) -> Iterator[Emulator]:
    """Run a command under the emulator; `env` is added to the environment."""
    with tempfile.TemporaryDirectory(prefix="emulator-") as folder:
        binary = Path(shutil.copy(find_binary(), folder))
        binary.chmod(0o755)
        running = Emulator(_free_port(), Path(folder) / "output.log")
        arguments = [
            str(binary),
            "--log-level=info",  # or it would take LOG_LEVEL, which is the function's
            f"--runtime-interface-emulator-address=127.0.0.1:{running.port}",
            f"--runtime-api-address=127.0.0.1:{_free_port()}",
            *command,
        ]
        with running.log.open("wb") as log:
            process = subprocess.Popen(
                arguments, env={**os.environ, **env}, stdout=log, stderr=log, start_new_session=True
            )
        try:
            _wait_until_listening(process, running)
            yield running
        finally:
            _stop(process)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def _wait_until_listening(process: subprocess.Popen[bytes], running: Emulator) -> None:
    give_up = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < give_up:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", running.port)) == 0:
                return
        time.sleep(0.02)
    raise AssertionError(f"the emulator did not start (exit code {process.poll()}):\n{running.output()}")


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the emulator and what it started, which it gives process groups of their own."""
    started = _descendants(process.pid)
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        started += _descendants(process.pid)
        process.kill()
        process.wait()
    for orphan in started:
        if orphan.is_running():
            orphan.kill()
    psutil.wait_procs(started, timeout=STOP_SECONDS)


def _descendants(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def build_host_package(target: Path, *options: str) -> Path:
    """The Lambda package, built by the same script for this machine and interpreter."""
    command = [sys.executable, str(ROOT / "scripts" / "build_lambda.py"), "--target", str(target), "--host", *options]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return target
