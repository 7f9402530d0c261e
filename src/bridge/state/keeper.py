"""Keeps what one answer leaves behind: its tool calls and, in a message thread, the turn itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.errors import BridgeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bridge.canonical.events import StreamEvent
    from bridge.canonical.fold import Message
    from bridge.canonical.json import JsonValue
    from bridge.state.memory import ToolKeeper
    from bridge.state.threads import ThreadTurn


@dataclass(frozen=True, slots=True)
class AnswerKeeper:
    """Sees every event of an answer; `settle` before its end, `give_up` whatever happens."""

    tools: ToolKeeper
    thread: ThreadTurn | None
    render: Callable[[Message], JsonValue]

    def observe(self, events: Iterable[StreamEvent]) -> list[StreamEvent]:
        observed = self.tools.observe(events)
        if self.thread is not None:
            self.thread.observe(observed)
        return observed

    async def settle(self) -> None:
        """Everything is stored when this returns, or counted as lost: the answer is delivered all the same."""
        await self.tools.settle()
        if self.thread is not None:
            try:
                await self.thread.keep(self.render)
            except BridgeError:
                self.tools.memory.record.state_failures += 1

    async def give_up(self) -> None:
        if self.thread is not None:
            await self.thread.give_up()
