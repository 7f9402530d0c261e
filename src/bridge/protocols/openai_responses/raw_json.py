"""Fields of raw JSON that may be missing, but not of another type."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bridge.canonical.json import WireObject


def text_of(value: object) -> str:
    """A text that may be missing; TypeError for anything else."""
    if value is None:
        return ""
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value


def objects_in(value: object) -> list[WireObject]:
    """A list of objects that may be missing; TypeError for anything else."""
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(element, dict) for element in value):
        raise TypeError("not a list of objects")
    return value
