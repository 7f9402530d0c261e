"""Responses requests of clients, read into the canonical form."""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64encode
from typing import Any

import pytest

from bridge.canonical.content import (
    Base64Source,
    Document,
    FileSource,
    Image,
    RedactedThinking,
    Text,
    Thinking,
    ToolReference,
    ToolResult,
    ToolUse,
    UrlSource,
)
from bridge.canonical.request import OutputFormat, Reasoning, Request, ServerTool, Tool, ToolChoice, Turn
from bridge.errors import BridgeError
from bridge.protocols.openai_responses.parse_request import parse_request
from bridge.protocols.openai_responses.sealed_reasoning import MAX_SEALED_CHARACTERS, seal, unseal
from support import FIXTURES

WIRE = FIXTURES / "wire"
CODEX = [json.loads(path.read_text())["body"] for path in sorted((WIRE / "codex" / "responses").glob("*.json"))]
SDK = json.loads((WIRE / "openai-py" / "responses_stream" / "01.json").read_text())["body"]
GET_WEATHER = {"type": "function", "name": "get_weather", "parameters": {"type": "object", "properties": {}}}
APPLY_PATCH = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Edits files.",
    "format": {"type": "grammar", "syntax": "lark", "definition": "start: LINE"},
}
CRM = {
    "type": "namespace",
    "name": "crm",
    "description": "Customers.",
    "tools": [
        {"type": "function", "name": "find", "description": "Finds.", "parameters": {"type": "object"}},
        {"type": "custom", "name": "note"},
    ],
}


def parse(**body: Any) -> Request:
    return parse_request(json.dumps({"model": "m", "input": "hi", **body}).encode())


def items(*given: Any) -> tuple[Turn, ...]:
    return parse(input=list(given)).turns


def refusal(**body: Any) -> str:
    with pytest.raises(BridgeError) as caught:
        parse(**body)
    assert caught.value.status == 400
    return caught.value.message


@pytest.mark.req("P1", "C15")
@pytest.mark.parametrize("body", CODEX, ids=["first", "after_a_tool"])
def test_codex_is_understood_with_all_its_tools(body: dict[str, Any]) -> None:
    request = parse_request(json.dumps(body).encode())
    declared = {tool["name"] for tool in body["tools"] if tool["type"] == "function"}
    [space] = [tool for tool in body["tools"] if tool["type"] == "namespace"]
    flat = {f"multi_agent_v1__{tool['name']}" for tool in space["tools"]}
    assert {tool.name for tool in request.tools} == declared | flat | {"web_search"}
    assert ServerTool("web_search_20250305", "web_search", {}, optional=True) in request.tools
    assert request.unread == ()
    assert request.extras == {"prompt_cache_key": body["prompt_cache_key"]}
    assert (request.tool_choice, request.stream) == (ToolChoice("auto"), True)
    assert len(request.system) == 3
    assert [turn.role for turn in request.turns[:2]] == ["user", "user"]
    spawn = request.echo["calls"]["multi_agent_v1__spawn_agent"]  # type: ignore[index, call-overload]
    assert spawn == {"kind": "function", "name": "spawn_agent", "namespace": "multi_agent_v1"}
    assert request.echo["seals_reasoning"] is True


@pytest.mark.req("P1", "FR4.1")
def test_codex_brings_calls_and_results() -> None:
    call, result = parse_request(json.dumps(CODEX[1]).encode()).turns[-2:]
    assert call == Turn("assistant", (ToolUse("call_fake1", "exec_command", {"cmd": "cat README.md"}),))
    assert result.role == "user"
    assert [block.tool_use_id for block in result.content if isinstance(block, ToolResult)] == ["call_fake1"]


@pytest.mark.req("P1")
def test_the_sdk_is_understood() -> None:
    request = parse_request(json.dumps(SDK).encode())
    assert request.turns == (Turn("user", (Text("hi"),)),)
    assert request.reasoning == Reasoning(effort="low")
    assert [(tool.name, tool.strict) for tool in request.tools if isinstance(tool, Tool)] == [("get_weather", True)]
    assert (request.unread, request.extras, request.tool_choice) == ((), {}, None)


@pytest.mark.req("R2", "P1")
def test_instructions_come_before_the_leading_messages_and_later_ones_stay_in_place() -> None:
    request = parse(
        instructions="one",
        input=[
            {"role": "system", "content": "two"},
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "three"}]},
            {"role": "user", "content": "hi"},
            {"role": "developer", "content": "four"},
        ],
    )
    assert [text.text for text in request.system] == ["one", "two", "three"]
    assert request.turns == (Turn("user", (Text("hi"),)), Turn("system", (Text("four"),)))


@pytest.mark.req("R4", "R5", "P1")
def test_items_of_one_side_make_one_turn() -> None:
    def call(name: str) -> dict[str, str]:
        return {"type": "function_call", "call_id": name, "name": "get_weather", "arguments": '{"city": "Rome"}'}

    def output(name: str) -> dict[str, str]:
        return {"type": "function_call_output", "call_id": name, "output": "sunny"}

    turns = items(
        {"role": "user", "content": "a"},
        {"role": "user", "content": "b"},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"role": "assistant", "content": [{"type": "output_text", "text": "wait", "annotations": []}]},
        call("1"),
        call("2"),
        output("2"),
        output("1"),
        {"role": "user", "content": "and?"},
        {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
    )
    arguments = {"city": "Rome"}
    uses = [ToolUse(name, "get_weather", arguments) for name in ("1", "2")]
    results = [ToolResult(name, (Text("sunny"),)) for name in ("2", "1")]
    assert turns == (
        Turn("user", (Text("a"),)),
        Turn("user", (Text("b"),)),
        Turn("assistant", (Thinking("hm"), Text("wait"), *uses)),
        Turn("user", tuple(results)),
        Turn("user", (Text("and?"),)),
        Turn("assistant", (Text("no"),)),
    )


PDF = b64encode(b"%PDF-1.4").decode()


@pytest.mark.req("C5.2", "P1")
@pytest.mark.parametrize(
    ("part", "block"),
    [
        ({"type": "input_text", "text": "t"}, Text("t")),
        (
            {"type": "input_image", "image_url": "data:image/PNG;base64,AAAA", "detail": "auto"},
            Image(Base64Source("image/png", "AAAA")),
        ),
        ({"type": "input_image", "image_url": "https://a.example/x.png"}, Image(UrlSource("https://a.example/x.png"))),
        ({"type": "input_image", "file_id": "file_1"}, Image(FileSource("file_1"))),
        (
            {"type": "input_file", "filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PDF}"},
            Document(Base64Source("application/pdf", PDF), "a.pdf"),
        ),
        (
            {"type": "input_file", "filename": "a.pdf", "file_data": PDF},
            Document(Base64Source("application/pdf", PDF), "a.pdf"),
        ),
        (
            {"type": "input_file", "filename": "a.txt", "file_data": b64encode("é".encode()).decode()},
            Document((Text("é"),), "a.txt"),
        ),
        ({"type": "input_file", "file_data": "data:text/plain;charset=utf-8;base64,aGk="}, Document((Text("hi"),))),
        ({"type": "input_file", "file_url": "https://a.example/a.pdf"}, Document(UrlSource("https://a.example/a.pdf"))),
        ({"type": "input_file", "file_id": "file_2"}, Document(FileSource("file_2"))),
    ],
)
def test_parts_stand_in_messages_and_in_results(part: dict[str, str], block: Any) -> None:
    [message] = items({"role": "user", "content": [part]})
    assert message == Turn("user", (block,))
    [result] = items({"type": "function_call_output", "call_id": "c", "output": [part]})
    assert result == Turn("user", (ToolResult("c", (block,)),))


@pytest.mark.req("P1")
def test_calls_of_every_form_come_back_under_their_flat_names() -> None:
    turns = items(
        {"type": "custom_tool_call", "id": "ctc_1", "call_id": "1", "name": "apply_patch", "input": "*** Begin"},
        {"type": "custom_tool_call_output", "call_id": "1", "output": "done"},
        {"type": "function_call", "call_id": "2", "namespace": "crm", "name": "find", "arguments": ""},
        {"type": "function_call_output", "call_id": "2", "output": "[]"},
        {
            "type": "local_shell_call",
            "id": "lsh_3",
            "call_id": "3",
            "status": "completed",
            "action": {"type": "exec", "command": ["ls"], "env": {}, "timeout_ms": 5, "user": None},
        },
        {"type": "local_shell_call_output", "id": "3", "output": "a b"},
        {"type": "function_call", "call_id": "4", "namespace": "mcp__git__", "name": "log", "arguments": "{}"},
    )
    assert turns == (
        Turn("assistant", (ToolUse("1", "apply_patch", {"input": "*** Begin"}),)),
        Turn("user", (ToolResult("1", (Text("done"),)),)),
        Turn("assistant", (ToolUse("2", "crm__find", {}),)),
        Turn("user", (ToolResult("2", (Text("[]"),)),)),
        Turn("assistant", (ToolUse("3", "local_shell", {"command": ["ls"], "env": {}, "timeout_ms": 5}),)),
        Turn("user", (ToolResult("3", (Text("a b"),)),)),
        Turn("assistant", (ToolUse("4", "mcp__git__log", {}),)),
    )


@pytest.mark.req("P1", "C5.3")
def test_tools_of_every_form_are_declared() -> None:
    request = parse(tools=[GET_WEATHER, APPLY_PATCH, CRM, {"type": "local_shell"}])
    by_name = {tool.name: tool for tool in request.tools if isinstance(tool, Tool)}
    assert list(by_name) == ["get_weather", "apply_patch", "crm__find", "crm__note", "local_shell"]
    patch = by_name["apply_patch"]
    assert patch.description == "Edits files.\n\nThe input has to follow this lark grammar:\nstart: LINE"
    assert patch.input_schema["required"] == ["input"]
    assert by_name["crm__find"].description == "Finds.\n\nPart of crm: Customers."
    assert request.unread == ()
    assert request.echo["calls"] == {
        "apply_patch": {"kind": "custom", "name": "apply_patch", "namespace": None},
        "crm__find": {"kind": "function", "name": "find", "namespace": "crm"},
        "crm__note": {"kind": "custom", "name": "note", "namespace": "crm"},
        "local_shell": {"kind": "local_shell", "name": "local_shell", "namespace": None},
    }


@pytest.mark.parametrize("parameters", [None, {}, {"properties": {}}])
def test_a_function_without_a_schema_takes_an_object(parameters: Any) -> None:
    [tool] = parse(tools=[{"type": "function", "name": "f", "parameters": parameters}]).tools
    assert isinstance(tool, Tool)
    assert tool.input_schema == {"type": "object", "properties": {}}


@pytest.mark.req("P1")
def test_tools_that_the_client_found_by_search_are_declared_from_then_on() -> None:
    request = parse(
        tools=[
            {"type": "tool_search", "execution": "client", "description": "finds", "parameters": {"type": "object"}}
        ],
        input=[
            {"role": "user", "content": "hi"},
            {"type": "additional_tools", "role": "developer", "tools": [GET_WEATHER]},
            {"type": "tool_search_call", "call_id": "s", "execution": "client", "arguments": {"query": "customers"}},
            {
                "type": "tool_search_output",
                "call_id": "s",
                "execution": "client",
                "status": "completed",
                "tools": [CRM],
            },
            {"type": "tool_search_call", "call_id": "t", "execution": "client", "arguments": '{"query": "again"}'},
            {"type": "tool_search_output", "call_id": "t", "execution": "client", "tools": [CRM]},
        ],
    )
    assert [tool.name for tool in request.tools] == ["tool_search", "get_weather", "crm__find", "crm__note"]
    found = (ToolReference("crm__find"), ToolReference("crm__note"))
    assert request.turns[1:3] == (
        Turn("assistant", (ToolUse("s", "tool_search", {"query": "customers"}),)),
        Turn("user", (ToolResult("s", found),)),
    )
    assert request.turns[3].content == (ToolUse("t", "tool_search", {"query": "again"}),)


@pytest.mark.req("C5.4", "P1")
@pytest.mark.parametrize(
    ("tool", "options"),
    [
        ({"type": "web_search"}, {}),
        ({"type": "web_search_preview", "search_context_size": "low"}, {"search_context_size": "low"}),
        (
            {"type": "web_search", "external_web_access": True, "filters": {"allowed_domains": ["a.example"]}},
            {"allowed_domains": ["a.example"]},
        ),
        (
            {"type": "web_search", "user_location": {"type": "approximate", "country": "FR", "city": None}},
            {"user_location": {"type": "approximate", "country": "FR"}},
        ),
        ({"type": "web_search", "user_location": {"type": "approximate"}}, {}),
    ],
)
def test_web_search_is_a_server_tool(tool: dict[str, Any], options: dict[str, Any]) -> None:
    request = parse(tools=[tool])
    assert request.tools == (ServerTool("web_search_20250305", "web_search", options, optional=True),)
    assert request.unread == ()


def test_a_search_that_may_not_leave_the_house_is_not_declared_but_told() -> None:
    request = parse(tools=[{"type": "web_search", "external_web_access": False}])
    assert request.tools == ()
    assert request.unread == ("web_search without external_web_access",)


def test_the_limit_of_provider_calls_is_the_limit_of_searches() -> None:
    request = parse(tools=[{"type": "web_search"}], max_tool_calls=2)
    assert request.tools == (ServerTool("web_search_20250305", "web_search", {"max_uses": 2}, optional=True),)
    assert parse(max_tool_calls=2).extras == {"max_tool_calls": 2}


@pytest.mark.req("C5.3", "P1")
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"tool_choice": "auto"}, ToolChoice("auto")),
        ({"tool_choice": "none"}, ToolChoice("none")),
        ({"tool_choice": "required"}, ToolChoice("any")),
        ({"parallel_tool_calls": False}, ToolChoice("auto", None, False)),
        ({"parallel_tool_calls": True}, None),
        (
            {"tool_choice": {"type": "function", "name": "get_weather"}, "parallel_tool_calls": False},
            ToolChoice("tool", "get_weather", False),
        ),
        ({"tool_choice": {"type": "function", "name": "find", "namespace": "crm"}}, ToolChoice("tool", "crm__find")),
        ({"tool_choice": {"type": "custom", "name": "apply_patch"}}, ToolChoice("tool", "apply_patch")),
        ({"tool_choice": {"type": "web_search_preview"}}, ToolChoice("tool", "web_search")),
    ],
)
def test_tool_choices(given: dict[str, Any], expected: ToolChoice | None) -> None:
    assert parse(tools=[GET_WEATHER, APPLY_PATCH, CRM, {"type": "web_search"}], **given).tool_choice == expected


@pytest.mark.parametrize(("mode", "expected"), [("auto", "auto"), ("required", "any")])
def test_a_choice_among_some_tools_leaves_the_others_out(mode: str, expected: str) -> None:
    allowed = [{"type": "function", "name": "get_weather"}, {"type": "namespace", "name": "crm"}]
    request = parse(
        tools=[GET_WEATHER, APPLY_PATCH, CRM], tool_choice={"type": "allowed_tools", "mode": mode, "tools": allowed}
    )
    assert [tool.name for tool in request.tools] == ["get_weather", "crm__find", "crm__note"]
    assert request.tool_choice == ToolChoice(expected)  # type: ignore[arg-type]


@pytest.mark.req("C5.1", "C5.5", "P1")
def test_settings_have_their_places() -> None:
    schema = {"type": "object", "properties": {}}
    request = parse(
        max_output_tokens=7,
        temperature=1.5,
        top_p=0.5,
        reasoning={"effort": "xhigh", "summary": "detailed"},
        text={"format": {"type": "json_schema", "name": "out", "schema": schema, "strict": True}, "verbosity": "low"},
        user="u",
        safety_identifier="s",
        prompt_cache_key="k",
        service_tier="flex",
    )
    assert (request.max_tokens, request.temperature, request.top_p) == (7, 1.5, 0.5)
    assert request.reasoning == Reasoning(effort="xhigh")
    assert request.output_format == OutputFormat(schema, "out")
    assert (request.user_id, request.service_tier) == ("s", "flex")
    assert request.extras == {"prompt_cache_key": "k", "verbosity": "low"}


@pytest.mark.parametrize(
    "asked",
    [
        {"truncation": "disabled"},
        {"top_logprobs": 0},
        {"text": {"format": {"type": "text"}, "verbosity": "medium"}},
        {"store": False, "metadata": {"a": "b"}, "client_metadata": {"x": 1}, "previous_response_id": "resp_1"},
        {"include": ["reasoning.encrypted_content"], "stream_options": {"include_obfuscation": False}},
        {"background": False, "conversation": None, "prompt": None, "moderation": None},
        {"reasoning": {"effort": None, "summary": "auto", "context": "auto"}},
    ],
)
def test_settings_that_ask_for_nothing_make_no_noise(asked: dict[str, Any]) -> None:
    request = parse(**asked)
    assert (request.extras, request.unread) == ({}, ())


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"truncation": "auto"}, "truncation"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"unheard_of": 1}, "unheard_of"),
        ({"include": ["message.output_text.logprobs"]}, "include.logprobs"),
        ({"reasoning": {"context": "all_turns"}}, "reasoning.context"),
        ({"tools": [GET_WEATHER | {"output_schema": {}}]}, "tools.function.output_schema"),
        (
            {
                "input": [
                    {
                        "role": "user",
                        "content": [{"type": "input_image", "detail": "low", "image_url": "https://a.example/"}],
                    }
                ]
            },
            "input_image.detail",
        ),
        (
            {
                "input": [
                    {"type": "web_search_call", "id": "ws", "action": {"type": "search", "query": "q"}},
                    {"role": "user", "content": "x"},
                ]
            },
            "web_search_call",
        ),
        ({"input": [{"type": "novelty", "id": "n"}, {"role": "user", "content": "x"}]}, "novelty"),
    ],
)
def test_what_cannot_be_followed_is_told(asked: dict[str, Any], told: str) -> None:
    request = parse(**asked)
    assert told in (*request.extras, *request.unread)


@pytest.mark.parametrize(("effort", "enabled"), [("none", False), ("minimal", None), ("max", None)])
def test_no_effort_means_no_reasoning(effort: str, enabled: bool | None) -> None:
    assert parse(reasoning={"effort": effort}).reasoning == Reasoning(enabled=enabled, effort=effort)


def test_any_json_is_an_output_format() -> None:
    assert parse(text={"format": {"type": "json_object"}}).output_format == OutputFormat(None)
    assert parse(service_tier="default").service_tier == "standard_only"


@pytest.mark.req("S3", "P1")
@pytest.mark.parametrize("block", [Thinking("hm\n☃", "sig=="), Thinking("", "sig"), RedactedThinking("data")])
def test_sealed_thinking_comes_back_whole(block: Thinking | RedactedThinking) -> None:
    sealed = seal(block)
    assert sealed is not None
    item = {
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "other words"}],
        "encrypted_content": sealed,
    }
    request = parse(input=[item])
    assert request.turns == (Turn("assistant", (block,)),)
    assert request.unread == ()


def forged(value: object) -> str:
    return "tb1." + urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


@pytest.mark.req("S4", "P1")
@pytest.mark.parametrize(
    "foreign",
    [
        "gAAAAABk",
        "tb1.",
        "tb1.!!!!",
        "tb1.é",
        "tb1." + "A" * MAX_SEALED_CHARACTERS,
        forged([]),
        forged({"thinking": 1, "signature": "s"}),
        forged({"thinking": "t", "signature": ""}),
        forged({"thinking": "t", "signature": "s", "more": 1}),
        forged({"redacted": None}),
    ],
)
def test_encrypted_content_of_others_is_dropped_and_told(foreign: str) -> None:
    assert unseal(foreign) is None
    item = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": foreign}
    request = parse(input=[item])
    assert request.turns == (Turn("assistant", (Thinking("hm"),)),)
    assert request.unread == ("reasoning.encrypted_content",)


@pytest.mark.req("FR5.2", "C13", "P1")
@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"model": ""}, "model: "),
        ({"model": None}, "model: "),
        ({"input": None}, "input: "),
        ({"input": []}, "input: "),
        ({"input": [5]}, "input.0: "),
        ({"input": [{}]}, "input.0.type: "),
        ({"input": [{"role": "tool", "content": "x"}]}, "input.0.role: "),
        ({"input": [{"role": "user"}]}, "input.0.content: "),
        ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "input.0.content.0.text: "),
        ({"input": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "input.0.content.0.type: 'input_audio'"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input.0.content.0: one of image_url"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "ftp://x"}]}]},
            "input.0.content.0.image_url: ",
        ),
        ({"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "input.0.content.0: one of file_data"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_file", "filename": "a.txt", "file_data": "é"}]}]},
            "input.0.content.0.file_data: ",
        ),
        (
            {"input": [{"role": "assistant", "content": [{"type": "input_image", "file_id": "f"}]}]},
            "input.0.content.0: input_image cannot stand",
        ),
        (
            {"input": [{"role": "system", "content": [{"type": "input_file", "file_id": "f"}]}]},
            "input.0.content.0: input_file cannot stand",
        ),
        ({"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]}, "input.0.call_id: "),
        (
            {"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "[1]"}]},
            "input.0.arguments: not a JSON object",
        ),
        (
            {"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": {}}]},
            "input.0.arguments: ",
        ),
        ({"input": [{"type": "function_call_output", "output": "x"}]}, "input.0.call_id: "),
        ({"input": [{"type": "function_call_output", "call_id": "c"}]}, "input.0.output: "),
        ({"input": [{"type": "function_call_output", "call_id": "c", "output": 5}]}, "input.0.output: "),
        ({"input": [{"type": "custom_tool_call", "call_id": "c", "name": "f"}]}, "input.0.input: "),
        ({"input": [{"type": "local_shell_call", "call_id": "c", "action": {}}]}, "input.0.action.command: "),
        ({"input": [{"id": "msg_1"}]}, "input.0.type: 'item_reference'"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input.0.type: 'item_reference'"),
        ({"input": [{"type": "compaction", "encrypted_content": "x"}]}, "input.0.type: 'compaction'"),
        ({"input": [{"type": "compaction_trigger"}]}, "input.0.type: 'compaction_trigger'"),
        ({"input": [{"type": "mcp_call", "id": "m", "output": "x"}]}, "input.0.type: 'mcp_call'"),
        ({"tools": [{"type": "function"}]}, "tools.0.name: "),
        ({"tools": [{"type": "function", "name": "f", "parameters": []}]}, "tools.0.parameters: "),
        ({"tools": [GET_WEATHER, GET_WEATHER]}, "tools.1.name: "),
        ({"tools": [CRM, {"type": "function", "name": "crm__find"}]}, "tools.1.name: "),
        ({"tools": [{"type": "namespace", "name": "n", "tools": [{"type": "mcp"}]}]}, "tools.0.tools.0.type: 'mcp'"),
        *(
            ({"tools": [{"type": kind}]}, f"tools.0.type: {kind!r}")
            for kind in ("mcp", "file_search", "code_interpreter", "computer_use_preview", "image_generation", "shell")
        ),
        ({"tool_choice": "sometimes"}, "tool_choice: "),
        ({"tool_choice": {"type": "function", "name": "nope"}}, "tool_choice.name: "),
        ({"tool_choice": {"type": "function"}}, "tool_choice.name: "),
        ({"tool_choice": {"type": "mcp", "server_label": "x"}}, "tool_choice.type: 'mcp'"),
        (
            {"tool_choice": {"type": "allowed_tools", "tools": [{"type": "function", "name": "x"}]}},
            "tool_choice.tools.0: ",
        ),
        ({"tool_choice": {"type": "allowed_tools", "tools": [{}]}}, "tool_choice.tools.0.type: "),
        ({"background": True}, "background: "),
        ({"conversation": "conv_1"}, "conversation: "),
        ({"prompt": {"id": "p"}}, "prompt: "),
        ({"temperature": 3}, "temperature: "),
        ({"max_output_tokens": 0}, "max_output_tokens: "),
        ({"reasoning": {"effort": "lots"}}, "reasoning.effort: "),
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format.schema: "),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type: "),
        ({"stream": "yes please"}, "stream: "),
    ],
)
def test_a_bad_request_is_refused_with_the_path_of_the_field(body: dict[str, Any], path: str) -> None:
    message = refusal(**body)
    assert message.startswith(path), message
    assert "@" not in message


@pytest.mark.req("C8", "C13")
@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'"x"', b"\xff", b"null", b'{"model": "m"}'])
def test_what_is_no_request_at_all_is_refused(body: bytes) -> None:
    with pytest.raises(BridgeError) as caught:
        parse_request(body)
    assert caught.value.status == 400
