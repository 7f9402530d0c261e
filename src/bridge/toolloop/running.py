"""Runs the calls of one answer, at the same time, each within its bounds, none of them twice."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bridge.errors import BridgeError
from bridge.toolloop.execution import Claim
from bridge.toolloop.tools import bounded, failed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bridge.canonical.content import ToolUse
    from bridge.toolloop.execution import CallKeys, ExecutionLog
    from bridge.toolloop.loop import LoopLimits
    from bridge.toolloop.tools import BridgeTool, ToolOutput

BEGUN_SECONDS = 5.0
"""How long to wait for the result of a call that another attempt at the same request has begun."""
_POLL_SECONDS = 0.25

BROKEN = "not run: the arguments are not a JSON object"
IN_DOUBT = "not run again: an earlier attempt at this request began this call, and its outcome is not known"
NO_TIME = "not run: the time for this answer ran out"
NO_RECORD = "not run: the record of executed calls cannot be reached, so it might run twice"


@dataclass(slots=True)
class ToolRunner:
    tools: Mapping[str, BridgeTool]
    log: ExecutionLog
    keys: CallKeys
    limits: LoopLimits
    deadline: float
    begun_seconds: float
    broken: set[str] = field(default_factory=set)
    """Ids of calls whose arguments cannot be read."""

    async def run(self, calls: Sequence[ToolUse]) -> list[ToolOutput]:
        """The outputs, in the order of the calls. Whatever fails becomes an output that says so (FR5.1)."""
        turnstile = asyncio.Semaphore(self.limits.parallel)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._run_one(call, self.keys.key(call), turnstile)) for call in calls]
        return [task.result() for task in tasks]

    async def _run_one(self, call: ToolUse, key: str, turnstile: asyncio.Semaphore) -> ToolOutput:
        tool = self.tools[call.name]
        if call.id in self.broken:
            return failed(BROKEN, error_code="invalid_tool_input")
        async with turnstile:
            if asyncio.get_running_loop().time() >= self.deadline:
                return failed(NO_TIME)
            if tool.repeatable:
                return await self._timed(tool, call)
            try:
                return await self._run_once(tool, call, key)
            except BridgeError:
                return failed(NO_RECORD)

    async def _run_once(self, tool: BridgeTool, call: ToolUse, key: str) -> ToolOutput:
        claimed = await self.log.claim(key)
        give_up = asyncio.get_running_loop().time() + self.begun_seconds
        while claimed is Claim.BEGUN:
            if asyncio.get_running_loop().time() >= give_up:
                return failed(IN_DOUBT)
            await asyncio.sleep(_POLL_SECONDS)
            claimed = await self.log.claim(key)
        if not isinstance(claimed, Claim):
            return claimed
        output = await self._timed(tool, call)
        try:
            await self.log.record(key, output)
        except BridgeError:
            return output  # the claim stands: in doubt to others, known here
        return output

    async def _timed(self, tool: BridgeTool, call: ToolUse) -> ToolOutput:
        left = max(0.0, self.deadline - asyncio.get_running_loop().time())
        seconds = min(self.limits.tool_seconds, left)
        try:
            async with asyncio.timeout(seconds) as timeout:
                return bounded(await tool.run(call.input), self.limits.output_characters)
        except TimeoutError:
            if not timeout.expired():
                return failed("the tool timed out")
            return failed(f"no result within {seconds:.0f} seconds; whether it took effect is not known")
        except BridgeError as error:
            return failed(error.message)
        except Exception as error:  # noqa: BLE001  (the model is told, and the answer goes on)
            return failed(f"the tool failed unexpectedly ({type(error).__name__})")
