"""Every requirement has a test, or the page says why it has none: `make requirements`."""

from __future__ import annotations

import runpy
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from support import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

SCRIPT = ROOT / "scripts/requirements.py"
PAGE = "| id | must |\n|---|---|\n| A1 | Stand. |\n| A2 | Stand too. |\n"
EXCUSE = "\n## Without a test\n\n- A2: cannot be seen from here.\n"

CASES: dict[str, tuple[str, set[str], list[str]]] = {
    "all have tests": (PAGE, {"A1", "A2"}, []),
    "one has none": (PAGE, {"A1"}, ["without a test, and without a reason on the page: A2"]),
    "one has none and a reason": (PAGE + EXCUSE, {"A1"}, []),
    "a reason without words": (
        PAGE + EXCUSE.replace("cannot be seen from here.", ""),
        {"A1"},
        ["without a test, and without a reason on the page: A2"],
    ),
    "a reason that is no longer true": (PAGE + EXCUSE, {"A1", "A2"}, ["said to have no test, but has one: A2"]),
    "a reason for nothing": (
        PAGE + EXCUSE.replace("A2", "A3"),
        {"A1", "A2"},
        ["said to have no test, but not a requirement: A3"],
    ),
    "a mark that means nothing": (PAGE, {"A1", "A2", "Z9"}, ["marked in tests, but not a requirement: Z9"]),
    "an id in two rows": (PAGE + "| A1 | Stand still. |\n", {"A1", "A2"}, ["named twice: A1"]),
}


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(SCRIPT))


@pytest.mark.parametrize(("page", "tested", "found"), CASES.values(), ids=CASES)
def test_page_and_tests_have_to_agree(page: str, tested: set[str], found: list[str], script: dict[str, Any]) -> None:
    problems: Callable[[str, set[str]], list[str]] = script["problems"]
    assert problems(page, tested) == found


@pytest.mark.parametrize(
    ("marked", "ids"),
    [("FR2.1-2.4", ["FR2.1", "FR2.2", "FR2.3", "FR2.4"]), ("C5.1", ["C5.1"]), ("LEDGER", ["LEDGER"])],
)
def test_a_range_of_ids_stands_for_each(marked: str, ids: list[str], script: dict[str, Any]) -> None:
    assert script["expanded"](marked) == ids


def test_the_summary_counts_and_the_details_name_the_tests(script: dict[str, Any]) -> None:
    tests = {"A1": {"tests/a.py::test_two", "tests/a.py::test_one"}}
    head, row = script["summary"](["A1", "A2"], tests).splitlines()
    assert head.startswith("1 of 2 requirements have tests")
    assert row.split() == ["A1", "2", "A2", "0"]
    assert script["details"](["A1"], tests) == "A1\n  tests/a.py::test_one\n  tests/a.py::test_two"
    assert script["details"](["A2"], tests) == "A2\n  -- no test --"


def test_an_id_that_is_none_is_refused(script: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert script["main"](["FR1.1", "XY9"]) == 2
    assert "XY9: not an id" in capsys.readouterr().err


def test_every_requirement_has_a_test_or_a_reason() -> None:
    run = subprocess.run([sys.executable, SCRIPT], cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)
    assert run.returncode == 0, run.stderr or run.stdout
    assert "requirements have tests" in run.stdout.splitlines()[0]
    assert len(run.stdout.splitlines()) < 40
