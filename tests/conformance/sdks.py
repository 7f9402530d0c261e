"""The official SDKs, each run once over all cases in a process of its own."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from support import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping

HERE = Path(__file__).resolve().parent
OLD_PYTHON = ROOT / ".tools" / "anthropic-0x" / "bin" / "python"
NODE_FOLDER = ROOT / "tests" / "node"
# One call gives up long before the whole run does, so that a hang has a name.
CALL_SECONDS = 10
RUN_SECONDS = 90
MISSING = "{what} is missing: `make test` installs it"


# What the SDKs raise for a status; for those above 500 that are not here, the last one.
ERRORS = {400: "BadRequestError", 401: "AuthenticationError", 429: "RateLimitError", 529: "OverloadedError"}
SERVER_ERROR = "InternalServerError"


@dataclass(frozen=True, slots=True)
class Sdk:
    """An SDK: its version, and what it raises for an `error` event."""

    version: str
    error_in_stream: str


SDKS = {
    "python": Sdk("2.9.0", "APIStatusError"),
    "python-0x": Sdk("0.125.0", "APIStatusError"),
    "js": Sdk("1.9.0", "APIError"),
}


def run_sdk(name: str, base_url: str, requests: Mapping[str, Any]) -> dict[str, Any]:
    """The results of all requests, by name and way."""
    task = json.dumps({"base_url": base_url, "timeout": CALL_SECONDS, "cases": requests})
    done = subprocess.run(
        _command(name), input=task, capture_output=True, text=True, timeout=RUN_SECONDS, check=False, env={}
    )
    assert done.returncode == 0, f"{name}: the runner failed:\n{done.stderr}"
    said: dict[str, Any] = json.loads(done.stdout)
    assert said["version"] == SDKS[name].version
    results: dict[str, Any] = said["results"]
    return results


def _command(name: str) -> list[str]:
    if name == "python":
        return [sys.executable, str(HERE / "runner.py")]
    if name == "python-0x":
        assert OLD_PYTHON.exists(), MISSING.format(what=f"anthropic {SDKS[name].version} in .tools/anthropic-0x")
        return [str(OLD_PYTHON), str(HERE / "runner.py")]
    node = shutil.which("node")
    assert node, "node is missing: the tests need Node.js 20 or later"
    installed = NODE_FOLDER / "node_modules" / "@anthropic-ai" / "sdk"
    assert installed.exists(), MISSING.format(what="the npm package @anthropic-ai/sdk")
    return [node, str(HERE / "runner.mjs"), str(NODE_FOLDER)]
