"""The messages that docs/troubleshooting.md quotes are messages of the bridge, and the names it gives are real."""

from __future__ import annotations

import ast
import re
from functools import cache

import botocore.exceptions
import pytest
from documented import blocks

from bridge.errors import ErrorKind
from handler.metrics import CRASH
from handler.settings import setting_fields
from support import ROOT

PAGE = ROOT / "docs/troubleshooting.md"
PROSE = re.sub(r"^```.*?^```$", "", PAGE.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
SYMPTOMS = re.findall(r"^\| ([^|]+) \|", PROSE, flags=re.MULTILINE)
QUOTED = [quote for symptom in SYMPTOMS for quote in re.findall(r"`([^`]+)`", symptom) if " " in quote]
NAMES = sorted(set(re.findall(r"`([A-Z][A-Z0-9_]*[A-Z])(?:=\w+)?`", PROSE)))

# Messages that are not the bridge's own, and whose they are.
FOREIGN = {
    "No module named 'pydantic_core._pydantic_core'": "Python's, of a package that another machine was meant to have",
    "You must specify a region": botocore.exceptions.NoRegionError.fmt,
    "event: error": "the line of an error in Anthropic's stream",
}
# Names that are neither settings nor kinds of errors.
OTHER_NAMES = {
    "template.yaml and make": {"AWS_IAM", "ARCH", "INFO"},
    "clients": {"ANTHROPIC_AUTH_TOKEN", "BRIDGE_TOKEN"},
    "boto3": {"AWS_DEFAULT_REGION", "AWS_REGION"},
}


@cache
def messages() -> list[str]:
    """Every text in the sources, with `…` where a value is put in."""
    found = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.JoinedStr(values=parts):
                    found.append("".join(_text_of(part) for part in parts))
                case ast.Constant(value=str(text)):
                    found.append(text.replace("%s", "…"))
    return found


def _text_of(part: ast.expr) -> str:
    match part:
        case ast.Constant(value=str(text)):
            return text
        case ast.FormattedValue(conversion=conversion):
            return "'…'" if conversion == ord("r") else "…"
        case _:
            raise AssertionError(ast.dump(part))


def is_said(quote: str) -> bool:
    """Whether a text of the sources has this quote in it, where `…` stands for anything."""
    wanted = re.compile(re.escape(quote).replace("…", ".*"), re.DOTALL)
    return any(wanted.search(message) for message in messages())


@pytest.mark.parametrize("quote", QUOTED)
def test_a_quoted_message_is_one_that_the_bridge_gives(quote: str) -> None:
    if quote in FOREIGN:
        assert not is_said(quote) or quote == "event: error"
    else:
        assert is_said(quote)


def test_names_of_others_are_named_only_where_they_stand() -> None:
    assert set().union(*OTHER_NAMES.values()) <= set(NAMES)


def test_messages_of_others_are_named_only_where_they_are_quoted() -> None:
    assert [quote for quote in FOREIGN if quote not in QUOTED] == []
    assert FOREIGN["You must specify a region"].startswith("You must specify a region")


@pytest.mark.parametrize(
    "quote", ["the limit of … was reached", "cannot be found; check the base URL", "there is a key"]
)
def test_a_message_that_nobody_gives_is_found(quote: str) -> None:
    assert not is_said(quote)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_in_capitals_is_a_setting_or_a_kind_of_error(name: str) -> None:
    kinds = {kind.name for kind in ErrorKind} | {CRASH}
    endings = {f"_{setting.rpartition('_')[2]}" for setting in setting_fields()}
    assert name in setting_fields() or name in kinds or name in endings or name in set().union(*OTHER_NAMES.values())


def test_the_page_has_commands_to_look_with() -> None:
    assert any("bridge route" in block.text for block in blocks(PAGE))
