"""What the dialects share: reading JSON values as schemas, references, and several schemas that hold at once."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bridge.canonical.json import JsonObject, JsonValue

# A schema in a dialect, and what could not be said in it.
Adapted: TypeAlias = "tuple[JsonObject, tuple[str, ...]]"

EMPTY_ROOT: Final[JsonObject] = {"type": "object", "properties": {}}
TYPES: Final = ("object", "array", "string", "number", "integer", "boolean")


def plain(schema: JsonObject) -> JsonObject:
    """The schema as it is, its root made an object schema with `properties`."""
    if schema.get("type", "object") != "object" or {"type", "properties"} <= schema.keys():
        return schema
    return EMPTY_ROOT | schema


def as_object(value: JsonValue) -> JsonObject:
    return value if isinstance(value, dict) else {}


def as_list(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []


def strings(value: JsonValue) -> list[str]:
    return [item for item in as_list(value) if isinstance(item, str)]


def is_text(value: JsonValue) -> bool:
    return isinstance(value, str)


def is_number(value: JsonValue) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -math.inf < value < math.inf


def is_count(value: JsonValue) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def is_scalar(value: JsonValue) -> bool:
    return not isinstance(value, dict | list)


def numbers(values: Iterable[JsonValue]) -> list[int | float]:
    return [value for value in values if isinstance(value, int | float) and is_number(value)]


def type_names(value: JsonValue) -> list[str]:
    return [value] if isinstance(value, str) else strings(value)


def type_of(value: JsonValue) -> str:
    match value:
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case dict():
            return "object"
        case None:
            return "null"
        case _:
            assert_never(value)


def has_type(value: JsonValue, name: str) -> bool:
    return type_of(value) == name or (name == "number" and type_of(value) == "integer")


def resolve(root: JsonObject, ref: JsonValue) -> JsonValue:
    """What a local reference points at, None when it points nowhere."""
    if not isinstance(ref, str) or not (ref == "#" or ref.startswith("#/")):
        return None
    found: JsonValue = root
    for step in unquote(ref).split("/")[1:]:
        found = _child(found, step.replace("~1", "/").replace("~0", "~"))
    return found


def _child(value: JsonValue, step: str) -> JsonValue:
    if isinstance(value, list):
        return value[int(step)] if step.isdecimal() and int(step) < len(value) else None
    return as_object(value).get(step)


def without_references(schema: JsonObject) -> JsonObject:
    """The schema's own keywords: no `$ref`, no `allOf`, and `const` as an enum of one."""
    own = {name: value for name, value in schema.items() if name not in ("$ref", "allOf", "const")}
    if "const" in schema:
        own["enum"] = [schema["const"]]
    return own


# --- several schemas that hold at once


def joined_properties(values: list[JsonValue], combinator: str = "allOf") -> JsonValue:
    by_name: dict[str, list[JsonValue]] = {}
    for properties in values:
        for name, schema in as_object(properties).items():
            by_name.setdefault(name, []).append(schema)
    return {name: schemas[0] if len(schemas) == 1 else {combinator: schemas} for name, schemas in by_name.items()}


def _common_types(values: list[JsonValue]) -> JsonValue:
    sets = [{*type_names(value)} for value in values]
    common = set.intersection(*({*names, "integer"} if "number" in names else names for names in sets))
    return [name for name in (*TYPES, "null") if name in common]


def _common_values(values: list[JsonValue]) -> JsonValue:
    others = [{json.dumps(item) for item in as_list(value) if is_scalar(item)} for value in values[1:]]
    return [item for item in as_list(values[0]) if is_scalar(item) and all(json.dumps(item) in o for o in others)]


def _largest(values: list[JsonValue]) -> JsonValue:
    return max(numbers(values), default=None)


def _smallest(values: list[JsonValue]) -> JsonValue:
    return min(numbers(values), default=None)


COMBINED: Final[dict[str, Callable[[list[JsonValue]], JsonValue]]] = {
    "properties": joined_properties,
    "items": lambda values: {"allOf": values},
    "required": lambda values: [name for value in values for name in as_list(value)],
    "type": _common_types,
    "enum": _common_values,
    **dict.fromkeys(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"), _largest),
    **dict.fromkeys(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"), _smallest),
}
