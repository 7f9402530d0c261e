"""Runs the tool loop: one message outward, however many answers of the model and rounds of tools it takes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from dataclasses import field, replace
from typing import TYPE_CHECKING, TypeAlias, assert_never

from bridge.canonical.content import ToolResult
from bridge.canonical.events import MessageEnd, StreamEvent, StreamFailed, Usage, WholeBlock, add_usage
from bridge.canonical.fold import UnfinishedMessageError
from bridge.canonical.request import Request
from bridge.errors import BridgeError, ErrorKind
from bridge.toolloop.blocks import shown_result
from bridge.toolloop.execution import CallKeys
from bridge.toolloop.loop import Ask, Finish, LoopLimits, LoopState, Run, next_action
from bridge.toolloop.rounds import RoundReader
from bridge.toolloop.running import BEGUN_SECONDS, ToolRunner
from bridge.toolloop.tools import failed
from bridge.values import dataclass

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping, Sequence

    from bridge.canonical.content import ToolUse
    from bridge.toolloop.execution import ExecutionLog
    from bridge.toolloop.tools import BridgeTool, ToolOutput

AskModel: TypeAlias = Callable[[Request], AsyncIterator[list[StreamEvent]]]

CUT_OFF = "not run: the answer that made this call was cut off"


@dataclass(frozen=True, slots=True)
class ToolLoop:
    """The loop with everything it needs. `scope` names the conversation and its principal to the record of calls."""

    tools: Mapping[str, BridgeTool]
    log: ExecutionLog
    scope: str = ""
    limits: LoopLimits = field(default_factory=LoopLimits)
    begun_seconds: float = BEGUN_SECONDS

    async def events(self, request: Request, ask: AskModel) -> AsyncGenerator[list[StreamEvent], None]:
        """The events of the one message that answers a request; tools are run between them, never meanwhile."""
        state = LoopState(request, frozenset(self.tools), max_rounds=self.limits.rounds)
        deadline = asyncio.get_running_loop().time() + self.limits.seconds
        runner = ToolRunner(
            self.tools, self.log, CallKeys(self.scope, request), self.limits, deadline, self.begun_seconds
        )
        usage = Usage()
        while True:
            state = replace(state, out_of_time=asyncio.get_running_loop().time() >= deadline)
            match next_action(state):
                case Ask(asked):
                    state = state.asked(asked)
                    reader = RoundReader(self.tools, is_first=state.rounds == 0)
                    async with aclosing(_answer(ask(asked), reader)) as answer:
                        async for batch in answer:
                            yield batch
                    if reader.failure is not None:
                        return
                    state = state.answered(reader.message())
                    runner.broken = reader.broken
                    usage = add_usage(usage, _end(state).usage)
                case Run(calls):
                    outputs = await runner.run(calls)
                    yield self._shown(calls, outputs)
                    state = state.with_results(_results(calls, outputs))
                case Finish(reason, refused):
                    shown = self._shown(refused, [failed(CUT_OFF)] * len(refused))
                    yield [*shown, replace(_end(state), reason=reason, usage=usage)]
                    return
                case action:
                    assert_never(action)

    def _shown(self, calls: Sequence[ToolUse], outputs: Sequence[ToolOutput]) -> list[StreamEvent]:
        return [
            WholeBlock(shown_result(call.id, self.tools[call.name].shape, output))
            for call, output in zip(calls, outputs, strict=True)
        ]


async def _answer(
    batches: AsyncIterator[list[StreamEvent]], reader: RoundReader
) -> AsyncGenerator[list[StreamEvent], None]:
    """One answer as the client sees it; the model's stream is closed whatever happens."""
    try:
        async for batch in batches:
            shown = reader.feed(batch)
            if shown:
                yield shown
            if reader.failure is not None:
                break
        else:
            _check_finished(reader)
        if reader.failure is not None:
            yield [reader.failure]
    finally:
        close = getattr(batches, "aclose", None)
        if close is not None:
            await close()


def _check_finished(reader: RoundReader) -> None:
    try:
        reader.message()
    except UnfinishedMessageError:
        reader.failure = StreamFailed(BridgeError(ErrorKind.API, "the answer broke off", status=502))


def _results(calls: Sequence[ToolUse], outputs: Sequence[ToolOutput]) -> dict[str, ToolResult]:
    return {
        call.id: ToolResult(call.id, output.content, output.is_error)
        for call, output in zip(calls, outputs, strict=True)
    }


def _end(state: LoopState) -> MessageEnd:
    assert state.answer is not None  # noqa: S101  (only an answer can be finished)
    return state.answer.end
