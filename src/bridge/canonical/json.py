"""The type of parsed JSON, its writing, and its reading where others wrote it badly."""

from __future__ import annotations

import json
from typing import Any, TypeAlias

import orjson

JsonValue: TypeAlias = "dict[str, JsonValue] | list[JsonValue] | str | int | float | bool | None"
JsonObject: TypeAlias = dict[str, JsonValue]


WireObject: TypeAlias = dict[str, Any]
"""Raw JSON of the wire: per-chunk paths read fields and build no models. Wrong shapes raise and are caught."""


def load_object(data: bytes) -> WireObject | None:
    """The object that some bytes hold, broken surrogates replaced; None: not JSON at all; TypeError: no object."""
    try:
        parsed = orjson.loads(data)
    except orjson.JSONDecodeError:
        parsed = _load_leniently(data)
        if parsed is None:
            return None
    if not isinstance(parsed, dict):
        raise TypeError("not an object")
    return parsed


def _load_leniently(data: bytes) -> object:
    try:
        loaded = json.loads(data)
        sound = json.dumps(loaded, ensure_ascii=False).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return json.loads(sound)
    except (ValueError, RecursionError):
        return None


def dumps(value: object) -> bytes:
    """JSON as bytes; integers of more than 64 bits, which the fast writer refuses, go through the slow one."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")
