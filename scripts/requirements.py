"""Prints how many tests hold each requirement of docs/requirements.md, and which: `make requirements`, `REQ=FR1.1`."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "requirements.md"
COLUMNS = 5


class Collector:
    """Gathers the `req` markers of every collected test."""

    def __init__(self) -> None:
        self.tests: defaultdict[str, set[str]] = defaultdict(set)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            for marker in item.iter_markers("req"):
                for requirement in (single for marked in marker.args for single in expanded(marked)):
                    self.tests[requirement].add(item.nodeid.partition("[")[0])


def expanded(marked: str) -> list[str]:
    """The ids of a range such as FR2.1-2.4; any other id alone."""
    span = re.fullmatch(r"([A-Z]+)(\d+)\.(\d+)-\2\.(\d+)", marked)
    if span is None:
        return [marked]
    name, group, first, last = span.groups()
    return [f"{name}{group}.{number}" for number in range(int(first), int(last) + 1)]


def known_ids(page: str) -> list[str]:
    """The ids of the page, each the first cell of a row."""
    return re.findall(r"^\| ([A-Z][A-Z0-9.]*) \|", page, flags=re.MULTILINE)


def excused_ids(page: str) -> set[str]:
    """The ids that the page says have no test, each with its reason: `- C4: …`."""
    _, _, section = page.partition("\n## Without a test\n")
    return set(re.findall(r"^- ([A-Z][A-Z0-9.]*): \S", section, flags=re.MULTILINE))


def problems(page: str, tested: set[str]) -> list[str]:
    """What keeps page and tests from agreeing."""
    ids, excused = known_ids(page), excused_ids(page)
    told = {
        "named twice": {name for name in ids if ids.count(name) > 1},
        "without a test, and without a reason on the page": set(ids) - tested - excused,
        "said to have no test, but has one": excused & tested,
        "said to have no test, but not a requirement": excused - set(ids),
        "marked in tests, but not a requirement": tested - set(ids),
    }
    return [f"{what}: {', '.join(sorted(names))}" for what, names in told.items() if names]


def summary(ids: list[str], tests: Mapping[str, set[str]]) -> str:
    """The requirements in columns, each with how many tests it has."""
    held = sum(bool(tests.get(requirement)) for requirement in ids)
    cells = [f"{requirement:10} {len(tests.get(requirement, ())):4}" for requirement in ids]
    rows = ["    ".join(cells[start : start + COLUMNS]) for start in range(0, len(cells), COLUMNS)]
    return "\n".join(
        [f"{held} of {len(ids)} requirements have tests; REQ=<id> lists those of one, REQ=all of all", *rows]
    )


def details(ids: list[str], tests: Mapping[str, set[str]]) -> str:
    """Each requirement with the names of its tests."""
    return "\n\n".join(
        "\n  ".join([requirement, *(sorted(tests.get(requirement, ())) or ["-- no test --"])]) for requirement in ids
    )


def main(asked: list[str]) -> int:
    page = PAGE.read_text("utf-8")
    ids = known_ids(page)
    unknown = [requirement for requirement in asked if requirement not in (*ids, "all")]
    if unknown:
        print(f"{', '.join(unknown)}: not an id of docs/requirements.md", file=sys.stderr)
        return 2
    collector = Collector()
    with redirect_stdout(StringIO()) as said:
        code = pytest.main(["--collect-only", "-qq", "--no-header", "-m", "", str(ROOT / "tests")], plugins=[collector])
    if code:
        print(said.getvalue())
        return int(code)
    print(summary(ids, collector.tests))
    if asked:
        print("\n" + details(ids if "all" in asked else asked, collector.tests))
    found = problems(page, set(collector.tests))
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
