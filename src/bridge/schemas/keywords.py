"""The keywords of JSON Schema: what each dialect reads, what goes without a word, what is reported when it goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bridge.schemas.shapes import COMBINED, is_count, is_scalar, is_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.canonical.json import JsonValue

ANNOTATIONS: Final[dict[str, Callable[[JsonValue], bool]]] = {
    "title": is_text,
    "description": is_text,
    "example": is_scalar,
}
SCALARS: Final[dict[str, dict[str, Callable[[JsonValue], bool]]]] = {
    "object": {"minProperties": is_count, "maxProperties": is_count},
    "array": {"minItems": is_count, "maxItems": is_count},
    "string": {
        "minLength": is_count,
        "maxLength": is_count,
        "pattern": is_text,
        "format": lambda value: value in ("enum", "date-time"),
    },
    "number": {"format": lambda value: value in ("float", "double")},
    "integer": {"format": lambda value: value in ("int32", "int64")},
    "boolean": {},
}
# What a schema without a type is about, first hit.
HINTS: Final = (
    *((name, "object") for name in ("properties", "required", "additionalProperties", "patternProperties")),
    *((name, "object") for name in ("propertyNames", "minProperties", "maxProperties")),
    *((name, "array") for name in ("items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains")),
    *((name, "string") for name in ("pattern", "format", "minLength", "maxLength")),
    *((name, "number") for name in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")),
)
READ: Final = frozenset(
    {"$ref", "allOf", "anyOf", "const", "enum", "nullable", "oneOf", "propertyOrdering", "type"}
    | {*ANNOTATIONS, *COMBINED, *(name for scalars in SCALARS.values() for name in scalars)}
)
SILENT: Final = frozenset(("$anchor", "$comment", "$defs", "$dynamicAnchor", "$id", "$schema", "definitions", "id"))
# Values that add nothing: a declared function takes its declared arguments in any case.
NEUTRAL: Final[dict[str, tuple[JsonValue, ...]]] = {
    "additionalItems": (True, False, {}),
    "additionalProperties": (True, False, {}),
    "deprecated": (False,),
    "readOnly": (False,),
    "unevaluatedItems": (True, False, {}),
    "unevaluatedProperties": (True, False, {}),
    "uniqueItems": (False,),
    "writeOnly": (False,),
}
LOST: Final = frozenset(
    (
        *NEUTRAL,
        *("default", "examples", "multipleOf", "prefixItems", "contains", "minContains", "maxContains"),
        *("not", "if", "then", "else", "patternProperties", "propertyNames", "discriminator", "$dynamicRef"),
        *("dependencies", "dependentRequired", "dependentSchemas"),
        *("contentEncoding", "contentMediaType", "contentSchema"),
    )
)
