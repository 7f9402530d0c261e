"""Strict JSON: what is refused, what it says, and that nothing else is."""

from __future__ import annotations

import json
import math
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.errors import BridgeError, ErrorKind
from bridge.strict_json import JsonLimits, check, deeper_than

LIMITS = JsonLimits()


def refusal(body: bytes, limits: JsonLimits = LIMITS) -> str:
    with pytest.raises(BridgeError) as refused:
        check(body, limits)
    assert (refused.value.kind, refused.value.status) == (ErrorKind.INVALID_REQUEST, 400)
    return refused.value.message


REFUSED = {
    "a key twice": (b'{"a": 1, "b": 2, "a": 3}', "body: the key 'a' stands there more than once"),
    "a key twice inside": (b'{"m": [{"c": 1}, {"x": {"k": 1, "k": 1}}]}', "m.1.x: the key 'k' stands there more"),
    "a key twice under another name": (rb'{"a": 1, "\u0061": 2}', "the key 'a' stands there more than once"),
    "a key twice in what another hides": (b'{"a": {"x": 1, "x": 2}, "a": 3}', "body: the key 'a' stands there more"),
    "an empty key twice": (b'{"": 1, "": 2}', "the key '' stands there more than once"),
    "NaN": (b'{"a": NaN}', "NaN is not a JSON value"),
    "Infinity": (b'{"a": [Infinity]}', "Infinity is not a JSON value"),
    "-Infinity": (b'{"a": -Infinity}', "-Infinity is not a JSON value"),
    "a number out of range": (b'{"a": -1e999}', "the number -1e999 is out of range"),
    "a number of too many digits": (b'{"a": %b}' % (b"9" * 5000), "too many digits"),
    "a byte that is no UTF-8": (b'{"a": "\xff"}', "invalid UTF-8 at byte 7"),
    "a surrogate in UTF-8": (b'{"a": "\xed\xa0\x80"}', "invalid UTF-8 at byte 7"),
    "an overlong form": (b'{"a": "\xc0\xaf"}', "invalid UTF-8 at byte 7"),
    "UTF-16": ('{"a": 1}'.encode("utf-16"), "invalid UTF-8 at byte 0"),
    "a byte order mark": (b'\xef\xbb\xbf{"a": 1}', "byte order mark"),
    "the first half of a pair": (rb'{"a": "x\ud83d"}', "half of a surrogate pair at line 1"),
    "the second half of a pair": (rb'{"a": "\uDE00x"}', "half of a surrogate pair at line 1"),
    "two first halves": (rb'{"a": "\ud83d\ud83d"}', "half of a surrogate pair at line 1"),
    "half a pair beside a long number": (rb'{"a": 1%b, "b": "\ud83d"}' % (b"0" * 400), "half of a surrogate pair"),
    "half a pair in a key": (rb'{"\ud83d": 1}', "half of a surrogate pair at line 1"),
    "something after the document": (b'{"a": 1} {"a": 2}', "Extra data at line 1 column 10"),
    "a NUL after the document": (b'{"a": 1}\0', "Extra data at line 1 column 9"),
    "a list": (b"[1]", "must be a JSON object"),
    "a string": (b'"hello"', "must be a JSON object"),
    "null": (b"null", "must be a JSON object"),
    "nothing": (b"", "empty"),
    "blanks": (b" \r\n\t", "empty"),
    "no JSON": (b"model=gpt", "Expecting value at line 1 column 1"),
    "a document cut short": (b'{"a": "b', "Unterminated string"),
    "a trailing comma": (b'{"a": 1,}', "line 1 column"),
    "a comment": (b'{"a": 1 /* one */}', "line 1 column"),
    "single quotes": (b"{'a': 1}", "line 1 column"),
    "a raw line break in a string": (b'{"a": "\n"}', "Invalid control character"),
    "a leading zero": (b'{"a": 01}', "line 1 column"),
    "an unknown escape": (rb'{"a": "\x41"}', "escape"),
}


@pytest.mark.req("C8")
@pytest.mark.parametrize(("body", "says"), REFUSED.values(), ids=REFUSED.keys())
def test_refused_with_the_reason(body: bytes, says: str) -> None:
    message = refusal(body)
    assert says in message
    assert len(message) < 200


ACCEPTED = {
    "an empty object": b"{}",
    "blanks around": b' \r\n\t{"a" : [ ] , "b"\n:\t{ } } \n',
    "the same key in two objects": b'{"a": {"k": 1}, "b": {"k": 1}, "k": [{"k": 1}, {"k": 2}]}',
    "keys that differ in case": b'{"a": 1, "A": 2}',
    "a pair as escapes": rb'{"a": "\ud83d\ude00 \uD83D\uDE00"}',
    "an escaped backslash before what looks like half a pair": rb'{"a": "\\ud83d C:\\udir"}',
    "raw text of every plane": '{"a": "é漢😀\u2028\x7f"}'.encode(),
    "the escape of NUL": rb'{"a": "\u0000"}',
    "what looks like JSON in a string": rb'{"a": "{\"k\":1,\"k\":NaN}", "k": ":"}',
    "large and small numbers": b'{"a": [123456789012345678901234567890, 1e308, 5e-324, -0, -0.0, 1E+2]}',
}


@pytest.mark.req("C8")
@pytest.mark.parametrize("body", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_taken_as_the_standard_library_reads_it(body: bytes) -> None:
    assert check(body, LIMITS) == json.loads(body)


@pytest.mark.req("C8")
@pytest.mark.parametrize("opening", [b"[", b'{"a":'], ids=["lists", "objects"])
def test_as_deep_as_the_limit_and_no_deeper(opening: bytes) -> None:
    closing = b"]" if opening == b"[" else b"}"
    limits = JsonLimits(max_depth=10)

    def nested(levels: int) -> bytes:
        return b'{"top":' + opening * (levels - 1) + b"0" + closing * (levels - 1) + b"}"

    assert check(nested(10), limits)
    message = refusal(nested(11), limits)
    assert message.startswith("top.")
    assert "nested deeper than 10 levels (MAX_JSON_DEPTH)" in message
    assert "nested deeper than 64 levels (MAX_JSON_DEPTH)" in refusal(nested(65))
    assert "nested deeper than 64 levels (MAX_JSON_DEPTH)" in refusal(nested(200_000))


@pytest.mark.req("C8")
def test_the_way_to_a_fault_is_shortened() -> None:
    body = b'{"%b":' % (b"k" * 1000) * 30 + b'{"a":1,"a":2}' + b"}" * 30
    message = refusal(body)
    assert len(message) < 1000
    assert "…: the key 'a' stands there more than once" in message


@pytest.mark.req("C8")
@pytest.mark.parametrize(
    "flood",
    [b"[" + b"[]," * 400_000 + b"0]", b"[" + b"{}," * 400_000 + b"0]", b"[" + b"[1]," * 250_000 + b"0]"],
    ids=["empty lists", "empty objects", "lists of one"],
)
def test_a_flood_of_values_is_refused_before_it_is_parsed(flood: bytes) -> None:
    assert "more than 400000 keys and list elements in all (MAX_JSON_KEYS)" in refusal(b'{"a": %b}' % flood)
    assert "MAX_JSON_KEYS" in refusal(b'{"a": %b nonsense' % flood)


@pytest.mark.req("C8")
def test_commas_and_brackets_in_text_are_no_values() -> None:
    text = 'a,b,[c],{d}\\",\n' * 60_000
    body = json.dumps({"text": text}).encode()
    assert check(body, JsonLimits(max_keys=1)) == {"text": text}


@pytest.mark.req("C8")
@pytest.mark.parametrize(
    "body",
    [
        b'{"a": "' + rb"\"" * 1_000_000,
        b'{"a": "' + rb"\\" * 1_000_000,
        b'{"a": ' + b'"' * 1_000_000,
        b'{"a": ' + b"[" * 1_000_000,
        b'{"a": [' + b'"a":' * 300_000,
        b'{"a": ' + b'{"":' * 200_000,
        b'{"%b": [%b0]}' % (b"k" * 500_000, b"[[[[0]]]]," * 40_000),
    ],
    ids=["escaped quotes", "backslashes", "quotes", "brackets", "pairs in a list", "objects", "a long key"],
)
def test_hostile_bodies_take_time_in_proportion_to_their_size(body: bytes) -> None:
    before = time.process_time()
    refusal(body, JsonLimits(max_depth=4, max_keys=200))
    refusal(body, JsonLimits(max_depth=4))
    assert time.process_time() - before < 3


# --- against a slow reference ------------------------------------------------------------------------------------


def slowly(body: bytes) -> Any:
    """The plainest strict reading; ValueError where there is none."""

    def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({key for key, _ in pairs}) < len(pairs):
            raise ValueError("repeated key")
        return dict(pairs)

    parsed = json.loads(body.decode(), object_pairs_hook=build)
    json.dumps(parsed, allow_nan=False, ensure_ascii=False).encode()
    if not isinstance(parsed, dict):
        raise ValueError("not an object")
    return parsed


def depth(value: Any) -> int:
    if not isinstance(value, dict | list):
        return 0
    return 1 + max(map(depth, value.values() if isinstance(value, dict) else value), default=0)


def amount(value: Any) -> int:
    if not isinstance(value, dict | list):
        return 0
    return len(value) + sum(map(amount, value.values() if isinstance(value, dict) else value))


KEYS = st.sampled_from(["a", "b", "", 'k"', "k\\", "ключ", ":", "a:,[{", "😀"])
HALVES = st.lists(st.sampled_from(["\ud83d", "\ude00", "\\", "u", "d83d"]), max_size=4).map("".join)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12) | KEYS | HALVES
PAIRS: Any = st.deferred(lambda: st.lists(st.tuples(KEYS, VALUES), max_size=4).map(lambda pairs: ("object", pairs)))
VALUES: Any = st.deferred(lambda: SCALARS | st.lists(VALUES, max_size=4) | PAIRS)
"""Objects as pairs, so that keys can come twice."""


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    ascii_only = draw(st.booleans())

    def gap() -> str:
        return draw(st.sampled_from(["", "", " ", "\n\t"]))

    def written(value: Any) -> str:
        if isinstance(value, tuple):
            members = (f"{gap()}{written(key)}{gap()}:{gap()}{written(inner)}{gap()}" for key, inner in value[1])
            return "{" + ",".join(members) + "}"
        if isinstance(value, list):
            return "[" + ",".join(f"{gap()}{written(inner)}{gap()}" for inner in value) + "]"
        return json.dumps(value, ensure_ascii=ascii_only)

    return written(draw(PAIRS)).encode("utf-8", "surrogatepass")


@pytest.mark.req("C8")
@given(bodies())
def test_takes_and_refuses_what_the_reference_does(body: bytes) -> None:
    try:
        expected = slowly(body)
    except ValueError:
        refusal(body)
    else:
        assert check(body, LIMITS) == expected


@pytest.mark.req("C8")
@given(bodies(), st.integers(0, 200), st.binary(max_size=3))
def test_damaged_bodies_are_judged_as_the_reference_judges_them(body: bytes, at: int, damage: bytes) -> None:
    at %= len(body) + 1
    damaged = body[:at] + damage + body[at + 1 :]
    try:
        expected = slowly(damaged)
    except ValueError:
        refusal(damaged)
    else:
        assert check(damaged, LIMITS) == expected


@pytest.mark.req("C8")
@given(bodies())
def test_both_limits_are_exact(body: bytes) -> None:
    try:
        document = slowly(body)
    except ValueError:
        return
    levels, keys = depth(document), amount(document)
    assert check(body, JsonLimits(max_depth=levels, max_keys=keys)) == document
    if keys:
        assert "MAX_JSON_KEYS" in refusal(body, JsonLimits(max_depth=levels, max_keys=keys - 1))
    if levels > 1:
        assert "MAX_JSON_DEPTH" in refusal(body, JsonLimits(max_depth=levels - 1, max_keys=keys))


@pytest.mark.req("C8")
@given(VALUES.map(lambda value: [value] if not isinstance(value, list) else value), st.integers(1, 6))
def test_what_lies_too_deep_is_found(value: list[Any], levels: int) -> None:
    found = deeper_than(value, levels)
    assert (found is not None) == (depth(value) > levels)


def test_the_reference_is_strict() -> None:
    for body, _ in REFUSED.values():
        with pytest.raises(ValueError):  # noqa: PT011  (which one does not matter here)
            slowly(body)
    assert math.isnan(json.loads("NaN"))
