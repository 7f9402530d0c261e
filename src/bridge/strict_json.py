"""JSON as RFC 8259 and I-JSON have it, within bounds: what two parsers might read differently is refused.

Rules
-----
1. How much there is, is counted before anything is built; the text is only looked at closely if it could be too much.
2. The parse is the standard library's: it alone shows every pair of an object, and costs little more than a fast one.
3. Refused: repeated keys, NaN and infinities (`1e999` is one), broken UTF-8, a byte order mark, half of a surrogate
   pair as an escape, whatever follows the document, and a document that is not an object.
4. Where the fault is, is searched for only once there is one.
"""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from pydantic_core import from_json

from bridge.errors import invalid_request
from bridge.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.canonical.json import JsonObject
    from bridge.errors import BridgeError

Container: TypeAlias = "dict[str, Any] | list[Any]"

SHORT_BYTES = 4096
MAX_SHOWN_NAME = 64
MAX_SHOWN_STEPS = 12
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)  # matches at every quote: never looks twice
_WHITESPACE = b" \t\r\n"


@dataclass(frozen=True, slots=True)
class JsonLimits:
    """How much a document may hold."""

    max_depth: int = 64
    max_keys: int = 400_000


def check(body: bytes, limits: JsonLimits) -> JsonObject:
    """The document; a BridgeError that says what is wrong, and where, if it is not strict JSON or too much of it."""
    _check_amount(body, limits.max_keys)
    document = _parse(body, limits)
    if len(body) > SHORT_BYTES or body.count(b"{") + body.count(b"[") > limits.max_depth:  # else it cannot be deeper
        deep = deeper_than(document, limits.max_depth)
        if deep is not None:
            raise _too_deep(limits, _path_to(document, deep))
    if b"\\" in body and _SURROGATE_ESCAPE.search(body):
        _check_surrogates(body)
    return document


def deeper_than(value: Container, levels: int) -> Container | None:
    """An object or list that lies deeper than so many levels, the value itself being the first; None if none does."""
    level = [value]
    for _ in range(levels):
        below: list[Container] = []
        for container in level:
            for child in container.values() if isinstance(container, dict) else container:
                kind = type(child)  # faster here than isinstance, and a parser makes no subclasses
                if kind is dict or kind is list:
                    below.append(child)
        if not below:
            return None
        level = below
    return level[0]


def _check_amount(body: bytes, max_keys: int) -> None:
    """A key or element takes two bytes and follows a comma or an opening bracket, so most bodies need no close look."""
    if len(body) < 2 * max_keys or len(body) - len(body.translate(None, b",[{")) <= max_keys:
        return
    bare = _STRING.sub(b"0", body).translate(None, _WHITESPACE)
    filled = bare.count(b"[") - bare.count(b"[]") + bare.count(b"{") - bare.count(b"{}")
    if bare.count(b",") + filled > max_keys:
        raise invalid_request(f"body: more than {max_keys} keys and list elements in all (MAX_JSON_KEYS)")


def _parse(body: bytes, limits: JsonLimits) -> JsonObject:
    text = _text(body)
    try:
        return _decoded(_DECODER, text, limits)
    except _RepeatedKeyError:
        raise _where_repeated(text, limits) from None


def _decoded(decoder: json.JSONDecoder, text: str, limits: JsonLimits) -> JsonObject:
    try:
        document = decoder.decode(text)
    except json.JSONDecodeError as error:
        raise _not_json(f"{error.msg} at line {error.lineno} column {error.colno}") from None
    except RecursionError:
        raise _too_deep(limits, "body") from None
    except ValueError:  # the interpreter's own bound on digits
        raise _not_json("a number has too many digits") from None
    if not isinstance(document, dict):
        raise invalid_request("body: must be a JSON object")
    return document


class _RepeatedKeyError(Exception):
    pass


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    built = dict(pairs)
    if len(built) != len(pairs):
        raise _RepeatedKeyError
    return built


def _where_repeated(text: str, limits: JsonLimits) -> BridgeError:
    """The refusal of a text that repeats a key; what else is wrong with it is raised."""
    repeated: list[tuple[dict[str, Any], str]] = []

    def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        built = dict(pairs)
        if len(built) != len(pairs):
            repeated.append((built, _first_repeated(pairs)))
        return built

    document = _decoded(_decoder(build), text, limits)
    holder, key = repeated[-1]  # outer objects come later: no other fault hides the last one
    return invalid_request(
        f"{_path_to(document, holder)}: the key {key[:MAX_SHOWN_NAME]!r} stands there more than once"
    )


def _text(body: bytes) -> str:
    if not body.strip(_WHITESPACE):
        raise invalid_request("body: empty; a JSON object is required")
    if body.startswith(_BYTE_ORDER_MARK):
        raise _not_json("it begins with a byte order mark")
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise _not_json(f"invalid UTF-8 at byte {error.start}") from None


def _check_surrogates(body: bytes) -> None:
    """A parser that knows an escape from an escaped backslash, and finds nothing else to refuse any more."""
    try:
        from_json(body)
    except ValueError as error:
        place = str(error).rpartition(" at ")[2]
        raise _not_json(f"a \\u escape is half of a surrogate pair at {place}") from None


def _number(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise _not_json(f"the number {digits[:MAX_SHOWN_NAME]} is out of range")
    return value


def _constant(name: str) -> NoReturn:
    raise _not_json(f"{name} is not a JSON value")


def _decoder(build: Callable[[list[tuple[str, Any]]], dict[str, Any]]) -> json.JSONDecoder:
    return json.JSONDecoder(object_pairs_hook=build, parse_float=_number, parse_constant=_constant)


_DECODER = _decoder(_object)


def _first_repeated(pairs: list[tuple[str, Any]]) -> str:
    seen: set[str] = set()
    return next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]


def _not_json(reason: str) -> BridgeError:
    return invalid_request(f"body: not valid JSON: {reason}")


def _too_deep(limits: JsonLimits, where: str) -> BridgeError:
    return invalid_request(f"{where}: nested deeper than {limits.max_depth} levels (MAX_JSON_DEPTH)")


def _path_to(document: Container, wanted: Container) -> str:
    """The way to a part of the document, by its keys and positions; shortened where it is long."""
    stack: list[tuple[Container, tuple[Any, ...]]] = [(document, ())]
    while stack:
        value, link = stack.pop()
        if value is wanted:
            return _shown(link)
        named = value.items() if isinstance(value, dict) else enumerate(value)
        stack += [(child, (link, name)) for name, child in named if isinstance(child, dict | list)]
    return "body"


def _shown(link: tuple[Any, ...]) -> str:
    steps: list[str] = []
    while link:
        link, name = link
        steps.append(str(name)[:MAX_SHOWN_NAME])
    steps.reverse()
    shown = ".".join(steps[:MAX_SHOWN_STEPS])
    return f"{shown}…" if len(steps) > MAX_SHOWN_STEPS else shown or "body"
