"""A scripted model and simple tools, for tests of the loop."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bridge.canonical.content import ServerBlock, Text, ToolUse
from bridge.canonical.events import MessageEnd, StreamFailed, Usage
from bridge.canonical.fold import Message, fold, unfold
from bridge.canonical.request import Request, Tool, Turn
from bridge.toolloop.tools import BridgeTool, McpCall, ServerCall, ToolOutput

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

    from bridge.canonical.events import StopReason, StreamEvent
    from bridge.canonical.fold import AnswerBlock
    from bridge.canonical.json import JsonObject
    from bridge.toolloop.runner import ToolLoop
    from bridge.toolloop.tools import CallShape

REQUEST = Request("m", (Turn("user", (Text("go"),)),), 100)


def answer(*blocks: AnswerBlock, reason: StopReason | None = None, usage: Usage | None = None) -> Message:
    called = any(isinstance(block, ToolUse) for block in blocks)
    return Message(blocks, MessageEnd(reason or ("tool_use" if called else "end_turn"), usage or Usage(10, 1)))


@dataclass
class Model:
    """Gives one answer after the other and remembers what it was asked; the last answer is given for ever."""

    answers: list[Message | list[StreamEvent]]
    asked: list[Request] = field(default_factory=list)
    closed: int = 0

    async def __call__(self, request: Request) -> AsyncIterator[list[StreamEvent]]:
        self.asked.append(request)
        given = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        try:
            for event in unfold(given) if isinstance(given, Message) else given:
                await asyncio.sleep(0)
                yield [event]
        finally:
            self.closed += 1


def tool(
    name: str,
    run: Callable[[JsonObject], Awaitable[ToolOutput]],
    shape: CallShape | None = None,
    *,
    repeatable: bool = False,
) -> BridgeTool:
    definition = Tool(name, {"type": "object"})
    return BridgeTool(definition, shape or McpCall("srv", name), run, repeatable)


def by_name(*tools: BridgeTool) -> dict[str, BridgeTool]:
    return {one.definition.name: one for one in tools}


def saying(text: str) -> Callable[[JsonObject], Awaitable[ToolOutput]]:
    async def run(_: JsonObject) -> ToolOutput:
        return ToolOutput((Text(text),))

    return run


FETCHED = ToolOutput((Text("page"),), shown={"url": "https://a.test/"})


def fetch(output: ToolOutput = FETCHED) -> BridgeTool:
    async def run(_: JsonObject) -> ToolOutput:
        return output

    return tool("web_fetch", run, ServerCall("web_fetch"), repeatable=True)


async def all_events(loop: ToolLoop, model: Model, request: Request = REQUEST) -> list[StreamEvent]:
    return [event async for batch in loop.events(request, model) for event in batch]


def whole(events: Iterable[StreamEvent]) -> Message:
    return fold(events)


def kinds(message: Message) -> list[str]:
    return [block.type if isinstance(block, ServerBlock) else type(block).__name__ for block in message.content]


def failure(events: list[StreamEvent]) -> StreamFailed:
    assert isinstance(events[-1], StreamFailed)
    return events[-1]
