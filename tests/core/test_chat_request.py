"""Chat completion requests of clients -> canonical requests."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from canonical_json import as_json

from bridge.canonical.content import Base64Source, Document, Image, Text, Thinking, ToolResult, ToolUse
from bridge.canonical.request import OutputFormat, Reasoning, Request, Tool, ToolChoice, Turn
from bridge.errors import BridgeError
from bridge.protocols.openai_chat.parse_request import parse_request
from support import FIXTURES

if TYPE_CHECKING:
    from pathlib import Path

CASES = [case.parent for case in sorted((FIXTURES / "openai_chat_client").glob("*/request.json"))]
WIRE = FIXTURES / "wire"
HELLO = {"role": "user", "content": "Hello"}
FUNCTION = {"type": "function", "function": {"name": "look"}}


def parse(messages: list[Any] | None = None, **fields: Any) -> Request:
    return parse_request(json.dumps({"model": "m", "messages": messages or [HELLO], **fields}).encode())


def parse_recorded(path: str) -> Request:
    return parse_request(json.dumps(json.loads((WIRE / path).read_text())["body"]).encode())


def refusal(body: Any) -> str:
    with pytest.raises(BridgeError) as caught:
        parse_request(body if isinstance(body, bytes) else json.dumps(body).encode())
    assert caught.value.status == 400
    return caught.value.message


@pytest.mark.req("G1", "G6")
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_request_means_the_expected(case: Path) -> None:
    request = parse_request((case / "request.json").read_bytes())
    assert as_json(request) == json.loads((case / "expected.json").read_text())


@pytest.mark.req("G1")
def test_what_codex_sends_is_read_without_loss() -> None:
    request = parse_recorded("codex/chat-0.80.0/02.json")
    assert len(request.system) == 1
    assert [turn.role for turn in request.turns] == ["user", "user", "user", "assistant", "user"]
    assert request.turns[3].content == (ToolUse("call_fake1", "shell", {"command": ["cat", "README.md"]}),)
    assert isinstance(result := request.turns[4].content[0], ToolResult)
    assert result.tool_use_id == "call_fake1"
    assert [tool.name for tool in request.tools] == [
        "shell",
        "list_mcp_resources",
        "list_mcp_resource_templates",
        "read_mcp_resource",
        "update_plan",
        "view_image",
    ]
    assert all(isinstance(tool, Tool) and tool.description and tool.strict is False for tool in request.tools)
    assert (request.stream, request.extras, request.unread, request.echo) == (True, {}, (), {})


@pytest.mark.req("G1")
def test_what_the_openai_sdk_sends_with_a_picture() -> None:
    request = parse_recorded("openai-py/vision/01.json")
    assert request.turns == (Turn("user", (Text("a"), Image(Base64Source("image/png", "AAAA")))),)
    assert (request.max_tokens, request.stop_sequences) == (5, ("a",))
    assert (request.reasoning, request.output_format) == (Reasoning(effort="low"), OutputFormat(None))
    assert request.extras == {"logprobs": True}


@pytest.mark.req("G1")
def test_what_the_openai_sdk_sends_to_parse_an_answer() -> None:
    request = parse_recorded("openai-py/parse/01.json")
    assert request.output_format is not None
    assert request.output_format.name == "Wx"
    assert request.output_format.schema is not None
    assert request.output_format.schema["required"] == ["city", "temp"]
    assert (request.system, request.extras, request.unread) == ((Text("alp"),), {}, ())


@pytest.mark.req("G1")
def test_what_the_openai_sdk_sends_to_stream_tools() -> None:
    request = parse_recorded("openai-py/chat_stream_tools/01.json")
    (tool,) = request.tools
    assert isinstance(tool, Tool)
    assert (tool.name, tool.strict, tool.input_schema["required"]) == ("get_weather", True, ["city"])


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, None),
        ("auto", ToolChoice("auto")),
        ("none", ToolChoice("none")),
        ("required", ToolChoice("any")),
        ({"type": "function", "function": {"name": "look"}}, ToolChoice("tool", "look")),
        ({"type": "function", "name": "look"}, ToolChoice("tool", "look")),
        ({"type": "auto"}, ToolChoice("auto")),
        ({"type": "any"}, ToolChoice("any")),
        ({"type": "none"}, ToolChoice("none")),
        ({"type": "tool", "name": "look"}, ToolChoice("tool", "look")),
        ({"type": "auto", "disable_parallel_tool_use": True}, ToolChoice("auto", parallel=False)),
        ({"type": "allowed_tools", "mode": "auto", "tools": [{"name": "look"}]}, ToolChoice("auto")),
    ],
    ids=str,
)
@pytest.mark.req("G1", "G6")
def test_tool_choice_in_any_shape(choice: Any, expected: ToolChoice | None) -> None:
    assert parse(tools=[FUNCTION], tool_choice=choice).tool_choice == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"tools": [FUNCTION], "parallel_tool_calls": False}, ToolChoice("auto", parallel=False)),
        ({"tools": [FUNCTION], "parallel_tool_calls": True}, None),
        ({"parallel_tool_calls": False}, None),
        ({"functions": [{"name": "look"}]}, ToolChoice("auto", parallel=False)),
        ({"functions": [{"name": "look"}], "function_call": "none"}, ToolChoice("none", parallel=False)),
        ({"functions": [{"name": "look"}], "function_call": {"name": "look"}}, ToolChoice("tool", "look", False)),
    ],
    ids=str,
)
def test_one_call_at_a_time(fields: dict[str, Any], expected: ToolChoice | None) -> None:
    assert parse(**fields).tool_choice == expected


@pytest.mark.req("G6")
@pytest.mark.parametrize(
    "tool",
    [
        {"name": "look", "input_schema": {}},
        {"type": "custom", "name": "look", "input_schema": {}},
        {"type": "function", "name": "look"},
        {"type": "function", "name": "look", "function": {"parameters": None}},
        {"function": {"name": "look", "input_schema": {}}},
    ],
    ids=str,
)
def test_a_tool_in_any_shape_takes_an_object(tool: dict[str, Any]) -> None:
    request = parse(tools=[tool])
    assert request.tools == (Tool("look", {"type": "object", "properties": {}}),)
    assert (request.unread, request.echo) == ((), {})


def test_functions_beside_tools_are_answered_as_tools() -> None:
    request = parse(tools=[FUNCTION], functions=[{"name": "old"}])
    assert [tool.name for tool in request.tools] == ["look", "old"]
    assert request.echo == {}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"reasoning_effort": "high"}, Reasoning(effort="high")),
        ({"reasoning_effort": "none"}, Reasoning(enabled=False)),
        ({"reasoning_effort": None}, Reasoning()),
        ({"reasoning": {"effort": "none"}}, Reasoning(enabled=False)),
        ({"reasoning": {"enabled": True}}, Reasoning(enabled=True)),
        ({"reasoning": {"max_tokens": 2000}}, Reasoning(budget_tokens=2000)),
        ({"reasoning": {"effort": "low", "exclude": True}}, Reasoning(effort="low", exclude=True)),
        ({"thinking": {"type": "adaptive"}}, Reasoning(enabled=True)),
        ({"thinking": {"type": "disabled"}, "reasoning_effort": "high"}, Reasoning(enabled=False, effort="high")),
    ],
    ids=str,
)
def test_reasoning_in_any_terms(fields: dict[str, Any], expected: Reasoning) -> None:
    assert parse(**fields).reasoning == expected


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, OutputFormat(None)),
        ({"type": "json_schema", "json_schema": {"name": "n"}}, OutputFormat(None, "n")),
        (
            {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}},
            OutputFormat({"type": "object"}, "n"),
        ),
    ],
    ids=str,
)
def test_response_formats(wanted: Any, expected: OutputFormat | None) -> None:
    assert parse(response_format=wanted).output_format == expected


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 1},
        {"modalities": ["text"]},
        {"logprobs": False, "top_logprobs": 0},
        {"frequency_penalty": 0, "presence_penalty": 0.0},
        {"logit_bias": {}, "metadata": {}, "store": False},
        {"verbosity": "medium", "seed": None, "prediction": None, "audio": None},
        {"stream_options": {"include_usage": False, "include_obfuscation": False}},
        {"response_format": {"type": "text"}, "tools": [], "functions": None},
    ],
    ids=str,
)
def test_what_asks_for_nothing_is_no_loss(fields: dict[str, Any]) -> None:
    request = parse(**fields)
    assert (request.extras, request.unread, request.echo) == ({}, (), {})


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"seed": 0}, "seed"),
        ({"logit_bias": {"1": 2}}, "logit_bias"),
        ({"presence_penalty": -1}, "presence_penalty"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"verbosity": "high"}, "verbosity"),
        ({"web_search_options": {}}, "web_search_options"),
        ({"prompt_cache_key": "k"}, "prompt_cache_key"),
        ({"metadata": {"user_id": 7}}, "metadata"),
        ({"something_new": False}, "something_new"),
    ],
    ids=str,
)
def test_settings_without_a_place_are_kept_to_be_reported(fields: dict[str, Any], name: str) -> None:
    assert list(parse(**fields).extras) == [name]


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"messages": [HELLO | {"name": "ann"}]}, ["message.name"]),
        ({"messages": [HELLO, {"role": "assistant", "content": "a", "reasoning": "b"}]}, ["message.reasoning"]),
        (
            {"messages": [HELLO, {"role": "assistant", "content": "a", "reasoning_details": [{"text": "b"}]}]},
            ["message.reasoning_details"],
        ),
        ({"messages": [HELLO, {"role": "assistant", "content": "a", "reasoning_content": ""}]}, []),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "a", "citations": [1]}]}]},
            ["text.citations"],
        ),
        ({"tools": [{"type": "function", "function": {"name": "a", "examples": [1]}}]}, ["tool.examples"]),
        ({"stream_options": {"include_obfuscation": True}}, ["stream_options.include_obfuscation"]),
        ({"reasoning": {"effort": "low", "summary": "auto"}}, ["reasoning.summary"]),
        ({"user": "ann", "safety_identifier": "hash"}, ["user"]),
    ],
    ids=str,
)
def test_fields_that_nothing_reads_are_named(fields: dict[str, Any], names: list[str]) -> None:
    request = parse_request(json.dumps({"model": "m", "messages": [HELLO], **fields}).encode())
    assert list(request.unread) == names


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"user": "ann"}, "ann"),
        ({"user": "ann", "safety_identifier": "hash"}, "hash"),
        ({"metadata": {"user_id": "u"}}, "u"),
        ({"metadata": {"user_id": "u"}, "user": "ann"}, "ann"),
        ({}, None),
    ],
    ids=str,
)
def test_who_the_user_is(fields: dict[str, Any], expected: str | None) -> None:
    assert parse(**fields).user_id == expected


@pytest.mark.parametrize("arguments", ["", "  ", "{}", None, {}, "null"], ids=repr)
@pytest.mark.req("G5")
def test_a_call_without_arguments_has_empty_ones(arguments: Any) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": arguments}}
    request = parse([HELLO, {"role": "assistant", "tool_calls": [call]}])
    assert request.turns[-1] == Turn("assistant", (ToolUse("c", "look", {}),))


@pytest.mark.parametrize("content", ["", []], ids=repr)
def test_an_assistant_that_said_nothing_is_an_empty_turn(content: Any) -> None:
    assert parse([HELLO, {"role": "assistant", "content": content}]).turns[-1] == Turn("assistant", ())


def test_base64_may_be_broken_into_lines() -> None:
    part = {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBE\r\nRi0x"}}
    (turn,) = parse([{"role": "user", "content": [part]}]).turns
    assert turn.content == (Document(Base64Source("application/pdf", "JVBERi0x"), "a.pdf"),)


@pytest.mark.req("G6")
def test_unsigned_thinking_is_kept_too() -> None:
    request = parse([HELLO, {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}]}])
    assert request.turns[-1].content == (Thinking("hm"),)


def test_functions_are_answered_in_order_and_by_name() -> None:
    request = parse(
        [
            HELLO,
            {"role": "assistant", "content": None, "function_call": {"name": "a", "arguments": "{}"}},
            {"role": "assistant", "content": None, "function_call": {"name": "b", "arguments": "{}"}},
            {"role": "function", "name": "b", "content": "2"},
            {"role": "function", "name": "a", "content": "1"},
        ]
    )
    assert request.turns[-1].content == (
        ToolResult("call_legacy_1", (Text("2"),)),
        ToolResult("call_legacy_0", (Text("1"),)),
    )


def user(*parts: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": list(parts)}]}


def said(**message: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [HELLO, message]}


def asking(**fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [HELLO], **fields}


def picture(url: Any) -> dict[str, Any]:
    return user({"type": "image_url", "image_url": {"url": url}})


def file(**fields: Any) -> dict[str, Any]:
    return user({"type": "file", "file": fields})


def calling(arguments: Any) -> dict[str, Any]:
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": arguments}}
    return said(role="assistant", content=None, tool_calls=[call])


REFUSED: list[tuple[Any, str]] = [
    (b"", "body: "),
    (b"{", "body: "),
    (b"[]", "body: "),
    (b'{"model": "m", "messages": [{"role": "user", "content": "\\ud800"}]}', "body: "),
    ({"messages": [HELLO]}, "model: Field required"),
    ({"model": "", "messages": [HELLO]}, "model: "),
    ({"model": "m"}, "messages: Field required"),
    ({"model": "m", "messages": []}, "messages: the list is empty"),
    ({"model": "m", "messages": {}}, "messages: "),
    ({"model": "m", "input": "Hello"}, "messages: missing; this is a Responses request, send it to /v1/responses"),
    ({"model": "m", "messages": [{"role": "bot", "content": "a"}]}, "messages.0.role: "),
    ({"model": "m", "messages": [{"role": "user"}]}, "messages.0.content: Field required"),
    ({"model": "m", "messages": [{"role": "user", "content": None}]}, "messages.0.content: Field required"),
    ({"model": "m", "messages": [{"role": "user", "content": 5}]}, "messages.0.content: "),
    ({"model": "m", "messages": ["Hello"]}, "messages.0: "),
    (user({"type": "text"}), "messages.0.content.0.text: Field required"),
    (user({"type": "text", "text": 5}), "messages.0.content.0.text: "),
    (user({"type": "video", "url": "x"}), "messages.0.content.0: "),
    (user({"text": "no type"}), "messages.0.content.0: "),
    (user({"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}), "messages.0.content.0: audio"),
    (user({"type": "tool_use", "id": "a", "name": "b", "input": {}}), "messages.0.content.0: a tool_use part"),
    (user({"type": "thinking", "thinking": "a"}), "messages.0.content.0: a thinking part"),
    (user({"type": "tool_result", "content": "a"}), "messages.0.content.0.tool_use_id: Field required"),
    (
        user(
            {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}
        ),
        "messages.0.content.0.content.0.image_url.url: ",
    ),
    (user({"type": "image", "source": {"type": "base64", "data": "AAAA"}}), "messages.0.content.0.source.media_type: "),
    (user({"type": "image_url", "image_url": {}}), "messages.0.content.0.image_url.url: Field required"),
    (user({"type": "image_url"}), "messages.0.content.0.image_url: Field required"),
    (picture("ftp://example.com/a.png"), "messages.0.content.0.image_url.url: "),
    (picture("data:image/png,AAAA"), "messages.0.content.0.image_url.url: "),
    (picture("data:image/png;base64"), "messages.0.content.0.image_url.url: "),
    (picture("data:;base64,AAAA"), "messages.0.content.0.image_url.url: "),
    (picture("data:image/png;base64,AAA"), "messages.0.content.0.image_url.url: the data is not valid base64"),
    (picture("data:image/png;base64,é"), "messages.0.content.0.image_url.url: the data is not valid base64"),
    (picture("data:image/png;base64,"), "messages.0.content.0.image_url.url: the data is empty"),
    (picture("data:text/plain;base64,AAAA"), "messages.0.content.0.image_url.url: text/plain is not a picture"),
    (file(filename="a.pdf"), "messages.0.content.0.file.file_data: Field required"),
    (file(filename="a.docx", file_data="data:application/msword;base64,AAAA"), "messages.0.content.0.file.file_data: "),
    (file(file_data="AAAA"), "messages.0.content.0.file.file_data: neither"),
    (file(filename="a.txt", file_data="data:text/plain;base64,/w=="), "messages.0.content.0.file.file_data: the text"),
    (
        {"model": "m", "messages": [{"role": "system", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        "messages.0.content.0: instructions are text only",
    ),
    (said(role="assistant"), "messages.1.content: Field required"),
    (said(role="assistant", content=None, audio={"id": "a"}), "messages.1.audio: "),
    (calling("nonsense"), "messages.1.tool_calls.0.function.arguments: "),
    (calling("[1]"), "messages.1.tool_calls.0.function.arguments: "),
    (calling('{"a": "\\ud800"}'), "messages.1.tool_calls.0.function.arguments: "),
    (calling(5), "messages.1.tool_calls.0.function.arguments: "),
    (said(role="assistant", tool_calls=[{"id": "c"}]), "messages.1.tool_calls.0.function: Field required"),
    (said(role="assistant", tool_calls=[{"id": "c", "type": "custom"}]), "messages.1.tool_calls.0.custom: "),
    (said(role="assistant", tool_calls=[{"function": {"name": "a"}}]), "messages.1.tool_calls.0.id: Field required"),
    (said(role="assistant", tool_calls=[{"id": "c", "function": {}}]), "messages.1.tool_calls.0.function.name: "),
    (said(role="assistant", function_call={"name": "a", "arguments": "x"}), "messages.1.function_call.arguments: "),
    (said(role="user", content="a", tool_calls=[{"id": "c", "function": {"name": "a"}}]), "messages.1.tool_calls: "),
    (said(role="tool", content="a"), "messages.1.tool_call_id: Field required"),
    (said(role="tool", tool_call_id="", content="a"), "messages.1.tool_call_id: Field required"),
    (
        said(role="tool", tool_call_id="c", content=[{"type": "refusal", "refusal": "a"}]),
        "messages.1.content.0: a tool's result cannot hold refusal",
    ),
    (said(role="function", name="look", content="a"), "messages.1.name: no function_call"),
    (asking(tools=[{"type": "function", "function": {}}]), "tools.0.function.name: Field required"),
    (asking(tools=[{"type": "function"}]), "tools.0.name: Field required"),
    (asking(tools=[{"type": "custom", "custom": {}}]), "tools.0.custom.name: Field required"),
    (
        asking(tools=[{"type": "function", "function": {"name": "a", "parameters": []}}]),
        "tools.0.function.parameters: ",
    ),
    (asking(functions=[{}]), "functions.0.name: Field required"),
    (asking(tool_choice="look"), "tool_choice: "),
    (asking(tool_choice={"type": "function"}), "tool_choice: "),
    (asking(tool_choice={"type": "tool", "name": ""}), "tool_choice: "),
    (asking(tool_choice=[]), "tool_choice: "),
    (
        asking(tool_choice={"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"name": "x"}]}}),
        "tool_choice.allowed_tools.tools: 'x' is not among the declared tools",
    ),
    (
        asking(tool_choice={"type": "allowed_tools", "allowed_tools": {"mode": "never", "tools": []}}),
        "tool_choice.allowed_tools.mode: ",
    ),
    (asking(tool_choice={"type": "allowed_tools"}), "tool_choice.allowed_tools.tools: "),
    (asking(function_call="required"), "function_call: "),
    (asking(n=2), "n: 2 answers were asked for"),
    (asking(n=0), "n: "),
    (asking(modalities=["text", "audio"]), "modalities: answers are text only"),
    (asking(audio={"voice": "alloy", "format": "mp3"}), "audio: answers are text only"),
    (asking(temperature=2.5), "temperature: "),
    (asking(top_p=1.5), "top_p: "),
    (asking(max_tokens=0), "max_tokens: "),
    (asking(max_completion_tokens="many"), "max_completion_tokens: "),
    (asking(stop=[1]), "stop.0: "),
    (asking(reasoning_effort="lots"), "reasoning_effort: "),
    (asking(reasoning={"effort": "lots"}), "reasoning.effort: "),
    (asking(response_format={"type": "grammar"}), "response_format.type: "),
    (asking(response_format={"type": "json_schema"}), "response_format.json_schema: Field required"),
    (asking(system=[{"type": "text"}]), "system.0.text: Field required"),
]


@pytest.mark.req("G1")
@pytest.mark.parametrize(("body", "told"), REFUSED, ids=[f"{index} {told}" for index, (_, told) in enumerate(REFUSED)])
def test_a_bad_body_is_refused_by_the_name_of_the_field(body: Any, told: str) -> None:
    assert refusal(body).startswith(told)


def test_many_problems_are_told_in_short() -> None:
    message = refusal({"model": "m", "messages": [{"role": "bot"}] * 9})
    assert message.endswith("and 6 more")
    assert message.count("messages.") == 3


@pytest.mark.req("G1")
def test_words_that_follow_a_call_stand_before_it() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "Go"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "assistant", "content": "Looking."},
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
    ]
    request = parse_request(json.dumps({"model": "m", "messages": messages}).encode())
    assert [type(block).__name__ for block in request.turns[1].content] == ["Text", "ToolUse"]
    assert [turn.role for turn in request.turns] == ["user", "assistant", "user"]
