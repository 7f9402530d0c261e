"""Tool schemas as Anthropic takes them -> the dialect of JSON Schema that a provider takes.

- `plain`: the schema as it is; only the root is made an object schema with `properties`.
- `gemini`: the fields of Gemini's `Schema` message and nothing else: one unknown keyword fails the whole request.
  `$ref` and `allOf` are merged in, `const` becomes `enum`, `oneOf` becomes `anyOf`, null becomes `nullable`. `anyOf`
  stands alone, every node has a type and every array has items. Nested open objects have no `properties`.
- `strict`: OpenAI's strict mode: closed objects, every property required, optional ones nullable. A schema fits or it
  does not: without losses it may be sent as strict; with losses it is the plain schema, to be sent as not strict.

Losses are words of a closed vocabulary: no name or value of the caller's gets into them, so they may be logged.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, assert_never
from urllib.parse import unquote

import orjson

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bridge.canonical.json import JsonObject, JsonValue

SchemaDialect: TypeAlias = Literal["plain", "gemini", "strict"]
Adapted: TypeAlias = "tuple[JsonObject, tuple[str, ...]]"

MAX_DEPTH: Final = 64
MAX_NODES: Final = 5_000
MAX_LOSSES: Final = 20
MAX_NOTED_VALUES: Final = 32
# How often one `$ref` may be inside itself: a tree and its children, then an open object.
MAX_UNROLL: Final = 2
# How many references may lead to one place.
MAX_REFS: Final = 256
CACHED_SCHEMAS: Final = 256
MAX_CACHED_BYTES: Final = 16 * 1024

_EMPTY_ROOT: Final[JsonObject] = {"type": "object", "properties": {}}
TYPES: Final = ("object", "array", "string", "number", "integer", "boolean")


def adapt_schema(schema: JsonObject, dialect: SchemaDialect) -> Adapted:
    """The schema in the dialect, and what could not be said in it; the result is shared: not to be changed."""
    if dialect == "plain":
        return _plain(schema), ()
    try:
        key = orjson.dumps(schema)
    except orjson.JSONEncodeError:  # nested deeper than orjson writes, or integers of more than 64 bits
        return _adapt(schema, dialect)
    return _adapt_cached(key, dialect) if len(key) <= MAX_CACHED_BYTES else _adapt(schema, dialect)


@lru_cache(maxsize=CACHED_SCHEMAS)
def _adapt_cached(schema: bytes, dialect: SchemaDialect) -> Adapted:
    """Clients send the same tools with every request."""
    return _adapt(orjson.loads(schema), dialect)


def _adapt(schema: JsonObject, dialect: SchemaDialect) -> Adapted:
    match dialect:
        case "plain":
            return _plain(schema), ()
        case "gemini":
            walk = _GeminiWalk(schema)
            return walk.root(), tuple(sorted(walk.losses))[:MAX_LOSSES]
        case "strict":
            return _strict(schema)
        case _:
            assert_never(dialect)


def _plain(schema: JsonObject) -> JsonObject:
    if schema.get("type", "object") != "object" or {"type", "properties"} <= schema.keys():
        return schema
    return _EMPTY_ROOT | schema


# --- shapes


def _object(value: JsonValue) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _list(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []


def _strings(value: JsonValue) -> list[str]:
    return [item for item in _list(value) if isinstance(item, str)]


def _is_text(value: JsonValue) -> bool:
    return isinstance(value, str)


def _is_number(value: JsonValue) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -math.inf < value < math.inf


def _is_count(value: JsonValue) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_scalar(value: JsonValue) -> bool:
    return not isinstance(value, dict | list)


def _numbers(values: Iterable[JsonValue]) -> list[int | float]:
    return [value for value in values if isinstance(value, int | float) and _is_number(value)]


def _type_names(value: JsonValue) -> list[str]:
    return [value] if isinstance(value, str) else _strings(value)


def _type_of(value: JsonValue) -> str:
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


def _has_type(value: JsonValue, name: str) -> bool:
    return _type_of(value) == name or (name == "number" and _type_of(value) == "integer")


def _resolve(root: JsonObject, ref: JsonValue) -> JsonValue:
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
    return _object(value).get(step)


# --- several schemas that hold at once


def _joined_properties(values: list[JsonValue], combinator: str = "allOf") -> JsonValue:
    by_name: dict[str, list[JsonValue]] = {}
    for properties in values:
        for name, schema in _object(properties).items():
            by_name.setdefault(name, []).append(schema)
    return {name: schemas[0] if len(schemas) == 1 else {combinator: schemas} for name, schemas in by_name.items()}


def _common_types(values: list[JsonValue]) -> JsonValue:
    sets = [{*_type_names(value)} for value in values]
    common = set.intersection(*({*names, "integer"} if "number" in names else names for names in sets))
    return [name for name in (*TYPES, "null") if name in common]


def _common_values(values: list[JsonValue]) -> JsonValue:
    others = [{json.dumps(item) for item in _list(value) if _is_scalar(item)} for value in values[1:]]
    return [item for item in _list(values[0]) if _is_scalar(item) and all(json.dumps(item) in o for o in others)]


def _largest(values: list[JsonValue]) -> JsonValue:
    return max(_numbers(values), default=None)


def _smallest(values: list[JsonValue]) -> JsonValue:
    return min(_numbers(values), default=None)


COMBINED: Final[dict[str, Callable[[list[JsonValue]], JsonValue]]] = {
    "properties": _joined_properties,
    "items": lambda values: {"allOf": values},
    "required": lambda values: [name for value in values for name in _list(value)],
    "type": _common_types,
    "enum": _common_values,
    **dict.fromkeys(("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"), _largest),
    **dict.fromkeys(("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"), _smallest),
}

# --- Gemini

ANNOTATIONS: Final[dict[str, Callable[[JsonValue], bool]]] = {
    "title": _is_text,
    "description": _is_text,
    "example": _is_scalar,
}
SCALARS: Final[dict[str, dict[str, Callable[[JsonValue], bool]]]] = {
    "object": {"minProperties": _is_count, "maxProperties": _is_count},
    "array": {"minItems": _is_count, "maxItems": _is_count},
    "string": {
        "minLength": _is_count,
        "maxLength": _is_count,
        "pattern": _is_text,
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
_FLAT_TYPES: Final = ("object", "string", "number", "boolean")


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the walk is: how deep, and inside which references."""

    depth: int = 0
    refs: tuple[str, ...] = ()

    def below(self) -> _Place:
        return replace(self, depth=self.depth + 1)


class _GeminiWalk:
    """One schema on its way to Gemini's dialect; what gets lost is gathered, work is bounded."""

    def __init__(self, root: JsonObject) -> None:
        self.losses: set[str] = set()
        self._root = root
        self._nodes_left = MAX_NODES

    def root(self) -> JsonObject:
        flat, place = self._flatten(self._root, _Place())
        variants = self._variants(flat)
        if variants:
            flat, place = self._folded(flat, variants, place)
        self._report(flat)
        types, _ = self._types(flat)
        if types and "object" not in types:
            self.losses.add("root schema made an object")
        adapted = self._of_type("object", flat, place, alone=True)
        return _EMPTY_ROOT | _headed([adapted], self._annotations(flat))

    def _node(self, schema: JsonValue, place: _Place) -> JsonObject:
        if place.depth > MAX_DEPTH:
            return self._cut("schema nested too deep: cut")
        if not isinstance(schema, dict):
            if schema is not True:
                self.losses.add("schema that admits nothing or is malformed: opened")
            schema = {}
        flat, place = self._flatten(schema, place)
        variants = self._variants(flat)
        return self._union(flat, variants, place) if variants else self._typed(flat, place)

    def _cut(self, loss: str) -> JsonObject:
        self.losses.add(loss)
        return {"type": "object"}

    # `$ref` and `allOf`

    def _flatten(self, schema: JsonObject, place: _Place) -> tuple[JsonObject, _Place]:
        """The schema with its references and `allOf` merged into the keywords beside them."""
        parts: list[JsonObject] = []
        waiting = [schema]
        for part in waiting:
            self._nodes_left -= 1
            if self._nodes_left < 0:
                parts.append(self._cut("schema too large: cut"))
                break
            parts.append(_without_references(part))
            if "$ref" in part:
                target, place = self._target(part["$ref"], place)
                waiting.append(target)
            waiting += [branch for branch in _list(part.get("allOf")) if isinstance(branch, dict)]
        return (parts[0] if len(parts) == 1 else self._merged(parts)), place

    def _target(self, ref: JsonValue, place: _Place) -> tuple[JsonObject, _Place]:
        target = _resolve(self._root, ref)
        if not isinstance(ref, str) or not isinstance(target, dict | bool):
            self.losses.add("schema keyword '$ref' not resolved")
            return {}, place
        if place.refs.count(ref) >= MAX_UNROLL or len(place.refs) >= MAX_REFS:
            return self._cut("recursive schema cut"), place
        return _object(target), replace(place, refs=(*place.refs, ref))

    def _merged(self, parts: list[JsonObject]) -> JsonObject:
        by_keyword: dict[str, list[JsonValue]] = {}
        for part in parts:
            for keyword, value in part.items():
                by_keyword.setdefault(keyword, []).append(value)
        return {keyword: self._combined(keyword, values) for keyword, values in by_keyword.items()}

    def _combined(self, keyword: str, values: list[JsonValue]) -> JsonValue:
        """All values at once where that can be said, else the first: it is the one nearest to the tool."""
        if len(values) == 1:
            return values[0]
        combined = COMBINED[keyword](values) if keyword in COMBINED else None
        if combined in (None, []):
            self._report_conflict(keyword, values)
            return values[0]
        return combined

    def _report_conflict(self, keyword: str, values: list[JsonValue]) -> None:
        same = all(_is_scalar(value) and value == values[0] for value in values)
        if keyword in READ - ANNOTATIONS.keys() and not same:
            self.losses.add(f"schema keyword '{keyword}' conflicts: first kept")

    # alternatives

    def _variants(self, flat: JsonObject) -> list[JsonValue]:
        keywords = [keyword for keyword in ("anyOf", "oneOf") if keyword in flat]
        usable = [keyword for keyword in keywords if any(_usable(flat[keyword]))]
        self.losses.update(f"schema keyword '{keyword}' dropped" for keyword in keywords if keyword not in usable[:1])
        return list(_usable(flat[usable[0]])) if usable else []

    def _union(self, flat: JsonObject, variants: list[JsonValue], place: _Place) -> JsonObject:
        """`anyOf` by itself, which is all that Gemini allows: what stands beside it goes into the branches."""
        if flat.keys() & {"properties", "required"}:
            return self._typed(*self._folded(flat, variants, place))
        if flat.keys() & {"enum", "items", "prefixItems"}:
            self.losses.add("schema keyword 'anyOf' dropped")
            return self._typed(flat, place)
        self._report(flat)
        head = self._annotations(flat) | ({"nullable": True} if flat.get("nullable") is True else {})
        shared = {name: value for name, value in flat.items() if name in _SHARED}
        branches: list[JsonObject] = []
        for variant in variants:
            branches += self._branches(variant, shared, head, place)
        return _headed(branches, head) if branches else self._typed(head | {"type": "null"}, place)

    def _branches(
        self, variant: JsonValue, shared: JsonObject, head: JsonObject, place: _Place
    ) -> Iterable[JsonObject]:
        """The branches that a variant amounts to; null is none but makes the whole nullable."""
        flat, inside = self._flatten(_object(variant), place.below())
        if _is_null(flat):
            head["nullable"] = True
            return []
        if inside.depth > MAX_DEPTH:
            return [self._cut("schema nested too deep: cut")]
        adapted = self._node(self._merged([flat, shared]), inside)
        return [_object(branch) for branch in _list(adapted["anyOf"])] if "anyOf" in adapted else [adapted]

    def _folded(self, flat: JsonObject, variants: list[JsonValue], place: _Place) -> tuple[JsonObject, _Place]:
        """Alternatives of one object as that object: every property, and what all of them require."""
        self.losses.add("schema alternatives merged into one object")
        flats: list[JsonObject] = []
        for variant in variants:
            branch, place = self._flatten(_object(variant), place)
            flats.append(branch)
        joined = _object(_joined_properties([branch.get("properties") for branch in flats], "anyOf"))
        required = set.intersection(*({*_strings(branch.get("required"))} for branch in flats))
        base = {name: value for name, value in flat.items() if name not in ("anyOf", "oneOf")}
        base["properties"] = joined | _object(flat.get("properties"))
        base["required"] = [*_list(flat.get("required")), *sorted(required)]
        nullable = "null" in _type_names(flat.get("type")) or any(_is_null(branch) for branch in flats)
        return base | {"type": ["object", "null"] if nullable else "object"}, place

    # one schema without combinators

    def _typed(self, flat: JsonObject, place: _Place) -> JsonObject:
        self._report(flat)
        types, nullable = self._types(flat)
        head = self._annotations(flat) | ({"nullable": True} if nullable else {})
        if types:
            alone = len(types) == 1
            chosen = types if alone else [name for name in types if _possible(flat, name)] or types
            return _headed([self._of_type(name, flat, place, alone=alone) for name in chosen], head)
        if _is_null(flat):
            self.losses.add("schema type 'null' said as a nullable string")
            return _headed([{"type": "string"}], head)
        self.losses.add("schema without a type said as any type")
        return _headed(_any_type(), head)

    def _types(self, flat: JsonObject) -> tuple[list[str], bool]:
        """The types that a value may have, without null, and whether null is one."""
        names = _type_names(flat.get("type"))
        values = _list(flat.get("enum"))
        nullable = "null" in names or flat.get("nullable") is True or None in values
        if not {*names} <= {*TYPES, "null"}:
            self.losses.add("unknown schema type dropped")
        if not names:
            names = [_type_of(value) for value in values] or [name for hint, name in HINTS if hint in flat][:1]
        known = [name for name in TYPES if name in names]
        return [name for name in known if name != "integer" or "number" not in known], nullable

    def _report(self, flat: JsonObject) -> None:
        for name in flat.keys() - READ - SILENT:
            if flat[name] not in NEUTRAL.get(name, ()):
                self.losses.add(
                    f"schema keyword '{name}' dropped" if name in LOST else "unknown schema keyword dropped"
                )

    def _annotations(self, flat: JsonObject) -> JsonObject:
        return self._checked(flat, ANNOTATIONS)

    def _checked(self, flat: JsonObject, table: dict[str, Callable[[JsonValue], bool]]) -> JsonObject:
        """The keywords of the table that have a value Gemini can read."""
        present = {name: value for name, value in flat.items() if name in table}
        kept = {name: value for name, value in present.items() if table[name](value)}
        self.losses.update(f"schema keyword '{name}' dropped" for name in present.keys() - kept.keys())
        return kept

    def _of_type(self, name: str, flat: JsonObject, place: _Place, *, alone: bool) -> JsonObject:
        adapted: JsonObject = {"type": name, **self._checked(flat, SCALARS[name])}
        match name:
            case "object":
                adapted |= self._members(flat, place)
            case "array":
                adapted["items"] = self._items(flat, place)
            case "number" | "integer":
                adapted |= self._bounds(name, flat)
        values = [value for value in _list(flat.get("enum")) if alone or _has_type(value, name)]
        return adapted | (self._string_enum(values) if name == "string" else self._noted_enum(values))

    def _members(self, flat: JsonObject, place: _Place) -> JsonObject:
        """Properties are a map of names: a property may be called like a keyword."""
        declared = _object(flat.get("properties"))
        properties: JsonObject = {
            name: self._node(schema, place.below()) for name, schema in declared.items() if schema is not False
        }
        named: JsonObject = {}
        for keyword in ("required", "propertyOrdering"):
            names = dict.fromkeys(_strings(flat.get(keyword)))
            known: list[JsonValue] = [name for name in names if name in properties]
            if len(known) < len(names):
                self.losses.add(f"schema keyword '{keyword}' names unknown properties")
            named |= {keyword: known} if known else {}
        return ({"properties": properties} if properties else {}) | named

    def _items(self, flat: JsonObject, place: _Place) -> JsonObject:
        items = flat.get("items", True)
        positions = _list(items) or _list(flat.get("prefixItems"))
        if positions and not isinstance(items, dict):
            self.losses.add("schema keyword 'prefixItems' dropped")
            items = {"anyOf": positions}
        return self._node(items, place.below())

    def _bounds(self, name: str, flat: JsonObject) -> JsonObject:
        bounds: JsonObject = {}
        for bound, exclusive, step, choose in _BOUNDS:
            given = self._checked(flat, {bound: _is_number, exclusive: _is_number})
            beyond = _numbers([given.get(exclusive)])
            if beyond and name == "number":
                self.losses.add(f"schema keyword '{exclusive}' said as '{bound}'")
            if name == "integer":
                beyond = [_next_integer(limit, step) for limit in beyond]
            limits = _numbers([given.get(bound)]) + beyond
            bounds |= {bound: choose(limits)} if limits else {}
        return bounds

    def _string_enum(self, values: list[JsonValue]) -> JsonObject:
        texts = [value if isinstance(value, str) else json.dumps(value) for value in _told(values)]
        if not {*texts} <= {*_strings(values)}:
            self.losses.add("schema enum values said as strings")
        if "" in texts:
            self.losses.add("empty schema enum value dropped")
        kept: list[JsonValue] = [text for text in dict.fromkeys(texts) if text]
        return {"enum": kept} if kept else {}

    def _noted_enum(self, values: list[JsonValue]) -> JsonObject:
        """Gemini has enums of strings only; as strings the values would come back with the wrong type."""
        noted = [json.dumps(value) for value in _told(values[:MAX_NOTED_VALUES])]
        if not noted:
            return {}
        self.losses.add("schema enum of other than strings said in the description")
        return {"description": f"Allowed values: {', '.join(noted)}."}


_SHARED: Final = COMBINED.keys() | {name for scalars in SCALARS.values() for name in scalars}
_BOUNDS: Final[tuple[tuple[str, str, int, Callable[[list[int | float]], int | float]], ...]] = (
    ("minimum", "exclusiveMinimum", 1, max),
    ("maximum", "exclusiveMaximum", -1, min),
)


def _next_integer(limit: float, step: int) -> int:
    """The first integer beyond the limit, upwards or downwards."""
    return math.floor(limit) + 1 if step > 0 else math.ceil(limit) - 1


def _without_references(schema: JsonObject) -> JsonObject:
    own = {name: value for name, value in schema.items() if name not in ("$ref", "allOf", "const")}
    if "const" in schema:
        own["enum"] = [schema["const"]]
    return own


def _usable(variants: JsonValue) -> Iterable[JsonValue]:
    return (variant for variant in _list(variants) if variant is True or isinstance(variant, dict))


def _told(values: list[JsonValue]) -> list[JsonValue]:
    return [value for value in values if value is not None and _is_scalar(value)]


def _is_null(flat: JsonObject) -> bool:
    values = _list(flat.get("enum"))
    return {*_type_names(flat.get("type"))} == {"null"} or (bool(values) and all(value is None for value in values))


def _possible(flat: JsonObject, name: str) -> bool:
    return "enum" not in flat or any(_has_type(value, name) for value in _list(flat["enum"]))


def _any_type() -> list[JsonObject]:
    """Gemini 3 refuses a schema without a type; lists of lists are the one thing this cannot say."""
    flat: list[JsonObject] = [{"type": name} for name in _FLAT_TYPES]
    items: JsonObject = {"anyOf": [{"type": name} for name in _FLAT_TYPES]}
    return [*flat, {"type": "array", "items": items}]


def _headed(branches: list[JsonObject], head: JsonObject) -> JsonObject:
    """The branches as one schema; the first carries what was said of all, since `anyOf` stands alone."""
    distinct = _joined_enums(branches) if len(branches) > 1 else branches
    texts = [text for text in (head.get("description"), distinct[0].get("description")) if isinstance(text, str)]
    first = distinct[0] | head | ({"description": "\n".join(texts)} if texts else {})
    return {"anyOf": [first, *distinct[1:]]} if len(distinct) > 1 else first


def _joined_enums(branches: list[JsonObject]) -> list[JsonObject]:
    """Each branch once; a union of constants is one enum."""
    branches = [*{json.dumps(branch): branch for branch in branches}.values()]
    if any(branch.keys() != {"type", "enum"} for branch in branches):
        return branches
    values = [value for branch in branches for value in _strings(branch["enum"])]
    return [{"type": "string", "enum": [*dict.fromkeys(values)]}]


# --- OpenAI's strict mode

STRICT_LEVELS: Final = 5
STRICT_PROPERTIES: Final = 5_000
STRICT_ENUM_VALUES: Final = 1_000
STRICT_FORMATS: Final = ("date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uuid")
STRICT_KEPT: Final[dict[str, Callable[[JsonValue], bool]]] = {
    **dict.fromkeys(("$ref", "description", "pattern", "title"), _is_text),
    **dict.fromkeys(("anyOf", "enum", "required"), lambda value: isinstance(value, list)),
    **dict.fromkeys(("items", "properties"), lambda value: isinstance(value, dict)),
    **dict.fromkeys(("minItems", "maxItems"), _is_count),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), _is_number),
    "additionalProperties": lambda value: value is False,
    "const": _is_scalar,
    "format": lambda value: value in STRICT_FORMATS,
    "type": lambda value: bool(_type_names(value)) and {*_type_names(value)} <= {*TYPES, "null"},
}
STRICT_REMOVED: Final = SILENT | {"default", "deprecated", "example", "examples", "readOnly", "writeOnly"}
_DEFINITIONS: Final = ("$defs", "definitions")
_STRUCTURE: Final = {"object": ("properties", "required", "additionalProperties"), "array": ("items",)}
_BESIDE_ALTERNATIVES: Final = frozenset(("description", "title"))


class _MisfitError(Exception):
    """Strict mode would refuse the schema, or mean something else by it."""


def fits_strict(schema: JsonObject) -> bool:
    """Whether the strict dialect of the schema may be sent with `strict: true`."""
    return not adapt_schema(schema, "strict")[1]


def _strict(schema: JsonObject) -> Adapted:
    try:
        return _StrictWalk(schema).root(), ()
    except _MisfitError as misfit:
        return _plain(schema), (f"strict mode not used: {misfit}",)


class _StrictWalk:
    """One schema on its way to strict mode; raises as soon as it does not fit."""

    def __init__(self, root: JsonObject) -> None:
        self._root = _plain(root)
        self._properties = 0
        self._enum_values = 0

    def root(self) -> JsonObject:
        if self._root.get("type") != "object" or self._root.keys() & {"$ref", "anyOf"}:
            raise _MisfitError("root schema is not a plain object")
        adapted = self._node(self._root, 0)
        for keyword in _DEFINITIONS:
            if keyword in self._root:
                schemas = _object(self._root[keyword])
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
        if not local or not isinstance(_resolve(self._root, ref), dict):
            raise _MisfitError("schema keyword '$ref' not resolved")
        beside = {name: value for name, value in schema.items() if name != "$ref"}
        if not beside.keys() <= _BESIDE_ALTERNATIVES:
            raise _MisfitError("keywords beside schema keyword '$ref'")
        return beside | {"anyOf": [{"$ref": ref}]} if beside else {"$ref": ref}

    def _alternatives(self, schema: JsonObject, level: int) -> JsonObject:
        variants = _list(schema["anyOf"])
        if not variants or not schema.keys() <= _BESIDE_ALTERNATIVES | {"anyOf"}:
            raise _MisfitError("keywords beside schema keyword 'anyOf'")
        if any("anyOf" in _object(variant) for variant in variants):
            raise _MisfitError("alternatives inside alternatives")
        return schema | {"anyOf": [self._node(variant, level) for variant in variants]}

    def _typed(self, schema: JsonObject, level: int) -> JsonObject:
        adapted = self._with_enum(schema)
        types = _type_names(adapted.get("type"))
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
        adapted = _without_references(schema)
        if "enum" not in adapted:
            return adapted
        values = _list(adapted["enum"])
        self._enum_values += len(values)
        if not values or self._enum_values > STRICT_ENUM_VALUES:
            raise _MisfitError("empty schema enum" if not values else "too many schema enum values")
        types = dict.fromkeys(_type_of(value) for value in values)
        return {"type": next(iter(types)) if len(types) == 1 else [*types], **adapted}

    def _members(self, schema: JsonObject, level: int) -> JsonObject:
        if not schema.keys() & {"properties", "additionalProperties"}:
            raise _MisfitError("open object")
        declared = _object(schema.get("properties"))
        required = {*_strings(schema.get("required"))}
        self._properties += len(declared)
        if self._properties > STRICT_PROPERTIES or not required <= declared.keys():
            raise _MisfitError("too many properties or unknown ones required")
        properties: JsonObject = {}
        for name, sub in declared.items():
            adapted = self._node(sub, level)
            properties[name] = adapted if name in required else _nullable(adapted)
        return {"properties": properties, "required": [*properties], "additionalProperties": False}


def _check_keywords(schema: JsonObject) -> None:
    unfit = {name for name in schema.keys() - STRICT_REMOVED if name not in STRICT_KEPT}
    unfit |= {name for name in schema.keys() & STRICT_KEPT.keys() if not STRICT_KEPT[name](schema[name])}
    if unfit:
        known = sorted(unfit & (LOST | READ))
        raise _MisfitError(f"schema keyword '{known[0]}'" if known else "unknown schema keyword")


def _nullable(schema: JsonObject) -> JsonObject:
    """An optional property of a strict object is one that may be null."""
    null: JsonObject = {"type": "null"}
    if "$ref" in schema:
        return {"anyOf": [schema, null]}
    if "anyOf" in schema:
        variants = _list(schema["anyOf"])
        return schema if null in variants else schema | {"anyOf": [*variants, null]}
    types = _type_names(schema["type"])
    values = _list(schema.get("enum"))
    widened: JsonObject = {} if "null" in types else {"type": [*types, "null"]}
    return schema | widened | ({"enum": [*values, None]} if values and None not in values else {})
