"""The Lambda package, built for this machine the way it is built for Lambda."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from bench.systems import ROOT

if TYPE_CHECKING:
    from pathlib import Path

BUILD_SECONDS = 120


class BuildError(RuntimeError):
    """There is no package to measure."""


def build_package(target: Path) -> None:
    """Dependencies, sources and compiled bytecode, in one folder."""
    script = ROOT / "scripts/build_lambda.py"
    command = [sys.executable, str(script), "--target", str(target), "--host"]
    built = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False)
    if built.returncode:
        raise BuildError(f"the package could not be built: {built.stderr[-2000:]}")


def unzipped_bytes(target: Path) -> int:
    """What Lambda counts."""
    return sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
