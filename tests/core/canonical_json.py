"""Canonical values as JSON that a fixture can hold: the class by name, and the fields that say something."""

from __future__ import annotations

from dataclasses import MISSING, fields, is_dataclass
from typing import Any


def as_json(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        said = {
            field.name: as_json(getattr(value, field.name)) for field in fields(value) if not is_default(value, field)
        }
        return {"is": type(value).__name__, **said}
    if isinstance(value, tuple | list):
        return [as_json(item) for item in value]
    if isinstance(value, dict):
        return {key: as_json(item) for key, item in value.items()}
    return value


def is_default(value: Any, field: Any) -> bool:
    given = getattr(value, field.name)
    if field.default_factory is not MISSING:
        return bool(given == field.default_factory())
    return field.default is not MISSING and bool(given == field.default)
