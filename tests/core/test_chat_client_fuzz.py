"""Mutated chat requests: a request comes out, or a refusal that the client can read; never anything else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.canonical.request import Request
from bridge.errors import BridgeError
from bridge.protocols.openai_chat.parse_request import parse_request
from support import FIXTURES

BODIES: list[Any] = [
    json.loads(path.read_text()) for path in sorted((FIXTURES / "openai_chat_client").glob("*/request.json"))
] + [
    json.loads(path.read_text())["body"]
    for path in sorted((FIXTURES / "wire").glob("*/*/*.json"))
    if path.parent.name not in ("responses", "responses_stream")
]
odd_values = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.sampled_from(["", "text", "tool", "function", "data:", "data:image/png;base64,AAAA", "{", "\x00", "auto"]),
    st.sampled_from([[], {}, [[]], [{}], [None], {"type": "text"}, {"type": "function"}, {"type": []}, {"name": ""}]),
    st.text(max_size=5),
)


def outcome(body: bytes) -> Request | BridgeError:
    try:
        return parse_request(body)
    except BridgeError as error:
        return error


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place inside a JSON value."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, inner in inside for place in places(inner, (*path, key)))]


def put(body: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    changed = body.copy()
    changed[path[0]] = put(body[path[0]], path[1:], value)
    return changed


def at(body: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        body = body[key]
    return body


def without(body: Any, path: tuple[Any, ...]) -> Any:
    parent = at(body, path[:-1]).copy()
    del parent[path[-1]]
    return put(body, path[:-1], parent)


@st.composite
def mutated(draw: st.DrawFn) -> Any:
    body = draw(st.sampled_from(BODIES))
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(places(body)))
        kind = draw(st.sampled_from(["put", "drop", "graft"]))
        if kind == "drop" and path:
            body = without(body, path)
        elif kind == "graft":
            donor = draw(st.sampled_from(BODIES))
            body = put(body, path, at(donor, draw(st.sampled_from(places(donor)))))
        else:
            body = put(body, path, draw(odd_values))
    return body


@given(mutated())
@settings(max_examples=600, deadline=None)
@pytest.mark.req("G1", "G6")
def test_a_mutated_request_is_read_or_refused(body: Any) -> None:
    result = outcome(json.dumps(body).encode())
    assert isinstance(result, Request) or (result.status == 400 and result.message)


@given(st.sampled_from(BODIES), st.data())
@settings(max_examples=200, deadline=None)
def test_broken_bytes_are_read_or_refused(body: Any, data: st.DataObject) -> None:
    raw = json.dumps(body).encode()
    cut = data.draw(st.integers(0, len(raw)))
    junk = data.draw(st.binary(max_size=4))
    result = outcome(raw[:cut] + junk + raw[cut + data.draw(st.integers(0, 3)) :])
    assert isinstance(result, Request) or result.status == 400


@pytest.mark.parametrize("depth", [50, 5_000, 200_000])
@pytest.mark.parametrize("where", ["metadata", "tools", "messages", "tool_choice"])
def test_deep_nesting_is_read_or_refused(depth: int, where: str) -> None:
    nested = '{"a":' * depth + "1" + "}" * depth
    inside = {"metadata": nested, "tools": f"[{nested}]", "messages": f"[{nested}]", "tool_choice": nested}[where]
    fields = {"model": '"m"', "messages": '[{"role":"user","content":"a"}]', where: inside}
    body = "{" + ",".join(f'"{name}":{value}' for name, value in fields.items()) + "}"
    result = outcome(body.encode())
    assert isinstance(result, Request) or result.status == 400
