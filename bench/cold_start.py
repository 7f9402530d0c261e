"""The start of the Lambda entry: from the process to the first byte of the first answer.

The Runtime API's side is played here, on one blocking connection: it hands out one streaming request
and reads the response. What runs is the built package, started by its own exec wrapper.
"""

from __future__ import annotations

import compileall
import json
import socket
import subprocess
import time
import venv
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from bench.bodies import anthropic_body, chat_body
from bench.cores import pinned
from bench.processes import Command, running
from bench.relay import UPSTREAM
from bench.systems import ROOT, SECRETS, TOKEN, base_url

if TYPE_CHECKING:
    from pathlib import Path

    from bench.cores import Cores
    from bench.processes import Service

PATIENCE_SECONDS = 20.0
PRELUDE_END = bytes(8)
MODEL = "fake-20x0"


class ColdStartError(RuntimeError):
    """The entry did not answer its first invocation."""


@dataclass(frozen=True, slots=True)
class Start:
    """Seconds from the start of the process."""

    ready: float  # it asks for an invocation
    first_byte: float  # of the payload


def clean_interpreter(folder: Path) -> str:
    """An interpreter with no packages of its own: what this machine has installed would be imported too."""
    venv.create(folder, symlinks=True, with_pip=False)
    return str(folder / "bin/python")


@dataclass(frozen=True, slots=True)
class Entry:
    """A way to start the loop, and the request that its app understands."""

    name: str
    arguments: tuple[str, ...]
    environment: dict[str, str]
    path: str
    body: bytes


def bridge_entry(python: str, package: Path, provider: Service) -> Entry:
    """The bridge as Lambda starts it."""
    environment = SECRETS | {
        UPSTREAM: base_url(provider),
        "LAMBDA_TASK_ROOT": str(package),
        "LAMBDA_RUNTIME_DIR": str(package),
        "STATE_TABLE": "bench",
    }
    return Entry(
        "bridge-start", (str(package / "exec_wrapper"), python), environment, "/v1/messages", anthropic_body(MODEL)
    )


def floor_entry(python: str, package: Path, provider: Service) -> Entry:
    """The relay on the same loop, out of the same package."""
    compileall.compile_dir(ROOT / "bench", quiet=2)  # -B below leaves nothing behind for the next start
    environment = {UPSTREAM: base_url(provider), "PYTHONPATH": f"{package}:{ROOT}"}
    arguments = (python, "-P", "-B", "-u", "-m", "bench.floor_lambda")
    return Entry("floor-start", arguments, environment, "/v1/chat/completions", chat_body(MODEL))


def cold_start(entry: Entry, folder: Path, cores: Cores) -> Start:
    """Start the entry once and have it answer one invocation."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE_SECONDS)
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        environment = entry.environment | {"AWS_LAMBDA_RUNTIME_API": address}
        command = Command(entry.name, entry.arguments, environment, folder, cores.system)
        started = time.perf_counter()
        with running(command):
            try:
                ready, first_byte = _serve_one(listener, entry)
            except (OSError, ValueError) as error:
                log = command.log.read_text()[-2000:]
                raise ColdStartError(f"{entry.name}: {error!r}; its log: {log}") from error
    return Start(ready - started, first_byte - started)


def bare_start(python: str, cores: Cores) -> float:
    """How long the interpreter takes to do nothing."""
    with pinned(cores.system):
        started = time.perf_counter()
        subprocess.run([python, "-P", "-B", "-c", "pass"], check=True, timeout=PATIENCE_SECONDS)
        return time.perf_counter() - started


def _serve_one(listener: socket.socket, entry: Entry) -> tuple[float, float]:
    connection, _ = listener.accept()
    with connection, connection.makefile("rb") as stream:
        connection.settimeout(PATIENCE_SECONDS)
        _expect(stream, b"/invocation/next")
        ready = time.perf_counter()
        connection.sendall(_invocation(entry))
        _expect(stream, b"/response")
        first_byte = _read_response(stream)
        with suppress(OSError):
            connection.sendall(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
    return ready, first_byte


def _expect(stream: BinaryIO, path: bytes) -> None:
    request_line = stream.readline()
    if path not in request_line:
        raise ValueError(f"expected {path!r}, got {request_line!r}")
    while stream.readline().strip():
        pass


def _read_response(stream: BinaryIO) -> float:
    """Read a chunked response to its end; when its payload began."""
    received, first_byte = b"", 0.0
    while size := int(stream.readline(), 16):
        received += stream.read(size)
        stream.readline()
        if not first_byte and received.partition(PRELUDE_END)[2]:
            first_byte = time.perf_counter()
    prelude, _, payload = received.partition(PRELUDE_END)
    if json.loads(prelude)["statusCode"] != 200 or b"quick" not in payload:
        raise ValueError(f"not the answer: {received[:600]!r}")
    return first_byte


def _invocation(entry: Entry) -> bytes:
    http = {"method": "POST", "path": entry.path, "protocol": "HTTP/1.1", "sourceIp": "127.0.0.1", "userAgent": "bench"}
    event = {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": entry.path,
        "rawQueryString": "",
        "headers": {"content-type": "application/json", "x-api-key": TOKEN},
        "requestContext": {"http": http, "requestId": "bench", "stage": "$default"},
        "body": entry.body.decode(),
        "isBase64Encoded": False,
    }
    body = json.dumps(event).encode()
    deadline = int((time.time() + 60) * 1000)
    head = (
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nLambda-Runtime-Aws-Request-Id: bench\r\n"
        f"Lambda-Runtime-Deadline-Ms: {deadline}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
