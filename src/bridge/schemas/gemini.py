"""The fields of Gemini's `Schema` message and nothing else: one unknown keyword fails the whole request.

`$ref` and `allOf` are merged in, `const` becomes `enum`, `oneOf` becomes `anyOf`, null becomes `nullable`. `anyOf`
stands alone, every node has a type and every array has items. Nested open objects have no `properties`.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Final

from bridge.schemas.flatten import Flattener, Place
from bridge.schemas.keywords import ANNOTATIONS, HINTS, LOST, NEUTRAL, READ, SCALARS, SILENT
from bridge.schemas.shapes import (
    COMBINED,
    EMPTY_ROOT,
    TYPES,
    as_list,
    as_object,
    has_type,
    is_number,
    is_scalar,
    joined_properties,
    numbers,
    strings,
    type_names,
    type_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bridge.canonical.json import JsonObject, JsonValue
    from bridge.schemas.shapes import Adapted

MAX_DEPTH: Final = 64
MAX_LOSSES: Final = 20
MAX_NOTED_VALUES: Final = 32

_FLAT_TYPES: Final = ("object", "string", "number", "boolean")
_SHARED: Final = COMBINED.keys() | {name for scalars in SCALARS.values() for name in scalars}
_BOUNDS: Final[tuple[tuple[str, str, int, Callable[[list[int | float]], int | float]], ...]] = (
    ("minimum", "exclusiveMinimum", 1, max),
    ("maximum", "exclusiveMaximum", -1, min),
)


def adapt_gemini(schema: JsonObject) -> Adapted:
    walk = _GeminiWalk(schema)
    return walk.root(), tuple(sorted(walk.losses))[:MAX_LOSSES]


class _GeminiWalk:
    """One schema on its way to Gemini's dialect; what gets lost is gathered."""

    def __init__(self, root: JsonObject) -> None:
        self._root = root
        self._flattener = Flattener(root)
        self.losses = self._flattener.losses

    def root(self) -> JsonObject:
        flat, place = self._flattener.flatten(self._root, Place())
        variants = self._variants(flat)
        if variants:
            flat, place = self._folded(flat, variants, place)
        self._report(flat)
        types, _ = self._types(flat)
        if types and "object" not in types:
            self.losses.add("root schema made an object")
        adapted = self._of_type("object", flat, place, alone=True)
        return EMPTY_ROOT | _headed([adapted], self._annotations(flat))

    def _node(self, schema: JsonValue, place: Place) -> JsonObject:
        if place.depth > MAX_DEPTH:
            return self._flattener.cut("schema nested too deep: cut")
        if not isinstance(schema, dict):
            if schema is not True:
                self.losses.add("schema that admits nothing or is malformed: opened")
            schema = {}
        flat, place = self._flattener.flatten(schema, place)
        variants = self._variants(flat)
        return self._union(flat, variants, place) if variants else self._typed(flat, place)

    # alternatives

    def _variants(self, flat: JsonObject) -> list[JsonValue]:
        keywords = [keyword for keyword in ("anyOf", "oneOf") if keyword in flat]
        usable = [keyword for keyword in keywords if any(_usable(flat[keyword]))]
        self.losses.update(f"schema keyword '{keyword}' dropped" for keyword in keywords if keyword not in usable[:1])
        return list(_usable(flat[usable[0]])) if usable else []

    def _union(self, flat: JsonObject, variants: list[JsonValue], place: Place) -> JsonObject:
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

    def _branches(self, variant: JsonValue, shared: JsonObject, head: JsonObject, place: Place) -> Iterable[JsonObject]:
        """The branches that a variant amounts to; null is none but makes the whole nullable."""
        flat, inside = self._flattener.flatten(as_object(variant), place.below())
        if _is_null(flat):
            head["nullable"] = True
            return []
        if inside.depth > MAX_DEPTH:
            return [self._flattener.cut("schema nested too deep: cut")]
        adapted = self._node(self._flattener.merged([flat, shared]), inside)
        return [as_object(branch) for branch in as_list(adapted["anyOf"])] if "anyOf" in adapted else [adapted]

    def _folded(self, flat: JsonObject, variants: list[JsonValue], place: Place) -> tuple[JsonObject, Place]:
        """Alternatives of one object as that object: every property, and what all of them require."""
        self.losses.add("schema alternatives merged into one object")
        flats: list[JsonObject] = []
        for variant in variants:
            branch, place = self._flattener.flatten(as_object(variant), place)
            flats.append(branch)
        joined = as_object(joined_properties([branch.get("properties") for branch in flats], "anyOf"))
        required = set.intersection(*({*strings(branch.get("required"))} for branch in flats))
        base = {name: value for name, value in flat.items() if name not in ("anyOf", "oneOf")}
        base["properties"] = joined | as_object(flat.get("properties"))
        base["required"] = [*as_list(flat.get("required")), *sorted(required)]
        nullable = "null" in type_names(flat.get("type")) or any(_is_null(branch) for branch in flats)
        return base | {"type": ["object", "null"] if nullable else "object"}, place

    # one schema without combinators

    def _typed(self, flat: JsonObject, place: Place) -> JsonObject:
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
        names = type_names(flat.get("type"))
        values = as_list(flat.get("enum"))
        nullable = "null" in names or flat.get("nullable") is True or None in values
        if not {*names} <= {*TYPES, "null"}:
            self.losses.add("unknown schema type dropped")
        if not names:
            names = [type_of(value) for value in values] or [name for hint, name in HINTS if hint in flat][:1]
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

    def _of_type(self, name: str, flat: JsonObject, place: Place, *, alone: bool) -> JsonObject:
        adapted: JsonObject = {"type": name, **self._checked(flat, SCALARS[name])}
        match name:
            case "object":
                adapted |= self._members(flat, place)
            case "array":
                adapted["items"] = self._items(flat, place)
            case "number" | "integer":
                adapted |= self._bounds(name, flat)
        values = [value for value in as_list(flat.get("enum")) if alone or has_type(value, name)]
        return adapted | (self._string_enum(values) if name == "string" else self._noted_enum(values))

    def _members(self, flat: JsonObject, place: Place) -> JsonObject:
        """Properties are a map of names: a property may be called like a keyword."""
        declared = as_object(flat.get("properties"))
        properties: JsonObject = {
            name: self._node(schema, place.below()) for name, schema in declared.items() if schema is not False
        }
        named: JsonObject = {}
        for keyword in ("required", "propertyOrdering"):
            names = dict.fromkeys(strings(flat.get(keyword)))
            known: list[JsonValue] = [name for name in names if name in properties]
            if len(known) < len(names):
                self.losses.add(f"schema keyword '{keyword}' names unknown properties")
            named |= {keyword: known} if known else {}
        return ({"properties": properties} if properties else {}) | named

    def _items(self, flat: JsonObject, place: Place) -> JsonObject:
        items = flat.get("items", True)
        positions = as_list(items) or as_list(flat.get("prefixItems"))
        if positions and not isinstance(items, dict):
            self.losses.add("schema keyword 'prefixItems' dropped")
            items = {"anyOf": positions}
        return self._node(items, place.below())

    def _bounds(self, name: str, flat: JsonObject) -> JsonObject:
        bounds: JsonObject = {}
        for bound, exclusive, step, choose in _BOUNDS:
            given = self._checked(flat, {bound: is_number, exclusive: is_number})
            beyond = numbers([given.get(exclusive)])
            if beyond and name == "number":
                self.losses.add(f"schema keyword '{exclusive}' said as '{bound}'")
            if name == "integer":
                beyond = [_next_integer(limit, step) for limit in beyond]
            limits = numbers([given.get(bound)]) + beyond
            bounds |= {bound: choose(limits)} if limits else {}
        return bounds

    def _string_enum(self, values: list[JsonValue]) -> JsonObject:
        texts = [value if isinstance(value, str) else json.dumps(value) for value in _told(values)]
        if not {*texts} <= {*strings(values)}:
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


def _next_integer(limit: float, step: int) -> int:
    """The first integer beyond the limit, upwards or downwards."""
    return math.floor(limit) + 1 if step > 0 else math.ceil(limit) - 1


def _usable(variants: JsonValue) -> Iterable[JsonValue]:
    return (variant for variant in as_list(variants) if variant is True or isinstance(variant, dict))


def _told(values: list[JsonValue]) -> list[JsonValue]:
    return [value for value in values if value is not None and is_scalar(value)]


def _is_null(flat: JsonObject) -> bool:
    values = as_list(flat.get("enum"))
    return {*type_names(flat.get("type"))} == {"null"} or (bool(values) and all(value is None for value in values))


def _possible(flat: JsonObject, name: str) -> bool:
    return "enum" not in flat or any(has_type(value, name) for value in as_list(flat["enum"]))


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
    values = [value for branch in branches for value in strings(branch["enum"])]
    return [{"type": "string", "enum": [*dict.fromkeys(values)]}]
