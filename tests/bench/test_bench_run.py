"""A short run measures everything, prints it and keeps it. Times are nobody's to assert."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from bench.report import Row, table

ROOT = Path(__file__).resolve().parents[2]
ROWS = (
    "cold start until ready, ms",
    "cold start to first byte, ms",
    "added first token, median ms",
    "added first token, p95 ms",
    "chunks per second, 1 stream",
    "chunks per second, 8 streams",
    "chunks per second, 32 streams",
    "CPU ms per 1,000 chunks, paced",
    "added by a 100 KB request (40 messages), ms",
    "added by a 1 MB request (400 messages), ms",
    "added by a 5 MB request (2000 messages), ms",
    "turn after 5 tool calls, trimmed, ms",
    "turn after 20 tool calls, trimmed, ms",
    "memory after 50 streams, MB",
    "memory after 200 streams, MB",
    "peak memory after large requests, MB",
    "package unzipped, MB",
)


def test_a_quick_run_prints_every_row_and_keeps_one_line(tmp_path: Path) -> None:
    history = tmp_path / "kept/history.jsonl"
    command = [sys.executable, "-m", "bench", "--quick", "--history", str(history)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    assert [name for name in ROWS if not any(line.startswith(name) for line in lines)] == []
    (kept,) = [json.loads(line) for line in history.read_text().splitlines()]
    assert [row["name"] for row in kept["rows"]] == list(ROWS)
    assert {"date", "plan", "revision", "python", "cpu_count"} <= kept.keys()


def test_the_ratio_is_the_bridge_to_the_floor() -> None:
    assert Row("time", 3.0, 2.0).ratio == 1.5


def test_a_floor_lost_in_noise_has_no_ratio() -> None:
    assert Row("time", 3.0, -0.1).ratio is None
    assert table([Row("time", 3.0, -0.1)]).splitlines()[1].split() == ["time", "3.0", "-0.1", "-", "-"]
