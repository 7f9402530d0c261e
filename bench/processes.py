"""Processes that end when their block does, and what they used."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from bench.cores import pinned

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

START_SECONDS = 20.0
STOP_SECONDS = 5.0
_LISTENING = re.compile(rb"http://127\.0\.0\.1:(\d+)")


class StartError(RuntimeError):
    """A process did not come up."""


@dataclass(frozen=True, slots=True)
class Command:
    """What to run: a name for its log, its arguments, the settings it needs, and where."""

    name: str
    arguments: Sequence[str]
    environment: Mapping[str, str]
    folder: Path
    core: int | None = None

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"


@dataclass(frozen=True, slots=True)
class Service:
    """A running server on loopback."""

    pid: int
    port: int

    def cpu_seconds(self) -> float:
        """User and system time so far."""
        times = psutil.Process(self.pid).cpu_times()
        return float(times.user + times.system)

    def peak_bytes(self) -> int:
        """The most memory it ever had resident; where that is not kept, what it has now."""
        status = Path(f"/proc/{self.pid}/status")
        if status.exists() and (found := re.search(r"VmHWM:\s+(\d+) kB", status.read_text())):
            return int(found[1]) * 1024
        return self.resident_bytes()

    def resident_bytes(self) -> int:
        """The memory it has now."""
        return int(psutil.Process(self.pid).memory_info().rss)


@contextmanager
def running(command: Command) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command in a process group of its own until the block ends."""
    # Nothing of the caller's settings: a provider key or a .env file must not change what is measured.
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "HOME", "LANG", "TMPDIR")}
    with command.log.open("ab") as log:
        with pinned(command.core):
            process = subprocess.Popen(
                command.arguments,
                env=kept | dict(command.environment),
                cwd=command.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            stop(process)


@contextmanager
def serving(command: Command) -> Iterator[Service]:
    """Run a server, from the moment it says where it listens."""
    with running(command) as process:
        yield Service(process.pid, _wait_for_port(process, command))


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process and whatever it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
            return


def _wait_for_port(process: subprocess.Popen[bytes], command: Command) -> int:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if found := _LISTENING.search(command.log.read_bytes()):
            return int(found[1])
        time.sleep(0.02)
    raise StartError(f"{command.name} did not start: {command.log.read_text()[-2000:]}")
