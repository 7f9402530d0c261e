"""OpenAI's strict mode: closed objects, every property required.

A schema fits or it does not: what fits may be sent as strict; what does not is the plain schema, to be sent as not
strict. Optional properties do not fit: strict mode could only say them as required and nullable, and the model would
answer explicit nulls, which the validators of Anthropic clients refuse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bridge.schemas.keywords import LOST, READ, SILENT
from bridge.schemas.shapes import (
    TYPES,
    as_list,
    as_object,
    is_count,
    is_number,
    is_scalar,
    is_text,
    plain,
    resolve,
    strings,
    type_names,
    type_of,
    without_references,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.canonical.json import JsonObject, JsonValue
    from bridge.schemas.shapes import Adapted

STRICT_LEVELS: Final = 5
STRICT_PROPERTIES: Final = 5_000
STRICT_ENUM_VALUES: Final = 1_000
STRICT_FORMATS: Final = ("date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uuid")
STRICT_KEPT: Final[dict[str, Callable[[JsonValue], bool]]] = {
    **dict.fromkeys(("$ref", "description", "pattern", "title"), is_text),
    **dict.fromkeys(("anyOf", "enum", "required"), lambda value: isinstance(value, list)),
    **dict.fromkeys(("items", "properties"), lambda value: isinstance(value, dict)),
    **dict.fromkeys(("minItems", "maxItems"), is_count),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), is_number),
    "additionalProperties": lambda value: value is False,
    "const": is_scalar,
    "format": lambda value: value in STRICT_FORMATS,
    "type": lambda value: bool(type_names(value)) and {*type_names(value)} <= {*TYPES, "null"},
}
STRICT_REMOVED: Final = SILENT | {"default", "deprecated", "example", "examples", "readOnly", "writeOnly"}
_DEFINITIONS: Final = ("$defs", "definitions")
_STRUCTURE: Final = {"object": ("properties", "required", "additionalProperties"), "array": ("items",)}
_BESIDE_ALTERNATIVES: Final = frozenset(("description", "title"))


class _MisfitError(Exception):
    """Strict mode would refuse the schema, or mean something else by it."""


def adapt_strict(schema: JsonObject) -> Adapted:
    try:
        return _StrictWalk(schema).root(), ()
    except _MisfitError as misfit:
        return plain(schema), (f"strict mode not used: {misfit}",)


class _StrictWalk:
    """One schema on its way to strict mode; raises as soon as it does not fit."""

    def __init__(self, root: JsonObject) -> None:
        self._root = plain(root)
        self._properties = 0
        self._enum_values = 0

    def root(self) -> JsonObject:
        if self._root.get("type") != "object" or self._root.keys() & {"$ref", "anyOf"}:
            raise _MisfitError("root schema is not a plain object")
        adapted = self._node(self._root, 0)
        for keyword in _DEFINITIONS:
            if keyword in self._root:
                schemas = as_object(self._root[keyword])
                adapted[keyword] = {name: self._node(schema, 1) for name, schema in schemas.items()}
        return adapted

    def _node(self, schema: JsonValue, level: int) -> JsonObject:
        if not isinstance(schema, dict):
            raise _MisfitError("schema that is not an object")
        _check_keywords(schema)
        kept = {name: value for name, value in schema.items() if name not in STRICT_REMOVED}
        if "$ref" in kept:
            return self._reference(kept)
        return self._alternatives(kept, level) if "anyOf" in kept else self._typed(kept, level)

    def _reference(self, schema: JsonObject) -> JsonObject:
        ref = schema["$ref"]
        local = isinstance(ref, str) and (ref == "#" or ref.startswith(("#/$defs/", "#/definitions/")))
        if not local or not isinstance(resolve(self._root, ref), dict):
            raise _MisfitError("schema keyword '$ref' not resolved")
        beside = {name: value for name, value in schema.items() if name != "$ref"}
        if not beside.keys() <= _BESIDE_ALTERNATIVES:
            raise _MisfitError("keywords beside schema keyword '$ref'")
        return beside | {"anyOf": [{"$ref": ref}]} if beside else {"$ref": ref}

    def _alternatives(self, schema: JsonObject, level: int) -> JsonObject:
        variants = as_list(schema["anyOf"])
        if not variants or not schema.keys() <= _BESIDE_ALTERNATIVES | {"anyOf"}:
            raise _MisfitError("keywords beside schema keyword 'anyOf'")
        if any("anyOf" in as_object(variant) for variant in variants):
            raise _MisfitError("alternatives inside alternatives")
        return schema | {"anyOf": [self._node(variant, level) for variant in variants]}

    def _typed(self, schema: JsonObject, level: int) -> JsonObject:
        adapted = self._with_enum(schema)
        types = type_names(adapted.get("type"))
        if not types:
            raise _MisfitError("schema without a type")
        idle = {keyword for name in _STRUCTURE.keys() - {*types} for keyword in _STRUCTURE[name]}
        adapted = {keyword: value for keyword, value in adapted.items() if keyword not in idle}
        if level == STRICT_LEVELS and {*types} & {"object", "array"}:
            raise _MisfitError("schema nested too deep")
        if "object" in types:
            adapted |= self._members(adapted, level + 1)
        if "array" in types:
            adapted["items"] = self._node(adapted.get("items"), level + 1)
        return adapted

    def _with_enum(self, schema: JsonObject) -> JsonObject:
        """`const` as an enum, and a type for enums that came without."""
        adapted = without_references(schema)
        if "enum" not in adapted:
            return adapted
        values = as_list(adapted["enum"])
        self._enum_values += len(values)
        if not values or self._enum_values > STRICT_ENUM_VALUES:
            raise _MisfitError("empty schema enum" if not values else "too many schema enum values")
        types = dict.fromkeys(type_of(value) for value in values)
        return {"type": next(iter(types)) if len(types) == 1 else [*types], **adapted}

    def _members(self, schema: JsonObject, level: int) -> JsonObject:
        if not schema.keys() & {"properties", "additionalProperties"}:
            raise _MisfitError("open object")
        declared = as_object(schema.get("properties"))
        required = {*strings(schema.get("required"))}
        self._properties += len(declared)
        if self._properties > STRICT_PROPERTIES or not required <= declared.keys():
            raise _MisfitError("too many properties or unknown ones required")
        properties: JsonObject = {name: self._node(sub, level) for name, sub in declared.items()}
        if required != declared.keys():
            raise _MisfitError("optional properties")
        return {"properties": properties, "required": [*properties], "additionalProperties": False}


def _check_keywords(schema: JsonObject) -> None:
    unfit = {name for name in schema.keys() - STRICT_REMOVED if name not in STRICT_KEPT}
    unfit |= {name for name in schema.keys() & STRICT_KEPT.keys() if not STRICT_KEPT[name](schema[name])}
    if unfit:
        known = sorted(unfit & (LOST | READ))
        raise _MisfitError(f"schema keyword '{known[0]}'" if known else "unknown schema keyword")
