"""Schemas that Claude is held to (strict tools, output formats), and schemas of tools that it is not held to.

What Claude is held to is a part of JSON Schema: closed objects, `anyOf`, enums of scalars, references that do not
lead back to themselves. Every other keyword goes into the description, where Claude reads it, and is reported. A schema
that cannot be said at all is None. Tools that are not strict may use nearly everything, but not alternatives at the
root.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bridge.canonical.json import dumps
from bridge.schemas.keywords import LOST, READ, SILENT
from bridge.schemas.shapes import (
    as_list,
    as_object,
    is_scalar,
    is_text,
    joined_properties,
    plain,
    resolve,
    strings,
    type_names,
)

if TYPE_CHECKING:
    from bridge.canonical.json import JsonObject, JsonValue
    from bridge.schemas.shapes import Adapted

MAX_DEPTH: Final = 32
FORMATS: Final = frozenset(
    ("date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid")
)
_TYPES: Final = frozenset(("object", "array", "string", "number", "integer", "boolean", "null"))
_DEFINITIONS: Final = ("$defs", "definitions")
_HEAD: Final = ("title", "description")
_COMBINATORS: Final = ("anyOf", "oneOf", "allOf")
ROOT_ALTERNATIVES: Final = frozenset(_COMBINATORS)
# Keywords that only say something to the reader: in words they lose nothing.
_REMARKS: Final = frozenset(("default", "deprecated", "example", "examples", "readOnly", "writeOnly"))
_KNOWN: Final = LOST | READ | frozenset(("additionalProperties", "exclusiveMinimum", "exclusiveMaximum", "pattern"))


def adapt_enforced(schema: JsonObject) -> tuple[JsonObject | None, tuple[str, ...]]:
    """The schema as Claude can be held to it, None if it cannot, and what it does not enforce."""
    walk = _EnforcedWalk(schema)
    try:
        return walk.root(), tuple(sorted(walk.losses))
    except _MisfitError as misfit:
        return None, (str(misfit),)


def adapt_input(schema: JsonObject) -> Adapted:
    """The schema of a tool that is not strict: an object at the root, without alternatives there."""
    present = [keyword for keyword in _COMBINATORS if keyword in schema]
    if not present:
        return _object_root(schema)
    own = {keyword: value for keyword, value in schema.items() if keyword not in _COMBINATORS}
    parts = [own]
    for keyword in present:
        variants = [as_object(_followed(schema, variant)) for variant in as_list(schema[keyword])]
        parts.append(variants[0] if len(variants) == 1 else _merged(variants, all_hold=keyword == "allOf"))
    losses = tuple(f"schema keyword '{keyword}' at the root: merged" for keyword in present)
    merged, more = _object_root(own | _merged(parts, all_hold=True) | {"type": "object"})
    return merged, losses + more


class _MisfitError(Exception):
    """Claude cannot be held to the schema."""


class _EnforcedWalk:
    """One schema on its way; what goes into words is gathered."""

    def __init__(self, root: JsonObject) -> None:
        self._root = root
        self.losses: set[str] = set()

    def root(self) -> JsonObject:
        if _leads_back(self._root):
            raise _MisfitError("recursive schema")
        adapted = self._node(plain(self._root), 0)
        for keyword in _DEFINITIONS:
            if keyword in self._root:
                schemas = as_object(self._root[keyword])
                adapted[keyword] = {name: self._node(schema, 1) for name, schema in schemas.items()}
        return adapted

    def _node(self, schema: JsonValue, depth: int) -> JsonObject:
        if not isinstance(schema, dict) or depth > MAX_DEPTH:
            raise _MisfitError("schema nested too deep" if depth > MAX_DEPTH else "schema that is not an object")
        given = {name: value for name, value in schema.items() if name not in SILENT}
        head: JsonObject = {name: given.pop(name) for name in _HEAD if is_text(given.get(name))}
        adapted = self._meaning(given, depth)
        head = self._with_words(head, given)
        if head and "$ref" in adapted:  # nothing may stand beside a reference
            adapted = {"anyOf": [adapted]}
        return adapted | head

    def _meaning(self, given: JsonObject, depth: int) -> JsonObject:
        """What the schema demands, as far as it is enforced; taken out of `given`."""
        if "$ref" in given:
            return {"$ref": self._local(given.pop("$ref"))}
        alternatives = self._alternatives(given, depth)
        if alternatives is not None:
            given.pop("type", None)
            return alternatives
        literals = self._literals(given)
        if literals:
            given.pop("type", None)
            return literals
        types = type_names(given.pop("type", None))
        if not types or not {*types} <= _TYPES:
            raise _MisfitError("schema without a type")
        if len(types) == 1:
            return self._typed(types[0], given, depth)
        variants = [self._typed(name, given, depth) for name in types]
        return {"anyOf": list(variants)}

    def _alternatives(self, given: JsonObject, depth: int) -> JsonObject | None:
        for keyword in ("anyOf", "oneOf"):
            if variants := as_list(given.pop(keyword, None)):
                return {"anyOf": [self._node(variant, depth + 1) for variant in variants]}
        parts = as_list(given.pop("allOf", None))
        if len(parts) > 1:
            raise _MisfitError("schema keyword 'allOf'")
        return self._node(parts[0], depth + 1) if parts else None

    def _literals(self, given: JsonObject) -> JsonObject:
        values = as_list(given.get("enum"))
        literals: JsonObject = {}
        if values and all(is_scalar(value) for value in values):
            literals["enum"] = given.pop("enum")
        if "const" in given and is_scalar(given["const"]):
            literals["const"] = given.pop("const")
        return literals

    def _typed(self, name: str, given: JsonObject, depth: int) -> JsonObject:
        match name:
            case "object":
                return {"type": name} | self._members(given, depth)
            case "array":
                return {"type": name} | self._items(given, depth)
            case "string" if given.get("format") in FORMATS:
                return {"type": name, "format": given.pop("format")}
        return {"type": name}

    def _members(self, given: JsonObject, depth: int) -> JsonObject:
        declared = as_object(given.pop("properties", None))
        if given.get("additionalProperties", False) is False:
            is_open = not declared and "additionalProperties" not in given
            given.pop("additionalProperties", None)
            if is_open and depth:
                self.losses.add("open object: closed")
        properties: JsonObject = {name: self._node(sub, depth + 1) for name, sub in declared.items()}
        members: JsonObject = {"properties": properties, "additionalProperties": False}
        required = [name for name in strings(given.pop("required", None)) if name in properties]
        return members | {"required": list(required)} if required else members

    def _items(self, given: JsonObject, depth: int) -> JsonObject:
        items: JsonObject = {}
        if "items" in given:
            items["items"] = self._node(given.pop("items"), depth + 1)
        if given.get("minItems") in (0, 1):
            items["minItems"] = given.pop("minItems")
        return items

    def _local(self, ref: JsonValue) -> JsonValue:
        local = isinstance(ref, str) and ref.startswith(("#/$defs/", "#/definitions/"))
        if not local or not isinstance(resolve(self._root, ref), dict):
            raise _MisfitError("schema keyword '$ref' not resolved")
        return ref

    def _with_words(self, head: JsonObject, left: JsonObject) -> JsonObject:
        """The title and description, with what is not enforced."""
        for name in left.keys() - _REMARKS:
            self.losses.add(f"schema keyword '{name}' told in words" if name in _KNOWN else "unknown schema keyword")
        if not left:
            return head
        words = ", ".join(f"{name}: {dumps(value).decode()}" for name, value in left.items())
        said = head.get("description")
        return head | {"description": f"{said}\n\n{{{words}}}" if said else f"{{{words}}}"}


def _leads_back(root: JsonObject) -> bool:
    """True if following references from a definition leads to itself, or a reference means the whole schema."""
    leads = {"#": _references(root)}
    waiting = [*leads["#"]]
    while waiting:
        ref = waiting.pop()
        if ref not in leads:
            leads[ref] = _references(resolve(root, ref))
            waiting += leads[ref]
    return any(_reaches(ref, ref, leads) for ref in leads)


def _reaches(start: str, goal: str, leads: dict[str, set[str]]) -> bool:
    seen: set[str] = set()
    waiting = [*leads[start]]
    while waiting:
        ref = waiting.pop()
        if ref == goal:
            return True
        if ref not in seen:
            seen.add(ref)
            waiting += leads.get(ref, ())
    return False


def _references(schema: JsonValue) -> set[str]:
    """The references inside a schema."""
    found: set[str] = set()
    waiting: list[JsonValue] = [schema]
    while waiting:
        match waiting.pop():
            case dict(node):
                ref = node.get("$ref")
                found |= {ref} if isinstance(ref, str) else set()
                waiting += node.values()
            case list(items):
                waiting += items
    return found


def _object_root(schema: JsonObject) -> Adapted:
    adapted = plain(schema)
    if adapted.get("type") == "object":
        return adapted, ()
    return adapted | {"type": "object"}, ("root schema made an object",)


def _followed(root: JsonObject, schema: JsonValue) -> JsonValue:
    ref = as_object(schema).get("$ref")
    return resolve(root, ref) if ref is not None else schema


def _merged(schemas: list[JsonObject], *, all_hold: bool) -> JsonObject:
    """One object schema in place of several: required is what all of them require, or any if all of them hold."""
    required = [{*strings(schema.get("required"))} for schema in schemas]
    common = set.union(*required) if all_hold else set.intersection(*required)
    properties = joined_properties([schema.get("properties") for schema in schemas], "allOf" if all_hold else "anyOf")
    ordered = dict.fromkeys(name for schema in schemas for name in strings(schema.get("required")) if name in common)
    return {"properties": properties} | ({"required": list(ordered)} if ordered else {})
