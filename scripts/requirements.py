"""Prints which tests hold each requirement of docs/requirements.md: `make requirements`."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


class Collector:
    """Gathers the `req` markers of every collected test."""

    def __init__(self) -> None:
        self.tests: defaultdict[str, set[str]] = defaultdict(set)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            for marker in item.iter_markers("req"):
                for requirement in marker.args:
                    self.tests[requirement].add(item.nodeid.partition("[")[0])


def known_ids() -> list[str]:
    page = (ROOT / "docs" / "requirements.md").read_text()
    return re.findall(r"^\| ([A-Z][A-Z0-9.]*) \|", page, flags=re.MULTILINE)


def main() -> int:
    collector = Collector()
    code = pytest.main(["--collect-only", "-qq", "--no-header", str(ROOT / "tests")], plugins=[collector])
    if code:
        return int(code)
    ids = known_ids()
    for requirement in ids:
        print(f"\n{requirement}")
        for test in sorted(collector.tests.get(requirement, ())) or ["-- no test --"]:
            print(f"  {test}")
    missing = [requirement for requirement in ids if requirement not in collector.tests]
    unknown = sorted(set(collector.tests) - set(ids))
    print(f"\n{len(ids) - len(missing)} of {len(ids)} requirements have tests")
    print(f"without a test: {', '.join(missing) or 'none'}")
    if unknown:
        print(f"marked in tests but not a requirement: {', '.join(unknown)}")
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
