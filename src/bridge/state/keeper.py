"""Keeps what one answer leaves behind: its tool calls and, where the client counts on it, the turn itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from bridge.canonical.events import MessageEnd
from bridge.errors import BridgeError
from bridge.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bridge.canonical.events import StreamEvent
    from bridge.canonical.fold import Message
    from bridge.canonical.json import JsonObject, JsonValue
    from bridge.exchange import Record
    from bridge.state.memory import ToolKeeper


@dataclass(frozen=True, slots=True)
class Rendering:
    """How the client's protocol says an answer: as the next request carries it, and whole."""

    content: Callable[[Message], JsonValue]
    whole: Callable[[Message], JsonObject]


class KeptTurn(Protocol):
    """A turn that the bridge keeps for the client: of a message thread, or a stored response."""

    answer_id: str
    body: bytes
    """The request with everything that the client left to the bridge."""

    def observe(self, events: list[StreamEvent]) -> None: ...

    async def keep(self, rendering: Rendering) -> None: ...

    async def give_up(self) -> None: ...


@dataclass(frozen=True, slots=True)
class AnswerKeeper:
    """Sees every event of an answer; `settle` before its end, `give_up` whatever happens."""

    tools: ToolKeeper | None
    """None where a tool loop keeps the calls of each of its rounds itself."""
    turn: KeptTurn | None
    rendering: Rendering
    record: Record
    unwatched: frozenset[type[StreamEvent]] = frozenset()
    """Events that leave nothing behind, so that they need not be shown."""

    def observe(self, events: Iterable[StreamEvent]) -> list[StreamEvent]:
        observed = self.tools.observe(events) if self.tools else list(events)
        if observed and observed[-1].__class__ is MessageEnd:
            self.record.stop_reason, self.record.usage = observed[-1].reason, observed[-1].usage
        if self.turn is not None:
            self.turn.observe(observed)
        return observed

    async def settle(self) -> None:
        """Everything is stored when this returns, or counted as lost: the answer is delivered all the same."""
        if self.tools is not None:
            await self.tools.settle()
        if self.turn is not None:
            try:
                await self.turn.keep(self.rendering)
            except BridgeError as error:
                self.record.fail_state(error.message)

    async def give_up(self) -> None:
        if self.turn is not None:
            await self.turn.give_up()
