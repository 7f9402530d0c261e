"""Messages requests as requests for a response: what is said, in which order, and what is lost."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from openai.types.responses import response_create_params
from pydantic import TypeAdapter

from bridge.canonical.content import Replay, ToolUse
from bridge.canonical.fold import fold
from bridge.canonical.request import OutputFormat, Turn
from bridge.canonical.target import Target
from bridge.errors import BridgeError
from bridge.protocols.anthropic.parse_request import parse_request
from bridge.protocols.openai_responses.render_request import render_request
from bridge.protocols.openai_responses.stream_decoder import ResponsesStreamDecoder
from support import FIXTURES

if TYPE_CHECKING:
    from bridge.canonical.reading import Rendered
    from bridge.canonical.request import Request

ADAPTER: TypeAdapter[Any] = TypeAdapter(response_create_params.ResponseCreateParams)
HI = {"role": "user", "content": "Hi"}
PNG = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
PDF = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBE"}}
IMAGE = {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,aGk="}
FILE = {"type": "input_file", "filename": "document.pdf", "file_data": "data:application/pdf;base64,JVBE"}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA"}
MORE_REASONING = REASONING | {"id": "rs_2"}


def parsed(**body: Any) -> Request:
    whole = {"model": "m", "max_tokens": 100, "messages": [HI]} | body
    return parse_request(json.dumps(whole).encode())


def rendered(request: Request, model: str = "gpt-5.5", cache_key: str | None = None) -> Rendered:
    """The request as OpenAI gets it; everything in it has to be what the SDK's own types allow."""
    said = render_request(request, Target("openai", model, "https://api.openai.com/v1", cache_key))
    validated = ADAPTER.validate_python(json.loads(json.dumps(said.body)), extra="forbid")
    for name in ("input", "tools"):
        if name in validated:
            assert len(list(validated[name])) == len(said.body[name])  # type: ignore[arg-type]
    return said


def render(model: str = "gpt-5.5", cache_key: str | None = None, **body: Any) -> Rendered:
    return rendered(parsed(**body), model, cache_key)


def items(*turns: Any, **body: Any) -> list[Any]:
    return render(messages=list(turns), **body).body["input"]  # type: ignore[return-value]


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def use(tool_id: str, name: str = "Read", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": tool_id, "name": name, "input": arguments}


def result(tool_id: str, content: Any = "done", **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": tool_id, "content": content} | more


def said(role: str, *parts: Any) -> dict[str, Any]:
    content = [{"type": "input_text", "text": part} if isinstance(part, str) else part for part in parts]
    return {"type": "message", "role": role, "content": content}


def spoken(words: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": words}


def call(call_id: str, name: str = "Read", arguments: str = "{}") -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


def output(call_id: str, said: Any = "done") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": said}


def tool(name: str = "Read", **more: Any) -> dict[str, Any]:
    return {"name": name, "description": "Reads", "input_schema": {"type": "object", "properties": {}}} | more


@pytest.mark.req("P1")
def test_a_plain_request_says_no_more_than_it_has_to() -> None:
    assert render("gpt-4.1", stream=True).body == {
        "model": "gpt-4.1",
        "input": [said("user", "Hi")],
        "store": False,
        "max_output_tokens": 100,
        "stream": True,
    }


@pytest.mark.req("R2")
@pytest.mark.parametrize(
    "system",
    [
        "Be brief.\n\nBe kind.",
        [text("Be brief."), text("Be kind.")],
        [text("x-anthropic-billing-header: cc_version=2.1; cch=abc;"), text("Be brief."), text("Be kind.")],
    ],
)
def test_system_text_is_the_instructions_without_the_billing_line(system: Any) -> None:
    assert render(system=system).body["instructions"] == "Be brief.\n\nBe kind."


def test_without_system_text_there_are_no_instructions() -> None:
    assert "instructions" not in render(system=[text("x-anthropic-billing-header: a")]).body


@pytest.mark.req("P1", "R4", "R5", "R6")
def test_a_tool_round_is_told_item_by_item() -> None:
    sent = items(
        HI,
        assistant(text("Let me see."), use("t1", path="a"), use("t2", "Glob")),
        user(text("And?"), result("t2", "two"), result("t1", "one")),
    )
    assert sent == [
        said("user", "Hi"),
        spoken("Let me see."),
        call("t1", "Read", '{"path":"a"}'),
        call("t2", "Glob"),
        output("t1", "one"),
        output("t2", "two"),
        said("user", "And?"),
    ]


@pytest.mark.req("FR5.1", "C5.2")
@pytest.mark.parametrize(
    ("content", "more", "expected"),
    [
        ("plain", {}, "plain"),
        ([text("a"), text("b")], {}, "a\nb"),
        ("", {}, ""),
        ([], {}, ""),
        (None, {}, ""),
        ("gone", {"is_error": True}, "[tool error] gone"),
        (None, {"is_error": True}, "[tool error] no details"),
        ("", {"is_error": True}, "[tool error] no details"),
        ([{"type": "tool_reference", "tool_name": "WebFetch"}], {}, "The tool WebFetch is now available."),
        ([text("look"), PNG], {}, [{"type": "input_text", "text": "look"}, IMAGE]),
        ([PNG], {"is_error": True}, [{"type": "input_text", "text": "[tool error]"}, IMAGE]),
        ([PDF], {}, [FILE]),
        (
            [{"type": "document", "title": "N", "source": {"type": "text", "media_type": "text/plain", "data": "x"}}],
            {},
            '<document title="N">\nx\n</document>',
        ),
    ],
)
def test_results_hold_whatever_the_tool_gave(content: Any, more: Any, expected: Any) -> None:
    assert items(HI, assistant(use("t1")), user(result("t1", content, **more)))[-1] == output("t1", expected)


@pytest.mark.req("S5")
def test_a_call_without_a_result_gets_a_neutral_one() -> None:
    request = render(messages=[HI, assistant(use("t1")), user(text("Never mind."))])
    assert request.body["input"][2] == output("t1", "[no result was recorded for this call]")  # type: ignore[index]
    assert "tool_use without a result: a neutral result stands in" in request.losses


def test_a_result_without_its_call_is_refused() -> None:
    with pytest.raises(BridgeError, match="no tool_use with this id"):
        items(HI, assistant(text("Hm.")), user(result("t9")))


@pytest.mark.req("C5.2")
@pytest.mark.parametrize(
    ("block", "parts"),
    [
        (PNG, [IMAGE]),
        (
            {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
            [{"type": "input_image", "detail": "auto", "image_url": "https://example.com/a.png"}],
        ),
        (PDF, [FILE]),
        (PDF | {"title": "plan.pdf"}, [FILE | {"filename": "plan.pdf"}]),
        (PDF | {"context": "The plan"}, [{"type": "input_text", "text": "The plan"}, FILE]),
        (
            {"type": "document", "source": {"type": "url", "url": "https://example.com/a.pdf"}},
            [{"type": "input_file", "file_url": "https://example.com/a.pdf"}],
        ),
        (
            {"type": "document", "source": {"type": "content", "content": [text("one"), PNG, text("two")]}},
            [
                {"type": "input_text", "text": "<document>\none"},
                IMAGE,
                {"type": "input_text", "text": "two\n</document>"},
            ],
        ),
    ],
    ids=["image", "image url", "pdf", "titled", "with context", "pdf url", "text and images"],
)
def test_images_and_documents_are_input_parts(block: Any, parts: list[Any]) -> None:
    assert items(user(block, text("What is it?"))) == [said("user", *parts, "What is it?")]


@pytest.mark.parametrize("kind", ["image", "document"])
def test_files_of_another_provider_are_refused(kind: str) -> None:
    with pytest.raises(BridgeError, match=f"{kind}: files uploaded to another provider"):
        items(user({"type": kind, "source": {"type": "file", "file_id": "file_1"}}))


def test_system_turns_are_developer_messages_where_they_stand() -> None:
    sent = items(HI, assistant(text("Hello.")), {"role": "system", "content": "Mode changed."}, user(text("Go on.")))
    assert sent[1:] == [spoken("Hello."), said("developer", "Mode changed."), said("user", "Go on.")]


def test_nothing_to_answer_is_refused() -> None:
    with pytest.raises(BridgeError, match="nothing in them to answer"):
        items({"role": "system", "content": "Mode changed."})


@pytest.mark.req("C5.1")
def test_a_prefill_is_an_assistant_message_at_the_end() -> None:
    request = render(messages=[HI, assistant(text("The answer is"))])
    assert request.body["input"][-1] == spoken("The answer is")  # type: ignore[index]
    assert request.losses == ()


@pytest.mark.req("S4")
def test_thinking_of_others_is_left_out_and_reported() -> None:
    thinking = {"type": "thinking", "thinking": "hm", "signature": "s"}
    request = render(messages=[HI, assistant(thinking, text("Hello.")), HI])
    assert request.body["input"] == [said("user", "Hi"), spoken("Hello."), said("user", "Hi")]
    assert request.losses == ("thinking: only the provider that made it can read it",)


def test_what_server_tools_did_is_told_in_words() -> None:
    search = {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": "x"}}
    request = render(messages=[HI, assistant(search, text("Found.")), HI])
    assert request.body["input"][1:3] == [spoken('[used web_search: {"query":"x"}]'), spoken("Found.")]  # type: ignore[index]
    assert "server_tool_use: told in words" in request.losses


def with_replays(request: Request, replays: dict[str, Any]) -> Request:
    turns = [
        Turn(
            turn.role,
            tuple(
                replace(block, replay=Replay(call=replays[block.id]))
                if isinstance(block, ToolUse) and block.id in replays
                else block
                for block in turn.content
            ),
        )
        for turn in request.turns
    ]
    return replace(request, turns=tuple(turns))


MESSAGE = spoken("") | {
    "id": "msg_1",
    "status": "completed",
    "phase": "commentary",
    "content": [{"type": "output_text", "text": "Let me see.", "annotations": []}],
}


@pytest.mark.req("S2", "P1")
@pytest.mark.parametrize(
    ("blocks", "replays", "expected"),
    [
        (
            [text("Let me see."), use("t1"), use("t2")],
            {"t1": {"reasoning": [REASONING], "after_text": False}},
            [REASONING, spoken("Let me see."), call("t1"), call("t2")],
        ),
        (
            [text("Let me see."), use("t1")],
            {"t1": {"reasoning": [REASONING], "after_text": True}},
            [spoken("Let me see."), REASONING, call("t1")],
        ),
        (
            [use("t1"), use("t2")],
            {
                "t1": {"reasoning": [REASONING], "after_text": False},
                "t2": {"reasoning": [MORE_REASONING], "after_text": False},
            },
            [REASONING, call("t1"), MORE_REASONING, call("t2")],
        ),
        (
            [text("Let me see."), use("t1")],
            {"t1": {"reasoning": [MORE_REASONING], "after_text": True, "before_text": [REASONING]}},
            [REASONING, spoken("Let me see."), MORE_REASONING, call("t1")],
        ),
        (
            [text("Let me see."), use("t1")],
            {
                "t1": {
                    "reasoning": [REASONING],
                    "after_text": False,
                    "messages": [{"id": "msg_1", "phase": "commentary"}],
                }
            },
            [REASONING, MESSAGE, call("t1")],
        ),
        (
            [use("t1")],
            {"t1": {"reasoning": [REASONING], "after_text": False, "messages": [{"id": "msg_1"}]}},
            [REASONING, call("t1")],
        ),
        ([use("t1")], {"t1": {"extra_content": {"google": {}}}}, [call("t1")]),
    ],
    ids=[
        "before the text",
        "after the text",
        "before each call",
        "around the text",
        "with the message it led to",
        "the message was trimmed",
        "not of this protocol",
    ],
)
def test_reasoning_goes_back_where_it_came_from(blocks: Any, replays: Any, expected: Any) -> None:
    results = [result(block["id"]) for block in blocks if block["type"] == "tool_use"]
    request = with_replays(parsed(messages=[HI, assistant(*blocks), user(*results)]), replays)
    sent: Any = rendered(request).body["input"]
    assert sent[1 : 1 + len(expected)] == expected


@pytest.mark.req("S2", "P1")
@pytest.mark.parametrize(
    "case",
    ["reasoning_text_and_call", "text_reasoning_and_call", "reasoning_before_each_call", "reasoning_around_text"],
)
def test_what_an_answer_said_comes_back_item_by_item(case: str) -> None:
    folder = FIXTURES / "openai_responses" / case
    decoder = ResponsesStreamDecoder(parsed_reading())
    message = fold([*decoder.feed((folder / "stream.sse").read_bytes()), *decoder.close()])
    request = replace(parsed(), turns=(*parsed().turns, Turn("assistant", message.content)))
    sent: Any = rendered(request).body["input"]
    given = json.loads((folder / "response.json").read_text())["output"]
    assert [(item["type"], item.get("call_id") or item.get("id")) for item in sent[1 : 1 + len(given)]] == [
        (item["type"], item.get("call_id") or item["id"]) for item in given
    ]
    assert [item for item in sent if item["type"] == "reasoning"] == [
        item for item in given if item["type"] == "reasoning"
    ]


def parsed_reading() -> Any:
    return rendered(parsed()).reading


@pytest.mark.req("C5.3")
def test_tools_say_whether_they_are_strict() -> None:
    closed = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    request = render(tools=[tool(), tool("Exact", input_schema=closed, strict=True)])
    assert request.body["tools"] == [
        {
            "type": "function",
            "name": "Read",
            "description": "Reads",
            "parameters": {"type": "object", "properties": {}},
            "strict": False,
        },
        {"type": "function", "name": "Exact", "description": "Reads", "parameters": closed, "strict": True},
    ]


@pytest.mark.req("C5.3")
@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "auto"}, {"tool_choice": "auto"}),
        ({"type": "none"}, {"tool_choice": "none"}),
        ({"type": "any"}, {"tool_choice": "required"}),
        ({"type": "tool", "name": "Read"}, {"tool_choice": {"type": "function", "name": "Read"}}),
        (
            {"type": "auto", "disable_parallel_tool_use": True},
            {"tool_choice": "auto", "parallel_tool_calls": False},
        ),
    ],
)
def test_tool_choice(choice: Any, expected: Any) -> None:
    body = render(tools=[tool()], tool_choice=choice).body
    assert {name: body[name] for name in ("tool_choice", "parallel_tool_calls") if name in body} == expected


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"tools": [tool()], "tool_choice": {"type": "tool", "name": "Nope"}}, "there is no tool 'Nope'"),
        ({"tool_choice": {"type": "any"}}, "a tool is demanded"),
        ({"tools": [tool(f"t{n}") for n in range(129)]}, "takes 128 at most"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "Anthropic runs these itself"),
        ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "only Claude knows these by their type"),
    ],
)
def test_tools_that_cannot_be_had_are_refused(body: Any, says: str) -> None:
    with pytest.raises(BridgeError, match=says):
        render(**body)


@pytest.mark.req("C5.3", "S6")
def test_names_and_ids_are_made_legal_and_names_are_given_back() -> None:
    name, tool_id = "mcp.server/" + "x" * 70, "toolu:" + "y" * 70
    request = render(tools=[tool(name)], messages=[HI, assistant(use(tool_id, name)), user(result(tool_id))])
    sent: Any = request.body["input"]
    wire_name = sent[1]["name"]
    assert len(wire_name) <= 64
    assert request.reading.tool_names == {wire_name: name}
    assert request.body["tools"][0]["name"] == wire_name  # type: ignore[index,call-overload]
    assert sent[1]["call_id"] == sent[2]["call_id"]
    assert len(sent[1]["call_id"]) <= 64


def test_ids_of_the_api_itself_are_kept() -> None:
    tool_id = "call_" + "z" * 59
    assert items(HI, assistant(use(tool_id)), user(result(tool_id)))[1]["call_id"] == tool_id


@pytest.mark.req("C5.5")
@pytest.mark.parametrize(
    ("model", "body", "expected", "losses"),
    [
        ("gpt-5.5", {}, None, ()),
        ("gpt-5.5", {"thinking": {"type": "adaptive"}}, {"summary": "auto"}, ()),
        ("gpt-5.5", {"output_config": {"effort": "high"}}, {"effort": "high", "summary": "auto"}, ()),
        (
            "gpt-5.5",
            {"output_config": {"effort": "max"}},
            {"effort": "xhigh", "summary": "auto"},
            ("effort: max becomes xhigh, the nearest this model takes",),
        ),
        (
            "gpt-5.5",
            {"thinking": {"type": "enabled", "budget_tokens": 4096}},
            {"effort": "low", "summary": "auto"},
            (),
        ),
        ("gpt-5.5", {"thinking": {"type": "disabled"}}, {"effort": "none"}, ()),
        ("gpt-5", {"thinking": {"type": "disabled"}}, {"effort": "minimal"}, ()),
        ("o3", {"thinking": {"type": "disabled"}}, None, ("thinking: this model cannot be kept from reasoning",)),
    ],
)
def test_reasoning_as_the_model_takes_it(model: str, body: Any, expected: Any, losses: tuple[str, ...]) -> None:
    request = render(model, tools=[tool()], max_tokens=8000, **body)
    assert request.body.get("reasoning") == expected
    assert request.losses == losses
    assert request.body["include"] == ["reasoning.encrypted_content"]


def test_reasoning_to_be_kept_out_of_the_answer_has_no_summary() -> None:
    request = parsed(output_config={"effort": "low"})
    excluded = replace(request, reasoning=replace(request.reasoning, exclude=True))
    assert rendered(excluded).body["reasoning"] == {"effort": "low"}


def test_a_model_that_does_not_reason_is_not_asked_to() -> None:
    request = render("gpt-4.1", thinking={"type": "enabled", "budget_tokens": 2048}, max_tokens=8000)
    assert not {"reasoning", "include"} & request.body.keys()
    assert request.losses == ("thinking: this model does not reason on request",)


@pytest.mark.req("C5.1")
@pytest.mark.parametrize(
    ("model", "body", "expected", "losses"),
    [
        ("gpt-4.1", {"temperature": 0.5, "top_p": 0.9}, {"temperature": 0.5, "top_p": 0.9}, ()),
        (
            "gpt-5.5",
            {"temperature": 0.5, "top_p": 0.9},
            {},
            ("temperature: this model does not take it", "top_p: this model does not take it"),
        ),
        ("gpt-5.5", {"top_k": 5}, {}, ("top_k: this upstream has nothing like it",)),
        ("gpt-5.5", {"stop_sequences": ["END"]}, {}, ("stop_sequences: this upstream has nothing like it",)),
        ("gpt-5.5", {"max_tokens": 16}, {"max_output_tokens": 16}, ()),
        (
            "gpt-5.5",
            {"max_tokens": 1},
            {"max_output_tokens": 16},
            ("max_tokens: 1 raised to 16, the least this upstream takes",),
        ),
        (
            "gpt-4.1",
            {"max_tokens": 64000},
            {"max_output_tokens": 32768},
            ("max_tokens: 64000 lowered to 32768, the most this model takes",),
        ),
        ("gpt-5.5", {"metadata": {"user_id": "u1"}}, {"safety_identifier": "u1"}, ()),
        ("gpt-5.5", {"service_tier": "standard_only"}, {"service_tier": "default"}, ()),
        ("gpt-5.5", {"service_tier": "auto"}, {"service_tier": "auto"}, ()),
    ],
)
def test_parameters(model: str, body: Any, expected: Any, losses: tuple[str, ...]) -> None:
    request = render(model, **body)
    watched = ("temperature", "top_p", "top_k", "stop", "max_output_tokens", "safety_identifier", "service_tier")
    base = {} if "max_output_tokens" in expected else {"max_output_tokens": 100}
    assert {name: request.body[name] for name in watched if name in request.body} == base | expected
    assert request.losses == losses


def test_a_long_user_id_becomes_a_digest_that_stays_the_same() -> None:
    first, second = (render(metadata={"user_id": "u" * 200}).body["safety_identifier"] for _ in range(2))
    assert first == second
    assert len(str(first)) == 64


@pytest.mark.req("FR2.1-2.4")
def test_the_cache_key_of_the_client_wins() -> None:
    assert render(cache_key="ours").body["prompt_cache_key"] == "ours"
    request = replace(parsed(), extras={"prompt_cache_key": "theirs", "novelty": 1}, unread=("messages.thing",))
    own = rendered(request, cache_key="ours")
    assert own.body["prompt_cache_key"] == "theirs"
    assert own.losses == (
        "novelty: this upstream has nothing like it",
        "messages.thing: this upstream has nothing like it",
    )


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (OutputFormat(None), {"type": "json_object"}),
        (
            OutputFormat({"type": "object", "properties": {}, "additionalProperties": False}),
            {
                "type": "json_schema",
                "name": "output",
                "schema": {"type": "object", "properties": {}, "required": [], "additionalProperties": False},
                "strict": True,
            },
        ),
        (
            OutputFormat({"type": "object", "properties": {"a": {"type": "string"}}}, "Title"),
            {
                "type": "json_schema",
                "name": "Title",
                "schema": {"type": "object", "properties": {"a": {"type": "string"}}},
                "strict": False,
            },
        ),
    ],
    ids=["any object", "a schema that can be enforced", "a schema that cannot"],
)
def test_output_formats(wanted: OutputFormat, expected: Any) -> None:
    assert rendered(replace(parsed(), output_format=wanted)).body["text"] == {"format": expected}


def test_a_format_name_is_made_legal() -> None:
    body: Any = rendered(replace(parsed(), output_format=OutputFormat({"type": "object"}, "a title!"))).body
    assert body["text"]["format"]["name"].startswith("a_title__")


@pytest.mark.parametrize(
    "body",
    [
        {"system": [text("Be brief.") | {"cache_control": {"type": "ephemeral"}}]},
        {"messages": [user(text("Hi") | {"cache_control": {"type": "ephemeral"}})]},
        {"messages": [user(PNG | {"cache_control": {"type": "ephemeral"}})]},
        {"tools": [tool(cache_control={"type": "ephemeral"})]},
    ],
    ids=["system", "text", "image", "tool"],
)
def test_cache_marks_are_reported(body: Any) -> None:
    assert render(**body).losses == ("cache_control: this upstream caches by itself or not at all",)
