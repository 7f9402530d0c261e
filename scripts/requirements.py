"""Prints which tests hold each requirement of docs/requirements.md: `make requirements`."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "requirements.md"


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


def main() -> int:
    collector = Collector()
    code = pytest.main(["--collect-only", "-qq", "--no-header", "-m", "", str(ROOT / "tests")], plugins=[collector])
    if code:
        return int(code)
    page = PAGE.read_text("utf-8")
    ids = known_ids(page)
    for requirement in ids:
        print(f"\n{requirement}")
        for test in sorted(collector.tests.get(requirement, ())) or ["-- no test --"]:
            print(f"  {test}")
    held = sum(requirement in collector.tests for requirement in ids)
    print(f"\n{held} of {len(ids)} requirements have tests")
    found = problems(page, set(collector.tests))
    for problem in found:
        print(problem, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
