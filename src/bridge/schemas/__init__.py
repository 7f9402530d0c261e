"""Tool schemas as Anthropic takes them -> the dialect of JSON Schema that a provider takes.

- `plain`: the schema as it is; only the root is made an object schema with `properties`.
- `gemini`: the fields of Gemini's `Schema` message and nothing else.
- `strict`: OpenAI's strict mode. A schema fits or it does not: without losses it may be sent as strict; with losses it
  is the plain schema, to be sent as not strict.

Losses are words of a closed vocabulary: no name or value of the caller's gets into them, so they may be logged.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, assert_never

import orjson

from bridge.schemas.gemini import adapt_gemini
from bridge.schemas.shapes import plain
from bridge.schemas.strict import adapt_strict

if TYPE_CHECKING:
    from bridge.canonical.json import JsonObject
    from bridge.schemas.shapes import Adapted

SchemaDialect: TypeAlias = Literal["plain", "gemini", "strict"]

CACHED_SCHEMAS: Final = 256
MAX_CACHED_BYTES: Final = 16 * 1024


def adapt_schema(schema: JsonObject, dialect: SchemaDialect) -> Adapted:
    """The schema in the dialect, and what could not be said in it; the result is shared: not to be changed."""
    if dialect == "plain":
        return plain(schema), ()
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
            return plain(schema), ()
        case "gemini":
            return adapt_gemini(schema)
        case "strict":
            return adapt_strict(schema)
        case _:
            assert_never(dialect)
