"""The loop with a scripted model: one message outward, tools run in between."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from anthropic.types.beta import BetaMessage
from loop_parts import FETCHED, REQUEST, Model, all_events, answer, by_name, failure, fetch, kinds, saying, tool, whole

from bridge.canonical.content import Base64Source, Document, Image, ServerBlock, Text, ToolResult, ToolUse
from bridge.canonical.events import (
    BlockStop,
    InputDelta,
    MessageEnd,
    MessageStart,
    StreamFailed,
    TextDelta,
    TextStart,
    ToolUseStart,
    Usage,
    WholeBlock,
)
from bridge.canonical.head import AnswerHead
from bridge.canonical.request import Turn
from bridge.errors import BridgeError, ErrorKind
from bridge.protocols.anthropic.render_response import render_response
from bridge.toolloop import running
from bridge.toolloop.execution import Claim, InMemoryExecutionLog
from bridge.toolloop.loop import LoopLimits
from bridge.toolloop.runner import ToolLoop
from bridge.toolloop.tools import McpCall, ToolOutput, failed

if TYPE_CHECKING:
    from bridge.canonical.events import StreamEvent
    from bridge.canonical.json import JsonObject

pytestmark = pytest.mark.req("C7")


def loop_of(*tools: object, limits: LoopLimits | None = None, log: InMemoryExecutionLog | None = None) -> ToolLoop:
    return ToolLoop(by_name(*tools), log or InMemoryExecutionLog(), "conv", limits or LoopLimits())  # type: ignore[arg-type]


class Counting:
    """A tool with a side effect."""

    def __init__(self) -> None:
        self.runs: list[JsonObject] = []

    async def __call__(self, arguments: JsonObject) -> ToolOutput:
        self.runs.append(arguments)
        return ToolOutput((Text(f"run {len(self.runs)}"),))


def call(number: int, name: str = "look", **arguments: int) -> ToolUse:
    return ToolUse(f"toolu_{number}", name, {**arguments})


def test_without_tools_of_ours_the_stream_is_the_models_own() -> None:
    said = answer(Text("hi"), ToolUse("toolu_1", "theirs", {"a": 1}), usage=Usage(3, 4, 5, 6, 7))
    model = Model([said])
    assert whole(asyncio.run(all_events(loop_of(), model))) == said


def test_two_rounds_are_one_message() -> None:
    model = Model(
        [
            answer(Text("a"), call(1), usage=Usage(10, 1, reasoning_tokens=2)),
            answer(Text("b"), call(2, "web_fetch"), usage=Usage(20, 2, 3, estimated=True)),
            answer(Text("c"), usage=Usage(30, 3)),
        ]
    )
    events = asyncio.run(all_events(loop_of(tool("look", saying("seen")), fetch()), model))
    assert sum(isinstance(event, MessageStart) for event in events) == 1
    assert sum(isinstance(event, MessageEnd) for event in events) == 1
    message = whole(events)
    assert kinds(message) == [
        "Text",
        "mcp_tool_use",
        "mcp_tool_result",
        "Text",
        "server_tool_use",
        "web_fetch_tool_result",
        "Text",
    ]
    assert message.end == MessageEnd("end_turn", Usage(60, 6, 3, reasoning_tokens=2, estimated=True))
    assert model.closed == 3
    assert model.asked[2].turns[1:] == (
        Turn("assistant", (Text("a"), call(1))),
        Turn("user", (ToolResult("toolu_1", (Text("seen"),)),)),
        Turn("assistant", (Text("b"), call(2, "web_fetch"))),
        Turn("user", (ToolResult("toolu_2", FETCHED.content),)),
    )


@pytest.mark.req("C5.4", "C5.6")
def test_blocks_are_those_that_anthropics_sdk_knows() -> None:
    image = ToolOutput((Text("see"), Image(Base64Source("image/png", "AAAA"))))

    async def show(_: JsonObject) -> ToolOutput:
        return image

    page = ToolOutput(
        (Document((Text("page"),), "T", "Source: u"),), shown={"url": "u", "retrieved_at": "2026-01-01T00:00:00Z"}
    )
    model = Model([answer(call(1, a=1), call(2, "web_fetch")), answer(Text("end"))])
    loop = loop_of(tool("look", show, McpCall("srv", "remote")), fetch(page))
    message = whole(asyncio.run(all_events(loop, model)))
    rendered = render_response(message, AnswerHead("msg_1", "m"))
    assert rendered["content"][:4] == [  # type: ignore[index]
        {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "remote", "server_name": "srv", "input": {"a": 1}},
        {"type": "server_tool_use", "id": "srvtoolu_2", "name": "web_fetch", "input": {}},
        {
            "type": "mcp_tool_result",
            "tool_use_id": "mcptoolu_1",
            "is_error": False,
            "content": [
                {"type": "text", "text": "see"},
                {"type": "text", "text": "[image/png of 3 bytes, seen by the model]"},
            ],
        },
        {
            "type": "web_fetch_tool_result",
            "tool_use_id": "srvtoolu_2",
            "content": {
                "type": "web_fetch_result",
                "url": "u",
                "retrieved_at": "2026-01-01T00:00:00Z",
                "content": {
                    "type": "document",
                    "title": "T",
                    "source": {"type": "text", "media_type": "text/plain", "data": "page"},
                },
            },
        },
    ]
    types = [block.type for block in BetaMessage.model_validate(rendered).content]
    assert types == ["mcp_tool_use", "server_tool_use", "mcp_tool_result", "web_fetch_tool_result", "text"]
    result = model.asked[1].turns[-1].content[0]
    assert isinstance(result, ToolResult)
    assert result.content == image.content


@pytest.mark.req("FR5.1")
def test_a_tool_that_fails_tells_the_model_and_the_answer_goes_on() -> None:
    async def fail(_: JsonObject) -> ToolOutput:
        raise RuntimeError("secret detail")

    async def refuse(_: JsonObject) -> ToolOutput:
        raise BridgeError(ErrorKind.API, "said plainly")

    model = Model([answer(call(1), call(2, "other"), call(3, "web_fetch")), answer(Text("sorry"))])
    denied = fetch(failed("no", error_code="url_not_allowed"))
    message = whole(asyncio.run(all_events(loop_of(tool("look", fail), tool("other", refuse), denied), model)))
    results = model.asked[1].turns[-1].content
    assert results == (
        ToolResult("toolu_1", (Text("the tool failed unexpectedly (RuntimeError)"),), is_error=True),
        ToolResult("toolu_2", (Text("said plainly"),), is_error=True),
        ToolResult("toolu_3", (Text("no"),), is_error=True),
    )
    shown = [block.raw for block in message.content if isinstance(block, ServerBlock)]
    assert shown[3]["is_error"] is True
    assert shown[5]["content"] == {"type": "web_fetch_tool_result_error", "error_code": "url_not_allowed"}
    assert message.end.reason == "end_turn"


def test_a_turn_for_both_runs_ours_and_leaves_the_rest_to_the_client() -> None:
    counting = Counting()
    theirs = ToolUse("toolu_9", "theirs", {"x": 1})
    model = Model([answer(Text("a"), call(1), theirs)])
    message = whole(asyncio.run(all_events(loop_of(tool("look", counting)), model)))
    assert kinds(message) == ["Text", "mcp_tool_use", "ToolUse", "mcp_tool_result"]
    assert theirs in message.content
    assert message.end.reason == "tool_use"
    assert len(counting.runs) == len(model.asked) == 1


def test_a_loop_that_never_ends_is_ended_with_every_call_answered() -> None:
    counting = Counting()
    model = Model([answer(call(1))])
    message = whole(asyncio.run(all_events(loop_of(tool("look", counting), limits=LoopLimits(rounds=3)), model)))
    assert (len(model.asked), len(counting.runs)) == (3, 3)
    assert message.end.reason == "pause_turn"
    assert kinds(message) == ["mcp_tool_use", "mcp_tool_result"] * 3


def test_calls_of_one_answer_overlap_in_time() -> None:
    async def scenario() -> None:
        met = asyncio.Barrier(3)

        async def meet(_: JsonObject) -> ToolOutput:
            await met.wait()
            return ToolOutput((Text("met"),))

        model = Model([answer(call(1, n=1), call(2, n=2), call(3, n=3)), answer(Text("end"))])
        await asyncio.wait_for(all_events(loop_of(tool("look", meet)), model), 10)
        assert [part.content for part in model.asked[1].turns[-1].content] == [(Text("met"),)] * 3  # type: ignore[union-attr]

    asyncio.run(scenario())


def test_no_more_run_at_once_than_the_limit_says() -> None:
    now, most = 0, 0

    async def work(_: JsonObject) -> ToolOutput:
        nonlocal now, most
        now += 1
        most = max(most, now)
        for _turn in range(5):
            await asyncio.sleep(0)
        now -= 1
        return ToolOutput((Text("x"),))

    model = Model([answer(*(call(n, n=n) for n in range(6))), answer(Text("end"))])
    asyncio.run(all_events(loop_of(tool("look", work), limits=LoopLimits(parallel=2)), model))
    assert most == 2


def test_results_stand_in_the_order_of_calls_whichever_came_first() -> None:
    async def scenario() -> None:
        second_done = asyncio.Event()

        async def work(arguments: JsonObject) -> ToolOutput:
            if arguments["n"] == 1:
                await second_done.wait()
            else:
                second_done.set()
            return ToolOutput((Text(str(arguments["n"])),))

        model = Model([answer(call(1, n=1), call(2, n=2)), answer(Text("end"))])
        await all_events(loop_of(tool("look", work)), model)
        ids = [block.tool_use_id for block in model.asked[1].turns[-1].content if isinstance(block, ToolResult)]
        assert ids == ["toolu_1", "toolu_2"]

    asyncio.run(scenario())


def test_a_long_output_is_cut_and_says_so() -> None:
    model = Model([answer(call(1)), answer(Text("end"))])
    limits = LoopLimits(output_characters=10)
    asyncio.run(all_events(loop_of(tool("look", saying("0123456789abcdef")), limits=limits), model))
    (result,) = model.asked[1].turns[-1].content
    assert isinstance(result, ToolResult)
    assert result.content == (Text("0123456789"), Text("[6 more characters of this output are not shown]"))


def test_a_tool_that_takes_too_long_is_ended() -> None:
    ended = []

    async def hang(_: JsonObject) -> ToolOutput:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)
        raise AssertionError

    model = Model([answer(call(1)), answer(Text("end"))])
    asyncio.run(all_events(loop_of(tool("look", hang), limits=LoopLimits(tool_seconds=0.01)), model))
    (result,) = model.asked[1].turns[-1].content
    assert isinstance(result, ToolResult)
    assert result.is_error
    assert ended == [True]


def test_when_the_time_is_up_nothing_more_is_run_or_asked() -> None:
    counting = Counting()
    model = Model([answer(call(1))])
    limits = LoopLimits(seconds=0)
    message = whole(asyncio.run(all_events(loop_of(tool("look", counting), limits=limits), model)))
    assert counting.runs == []
    assert message.end.reason == "pause_turn"
    assert message.content[1].raw["is_error"] is True  # type: ignore[union-attr]


def cut_off_call(arguments: str, reason: str = "tool_use") -> list[StreamEvent]:
    end = MessageEnd(reason, Usage(1, 1))  # type: ignore[arg-type]
    return [MessageStart(), ToolUseStart("toolu_1", "look"), InputDelta(arguments), BlockStop(), end]


@pytest.mark.parametrize("arguments", ['{"a": 1', "[1]", "nonsense"])
def test_arguments_that_are_no_object_are_not_run(arguments: str) -> None:
    counting = Counting()
    model = Model([cut_off_call(arguments), answer(Text("end"))])
    asyncio.run(all_events(loop_of(tool("look", counting)), model))
    assert counting.runs == []
    assert model.asked[1].turns[-1].content == (ToolResult("toolu_1", (Text(running.BROKEN),), is_error=True),)


def test_calls_of_an_answer_that_was_cut_off_are_shown_as_not_run() -> None:
    counting = Counting()
    message = whole(asyncio.run(all_events(loop_of(tool("look", counting)), Model([cut_off_call("{}", "max_tokens")]))))
    assert counting.runs == []
    assert kinds(message) == ["mcp_tool_use", "mcp_tool_result"]
    assert message.content[1].raw["is_error"] is True  # type: ignore[union-attr]
    assert message.end.reason == "max_tokens"


@pytest.mark.parametrize("round_number", [1, 2])
def test_a_stream_that_fails_in_any_round_ends_the_message(round_number: int) -> None:
    broken = [MessageStart(), TextStart(), TextDelta("x"), StreamFailed(BridgeError(ErrorKind.OVERLOADED, "busy"))]
    model = Model([answer(call(1))] * (round_number - 1) + [broken])
    events = asyncio.run(all_events(loop_of(tool("look", saying("x"))), model))
    assert failure(events).error.message == "busy"
    assert not any(isinstance(event, MessageEnd) for event in events)
    assert model.closed == round_number


def test_a_stream_without_an_end_is_a_failure() -> None:
    events = asyncio.run(all_events(loop_of(), Model([[MessageStart(), TextStart(), TextDelta("x"), BlockStop()]])))
    assert failure(events).error.status == 502


def test_text_reaches_the_client_before_the_answer_is_complete() -> None:
    async def scenario() -> None:
        async def ask(_: object):  # type: ignore[no-untyped-def]
            yield [MessageStart(), TextStart(), TextDelta("early")]
            await asyncio.Event().wait()

        batches = loop_of(tool("look", saying("x"))).events(REQUEST, ask)
        assert await asyncio.wait_for(anext(batches), 5) == [MessageStart(), TextStart(), TextDelta("early")]
        await batches.aclose()

    asyncio.run(scenario())


def test_cancelling_the_answer_cancels_the_tools_that_run() -> None:
    async def scenario() -> None:
        started, ended = asyncio.Event(), []

        async def hang(_: JsonObject) -> ToolOutput:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.append(True)
            raise AssertionError

        seen: list[StreamEvent] = []

        async def read_on() -> None:
            async with aclosing(loop_of(tool("look", hang)).events(REQUEST, model)) as batches:
                async for batch in batches:
                    seen.extend(batch)

        model = Model([answer(call(1), call(2))])
        task = asyncio.create_task(read_on())
        await asyncio.wait_for(started.wait(), 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == [True, True]
        assert [event.block.type for event in seen if isinstance(event, WholeBlock)] == ["mcp_tool_use"] * 2  # type: ignore[union-attr]

    asyncio.run(scenario())


def retried(counting: Counting, log: InMemoryExecutionLog, *models: Model, repeatable: bool = False) -> None:
    for model in models:
        loop = loop_of(tool("look", counting, repeatable=repeatable), log=log)
        asyncio.run(all_events(loop, model))


def test_a_request_that_is_sent_again_repeats_no_side_effect() -> None:
    counting, log = Counting(), InMemoryExecutionLog()
    first = Model([answer(Text("I look"), call(1, n=1)), answer(Text("end"))])
    again = Model([answer(Text("said otherwise"), call(77, n=1)), answer(Text("end"))])
    retried(counting, log, first, again)
    assert counting.runs == [{"n": 1}]
    assert again.asked[1].turns[-1].content == (ToolResult("toolu_77", (Text("run 1"),)),)


def test_the_same_call_twice_in_a_chain_is_two_calls_and_both_are_remembered() -> None:
    counting, log = Counting(), InMemoryExecutionLog()
    models = [Model([answer(call(1, n=1), call(2, n=1)), answer(call(3, n=1)), answer(Text("end"))]) for _ in range(2)]
    retried(counting, log, *models)
    assert len(counting.runs) == 3
    assert models[0].asked[2].turns == models[1].asked[2].turns


@pytest.mark.parametrize(
    "other",
    [replace(REQUEST, turns=(*REQUEST.turns, Turn("user", (Text("again"),)))), replace(REQUEST, turns=())],
    ids=["longer", "another"],
)
def test_the_same_call_in_another_history_is_another_call(other: object) -> None:
    counting, log = Counting(), InMemoryExecutionLog()
    for request in (REQUEST, other):
        model = Model([answer(call(1, n=1)), answer(Text("end"))])
        asyncio.run(all_events(loop_of(tool("look", counting), log=log), model, request))  # type: ignore[arg-type]
    assert len(counting.runs) == 2


def test_other_conversations_have_records_of_their_own() -> None:
    counting, log = Counting(), InMemoryExecutionLog()
    for scope in ("one", "two"):
        loop = ToolLoop(by_name(tool("look", counting)), log, scope)
        asyncio.run(all_events(loop, Model([answer(call(1)), answer(Text("end"))])))
    assert len(counting.runs) == 2


def test_what_only_reads_is_run_again() -> None:
    counting, log = Counting(), InMemoryExecutionLog()
    models = [Model([answer(call(1)), answer(Text("end"))]) for _ in range(2)]
    retried(counting, log, *models, repeatable=True)
    assert len(counting.runs) == 2
    assert log.kept == {}


def test_a_call_that_another_attempt_began_is_not_run_but_its_result_is_waited_for() -> None:
    async def scenario() -> None:
        counting, log = Counting(), InMemoryExecutionLog()
        loop = loop_of(tool("look", counting), log=log)
        release = asyncio.Event()

        began = asyncio.Event()

        async def slow(arguments: JsonObject) -> ToolOutput:
            began.set()
            await release.wait()
            return await counting(arguments)

        first = Model([answer(call(1)), answer(Text("end"))])
        slow_loop = loop_of(tool("look", slow), log=log)
        running_first = asyncio.create_task(all_events(slow_loop, first))
        await began.wait()
        second = Model([answer(call(2)), answer(Text("end"))])
        running_second = asyncio.create_task(all_events(loop, second))
        await asyncio.sleep(0.05)
        release.set()
        await asyncio.gather(running_first, running_second)
        assert len(counting.runs) == 1
        assert second.asked[1].turns[-1].content == (ToolResult("toolu_2", (Text("run 1"),)),)

    asyncio.run(scenario())


def test_a_call_whose_outcome_is_unknown_is_not_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "_POLL_SECONDS", 0.01)
    counting, log = Counting(), InMemoryExecutionLog()

    async def scenario() -> None:
        began = asyncio.Event()

        async def hang(_: JsonObject) -> ToolOutput:
            began.set()
            await asyncio.Event().wait()
            raise AssertionError

        first = asyncio.create_task(all_events(loop_of(tool("look", hang), log=log), Model([answer(call(1))])))
        await began.wait()
        first.cancel()
        await asyncio.wait({first})
        loop = replace(loop_of(tool("look", counting), log=log), begun_seconds=0.05)
        second = Model([answer(call(2)), answer(Text("end"))])
        await all_events(loop, second)
        assert second.asked[1].turns[-1].content == (ToolResult("toolu_2", (Text(running.IN_DOUBT),), is_error=True),)

    asyncio.run(scenario())
    assert counting.runs == []


def test_without_the_record_nothing_with_a_side_effect_is_run() -> None:
    class Unreachable(InMemoryExecutionLog):
        async def claim(self, key: str) -> ToolOutput | Claim:
            raise BridgeError(ErrorKind.OVERLOADED, "store down")

    counting = Counting()
    model = Model([answer(call(1)), answer(Text("end"))])
    asyncio.run(all_events(loop_of(tool("look", counting), log=Unreachable()), model))
    assert counting.runs == []
    assert model.asked[1].turns[-1].content == (ToolResult("toolu_1", (Text(running.NO_RECORD),), is_error=True),)


def test_an_output_that_cannot_be_recorded_is_given_all_the_same() -> None:
    class Forgetful(InMemoryExecutionLog):
        async def record(self, key: str, output: ToolOutput) -> None:
            raise BridgeError(ErrorKind.OVERLOADED, "store down")

    model = Model([answer(call(1)), answer(Text("end"))])
    asyncio.run(all_events(loop_of(tool("look", saying("seen")), log=Forgetful()), model))
    assert model.asked[1].turns[-1].content == (ToolResult("toolu_1", (Text("seen"),)),)
