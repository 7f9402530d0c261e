"""The templates in docs/examples pass cfn-lint and fit the stack they stand beside."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from support import ROOT

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLES = sorted((ROOT / "docs/examples").glob("*.yaml"))
CFN_LINT = ROOT / ".tools/sam/bin/cfn-lint"


def lint(path: Path) -> subprocess.CompletedProcess[str]:
    command = [CFN_LINT, "--regions", "us-east-1", "eu-central-1", "--", path]
    return subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_cfn_lint_finds_nothing(path: Path) -> None:
    run = lint(path)
    assert run.returncode == 0, run.stdout + run.stderr


def test_cfn_lint_would_find_a_wrong_property(tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    text = (ROOT / "docs/examples/live-alias.yaml").read_text("utf-8")
    broken.write_text(text.replace("InvokeMode: RESPONSE_STREAM", "InvokeMode: STREAM"), "utf-8")
    assert lint(broken).returncode != 0


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_operations_page_tells_how_to_deploy_it(path: Path) -> None:
    page = (ROOT / "docs/operations.md").read_text("utf-8")
    assert f"--template-file docs/examples/{path.name}" in page
    assert f"(examples/{path.name})" in page
