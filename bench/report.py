"""The table that is printed, and the line that is kept."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from bench.systems import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from bench.plan import Plan

HISTORY = ROOT / ".bridge/bench-history.jsonl"
HEADINGS = ("", "bridge", "floor", "ratio", "direct")
LEGEND = """\
ratio = bridge / floor. More is better for chunks per second, less for everything else.
floor = a relay that forwards bytes: same server, same upstream client, no parsing.
direct = the load generator on the upstream itself, which is its ceiling; for a cold start the bare interpreter."""


@dataclass(frozen=True, slots=True)
class Row:
    """One measured thing; None where there is nothing to measure."""

    name: str
    bridge: float
    floor: float | None = None
    direct: float | None = None
    digits: int = 1

    @property
    def ratio(self) -> float | None:
        # Noise can take a difference of two times to nothing or below.
        return None if self.floor is None or self.floor <= 0 else self.bridge / self.floor

    def cells(self) -> tuple[str, ...]:
        """The row as text."""
        numbers = [_number(value, self.digits) for value in (self.bridge, self.floor, self.direct)]
        return (self.name, numbers[0], numbers[1], _number(self.ratio, 2), numbers[2])


def table(rows: Sequence[Row]) -> str:
    """The rows under their headings."""
    lines = [HEADINGS, *(row.cells() for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEADINGS))]
    return "\n".join(_line(line, widths) for line in lines)


def record(rows: Sequence[Row], plan: Plan, history: Path) -> None:
    """Append the run to the history."""
    append_history([asdict(row) | {"ratio": row.ratio} for row in rows], plan.name, history)


def append_history(rows: Sequence[Mapping[str, object]], plan: str, history: Path) -> None:
    """Append the rows of a run, with what they were measured on."""
    line = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "plan": plan,
        "revision": _revision(),
        "python": platform.python_version(),
        "cpu_count": os.cpu_count(),
        "machine": platform.machine(),
        "rows": rows,
    }
    history.parent.mkdir(parents=True, exist_ok=True)
    with history.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = (cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
    return "  ".join([first.lstrip().ljust(widths[0]), *others])


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _revision() -> str:
    """The commit, with a plus if the tree differs from it."""
    commit = _git("rev-parse", "--short", "HEAD")
    if not commit:
        return "unknown"
    return commit + ("+" if _git("status", "--porcelain") else "")


def _git(*arguments: str) -> str:
    command = ["git", "--no-optional-locks", *arguments]
    try:
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=10, check=False)
    except OSError:
        return ""
    return run.stdout.strip()
