"""What the pages tell a reader to type: fenced blocks, their commands, and commands within a sentence."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from support import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
SHELL = {"sh", "console"}
TOOLS = ("make", "aws", "sam", ".tools/sam/bin/sam", "bridge", ".venv/bin/bridge")

_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True, slots=True)
class Command:
    """One command of a shell block, and the output that the page shows for it."""

    text: str
    shown: str = ""


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name


def blocks(path: Path) -> list[Block]:
    """The fenced blocks of a page, without their indentation."""
    page = path.read_text("utf-8")
    found = []
    for fence in _FENCE.finditer(page):
        text = re.sub(rf"^{fence['indent']}", "", fence["text"], flags=re.MULTILINE)
        found.append(Block(name_of(path), page.count("\n", 0, fence.start()) + 1, fence["language"], text))
    return found


def commands(block: Block) -> list[Command]:
    """The commands of a shell block. In a console block they follow a `$`, and their output follows them."""
    lines = iter(block.text.splitlines())
    if block.language == "sh":
        return [Command(text) for text in _whole(lines) if _is_command(text)]
    found: list[Command] = []
    for line in lines:
        if line.startswith("$ "):
            text = next(_whole(_continued(line[2:], lines)))
            found.append(Command(text))
        elif found:
            found[-1] = Command(found[-1].text, found[-1].shown + line + "\n")
    return [command for command in found if _is_command(command.text)]


def spoken_commands(path: Path) -> list[str]:
    """Commands in the sentences of a page: code spans that begin with a tool of this project."""
    prose = _FENCE.sub("", path.read_text("utf-8"))
    spans = [span.replace("…", "X") for span in re.findall(r"`([^`\n]+)`", prose)]
    return [span for span in spans if " " in span and _tool(span) in TOOLS]


def words(command: str) -> list[str]:
    """The words of a command, without the variables before it and the comment behind."""
    found = shlex.split(command, comments=True)
    while found and re.match(r"^[A-Za-z_]\w*=", found[0]):
        found.pop(0)
    return found


def inner(command: str) -> str:
    """The command whose output a variable takes, `NAME=$(…)`; any other command as it is."""
    taken = re.fullmatch(r"\w+=\$\((.*)\)", command, flags=re.DOTALL)
    return taken.group(1) if taken else command


def _whole(lines: Iterator[str]) -> Iterator[str]:
    """Commands that may go over several lines."""
    text = ""
    for line in lines:
        text = f"{text}\n{line}" if text else line
        if not line.endswith("\\") and _is_closed(text):
            yield text
            text = ""
    assert not text, f"a command does not end: {text}"


def _continued(first: str, rest: Iterator[str]) -> Iterator[str]:
    yield first
    yield from rest


def _is_closed(text: str) -> bool:
    try:
        shlex.split(text, comments=True)
    except ValueError:
        return False
    return text.count("$(") == len(re.findall(r"\$\([^()]*\)", text))


def _is_command(text: str) -> bool:
    return bool(shlex.split(text, comments=True))


def _tool(span: str) -> str:
    try:
        found = words(span)
    except ValueError:
        return ""
    return found[0] if found else ""
