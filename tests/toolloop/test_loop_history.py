"""What a client was shown comes back as what the model was asked, and what was recorded as what it was."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from loop_parts import REQUEST, Model, all_events, answer, by_name, fetch, kinds, saying, tool, whole

from bridge.canonical.content import Base64Source, Document, Image, Replay, Text, ToolResult, ToolUse
from bridge.canonical.head import AnswerHead
from bridge.canonical.json import dumps
from bridge.canonical.request import Request, Turn
from bridge.conversation import Conversation, conversation
from bridge.exchange import Record
from bridge.protocols.anthropic.parse_request import parse_request
from bridge.protocols.anthropic.render_response import render_response
from bridge.protocols.anthropic.stream_encoder import MessagesStreamEncoder
from bridge.state.claims import conversation_token, mint
from bridge.state.memory import ToolMemory
from bridge.state.sqlite import SqliteStore
from bridge.state.sqlite_file import SqliteFile
from bridge.toolloop.execution import InMemoryExecutionLog, dump_output, load_output
from bridge.toolloop.loop import LoopLimits
from bridge.toolloop.runner import ToolLoop
from bridge.toolloop.toolbox import Toolbox
from bridge.toolloop.tools import McpCall, ToolOutput, bounded, failed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from bridge.canonical.events import StreamEvent

pytestmark = pytest.mark.req("C7")
TOKEN = conversation_token("a conversation")
IDS = [mint(TOKEN, bytes([number] * 8), has_data=number == 1) for number in range(5)]
PAGE = ToolOutput((Document((Text("page"),), "T", "Source: https://a.test/"),), shown={"url": "https://a.test/"})
TOOLS = by_name(tool("mcp__srv__look", saying("seen"), McpCall("srv", "look")), fetch(PAGE))
THEIRS = ToolUse(IDS[4], "theirs", {"x": 1})


def sent_back(model: Model, *later: Turn, limits: LoopLimits | None = None) -> Request:
    """The request that a client sends after it was shown the loop's message."""
    loop = ToolLoop(TOOLS, InMemoryExecutionLog(), limits=limits or LoopLimits())
    message = whole(asyncio.run(all_events(loop, model)))
    shown = render_response(message, AnswerHead("msg_1", "m"))["content"]
    results = [
        {"type": "tool_result", "tool_use_id": block.tool_use_id, "content": "theirs"}
        for turn in later
        for block in turn.content
        if isinstance(block, ToolResult)
    ]
    messages = [{"role": "user", "content": "go"}, {"role": "assistant", "content": shown}]
    messages += [{"role": "user", "content": results}] if results else []
    body = dumps({"model": "m", "max_tokens": 100, "messages": messages})
    return Toolbox(parse_request(body), TOOLS).restored().request


def look(number: int) -> ToolUse:
    return ToolUse(IDS[number], "mcp__srv__look", {"n": number})


def read(number: int) -> ToolUse:
    return ToolUse(IDS[number], "web_fetch", {"url": "https://a.test/"})


def test_a_history_of_rounds_is_what_the_model_saw_while_they_were_made() -> None:
    model = Model([answer(Text("a"), look(0), read(1)), answer(Text("b"), look(2)), answer(Text("end"))])
    turns = sent_back(model).turns
    assert turns[:-1] == model.asked[-1].turns
    assert turns[-1] == Turn("assistant", (Text("end"),))


def test_a_turn_that_both_served_goes_on_with_every_result_behind_its_call() -> None:
    model = Model([answer(Text("a"), look(0), THEIRS, read(1))])
    theirs = ToolResult(THEIRS.id, (Text("theirs"),))
    turns = sent_back(model, Turn("user", (theirs,))).turns
    assert turns[1:] == (
        Turn("assistant", (Text("a"), look(0), THEIRS, read(1))),
        Turn("user", (ToolResult(IDS[0], (Text("seen"),)), ToolResult(IDS[1], PAGE.content), theirs)),
    )


def test_a_pause_goes_on_where_it_stopped() -> None:
    model = Model([answer(look(0)), answer(look(2))])
    turns = sent_back(model, limits=LoopLimits(rounds=2)).turns
    assert turns[-2:] == (Turn("assistant", (look(2),)), Turn("user", (ToolResult(IDS[2], (Text("seen"),)),)))


def test_the_conversation_is_found_again_by_calls_that_the_bridge_ran() -> None:
    request = sent_back(Model([answer(look(0)), answer(Text("end"))]))
    assert conversation({}, request).token == TOKEN


def test_the_stream_can_be_said_in_anthropics_protocol() -> None:
    loop = ToolLoop(TOOLS, InMemoryExecutionLog())
    model = Model([answer(Text("a"), look(0), THEIRS, read(1))])
    events = asyncio.run(all_events(loop, model))
    said = MessagesStreamEncoder(AnswerHead("msg_1", "m")).encode(events).decode()
    order = ["text", "mcp_tool_use", "tool_use", "server_tool_use", "mcp_tool_result", "web_fetch_tool_result"]
    positions = [said.index(f'"type":"{kind}"') for kind in order]
    assert positions == sorted(positions)
    assert said.count("event: message_start") == said.count("event: message_stop") == 1
    assert kinds(whole(events)) == ["Text", "mcp_tool_use", "ToolUse", "server_tool_use", *order[4:]]


OUTPUTS = [
    ToolOutput((Text("a"), Text("")), shown={"url": "u"}),
    ToolOutput((Image(Base64Source("image/png", "AAAA")),)),
    ToolOutput((Document(Base64Source("application/pdf", "JVBE"), "t", "c"),)),
    ToolOutput((Document((Text("x"), Image(Base64Source("image/png", "AAAA"))), None, "c"),)),
    failed("no", error_code="unavailable"),
]


@pytest.mark.parametrize("output", OUTPUTS, ids=["text", "image", "pdf", "document", "error"])
def test_a_recorded_output_is_read_as_it_was(output: ToolOutput) -> None:
    assert load_output(dump_output(output)) == output


def test_a_file_that_no_record_can_hold_is_told_in_words() -> None:
    large = ToolOutput((Text("see"), Image(Base64Source("image/png", "A" * 500_000))))
    kept = dump_output(large)
    assert len(kept) < 1000
    assert load_output(kept).content == (
        Text("see"),
        Text("[image/png of 375000 bytes was shown in an earlier attempt]"),
    )


MISSING = Text("[2 more characters of this output are not shown]")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            (Text("abc"), Text("def")),
            (Text("abc"), Text("d"), MISSING),
        ),
        ((Text("abcd"), Text("ef")), (Text("abcd"), MISSING)),
        ((Text("abcd"),), (Text("abcd"),)),
        (
            (Document((Text("abcdef"),), "t"),),
            (Document((Text("abcd"),), "t"), MISSING),
        ),
        ((Image(Base64Source("image/png", "A" * 8)),), (Image(Base64Source("image/png", "A" * 8)),)),
        ((Image(Base64Source("image/png", "A" * 12)),), (Text("[image/png of 9 bytes: too large to be shown]"),)),
    ],
    ids=["across", "between", "fits", "document", "image", "large-image"],
)
def test_outputs_are_cut_to_size_with_a_note(content: tuple[Text, ...], expected: tuple[Text, ...]) -> None:
    assert bounded(ToolOutput(content), 4, media_characters=8).content == expected


def test_what_the_store_attaches_to_a_history_does_not_change_what_its_calls_are() -> None:
    call = look(0)
    result = Turn("user", (ToolResult(call.id, (Text("x"),)),))
    plain = replace(REQUEST, turns=(*REQUEST.turns, Turn("assistant", (call,)), result))
    signed = Turn("assistant", (replace(call, replay=Replay({"s": "1"})),))
    attached = replace(REQUEST, turns=(*REQUEST.turns, signed, result))
    runs = []

    async def count(_: object) -> ToolOutput:
        runs.append(1)
        return ToolOutput((Text("x"),))

    log = InMemoryExecutionLog()
    for request in (plain, attached):
        loop = ToolLoop(by_name(tool("count", count)), log)
        asyncio.run(all_events(loop, Model([answer(ToolUse("toolu_1", "count", {})), answer(Text("end"))]), request))
    assert runs == [1]


def test_what_a_provider_wants_back_with_a_call_of_the_bridge_is_in_the_next_request(
    tmp_path: Path,
) -> None:
    store = SqliteStore(SqliteFile(str(tmp_path / "state.sqlite3")), 600)
    talk = Conversation("c", conversation_token("c"))
    signed = replace(look(0), id="call_1", replay=Replay({"thought_signature": "sig"}))
    model = Model([answer(signed), answer(Text("end"))])

    def memory() -> ToolMemory:
        return ToolMemory(store, "principal", "gemini/gemini", Record())

    async def ask(request: Request) -> AsyncIterator[list[StreamEvent]]:
        keeper = memory().keeper(talk)
        async for batch in model(request):
            yield keeper.observe(batch)
        await keeper.settle()

    async def scenario() -> Request:
        loop = ToolLoop(TOOLS, InMemoryExecutionLog())
        message = whole([event async for batch in loop.events(REQUEST, ask) for event in batch])
        shown = render_response(message, AnswerHead("msg_1", "m"))["content"]
        messages = [{"role": "user", "content": "go"}, {"role": "assistant", "content": shown}]
        later = parse_request(dumps({"model": "m", "max_tokens": 9, "messages": messages}))
        return await memory().recall(Toolbox(later, TOOLS).restored().request, talk)

    recalled = asyncio.run(scenario())
    (seen,) = model.asked[1].turns[1].content
    assert recalled.turns[1].content == (seen,)
    assert isinstance(seen, ToolUse)
    assert seen.replay == Replay({"thought_signature": "sig"})
