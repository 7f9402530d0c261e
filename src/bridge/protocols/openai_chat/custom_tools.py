"""Tools that take free text instead of arguments, said as functions with one argument."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.canonical.json import dumps

if TYPE_CHECKING:
    from bridge.canonical.json import JsonObject

_INPUT = "input"


def input_schema() -> JsonObject:
    """The schema of such a function."""
    return {"type": "object", "properties": {_INPUT: {"type": "string"}}, "required": [_INPUT]}


def to_arguments(text: str) -> JsonObject:
    return {_INPUT: text}


def from_arguments(arguments: JsonObject) -> str:
    """The free text inside the arguments; all of them, should the model have given others."""
    text = arguments.get(_INPUT)
    if isinstance(text, str) and len(arguments) == 1:
        return text
    return dumps(arguments).decode() if arguments else ""


def custom_names(echo: JsonObject) -> frozenset[str]:
    """Names of the client's tools that take free text, as the request's echo holds them."""
    names = echo.get("custom_tools")
    return frozenset(str(name) for name in names) if isinstance(names, list) else frozenset()
