"""Links between the pages lead to files and headings that are there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from documented import PAGES, name_of

from support import ROOT

if TYPE_CHECKING:
    from pathlib import Path

LINKING = [*PAGES, ROOT / "CHANGELOG.md", ROOT / "events/README.md"]


def prose(path: Path) -> str:
    return re.sub(r"^ *```.*?^ *```$", "", path.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", prose(path), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", LINKING, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", prose(page)):
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []
