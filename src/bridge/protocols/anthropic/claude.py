"""What each Claude model takes and what it refuses, from one data file: claude.json."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal

import orjson

from bridge.values import dataclass


@dataclass(frozen=True, slots=True)
class Claude:
    """One model. The names are those of claude.json."""

    max_output_tokens: int
    thinking: Literal["adaptive", "budget", "none"]
    without_thinking: Literal["omitted", "disabled", "impossible"]
    """How a request says that it wants no thinking; `impossible`: the model always thinks."""
    efforts: tuple[str, ...]
    display: bool
    """The model keeps its thinking to itself unless it is told to summarise it."""
    sampling: Literal["free", "one", "none"]
    """`one`: temperature or top_p, not both."""
    prefill: bool
    """The last message may be the beginning of the answer."""
    enforces_schemas: bool


@lru_cache(maxsize=256)
def claude_of(model: str) -> Claude:
    """The traits of a model by its name, as Anthropic or a cloud that offers it spells it."""
    table = _table()
    name = model.rpartition("/")[2].lower().replace(".", "-")
    merged: dict[str, Any] = dict(table["default"])
    merged |= next((row for pattern, row in table["models"] if fnmatchcase(name, pattern)), {})
    merged["efforts"] = tuple(merged["efforts"])
    return Claude(**merged)


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = orjson.loads(Path(__file__).with_name("claude.json").read_bytes())
    return table
