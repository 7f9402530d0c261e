"""Mutated Responses requests: a request or a 400, never a crash; what is accepted can be answered."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.canonical.content import Text, ToolUse
from bridge.canonical.events import MessageEnd, Usage
from bridge.canonical.fold import Message, unfold
from bridge.canonical.head import AnswerHead
from bridge.canonical.request import Request
from bridge.errors import BridgeError
from bridge.protocols.openai_responses.parse_request import parse_request
from bridge.protocols.openai_responses.render_response import render_response
from bridge.protocols.openai_responses.stream_encoder import ResponsesStreamEncoder
from support import FIXTURES

RECORDED = [
    json.loads(path.read_text())["body"]
    for folder in ("codex/responses", "openai-py/responses_stream")
    for path in sorted((FIXTURES / "wire" / folder).glob("*.json"))
]
WRITTEN: list[dict[str, Any]] = [
    {
        "model": "m",
        "input": [
            {"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AA=="}]},
            {"type": "reasoning", "summary": [], "encrypted_content": "tb1.eyJyZWRhY3RlZCI6Inh5eiJ9"},
            {"type": "custom_tool_call", "call_id": "1", "name": "apply_patch", "input": "x"},
            {"type": "custom_tool_call_output", "call_id": "1", "output": [{"type": "input_text", "text": "x"}]},
            {"type": "local_shell_call", "call_id": "2", "action": {"type": "exec", "command": ["ls"], "env": {}}},
            {"type": "local_shell_call_output", "id": "2", "output": "x"},
            {"type": "tool_search_call", "call_id": "3", "execution": "client", "arguments": {"query": "x"}},
            {"type": "tool_search_output", "call_id": "3", "tools": [{"type": "function", "name": "f"}]},
            {"type": "web_search_call", "id": "ws", "action": {"type": "search", "query": "q"}},
        ],
        "tools": [
            {
                "type": "custom",
                "name": "apply_patch",
                "format": {"type": "grammar", "syntax": "lark", "definition": "x"},
            },
            {"type": "web_search", "filters": {"allowed_domains": ["a.example"]}, "user_location": {"country": "FR"}},
            {"type": "local_shell"},
        ],
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "custom", "name": "apply_patch"}]},
        "text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "object"}}},
        "reasoning": {"effort": "low", "summary": "auto"},
        "include": ["reasoning.encrypted_content"],
    }
]
BODIES = RECORDED + WRITTEN
WORDS = st.sampled_from(
    ["", "message", "function", "custom", "namespace", "reasoning", "function_call", "input_image", "item_reference"]
)
JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=5),
    WORDS,
    st.just([]),
    st.just({}),
    st.just([[]]),
    st.just({"type": "message"}),
    st.just("data:;base64,"),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place of a body that can be changed."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, one in inner for place in ((*path, key), *places(one, (*path, key)))]


def change(body: Any, path: tuple[Any, ...], how: str, junk: Any) -> None:
    target = body
    for key in path[:-1]:
        target = target[key]
    match how:
        case "replace":
            target[path[-1]] = junk
        case "remove":
            del target[path[-1]]
        case "add":
            inside = target[path[-1]]
            if isinstance(inside, dict):
                inside["unheard_of"] = junk
            elif isinstance(inside, list):
                inside.append(junk)
        case "double" if isinstance(target, list):
            target.append(target[path[-1]])


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    body = json.loads(json.dumps(draw(st.sampled_from(BODIES))))
    for _ in range(draw(st.integers(1, 3))):
        where = draw(st.sampled_from(places(body) or [("model",)]))
        try:
            change(body, where, draw(st.sampled_from(["replace", "remove", "add", "double"])), deepcopy(draw(JUNK)))
        except (KeyError, IndexError, TypeError):
            continue
    return json.dumps(body).encode()


def outcome(body: bytes) -> Request | BridgeError:
    try:
        return parse_request(body)
    except BridgeError as error:
        return error


@pytest.mark.req("C8", "C13", "P1")
@given(mutated())
@settings(max_examples=600, deadline=None)
def test_a_mutated_request_is_refused_or_can_be_answered(body: bytes) -> None:
    request = outcome(body)
    if isinstance(request, BridgeError):
        assert (request.status, bool(request.message)) == (400, True)
        return
    calls = tuple(ToolUse(f"c{index}", tool.name, {"input": "x"}) for index, tool in enumerate(request.tools))
    message = Message((Text("x"), *calls), MessageEnd("tool_use", Usage()))
    head = AnswerHead("resp_1", request.model, 0, request.echo)
    whole = render_response(message, head)
    last = ResponsesStreamEncoder(head).encode(unfold(message)).split(b"\n\n")[-2]
    assert last.startswith(b"event: response.completed\n")
    assert len(whole["output"]) == len(message.content)  # type: ignore[arg-type]


@pytest.mark.req("C8", "C13")
@given(st.binary(max_size=60), st.sampled_from(BODIES), st.integers(0, 10_000), st.integers(0, 40))
@settings(max_examples=300, deadline=None)
def test_mutated_bytes_are_refused_or_read(garbage: bytes, body: dict[str, Any], at: int, length: int) -> None:
    text = json.dumps(body).encode()
    at %= len(text)
    read = outcome(text[:at] + garbage + text[at + length :])
    assert isinstance(read, Request) or read.status == 400
