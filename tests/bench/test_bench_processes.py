"""What a benchmark starts ends with it, also when it is told to stop."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from bench.cores import Cores, assign_cores, pinned
from bench.processes import Command, StartError, running, serving

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROOT = Path(__file__).resolve().parents[2]
PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(child.pid, flush=True)
time.sleep(60)
"""


def wait_for(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def gone(processes: Sequence[psutil.Process]) -> bool:
    return all(not process.is_running() or process.status() == psutil.STATUS_ZOMBIE for process in processes)


def test_a_process_ends_with_its_block_and_takes_its_children_along(tmp_path: Path) -> None:
    command = Command("parent", (sys.executable, "-c", PARENT), {}, tmp_path)
    with running(command) as process:
        wait_for(lambda: command.log.read_text().endswith("\n"))
        family = [psutil.Process(process.pid), *psutil.Process(process.pid).children()]
        assert len(family) == 2
    wait_for(lambda: gone(family))


def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    command = Command("broken", (sys.executable, "-c", "raise SystemExit('no such setting')"), {}, tmp_path)
    with pytest.raises(StartError, match="no such setting"), serving(command):
        pass


def test_settings_of_the_caller_do_not_reach_what_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-caller")
    show = "import os; print(sorted(os.environ), flush=True)"
    command = Command("shown", (sys.executable, "-c", show), {"GIVEN": "1"}, tmp_path)
    with running(command) as process:
        process.wait(20)
    assert "GIVEN" in command.log.read_text()
    assert "OPENAI_API_KEY" not in command.log.read_text()


def test_a_machine_with_one_core_is_not_pinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: {3}, raising=False)
    assert assign_cores() == Cores()
    with pinned(Cores().system):
        pass


@pytest.mark.parametrize(("available", "cores"), [({0, 1}, Cores(0, 1, 0)), ({2, 4, 6, 7}, Cores(2, 4, 6))])
def test_the_system_under_test_has_a_core_to_itself(
    available: set[int], cores: Cores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: available, raising=False)
    assert assign_cores() == cores


def test_a_benchmark_that_is_told_to_stop_leaves_nothing_running(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench", "--quick", "--history", str(tmp_path / "history.jsonl")]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        lines = process.stderr
        assert lines is not None
        wait_for(lambda: "first tokens" in lines.readline())
        started = psutil.Process(process.pid).children(recursive=True)
        assert len(started) >= 3
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 143
    assert gone(started)
    assert not (tmp_path / "history.jsonl").exists()
