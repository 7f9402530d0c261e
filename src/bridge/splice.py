"""A request body with another model in it, every other byte as it was."""

from __future__ import annotations

import re

import orjson

from bridge.canonical.json import dumps

MAX_TRIES = 8
_MODEL = re.compile(rb'"model"\s*:\s*("(?:[^"\\]|\\.)*")')


def with_model(body: bytes, model: str) -> bytes:
    """The body for another model.

    "model" may also stand inside a message, so a place counts only if nothing but the model changes with it.
    """
    wanted = orjson.loads(body) | {"model": model}
    for count, found in enumerate(_MODEL.finditer(body)):
        if count == MAX_TRIES:
            break
        spliced = body[: found.start(1)] + dumps(model) + body[found.end(1) :]
        if orjson.loads(spliced) == wanted:
            return spliced
    return dumps(wanted)
