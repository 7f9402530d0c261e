"""The type of parsed JSON, and its writing."""

from __future__ import annotations

import json
from typing import TypeAlias

import orjson

JsonValue: TypeAlias = "dict[str, JsonValue] | list[JsonValue] | str | int | float | bool | None"
JsonObject: TypeAlias = dict[str, JsonValue]


def dumps(value: object) -> bytes:
    """JSON as bytes; integers of more than 64 bits, which the fast writer refuses, go through the slow one."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")
