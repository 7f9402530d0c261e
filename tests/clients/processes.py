"""Clients as processes of their own: a bare environment, a home of their own, and an end in time."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clients.installed import RUNNERS, client

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

SECONDS = 45
# Some clients are scripts that node runs, wherever it is installed.
PATH = f"{Path(shutil.which('node') or '/usr/bin/node').parent}:/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True, slots=True)
class Finished:
    """What a client left behind."""

    code: int
    out: str
    err: str

    def __post_init__(self) -> None:
        assert self.code != -signal.SIGKILL, f"the client did not end in time\n{self.out[-2000:]}\n{self.err[-2000:]}"

    def succeeded(self) -> Finished:
        assert self.code == 0, f"exit code {self.code}\n{self.out[-4000:]}\n{self.err[-4000:]}"
        return self


@dataclass(frozen=True, slots=True)
class Desk:
    """Where a client runs: its home, the folder it works in, and the variables that it is given."""

    home: Path
    folder: Path
    variables: Mapping[str, str] = field(default_factory=dict)

    def with_variables(self, variables: Mapping[str, str]) -> Desk:
        return Desk(self.home, self.folder, {**self.variables, **variables})

    def run(self, command: Sequence[str | Path], *, seconds: float = SECONDS) -> Finished:
        """Run to the end, which comes in time or by force."""
        with self.started(command) as process:
            return ended(process, seconds=seconds)

    @contextmanager
    def started(self, command: Sequence[str | Path]) -> Iterator[subprocess.Popen[str]]:
        """A running client; nothing of it is left when the block ends."""
        environment = {"PATH": PATH, "HOME": str(self.home), "LANG": "C.UTF-8", "TERM": "dumb", **self.variables}
        process = subprocess.Popen(
            [str(part) for part in command],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            with process:
                try:
                    yield process
                finally:
                    _kill(process)
        finally:
            _kill(process)


def ended(process: subprocess.Popen[str], *, seconds: float = SECONDS) -> Finished:
    """The end of a running client."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        _kill(process)
        out, err = process.communicate()
    return Finished(process.returncode, out, err)


def _kill(process: subprocess.Popen[str]) -> None:
    """The client and all that it started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def run_library(desk: Desk, runner: str, task: Mapping[str, Any]) -> dict[str, Any]:
    """What a program that uses a client library printed; the task is its argument, both are JSON."""
    ran = desk.run([*client("python"), "-W", "error", RUNNERS / f"{runner}.py", json.dumps(task)]).succeeded()
    said: dict[str, Any] = json.loads(ran.out)
    return said
