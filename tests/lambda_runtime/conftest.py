"""A Runtime API, a process that runs one of `runtime_apps` against it, and a side channel between them."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from runtime_api import RuntimeApi, runtime_api
from runtime_process import Channel, Process, Run

if TYPE_CHECKING:
    from collections.abc import Iterator

APPS = str(Path(__file__).with_name("runtime_apps.py"))


@pytest.fixture
def api() -> Iterator[RuntimeApi]:
    with runtime_api() as running:
        yield running


@pytest.fixture
def channel() -> Iterator[Channel]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        opened = Channel(server)
        yield opened
        opened.close()


@pytest.fixture
def run(api: RuntimeApi, channel: Channel, tmp_path: Path) -> Iterator[Run]:
    """Start one of `runtime_apps`, or another command."""
    started: list[Process] = []

    def start(app: str = "", *, command: list[str] | None = None, address: str | None = None) -> Process:
        env = {
            **os.environ,
            "AWS_LAMBDA_RUNTIME_API": address or api.address,
            "CHANNEL_PORT": str(channel.port),
        }
        log = tmp_path / f"output-{len(started)}.log"
        with log.open("wb") as file:
            arguments = command or [sys.executable, APPS, app]
            started.append(Process(subprocess.Popen(arguments, env=env, stdout=file, stderr=file), log))
        return started[-1]

    yield start
    for process in started:
        process.stop()
