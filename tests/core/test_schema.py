"""Tool schemas in the dialects of the providers: what is kept, what is said otherwise, what is reported as lost."""

from __future__ import annotations

import copy
import json
import time
from typing import TYPE_CHECKING, Any, get_args

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bridge.schemas import SchemaDialect, adapt_schema
from bridge.schemas.gemini import MAX_DEPTH, MAX_LOSSES

if TYPE_CHECKING:
    from collections.abc import Iterator

DIALECTS = get_args(SchemaDialect)
Schema = dict[str, Any]


def fits_strict(schema: Schema) -> bool:
    """A schema fits strict mode if saying it there loses nothing."""
    return adapt_schema(schema, "strict")[1] == ()


# The fields of Gemini's `Schema` message that one type may carry.
GEMINI_ALWAYS = {"type", "title", "description", "nullable", "example"}
GEMINI_FIELDS = {
    "object": {"properties", "required", "minProperties", "maxProperties", "propertyOrdering"},
    "array": {"items", "minItems", "maxItems"},
    "string": {"enum", "format", "pattern", "minLength", "maxLength"},
    "number": {"format", "minimum", "maximum"},
    "integer": {"format", "minimum", "maximum"},
    "boolean": set[str](),
}

ANY_BRANCHES = [
    *({"type": name} for name in ("object", "string", "number", "boolean")),
    {"type": "array", "items": {"anyOf": [{"type": name} for name in ("object", "string", "number", "boolean")]}},
]
ANY = {"anyOf": ANY_BRANCHES}
UNTYPED = "schema without a type said as any type"
OPENED = "schema that admits nothing or is malformed: opened"
MERGED = "schema alternatives merged into one object"
NOTED = "schema enum of other than strings said in the description"


def with_property(schema: object, **root: object) -> Schema:
    return {"type": "object", "properties": {"x": schema}, **root}


def gemini(schema: Schema) -> tuple[Schema, tuple[str, ...]]:
    return adapt_schema(schema, "gemini")


def dropped(*keywords: str) -> tuple[str, ...]:
    return tuple(f"schema keyword '{keyword}' dropped" for keyword in sorted(keywords))


def nodes(schema: Schema) -> Iterator[Schema]:
    """Every schema inside an adapted schema, at schema positions only."""
    yield schema
    below = [
        *schema.get("properties", {}).values(),
        *schema.get("anyOf", []),
        *([schema.get("items")] * ("items" in schema)),
    ]
    for sub in below:
        yield from nodes(sub)


def assert_gemini(schema: Schema) -> None:
    assert schema["type"] == "object"
    assert "properties" in schema
    for node in nodes(schema):
        if "anyOf" in node:
            assert node.keys() == {"anyOf"}
            assert len(node["anyOf"]) > 1
            continue
        assert node.keys() <= GEMINI_ALWAYS | GEMINI_FIELDS[node["type"]]
        assert set(node.get("required", [])) <= node.get("properties", {}).keys()
        assert node["type"] != "array" or "items" in node
        assert all(isinstance(value, str) and value for value in node.get("enum", ["one"]))
        assert node.get("enum") != []


# --- plain


@pytest.mark.req("C5.3")
@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({}, {"type": "object", "properties": {}}),
        ({"type": "object"}, {"type": "object", "properties": {}}),
        ({"properties": {"a": True}}, {"type": "object", "properties": {"a": True}}),
        ({"$ref": "#/$defs/A"}, {"type": "object", "properties": {}, "$ref": "#/$defs/A"}),
        ({"type": "string"}, {"type": "string"}),
    ],
)
def test_plain_only_makes_the_root_an_object(schema: Schema, expected: Schema) -> None:
    assert adapt_schema(schema, "plain") == (expected, ())


@pytest.mark.req("C5.3")
def test_plain_leaves_every_keyword() -> None:
    schema = with_property({"oneOf": [{"const": 1}], "default": 1}, additionalProperties=False)
    assert adapt_schema(schema, "plain") == (schema, ())


# --- gemini, one property at a time

GEMINI_CASES: dict[str, tuple[object, object, tuple[str, ...]]] = {
    "scalars keep their bounds": (
        {"type": "string", "minLength": 2, "maxLength": 9, "pattern": "^a", "title": "T", "description": "D"},
        {"type": "string", "minLength": 2, "maxLength": 9, "pattern": "^a", "title": "T", "description": "D"},
        (),
    ),
    "schema housekeeping goes in silence": (
        {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "x", "$comment": "c", "type": "string"},
        {"type": "string"},
        (),
    ),
    "a closed object": (
        {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False},
        {"type": "object", "properties": {"a": {"type": "string"}}},
        (),
    ),
    "a map has no schema for its values": (
        {"type": "object", "additionalProperties": {"type": "string"}},
        {"type": "object"},
        dropped("additionalProperties"),
    ),
    "an open object has no empty properties": ({"type": "object", "properties": {}}, {"type": "object"}, ()),
    "rejected keywords": (
        {"type": "object", "propertyNames": {}, "patternProperties": {}, "default": {}, "examples": [], "not": {}},
        {"type": "object"},
        dropped("propertyNames", "patternProperties", "default", "examples", "not"),
    ),
    "conditions": (
        {"type": "string", "if": {}, "then": {}, "else": {}},
        {"type": "string"},
        dropped("if", "then", "else"),
    ),
    "an extension": ({"type": "string", "x-order": 1}, {"type": "string"}, ("unknown schema keyword dropped",)),
    "const of a string": ({"const": "a"}, {"type": "string", "enum": ["a"]}, ()),
    "const of a number": ({"const": 3}, {"type": "integer", "description": "Allowed values: 3."}, (NOTED,)),
    "enum of integers keeps the type": (
        {"type": "integer", "enum": [1, 2], "description": "Level."},
        {"type": "integer", "description": "Level.\nAllowed values: 1, 2."},
        (NOTED,),
    ),
    "enum of strings without a type": ({"enum": ["a", "b"]}, {"type": "string", "enum": ["a", "b"]}, ()),
    "enum of mixed values": (
        {"enum": ["auto", 1]},
        {"anyOf": [{"type": "string", "enum": ["auto"]}, {"type": "integer", "description": "Allowed values: 1."}]},
        (NOTED,),
    ),
    "enum of numbers that are meant as strings": (
        {"type": "string", "enum": [1, True, "c"]},
        {"type": "string", "enum": ["1", "true", "c"]},
        ("schema enum values said as strings",),
    ),
    "enum with an empty string": (
        {"type": "string", "enum": ["", "a", "a"]},
        {"type": "string", "enum": ["a"]},
        ("empty schema enum value dropped",),
    ),
    "enum with null": ({"enum": ["a", None]}, {"type": "string", "enum": ["a"], "nullable": True}, ()),
    "an empty enum": ({"type": "string", "enum": []}, {"type": "string"}, ()),
    "type with null": ({"type": ["string", "null"]}, {"type": "string", "nullable": True}, ()),
    "several types": (
        {"type": ["string", "number"], "minLength": 1, "minimum": 2, "description": "D"},
        {"anyOf": [{"type": "string", "minLength": 1, "description": "D"}, {"type": "number", "minimum": 2}]},
        (),
    ),
    "number includes integer": ({"type": ["integer", "number"]}, {"type": "number"}, ()),
    "only null": (
        {"type": "null"},
        {"type": "string", "nullable": True},
        ("schema type 'null' said as a nullable string",),
    ),
    "an unknown type": ({"type": "file"}, ANY, (UNTYPED, "unknown schema type dropped")),
    "optional as pydantic writes it": (
        {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "null"}], "title": "N", "description": "D"},
        {"type": "integer", "minimum": 1, "title": "N", "description": "D", "nullable": True},
        (),
    ),
    "oneOf": (
        {"oneOf": [{"type": "string"}, {"type": "boolean"}]},
        {"anyOf": [{"type": "string"}, {"type": "boolean"}]},
        (),
    ),
    "oneOf of constants is one enum": (
        {"oneOf": [{"const": "a"}, {"const": "b"}], "description": "D"},
        {"type": "string", "enum": ["a", "b"], "description": "D"},
        (),
    ),
    "anyOf stands alone": (
        {"anyOf": [{"type": "string", "description": "S"}, {"type": "boolean"}], "description": "D", "nullable": True},
        {"anyOf": [{"type": "string", "description": "D\nS", "nullable": True}, {"type": "boolean"}]},
        (),
    ),
    "anyOf shares the type beside it": (
        {"type": "string", "anyOf": [{"minLength": 3}, {"pattern": "^a"}]},
        {"anyOf": [{"type": "string", "minLength": 3}, {"type": "string", "pattern": "^a"}]},
        (),
    ),
    "anyOf in anyOf is one": (
        {"anyOf": [{"type": "string"}, {"oneOf": [{"type": "number"}, {"type": "boolean"}]}]},
        {"anyOf": [{"type": "string"}, {"type": "number"}, {"type": "boolean"}]},
        (),
    ),
    "anyOf of required beside properties": (
        {
            "type": "object",
            "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
            "required": ["a"],
            "anyOf": [{"required": ["b"]}, {"required": ["a"]}],
        },
        {
            "type": "object",
            "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
            "required": ["a"],
        },
        (MERGED,),
    ),
    "anyOf beside an enum": (
        {"enum": ["a"], "anyOf": [{"minLength": 1}, {"minLength": 2}]},
        {"type": "string", "enum": ["a"]},
        dropped("anyOf"),
    ),
    "anyOf with nothing in it": ({"type": "string", "anyOf": []}, {"type": "string"}, dropped("anyOf")),
    "allOf": (
        {
            "allOf": [
                {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
                {"properties": {"b": {"type": "number", "minimum": 1}, "a": {"maxLength": 4}}, "required": ["b"]},
                {"properties": {"b": {"type": "integer", "minimum": 3}}},
            ]
        },
        {
            "type": "object",
            "properties": {"a": {"type": "string", "maxLength": 4}, "b": {"type": "integer", "minimum": 3}},
            "required": ["a", "b"],
        },
        (),
    ),
    "allOf that cannot be": (
        {"allOf": [{"type": "string"}, {"type": "number"}]},
        {"type": "string"},
        ("schema keyword 'type' conflicts: first kept",),
    ),
    "exclusive bounds of an integer": (
        {"type": "integer", "exclusiveMinimum": 0, "minimum": -9007199254740991, "exclusiveMaximum": 10.5},
        {"type": "integer", "minimum": 1, "maximum": 10},
        (),
    ),
    "exclusive bounds of a number": (
        {"type": "number", "exclusiveMinimum": 0, "maximum": 9007199254740991},
        {"type": "number", "minimum": 0, "maximum": 9007199254740991},
        ("schema keyword 'exclusiveMinimum' said as 'minimum'",),
    ),
    "exclusive bounds of draft 4": (
        {"type": "integer", "minimum": 1, "exclusiveMinimum": True},
        {"type": "integer", "minimum": 1},
        dropped("exclusiveMinimum"),
    ),
    "a format that Gemini knows": (
        {"type": "string", "format": "date-time"},
        {"type": "string", "format": "date-time"},
        (),
    ),
    "a format that Gemini refuses": ({"type": "string", "format": "uri"}, {"type": "string"}, dropped("format")),
    "a format of an integer": ({"type": "integer", "format": "int64"}, {"type": "integer", "format": "int64"}, ()),
    "an array without items": ({"type": "array"}, {"type": "array", "items": ANY}, (UNTYPED,)),
    "a tuple": (
        {"type": "array", "prefixItems": [{"type": "number"}, {"type": "number"}], "items": False, "minItems": 2},
        {"type": "array", "items": {"type": "number"}, "minItems": 2},
        dropped("prefixItems"),
    ),
    "a tuple of draft 7": (
        {"type": "array", "items": [{"type": "number"}, {"type": "string"}]},
        {"type": "array", "items": {"anyOf": [{"type": "number"}, {"type": "string"}]}},
        dropped("prefixItems"),
    ),
    "required that nobody declared": (
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a", "b", "a"]},
        {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
        ("schema keyword 'required' names unknown properties",),
    ),
    "required on what is not an object": ({"type": "string", "required": ["a"]}, {"type": "string"}, ()),
    "true": (True, ANY, (UNTYPED,)),
    "an empty schema": ({}, ANY, (UNTYPED,)),
    "a description and nothing else": (
        {"description": "D"},
        {"anyOf": [{"type": "object", "description": "D"}, *ANY_BRANCHES[1:]]},
        (UNTYPED,),
    ),
    "items that admit nothing": ({"type": "array", "items": False}, {"type": "array", "items": ANY}, (OPENED, UNTYPED)),
    "a schema that is none": (7, ANY, (OPENED, UNTYPED)),
    "values that Gemini cannot read": (
        {"type": "string", "minLength": -1, "pattern": 5, "description": None},
        {"type": "string"},
        dropped("minLength", "pattern", "description"),
    ),
    "a type that only its keywords tell": (
        {"properties": {"a": {"minLength": 1}}},
        {"type": "object", "properties": {"a": {"type": "string", "minLength": 1}}},
        (),
    ),
    "properties called like keywords": (
        {
            "type": "object",
            "properties": {
                name: {"type": "string"} for name in ("default", "$schema", "$ref", "anyOf", "type", "const")
            },
            "required": ["default", "$ref"],
        },
        {
            "type": "object",
            "properties": {
                name: {"type": "string"} for name in ("default", "$schema", "$ref", "anyOf", "type", "const")
            },
            "required": ["default", "$ref"],
        },
        (),
    ),
    "an unresolved reference": (
        {"$ref": "https://example.com/a.json", "type": "string"},
        {"type": "string"},
        ("schema keyword '$ref' not resolved",),
    ),
}


@pytest.mark.req("C5.3")
@pytest.mark.parametrize(("schema", "expected", "losses"), GEMINI_CASES.values(), ids=GEMINI_CASES)
def test_gemini_gets_a_property_in_its_dialect(schema: object, expected: object, losses: tuple[str, ...]) -> None:
    adapted, reported = gemini(with_property(schema))
    assert adapted == with_property(expected)
    assert reported == tuple(sorted(losses))
    assert_gemini(adapted)


@pytest.mark.req("C5.3")
@pytest.mark.parametrize("ref", ["#/$defs/a~1b", "#/$defs/a%2Fb".replace("%2F", "~1"), "#/properties/y/anyOf/0"])
def test_gemini_gets_references_inlined(ref: str) -> None:
    target = {"type": "string", "description": "of the definition", "maxLength": 3}
    schema = {
        "type": "object",
        "properties": {
            "x": {"$ref": ref, "description": "of the property"},
            "y": {"anyOf": [target, {"type": "null"}]},
        },
        "$defs": {"a/b": target},
    }
    adapted, losses = gemini(schema)
    assert adapted["properties"]["x"] == {"type": "string", "description": "of the property", "maxLength": 3}
    assert losses == ()


@pytest.mark.req("C5.3")
def test_gemini_gets_a_recursive_schema_cut_at_an_open_object() -> None:
    tree = {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/tree"}}}}
    adapted, losses = gemini(with_property({"$ref": "#/$defs/tree"}, **{"$defs": {"tree": tree}}))
    inner = {"type": "object", "properties": {"children": {"type": "array", "items": {"type": "object"}}}}
    outer = {"type": "object", "properties": {"children": {"type": "array", "items": inner}}}
    assert adapted == with_property(outer)
    assert losses == ("recursive schema cut",)


@pytest.mark.req("C5.3")
def test_a_property_that_admits_nothing_is_left_out() -> None:
    adapted, losses = gemini({"type": "object", "properties": {"x": False, "y": {"type": "string"}}, "required": ["y"]})
    assert adapted == {"type": "object", "properties": {"y": {"type": "string"}}, "required": ["y"]}
    assert losses == ()


@pytest.mark.req("C5.3")
@pytest.mark.parametrize(
    ("root", "losses"),
    [
        ({}, ()),
        ({"type": "object", "properties": {}, "additionalProperties": False}, ()),
        ({"type": ["object", "null"]}, ()),
        ({"type": "string"}, ("root schema made an object",)),
        ({"$ref": "#"}, ("recursive schema cut",)),
    ],
)
def test_gemini_gets_an_object_at_the_root(root: Schema, losses: tuple[str, ...]) -> None:
    assert gemini(root) == ({"type": "object", "properties": {}}, losses)


@pytest.mark.req("C5.3")
def test_alternatives_at_the_root_become_one_object() -> None:
    variants = [
        {"properties": {"kind": {"const": "a"}, "n": {"type": "number"}}, "required": ["kind", "n"]},
        {"properties": {"kind": {"const": "b"}}, "required": ["kind"]},
    ]
    adapted, losses = gemini({"type": "object", "oneOf": variants})
    kinds = {"type": "string", "enum": ["a", "b"]}
    assert adapted == {"type": "object", "properties": {"kind": kinds, "n": {"type": "number"}}, "required": ["kind"]}
    assert losses == (MERGED,)


# --- strict


def needed(schema: object, **root: object) -> Schema:
    return with_property(schema, required=["x"], **root)


def closed(schema: object, **root: object) -> Schema:
    return needed(schema, additionalProperties=False, **root)


STRICT_CASES: dict[str, tuple[Schema, Schema]] = {
    "a closed object with everything required": (
        closed({"type": "string"}),
        closed({"type": "string"}),
    ),
    "an object that does not say it is closed": (needed({"type": "string"}), closed({"type": "string"})),
    "an empty root": ({}, {"type": "object", "properties": {}, "required": [], "additionalProperties": False}),
    "a default": (
        needed({"type": "string", "default": "a", "description": "D"}),
        closed({"type": "string", "description": "D"}),
    ),
    "an enum without a type": (needed({"enum": ["a", "b"]}), closed({"type": "string", "enum": ["a", "b"]})),
    "an enum with null": (needed({"enum": ["a", None]}), closed({"type": ["string", "null"], "enum": ["a", None]})),
    "a const": (needed({"const": 1}), closed({"type": "integer", "enum": [1]})),
    "a union": (
        needed({"anyOf": [{"type": "string"}, {"type": "number"}]}),
        closed({"anyOf": [{"type": "string"}, {"type": "number"}]}),
    ),
    "a reference": (
        needed({"$ref": "#/$defs/a"}, **{"$defs": {"a": {"type": "string"}}}),
        closed({"$ref": "#/$defs/a"}, **{"$defs": {"a": {"type": "string"}}}),
    ),
    "a described reference": (
        needed({"$ref": "#", "description": "D"}),
        closed({"description": "D", "anyOf": [{"$ref": "#"}]}),
    ),
    "null that the client asks for": (
        needed({"type": ["string", "null"]}),
        closed({"type": ["string", "null"]}),
    ),
    "objects in arrays": (
        needed({"type": "array", "items": needed({"type": "number", "minimum": 1})}),
        closed({"type": "array", "items": closed({"type": "number", "minimum": 1})}),
    ),
}


@pytest.mark.req("C5.3")
@pytest.mark.parametrize(("schema", "expected"), STRICT_CASES.values(), ids=STRICT_CASES)
def test_a_schema_that_fits_is_made_strict(schema: Schema, expected: Schema) -> None:
    assert adapt_schema(schema, "strict") == (expected, ())
    assert fits_strict(schema)


def nested(levels: int) -> Schema:
    return needed(nested(levels - 1) if levels else {"type": "string"})


MISFITS: dict[str, tuple[Schema, str]] = {
    "oneOf": (needed({"oneOf": [{"type": "string"}]}), "schema keyword 'oneOf'"),
    "allOf": (needed({"allOf": [{"type": "string"}]}), "schema keyword 'allOf'"),
    "lengths": (needed({"type": "string", "maxLength": 3}), "schema keyword 'maxLength'"),
    "an unknown format": (needed({"type": "string", "format": "uri"}), "schema keyword 'format'"),
    "a map": (
        needed({"type": "object", "additionalProperties": {"type": "string"}}),
        "schema keyword 'additionalProperties'",
    ),
    "an open object": (needed({"type": "object"}), "open object"),
    "an open root": ({"type": "object", "additionalProperties": True}, "schema keyword 'additionalProperties'"),
    "no type": (needed({"description": "anything"}), "schema without a type"),
    "a boolean schema": (needed(True), "schema that is not an object"),
    "an array without items": (needed({"type": "array"}), "schema that is not an object"),
    "an extension": (needed({"type": "string", "x-a": 1}), "unknown schema keyword"),
    "a remote reference": (needed({"$ref": "https://example.com"}), "schema keyword '$ref' not resolved"),
    "alternatives at the root": (
        {"type": "object", "properties": {}, "anyOf": [{"required": ["a"]}]},
        "root schema is not a plain object",
    ),
    "a root of another type": ({"type": "string"}, "root schema is not a plain object"),
    "required that nobody declared": (
        {"type": "object", "properties": {}, "required": ["a"]},
        "too many properties or unknown ones required",
    ),
    "an empty enum": (needed({"type": "string", "enum": []}), "empty schema enum"),
    "a huge enum": (needed({"enum": [*range(1001)]}), "too many schema enum values"),
    "an optional property": (with_property({"type": "string"}, additionalProperties=False), "optional properties"),
    "one optional property among required ones": (
        {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}, "required": ["a"]},
        "optional properties",
    ),
    "an optional property that may be null": (with_property({"type": ["string", "null"]}), "optional properties"),
    "an optional property further in": (
        needed({"type": "array", "items": with_property({"type": "string"})}),
        "optional properties",
    ),
    "an optional property in a definition": (
        needed({"$ref": "#/$defs/a"}, **{"$defs": {"a": with_property({"type": "string"})}}),
        "optional properties",
    ),
    "too many levels": (nested(5), "schema nested too deep"),
}


@pytest.mark.req("C5.3")
@pytest.mark.parametrize(("schema", "reason"), MISFITS.values(), ids=MISFITS)
def test_a_schema_that_does_not_fit_stays_plain_and_says_why(schema: Schema, reason: str) -> None:
    adapted, losses = adapt_schema(schema, "strict")
    assert adapted == adapt_schema(schema, "plain")[0]
    assert losses == (f"strict mode not used: {reason}",)
    assert not fits_strict(schema)


@pytest.mark.req("C5.3")
def test_an_optional_property_is_never_said_as_one_that_may_be_null() -> None:
    """The model would answer `"limit": null` for what it leaves out, and the client's own validator refuses that."""
    read: Schema = {
        "type": "object",
        "properties": {"path": {"type": "string"}, "limit": {"type": "integer"}},
        "required": ["path"],
        "additionalProperties": False,
    }
    assert adapt_schema(read, "strict") == (read, ("strict mode not used: optional properties",))
    assert not fits_strict(read)


# --- tools as clients declare them

CLIENT_TOOLS: dict[str, tuple[Schema, tuple[str, ...]]] = {
    "read a file": (
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {
                "file_path": {"description": "Where it is", "type": "string"},
                "limit": {"type": "integer", "exclusiveMinimum": 0, "maximum": 9007199254740991},
                "offset": {"type": "integer", "minimum": 0, "maximum": 9007199254740991},
            },
            "required": ["file_path"],
            "additionalProperties": False,
        },
        (),
    ),
    "edit a file": (
        {
            "type": "object",
            "properties": {"path": {"type": "string"}, "replace_all": {"type": "boolean", "default": False}},
            "required": ["path"],
            "additionalProperties": False,
        },
        dropped("default"),
    ),
    "fetch a page": (
        {"type": "object", "properties": {"url": {"type": "string", "format": "uri"}}, "required": ["url"]},
        dropped("format"),
    ),
    "run a script": (
        {
            "type": "object",
            "properties": {
                "script": {"type": "string", "maxLength": 524288},
                "run": {"type": "string", "pattern": "^wf_[a-z0-9-]{6,}$"},
                "args": {"description": "Any value, handed over as it is"},
            },
        },
        (UNTYPED,),
    ),
    "report findings": (
        {
            "type": "object",
            "properties": {
                "findings": {
                    "type": "array",
                    "maxItems": 32,
                    "items": {
                        "type": "object",
                        "properties": {
                            "file": {"type": "string"},
                            "line": {"type": "integer", "minimum": -9007199254740991, "maximum": 9007199254740991},
                            "verdict": {"type": "string", "enum": ["CONFIRMED", "PLAUSIBLE"]},
                        },
                        "required": ["file"],
                        "additionalProperties": False,
                    },
                },
            },
            "required": ["findings"],
            "additionalProperties": False,
        },
        (),
    ),
    "a tool without arguments": ({"type": "object", "properties": {}}, ()),
}


@pytest.mark.req("C5.3")
@pytest.mark.parametrize(("schema", "losses"), CLIENT_TOOLS.values(), ids=CLIENT_TOOLS)
def test_tools_of_real_clients_reach_gemini(schema: Schema, losses: tuple[str, ...]) -> None:
    adapted, reported = gemini(schema)
    assert_gemini(adapted)
    assert adapted["properties"].keys() == schema["properties"].keys()
    assert adapted.get("required") == schema.get("required")
    assert reported == losses


# --- bounds


def nested_arrays(levels: int) -> Schema:
    schema: Schema = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return with_property(schema)


@pytest.mark.req("C5.3")
@pytest.mark.parametrize("levels", [MAX_DEPTH - 1, MAX_DEPTH, 240, 900])
def test_deep_schemas_are_cut_at_an_open_object(levels: int) -> None:
    adapted, losses = gemini(nested_arrays(levels))
    assert sum(1 for _ in nodes(adapted)) <= MAX_DEPTH + 2
    assert losses == (() if levels < MAX_DEPTH else ("schema nested too deep: cut",))
    assert not fits_strict(nested_arrays(levels))


@pytest.mark.req("C5.3")
def test_references_that_double_at_every_level_stay_bounded() -> None:
    definitions = {
        f"d{n}": {
            "type": "object",
            "properties": {"a": {"$ref": f"#/$defs/d{n + 1}"}, "b": {"$ref": f"#/$defs/d{n + 1}"}},
        }
        for n in range(40)
    }
    started = time.perf_counter()
    adapted, losses = gemini(with_property({"$ref": "#/$defs/d0"}, **{"$defs": definitions}))
    assert time.perf_counter() - started < 5
    assert_gemini(adapted)
    assert "schema too large: cut" in losses


@pytest.mark.req("C5.3")
def test_references_in_a_circle_end() -> None:
    definitions = {"a": {"$ref": "#/$defs/b"}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}}
    adapted, losses = gemini(with_property({"$ref": "#/$defs/a"}, **{"$defs": definitions}))
    assert adapted == with_property({"type": "object"})
    assert losses == ("recursive schema cut",)


@pytest.mark.req("C5.3")
def test_losses_name_nothing_of_the_callers_and_are_bounded() -> None:
    lost = (
        "default",
        "examples",
        "multipleOf",
        "contains",
        "not",
        "if",
        "then",
        "else",
        "discriminator",
        "dependencies",
    )
    more = ("uniqueItems", "readOnly", "writeOnly", "deprecated", "contentEncoding", "contentMediaType", "$dynamicRef")
    odd = {"secret\r\nheader": 1, **{keyword: {"a": 1} for keyword in (*lost, *more)}}
    _, losses = gemini(
        with_property({"type": "array", "patternProperties": {"a": 1}, **odd, "minItems": "", "items": {}})
    )
    assert len(losses) <= MAX_LOSSES
    assert list(losses) == sorted(set(losses))
    assert not any("secret" in loss for loss in losses)


# --- any schema at all

KEYWORDS = [
    *(
        "type",
        "properties",
        "required",
        "items",
        "enum",
        "const",
        "anyOf",
        "oneOf",
        "allOf",
        "$ref",
        "$defs",
        "nullable",
    ),
    *(
        "description",
        "title",
        "default",
        "examples",
        "example",
        "format",
        "pattern",
        "minLength",
        "maxItems",
        "minimum",
    ),
    *(
        "exclusiveMinimum",
        "exclusiveMaximum",
        "additionalProperties",
        "patternProperties",
        "prefixItems",
        "not",
        "x-own",
    ),
    *("propertyOrdering", "$schema", "uniqueItems"),
]
SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.floats(-5, 5), st.sampled_from(["", "a", "b", "uri"])
)
TYPE_NAMES = st.sampled_from(["object", "array", "string", "number", "integer", "boolean", "null", "file"])
REFS = st.sampled_from(["#", "#/$defs/a", "#/$defs/b", "#/properties/a", "#/anyOf/0", "#a", "elsewhere"])
ANYTHING = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("ab$"), inner, max_size=2)
)


def schemas_of(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    """Schemas made of well-formed keywords, with a malformed one now and then."""
    names = st.sampled_from(["a", "b", "default", "$ref", "anyOf", "type"])
    maps = st.dictionaries(names, inner, max_size=3)
    lists = st.lists(inner, max_size=3)
    keywords: dict[str, st.SearchStrategy[Any]] = {
        "type": TYPE_NAMES | st.lists(TYPE_NAMES, max_size=3),
        "$ref": REFS,
        "required": st.lists(names, max_size=3),
        "propertyOrdering": st.lists(names, max_size=3),
        "enum": st.lists(SCALARS, max_size=4),
        "const": SCALARS,
        **dict.fromkeys(("properties", "$defs", "patternProperties"), maps),
        **dict.fromkeys(("anyOf", "oneOf", "allOf", "prefixItems"), lists),
        **dict.fromkeys(("items", "not", "additionalProperties"), inner),
    }
    chosen = {keyword: keywords.get(keyword, SCALARS) for keyword in KEYWORDS}
    pairs = st.sampled_from(KEYWORDS).flatmap(lambda keyword: st.tuples(st.just(keyword), chosen[keyword] | ANYTHING))
    return st.lists(pairs, max_size=6).map(dict)


SCHEMAS = st.recursive(st.booleans() | SCALARS | st.just({}), schemas_of, max_leaves=12)
ROOTS = schemas_of(SCHEMAS).map(lambda schema: schema if isinstance(schema, dict) else {})


@pytest.mark.req("C5.3")
@pytest.mark.parametrize("dialect", DIALECTS)
@settings(deadline=None, max_examples=300)
@given(schema=ROOTS)
@example(schema={"type": "object", "properties": {"a": {"maximum": 10**400, "enum": [10**400]}}})
def test_any_schema_is_adapted_once_and_for_all(dialect: SchemaDialect, schema: Schema) -> None:
    before = copy.deepcopy(schema)
    adapted, losses = adapt_schema(schema, dialect)
    assert json.dumps(schema) == json.dumps(before)
    assert losses == tuple(sorted(set(losses)))
    assert adapt_schema(adapted, dialect)[0] == adapted
    if dialect == "gemini":
        assert_gemini(adapted)


@pytest.mark.req("C5.3")
@settings(deadline=None, max_examples=300)
@given(schema=ROOTS)
def test_what_is_strict_keeps_the_rules_of_strict_mode(schema: Schema) -> None:
    adapted, losses = adapt_schema(schema, "strict")
    if losses:
        return
    for node in nodes(adapted):
        if "object" in node.get("type", ()):
            assert node["additionalProperties"] is False
            assert node["required"] == [*node["properties"]]
        assert node.keys() & {"type", "anyOf", "$ref"}
