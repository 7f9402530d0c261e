"""The .env file of a local run. What is wrong with it is said by line, never with a value."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING

from handler.settings import SettingsError, setting_fields

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from dotenv.parser import Binding

ENCODING = "utf-8-sig"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LIKENESS = 0.86
_SHORTEST = 6
# Names that are close to a setting's and right all the same.
_KNOWN = frozenset({"BRIDGE_URL", "BRIDGE_TOKEN", "BRIDGE_MODEL", "DIRECT_KEY"})


def load_env_file(path: Path) -> list[str]:
    """Fill in what the environment does not set; returns warnings. SettingsError if a line cannot be read."""
    from dotenv import load_dotenv
    from dotenv.parser import parse_stream

    try:
        with path.open(encoding=ENCODING) as text:
            bindings = list(parse_stream(text))
    except UnicodeDecodeError:
        raise SettingsError(f"{path} is not text in UTF-8") from None
    for binding in bindings:
        if binding.error or (binding.value is None and not _NAME.fullmatch(binding.key or "X")):
            raise SettingsError(f"{path} line {_line_of(binding)} is not NAME=value")
    load_dotenv(path, encoding=ENCODING)
    return [f"{path} line {_line_of(binding)}: {doubt}" for binding in bindings for doubt in _doubts(binding)]


def _doubts(binding: Binding) -> Iterator[str]:
    """Other programs have variables in the file too: only what is close to a setting is doubted."""
    name, names = binding.key, setting_fields()
    if name is None or name in _KNOWN:
        return
    if name in names:
        if binding.value is None:
            yield f"{name} has no value; write {name}=…"
        return
    close = get_close_matches(name.upper().replace("-", "_"), names, n=1, cutoff=_LIKENESS)
    if close and len(name) >= _SHORTEST:
        yield f"{name} is not a setting; did you mean {close[0]}?"


def _line_of(binding: Binding) -> int:
    """The parser counts the empty lines before a line as part of it."""
    text = binding.original.string
    return binding.original.line + text[: len(text) - len(text.lstrip())].count("\n")
