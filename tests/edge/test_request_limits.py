"""What one request may hold: each excess with its status, its error type and the setting it names."""

from __future__ import annotations

import asyncio
import gzip
import json
import tracemalloc
import zlib
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from bridge.errors import BridgeError
from bridge.protocols.registry import error_renderer
from bridge.strict_json import JsonLimits, check
from handler.limits import Limits, check_request
from handler.request import HttpRequest, read_request
from support import FIXTURES, running_bridge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bridge.providers import ProtocolName
    from scripted.server import ScriptedUpstream

QUESTION = {"model": "openai/gpt-x", "max_tokens": 100, "messages": [{"role": "user", "content": "Hi"}]}
BODY = json.dumps(QUESTION).encode()
CAP = 4096

MESSAGES, CHAT = "/v1/messages", "/v1/chat/completions"
TYPES = {(MESSAGES, 400): "invalid_request_error", (MESSAGES, 413): "request_too_large"}


@pytest.fixture(scope="module")
def small_bridge(tmp_path_factory: pytest.TempPathFactory, _scripted_upstream: ScriptedUpstream) -> Iterator[str]:
    """A bridge that takes small bodies only."""
    url = _scripted_upstream.url
    path = tmp_path_factory.mktemp("small")
    with running_bridge(path, UPSTREAM_OPENAI_BASE_URL=url, MAX_BODY_BYTES=str(CAP)) as bridge:
        yield bridge


def send(url: str, path: str, body: bytes, **headers: str) -> httpx2.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx2.post(f"{url}{path}", content=body, headers={"x-api-key": "sk-client"} | named, timeout=20)


def assert_refused(response: httpx2.Response, path: str, status: int, says: str) -> None:
    error = response.json()["error"]
    assert (response.status_code, error["type"]) == (status, TYPES.get((path, status), "invalid_request_error"))
    assert says in error["message"]
    assert error["retryable"] is False


# --- over HTTP ---------------------------------------------------------------------------------------------------


@pytest.mark.req("C8")
@pytest.mark.parametrize("encoding", ["gzip", "GZIP", "x-gzip"])
@pytest.mark.parametrize("path", [MESSAGES, CHAT])
def test_a_gzip_body_is_read(bridge_url: str, upstream: ScriptedUpstream, path: str, encoding: str) -> None:
    upstream.script = [{"reply": {"chat": {"text": "Hello"}}}]
    response = send(bridge_url, path, gzip.compress(BODY), content_encoding=encoding)
    assert response.status_code == 200, response.text
    (received,) = upstream.received
    assert received.json["messages"] == QUESTION["messages"]
    assert "content-encoding" not in {name.lower() for name in received.headers}


@pytest.mark.req("C8")
def test_a_body_said_to_be_plain_is_read(bridge_url: str, upstream: ScriptedUpstream) -> None:
    upstream.script = [{"reply": {"chat": {"text": "Hello"}}}]
    assert send(bridge_url, MESSAGES, BODY, content_encoding="identity").status_code == 200


BOMB = gzip.compress(b'{"a":"' + b" " * 50_000_000 + b'"}', 9)
BODIES = {
    "a body over the cap": ("identity", b" " * (CAP + 1), 413, "larger than 4096 bytes (MAX_BODY_BYTES)"),
    "a bomb": ("gzip", BOMB[:CAP], 413, "larger than 4096 bytes when inflated (MAX_BODY_BYTES)"),
    "one byte too many": ("gzip", gzip.compress(b" " * (CAP + 1)), 413, "when inflated (MAX_BODY_BYTES)"),
    "gzip cut short": ("gzip", gzip.compress(BODY)[:-9], 400, "the gzip body ends too early"),
    "gzip without its checksum": ("gzip", gzip.compress(BODY)[:-8], 400, "the gzip body ends too early"),
    "gzip with a wrong checksum": ("gzip", gzip.compress(BODY)[:-8] + bytes(8), 400, "not valid gzip"),
    "no gzip at all": ("gzip", BODY, 400, "not valid gzip"),
    "two gzip members": ("gzip", gzip.compress(BODY) + gzip.compress(b" "), 400, "more after the end"),
    "garbage after gzip": ("gzip", gzip.compress(BODY) + b"\0", 400, "more after the end"),
    "zlib under the name of gzip": ("gzip", zlib.compress(BODY), 400, "not valid gzip"),
    "deflate": ("deflate", zlib.compress(BODY), 400, "content-encoding: 'deflate' is not taken"),
    "brotli": ("br", BODY, 400, "content-encoding: 'br' is not taken; send the body plain or as gzip"),
    "zstd": ("zstd", BODY, 400, "content-encoding: 'zstd' is not taken"),
    "gzip twice": ("gzip, gzip", gzip.compress(gzip.compress(BODY)), 400, "'gzip, gzip' is not taken"),
}


@pytest.mark.req("C8")
@pytest.mark.parametrize(("encoding", "body", "status", "says"), BODIES.values(), ids=BODIES.keys())
@pytest.mark.parametrize("path", [MESSAGES, CHAT])
def test_a_body_that_is_not_taken(
    small_bridge: str, upstream: ScriptedUpstream, path: str, encoding: str, body: bytes, status: int, says: str
) -> None:
    assert_refused(send(small_bridge, path, body, content_encoding=encoding), path, status, says)
    assert upstream.received == []


@pytest.mark.req("C8")
def test_a_gzip_body_may_grow_to_exactly_the_cap(small_bridge: str, upstream: ScriptedUpstream) -> None:
    upstream.script = [{"reply": {"chat": {"text": "Hello"}}}]
    body = gzip.compress(BODY + b" " * (CAP - len(BODY)))
    assert send(small_bridge, MESSAGES, body, content_encoding="gzip").status_code == 200


HEADS: dict[str, tuple[dict[str, str], int, str]] = {
    "many headers": ({f"x-h{i}": "1" for i in range(201)}, 400, "at most 200 are taken"),
    "a large header": ({"x-large": "v" * 17_000}, 413, "the header x-large: 17007 bytes, at most 16384 are taken"),
    "a long name of a header": ({"x" * 17_000: "v"}, 413, "x: 17001 bytes, at most 16384 are taken"),
    "large headers together": ({f"x-h{i}": "v" * 10_000 for i in range(7)}, 413, "all headers together"),
}


@pytest.mark.req("C8")
@pytest.mark.parametrize(("headers", "status", "says"), HEADS.values(), ids=HEADS.keys())
@pytest.mark.parametrize("path", [MESSAGES, CHAT])
def test_headers_that_are_not_taken(
    bridge_url: str, upstream: ScriptedUpstream, path: str, headers: dict[str, str], status: int, says: str
) -> None:
    assert_refused(send(bridge_url, path, BODY, **headers), path, status, says)
    assert upstream.received == []


@pytest.mark.req("C8")
def test_as_many_headers_as_real_clients_send_are_taken(bridge_url: str, upstream: ScriptedUpstream) -> None:
    upstream.script = [{"reply": {"chat": {"text": "Hello"}}}]
    headers = {f"x-h{i}": "v" * 300 for i in range(150)} | {"x-large": "v" * 15_000}
    assert send(bridge_url, MESSAGES, BODY, **headers).status_code == 200


@pytest.mark.req("C8")
@pytest.mark.parametrize(
    ("path", "says"),
    [
        (f"/anthropic/v1/models/{'m' * 2100}", "the path: 2"),
        (f"/anthropic/v1/models/{'%C3%A9' * 400}", "the path: 2"),
        (f"/anthropic/v1/models?{'q' * 8200}", "the query: 8200 bytes, at most 8192"),
    ],
    ids=["path", "escaped path", "query"],
)
def test_addresses_that_are_not_taken(bridge_url: str, path: str, says: str) -> None:
    assert_refused(httpx2.get(f"{bridge_url}{path}", timeout=10), MESSAGES, 413, says)


# --- as ASGI hands it over ---------------------------------------------------------------------------------------


async def read(body: bytes, limit: int, **headers: str) -> HttpRequest:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    pairs = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]
    request = HttpRequest.of({"method": "POST", "path": MESSAGES, "headers": pairs})
    await read_request(request, receive, limit)
    return request


@pytest.mark.req("C8")
def test_a_bomb_takes_no_more_memory_than_the_cap() -> None:
    tracemalloc.start()
    try:
        with pytest.raises(BridgeError, match="when inflated"):
            asyncio.run(read(BOMB, 100_000, content_encoding="gzip"))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000


@pytest.mark.req("C8")
@pytest.mark.parametrize("declared", ["²", "-1", "1e3", "", "0x10"], ids=ascii)
def test_a_length_that_is_no_number_declares_nothing(declared: str) -> None:
    assert asyncio.run(read(BODY, CAP, content_length=declared)).body == BODY


@pytest.mark.req("C8")
@pytest.mark.parametrize("declared", ["4097", "9" * 5000], ids=["one too many", "many digits"])
def test_a_length_over_the_cap_is_refused_unread(declared: str) -> None:
    with pytest.raises(BridgeError, match=r"larger than 4096 bytes \(MAX_BODY_BYTES\)"):
        asyncio.run(read(b"", CAP, content_length=declared))


@pytest.mark.req("C8")
def test_no_body_needs_no_gzip() -> None:
    assert asyncio.run(read(b"", CAP, content_encoding="gzip")).body == b""


# --- on the parsed document --------------------------------------------------------------------------------------

LIMITS = Limits(
    json=JsonLimits(max_depth=64),
    max_messages=5,
    max_tools=3,
    max_schema_depth=6,
    max_schema_bytes=500,
    max_images=2,
    max_image_bytes=100,
    max_document_bytes=200,
)
DATA = "A" * 101
URL = f"data:image/png;base64,{DATA}"
LONG_ID = "i" * 513


def user(*blocks: Any) -> list[Any]:
    return [{"role": "user", "content": list(blocks)}]


def source(data: str) -> dict[str, str]:
    return {"type": "base64", "media_type": "image/png", "data": data}


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels - 1):
        schema = {"not": schema}
    return schema


IMAGE = {"type": "image", "source": source("AAAA")}
PDF = {"type": "document", "source": source("A" * 201)}
DEEP, WIDE = nested(7), {"description": "d" * 500}
TOOL = {"name": "f", "input_schema": {"type": "object"}}
FUNCTION = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}

Case = tuple[dict[str, Any], int, str]
ANTHROPIC: dict[str, Case] = {
    "messages": ({"messages": user() * 6}, 400, "messages: 6 were sent, at most 5 are taken (MAX_MESSAGES)"),
    "tools": ({"tools": [TOOL] * 4}, 400, "tools: 4 were declared, at most 3 are taken (MAX_TOOLS)"),
    "a deep schema": (
        {"tools": [TOOL, {"name": "g", "input_schema": DEEP}]},
        400,
        "tools.1.input_schema: nested deeper than 6 levels of JSON (MAX_SCHEMA_DEPTH)",
    ),
    "a large schema": (
        {"tools": [{"name": "g", "input_schema": WIDE}]},
        413,
        "tools.0.input_schema: 518 bytes, at most 500 are taken (MAX_SCHEMA_BYTES)",
    ),
    "the schema of a tool added later": (
        {
            "messages": [
                {
                    "role": "system",
                    "content": [{"type": "tool_addition", "tool": {"definition": {"input_schema": DEEP}}}],
                }
            ]
        },
        400,
        "messages.0.content.0.tool.definition.input_schema: nested deeper than 6",
    ),
    "the schema of the answer": (
        {"output_config": {"format": {"type": "json_schema", "schema": DEEP}}},
        400,
        "output_config.format.schema: nested deeper than 6",
    ),
    "images": ({"messages": user(IMAGE, IMAGE) + user(IMAGE)}, 400, "messages.1.content.0: more than 2 images and"),
    "images and documents": (
        {"messages": user(IMAGE, {"type": "document", "source": {"type": "text", "data": "x"}}, IMAGE)},
        400,
        "(MAX_IMAGES)",
    ),
    "a large image": (
        {"messages": user({"type": "text", "text": "x"}, {"type": "image", "source": source(DATA)})},
        413,
        "messages.0.content.1.source.data: 101 bytes, at most 100 are taken (MAX_IMAGE_BYTES)",
    ),
    "a large image in a result": (
        {
            "messages": user(
                {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "image", "source": source(DATA)}]}
            )
        },
        413,
        "messages.0.content.0.content.0.source.data: 101 bytes",
    ),
    "a large image in a document": (
        {
            "messages": user(
                {
                    "type": "document",
                    "source": {"type": "content", "content": [{"type": "image", "source": source(DATA)}]},
                }
            )
        },
        413,
        "messages.0.content.0.source.content.0.source.data: 101 bytes",
    ),
    "a large document": ({"messages": user(PDF)}, 413, "201 bytes, at most 200 are taken (MAX_DOCUMENT_BYTES)"),
    "a long id of a call": (
        {"messages": user({"type": "tool_use", "id": LONG_ID, "name": "f", "input": {}})},
        400,
        "messages.0.content.0.id: 513 characters, at most 512 are taken",
    ),
    "a long id of a result": (
        {"messages": user({"type": "tool_result", "tool_use_id": LONG_ID})},
        400,
        "messages.0.content.0.tool_use_id: 513 characters",
    ),
    "a long model": ({"model": "m" * 257}, 400, "model: 257 characters, at most 256 are taken"),
    "a long user": ({"metadata": {"user_id": "u" * 4097}}, 400, "metadata.user_id: 4097 characters, at most 4096"),
    "large metadata": ({"metadata": {"note": "n" * 65_536}}, 413, "metadata: 65547 bytes, at most 65536 are taken"),
}
CHAT_CASES: dict[str, Case] = {
    "messages": ({"messages": user() * 6}, 400, "(MAX_MESSAGES)"),
    "tools": ({"tools": [FUNCTION] * 4}, 400, "tools: 4 were declared"),
    "functions": ({"functions": [FUNCTION["function"]] * 4}, 400, "functions: 4 were declared"),
    "a deep schema": (
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": DEEP}}]},
        400,
        "tools.0.function.parameters: nested deeper than 6",
    ),
    "a large schema": ({"functions": [{"name": "f", "parameters": WIDE}]}, 413, "functions.0.parameters: 518 bytes"),
    "the schema of the answer": (
        {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": DEEP}}},
        400,
        "response_format.json_schema.schema: nested deeper than 6",
    ),
    "a large image": (
        {"messages": user({"type": "image_url", "image_url": {"url": URL}})},
        413,
        "messages.0.content.0.image_url.url: 101 bytes, at most 100 are taken (MAX_IMAGE_BYTES)",
    ),
    "a large image by its bare URL": (
        {"messages": user({"type": "image_url", "image_url": URL})},
        413,
        "messages.0.content.0.image_url: 101 bytes",
    ),
    "a large file": (
        {"messages": user({"type": "file", "file": {"file_data": "A" * 201}})},
        413,
        "messages.0.content.0.file.file_data: 201 bytes, at most 200 are taken (MAX_DOCUMENT_BYTES)",
    ),
    "a large sound": (
        {"messages": user({"type": "input_audio", "input_audio": {"data": "A" * 201}})},
        413,
        "messages.0.content.0.input_audio.data: 201 bytes",
    ),
    "a large image in a block on its own": (
        {"messages": [{"role": "user", "content": {"type": "image", "source": source(DATA)}}]},
        413,
        "messages.0.content.source.data: 101 bytes",
    ),
    "a long id of a call": (
        {"messages": [{"role": "assistant", "tool_calls": [{"id": "a"}, {"id": LONG_ID}]}]},
        400,
        "messages.0.tool_calls.1.id: 513 characters",
    ),
    "a long id of a result": (
        {"messages": [{"role": "tool", "tool_call_id": LONG_ID}]},
        400,
        "messages.0.tool_call_id: 513 characters",
    ),
    "a long user": ({"user": "u" * 4097}, 400, "user: 4097 characters"),
    "a long safety identifier": ({"safety_identifier": "u" * 4097}, 400, "safety_identifier: 4097 characters"),
}
RESPONSES: dict[str, Case] = {
    "items": ({"input": user() * 6}, 400, "input: 6 were sent, at most 5 are taken (MAX_MESSAGES)"),
    "a deep schema": (
        {"tools": [{"type": "function", "name": "f", "parameters": DEEP}]},
        400,
        "tools.0.parameters: nested deeper than 6",
    ),
    "tools in namespaces": (
        {"tools": [{"type": "namespace", "name": "n", "tools": [TOOL] * 2}] * 2},
        400,
        "tools: 4 were declared",
    ),
    "a deep schema in a namespace": (
        {"tools": [{"type": "namespace", "name": "n", "tools": [{"name": "f", "parameters": DEEP}]}]},
        400,
        "tools.0.tools.0.parameters: nested deeper than 6",
    ),
    "tools found later": (
        {"input": [{"type": "tool_search_output", "tools": [{"name": "f"}] * 4}]},
        400,
        "input.0.tools: 4 were declared",
    ),
    "the schema of the answer": (
        {"text": {"format": {"type": "json_schema", "schema": WIDE}}},
        413,
        "text.format.schema: 518 bytes",
    ),
    "a large image": (
        {"input": user({"type": "input_image", "image_url": URL})},
        413,
        "input.0.content.0.image_url: 101",
    ),
    "a large file": ({"input": user({"type": "input_file", "file_data": "A" * 201})}, 413, "file_data: 201 bytes"),
    "a large image in a result": (
        {"input": [{"type": "function_call_output", "output": [{"type": "input_image", "image_url": URL}]}]},
        413,
        "input.0.output.0.image_url: 101 bytes",
    ),
    "a large picture of the screen": (
        {"input": [{"type": "computer_call_output", "output": {"type": "computer_screenshot", "image_url": URL}}]},
        413,
        "input.0.output.image_url: 101 bytes",
    ),
    "a long id of a call": ({"input": [{"type": "function_call", "call_id": LONG_ID}]}, 400, "input.0.call_id: 513"),
    "a long id of an item": ({"input": [{"type": "reasoning", "id": LONG_ID}]}, 400, "input.0.id: 513 characters"),
    "a long id of an answer": ({"previous_response_id": LONG_ID}, 400, "previous_response_id: 513 characters"),
    "large metadata of a client": ({"client_metadata": {"n": "n" * 65_536}}, 413, "client_metadata: 65544 bytes"),
}
CASES = [
    pytest.param(protocol, *case, id=f"{protocol}: {name}")
    for protocol, cases in (("anthropic", ANTHROPIC), ("openai_chat", CHAT_CASES), ("openai_responses", RESPONSES))
    for name, case in cases.items()
]


@pytest.mark.req("C8", "C10")
@pytest.mark.parametrize(("protocol", "document", "status", "says"), CASES)
def test_a_document_that_is_not_taken(protocol: ProtocolName, document: dict[str, Any], status: int, says: str) -> None:
    with pytest.raises(BridgeError) as refused:
        check_request(check(json.dumps(document).encode(), LIMITS.json), LIMITS)
    told, body = error_renderer(protocol)(refused.value)
    error: Any = body["error"]
    large = protocol == "anthropic" and status == 413
    assert (told, error["type"]) == (status, "request_too_large" if large else "invalid_request_error")
    assert says in error["message"]


@pytest.mark.req("C8")
@pytest.mark.parametrize(
    "document",
    [
        {"messages": user() * 5, "tools": [TOOL] * 3},
        {"messages": user({"type": "image", "source": source("A" * 100)}, {"type": "file", "file": {"file_id": "f"}})},
        {"messages": user({"type": "document", "source": source("A" * 200)})},
        {"messages": user({"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 100}})},
        {"tools": [{"name": "f", "input_schema": nested(6)}]},
        {"tools": [{"name": "f", "input_schema": {"description": "d" * 482}}]},
        {"model": "m" * 256, "user": "u" * 4096, "metadata": {"user_id": "u" * 4096}},
        {"messages": user({"type": "tool_use", "id": "i" * 512, "input": nested(40)})},
    ],
)
def test_as_much_as_the_limit_is_taken(document: dict[str, Any]) -> None:
    check_request(document, LIMITS)


@pytest.mark.req("C8")
@pytest.mark.parametrize(
    "document",
    [
        {"messages": "text", "tools": "text", "metadata": 1, "model": 5, "input": {"a": 1}},
        {"messages": [1, None, "x", []], "tools": [1, None, [], {"tools": 3, "function": 1}]},
        {"messages": [{"content": 5, "tool_calls": {"id": 1}, "tools": {}, "id": 7}]},
        {"messages": user(1, None, {"type": ["image"]}, {"type": {}}, {"type": "image", "source": "s"})},
        {"messages": user({"type": "image_url", "image_url": None}, {"type": "document", "source": [1]})},
        {"input": [{"type": "additional_tools", "tools": [None]}], "text": "x", "output_config": [1]},
        {"messages": user({"type": "tool_addition", "tool": "f"}), "response_format": {"json_schema": "s"}},
    ],
)
def test_what_is_malformed_is_left_to_the_parser_of_the_protocol(document: dict[str, Any]) -> None:
    check_request(document, Limits())


def recorded() -> Iterator[Any]:
    for path in sorted((FIXTURES / "wire").rglob("*.json")):
        body = json.loads(path.read_text()).get("body")
        if isinstance(body, dict):
            yield pytest.param(body, id=str(path.relative_to(FIXTURES / "wire")))


@pytest.mark.req("C8")
@pytest.mark.parametrize("body", list(recorded()))
def test_what_real_clients_send_is_taken_by_default(body: dict[str, Any]) -> None:
    checked = check(json.dumps(body).encode(), Limits().json)
    check_request(checked, Limits())
    assert checked == body
