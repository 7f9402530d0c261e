"""Checks of the shape of scripts, with errors that name the rule and the key."""

from __future__ import annotations

from collections.abc import Mapping
from types import UnionType
from typing import Any

Kind = type | UnionType


class ScriptError(ValueError):
    """A script that cannot be used; the message says where and why."""


def checked(data: object, kinds: Mapping[str, Kind], where: str) -> dict[str, Any]:
    """The entries of an object that holds only known keys with values of their kind."""
    if not isinstance(data, Mapping):
        raise ScriptError(f"{where}: expected an object, got {_name(data)}")
    for key, value in data.items():
        if key not in kinds:
            raise ScriptError(f"{where}: unknown key {key!r}, known are {', '.join(kinds)}")
        if not _is(value, kinds[key]):
            raise ScriptError(f"{where}.{key}: expected {_kind_name(kinds[key])}, got {_name(value)}")
    return dict(data)


def listed(data: object, where: str) -> list[Any]:
    """The entries of a list."""
    if not isinstance(data, list | tuple):
        raise ScriptError(f"{where}: expected a list, got {_name(data)}")
    return list(data)


def required(data: Mapping[str, Any], key: str, where: str) -> Any:
    """An entry that must be there."""
    if key not in data:
        raise ScriptError(f"{where}: {key!r} is missing")
    return data[key]


def _is(value: object, kind: Kind) -> bool:
    # To Python a bool is an int; to whoever writes a script it is a slip.
    if isinstance(value, bool):
        return kind in (bool, object)
    return isinstance(value, kind)


def _kind_name(kind: Kind) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind)


def _name(value: object) -> str:
    return type(value).__name__
