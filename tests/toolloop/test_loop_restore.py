"""Calls that the bridge ran, put back into a history for models that are not Claude."""

from __future__ import annotations

from dataclasses import replace

import pytest
from loop_parts import REQUEST

from bridge.canonical.content import (
    Base64Source,
    CacheMark,
    Document,
    ServerBlock,
    Text,
    Thinking,
    ToolResult,
    ToolUse,
)
from bridge.canonical.request import Request, Turn
from bridge.canonical.rounds import rounds
from bridge.canonical.target import Target
from bridge.canonical.words import NO_RESULT
from bridge.protocols.openai_chat.render_request import render_request
from bridge.toolloop.restore import restore_bridge_calls

pytestmark = pytest.mark.req("C7", "C5.6")
GO = REQUEST.turns[0]


def mcp_use(number: str, tool: str = "look", server: str = "srv") -> ServerBlock:
    raw = {
        "type": "mcp_tool_use",
        "id": f"mcptoolu_{number}",
        "name": tool,
        "server_name": server,
        "input": {"n": number},
    }
    return ServerBlock("mcp_tool_use", raw)  # type: ignore[arg-type]


def mcp_result(number: str, text: str = "", *, is_error: bool = False) -> ServerBlock:
    content = [{"type": "text", "text": text or f"r{number}"}]
    raw = {"type": "mcp_tool_result", "tool_use_id": f"mcptoolu_{number}", "is_error": is_error, "content": content}
    return ServerBlock("mcp_tool_result", raw)  # type: ignore[arg-type]


def fetch_use(number: str) -> ServerBlock:
    raw = {
        "type": "server_tool_use",
        "id": f"srvtoolu_{number}",
        "name": "web_fetch",
        "input": {"url": "https://a.test"},
    }
    return ServerBlock("server_tool_use", raw)  # type: ignore[arg-type]


def fetch_result(number: str, content: object) -> ServerBlock:
    raw = {"type": "web_fetch_tool_result", "tool_use_id": f"srvtoolu_{number}", "content": content}
    return ServerBlock("web_fetch_tool_result", raw)  # type: ignore[arg-type]


def call(number: str) -> ToolUse:
    return ToolUse(f"toolu_{number}", "mcp__srv__look", {"n": number})


def result(number: str) -> ToolResult:
    return ToolResult(f"toolu_{number}", (Text(f"r{number}"),))


def restored(*turns: Turn) -> tuple[Turn, ...]:
    request = restore_bridge_calls(replace(REQUEST, turns=turns))
    rounds(request.turns)  # every result stands behind its call, or this raises
    return request.turns


CLIENTS = ToolUse("toolu_D", "theirs", {})
CLIENTS_RESULT = ToolResult("toolu_D", (Text("rD"),))


def test_one_turn_of_several_rounds_becomes_several_turns() -> None:
    said = Turn(
        "assistant",
        (
            Text("a"),
            mcp_use("A"),
            mcp_use("B"),
            mcp_result("A"),
            mcp_result("B"),
            Text("b"),
            mcp_use("C"),
            mcp_result("C"),
            Text("end"),
        ),
    )
    assert restored(GO, said, Turn("user", (Text("next"),))) == (
        GO,
        Turn("assistant", (Text("a"), call("A"), call("B"))),
        Turn("user", (result("A"), result("B"))),
        Turn("assistant", (Text("b"), call("C"))),
        Turn("user", (result("C"),)),
        Turn("assistant", (Text("end"),)),
        Turn("user", (Text("next"),)),
    )


def test_a_turn_that_both_served_gets_all_its_results_together() -> None:
    said = Turn("assistant", (Text("a"), mcp_use("A"), CLIENTS, mcp_result("A")))
    assert restored(GO, said, Turn("user", (CLIENTS_RESULT,))) == (
        GO,
        Turn("assistant", (Text("a"), call("A"), CLIENTS)),
        Turn("user", (result("A"), CLIENTS_RESULT)),
    )


def test_results_follow_the_order_of_calls_not_of_arrival() -> None:
    said = Turn("assistant", (mcp_use("A"), mcp_use("B"), mcp_result("B"), mcp_result("A")))
    assert restored(GO, said)[-1] == Turn("user", (result("A"), result("B")))


def test_a_pause_is_continued_after_the_results() -> None:
    assert restored(GO, Turn("assistant", (mcp_use("A"), mcp_result("A")))) == (
        GO,
        Turn("assistant", (call("A"),)),
        Turn("user", (result("A"),)),
    )


def test_a_result_that_comes_in_the_next_answer_joins_its_call() -> None:
    turns = restored(
        GO,
        Turn("assistant", (mcp_use("A"), CLIENTS)),
        Turn("user", (CLIENTS_RESULT,)),
        Turn("assistant", (mcp_result("A"), Text("end"))),
    )
    assert turns[2] == Turn("user", (result("A"), CLIENTS_RESULT))
    assert turns[3] == Turn("assistant", (Text("end"),))


def test_a_call_without_a_result_is_said_to_have_none() -> None:
    turns = restored(GO, Turn("assistant", (mcp_use("A"),)), Turn("user", (Text("well?"),)))
    assert turns[-1] == Turn("user", (ToolResult("toolu_A", (Text(NO_RESULT),), is_error=True), Text("well?")))


def test_a_result_without_its_call_stays_to_be_told_in_words() -> None:
    turns = (GO, Turn("assistant", (mcp_result("A"), Text("end"))))
    assert restored(*turns) == turns


def test_errors_stay_errors() -> None:
    turns = restored(GO, Turn("assistant", (mcp_use("A"), mcp_result("A", "boom", is_error=True))))
    assert turns[-1].content == (ToolResult("toolu_A", (Text("boom"),), is_error=True),)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            {
                "type": "web_fetch_result",
                "url": "https://a.test",
                "content": {"type": "document", "title": "T", "source": {"type": "text", "data": "page"}},
            },
            ToolResult("toolu_F", (Document((Text("page"),), "T", "Source: https://a.test"),)),
        ),
        (
            {
                "type": "web_fetch_result",
                "url": "https://a.test",
                "content": {
                    "type": "document",
                    "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBE"},
                },
            },
            ToolResult("toolu_F", (Document(Base64Source("application/pdf", "JVBE"), None, "Source: https://a.test"),)),
        ),
        (
            {"type": "web_fetch_tool_result_error", "error_code": "url_not_allowed"},
            ToolResult("toolu_F", (Text("url_not_allowed"),), is_error=True),
        ),
    ],
    ids=["page", "pdf", "error"],
)
def test_fetched_pages_come_back_as_documents(content: object, expected: ToolResult) -> None:
    assert restored(GO, Turn("assistant", (fetch_use("F"), fetch_result("F", content))))[-1].content == (expected,)


def test_tools_that_only_anthropic_runs_stay_as_they_are() -> None:
    block = ServerBlock("server_tool_use", {"id": "srvtoolu_1", "name": "code_execution", "input": {}})
    turns = (GO, Turn("assistant", (block, Text("x"))))
    assert restored(*turns) == turns


def test_thinking_stays_with_the_calls_it_led_to_and_cache_marks_stay() -> None:
    marked = ServerBlock(
        "mcp_tool_result", {**mcp_result("A").raw, "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    )
    turns = restored(GO, Turn("assistant", (Thinking("hm", "s"), mcp_use("A"), marked, Thinking("ok", "t"), Text("b"))))
    assert turns[1].content == (Thinking("hm", "s"), call("A"))
    assert turns[2].content == (replace(result("A"), cache=CacheMark("1h")),)
    assert turns[3].content == (Thinking("ok", "t"), Text("b"))


def test_names_that_differ_from_the_usual_are_followed() -> None:
    request = replace(REQUEST, turns=(GO, Turn("assistant", (mcp_use("A"), mcp_result("A")))))
    turns = restore_bridge_calls(request, mcp_names={("srv", "look"): "other"}).turns
    assert turns[1].content == (ToolUse("toolu_A", "other", {"n": "A"}),)


def test_an_openai_model_sees_every_call_with_its_answer() -> None:
    said = Turn("assistant", (Text("a"), mcp_use("A"), mcp_result("A"), mcp_use("B"), CLIENTS, mcp_result("B")))
    request: Request = restore_bridge_calls(replace(REQUEST, turns=(GO, said, Turn("user", (CLIENTS_RESULT,)))))
    body = render_request(request, Target("openai", "gpt-4.1")).body
    told = [
        (message["role"], message.get("tool_call_id") or [one["id"] for one in message.get("tool_calls") or ()])
        for message in body["messages"]  # type: ignore[union-attr]
    ]
    assert told == [
        ("user", []),
        ("assistant", ["toolu_A"]),
        ("tool", "toolu_A"),
        ("assistant", ["toolu_B", "toolu_D"]),
        ("tool", "toolu_B"),
        ("tool", "toolu_D"),
    ]
