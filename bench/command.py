"""What the benchmarks' commands share: options, progress, and an end that takes the processes along."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from bench.report import HISTORY


def options(prog: str, description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("--quick", action="store_true", help="a short run: everything is measured, but roughly")
    parser.add_argument("--history", type=Path, default=HISTORY, metavar="FILE", help="where the results are appended")
    return parser


def say(what: str) -> None:
    """Tell what is being done."""
    print(f"… {what}", file=sys.stderr, flush=True)


def end_by_the_blocks() -> None:
    """A signal ends the run by way of the blocks that end its processes."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)


def _leave(_number: int, _frame: object) -> None:
    sys.exit(143)
