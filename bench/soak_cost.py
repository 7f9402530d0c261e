"""What the memory costs: request units of the operations that turns of each kind really made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bench.soak_client import Question
from bench.soak_model import LONG_EVERY, Task
from bench.soak_talk import result

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from typing import Any

    from bench.soak_client import Answer, Client, GivenCall
    from bench.soak_talk import Message
    from bench.soak_units import Operation

# On-demand, us-east-1, as published after the price cut of November 2024.
WRITE_DOLLARS_PER_MILLION = 0.625
READ_DOLLARS_PER_MILLION = 0.125
PRICES = (
    f"Prices assumed: us-east-1, on-demand, ${WRITE_DOLLARS_PER_MILLION} per million write units and "
    f"${READ_DOLLARS_PER_MILLION} per million read units, as published after November 2024; check the current price."
)
HEADINGS = ("turn", "reads", "writes", "RRU", "WRU", "$ per million turns")
GROWTH_STEP = 25


@dataclass(frozen=True, slots=True)
class Cost:
    """The mean of some turns of one kind."""

    kind: str
    reads: float
    writes: float
    read_units: float
    write_units: float

    @property
    def dollars(self) -> float:
        """Per million turns."""
        return self.read_units * READ_DOLLARS_PER_MILLION + self.write_units * WRITE_DOLLARS_PER_MILLION

    def cells(self) -> tuple[str, ...]:
        numbers = (self.reads, self.writes, self.read_units, self.write_units)
        return (self.kind, *(f"{number:.2f}".rstrip("0").rstrip(".") for number in numbers), f"{self.dollars:.2f}")


class CostMeter:
    """One client, one turn after the other, no faults: what the proxy counts belongs to the turn."""

    def __init__(self, client: Client, operations: Sequence[Operation], repeats: int) -> None:
        self._client = client
        self._operations = operations
        self._repeats = repeats
        self._number = 0

    async def by_kind(self) -> list[Cost]:
        """The cost of each kind of turn."""
        (one,) = (await self._ask(calls=1)).calls
        three = (await self._ask(calls=3)).calls
        return [
            await self._measure("history suffices, answer without calls", lambda: self._ask(keep=(one,))),
            await self._measure("trimmed, 1 result", lambda: self._ask(orphans=(one,))),
            await self._measure("trimmed, 3 results", lambda: self._ask(orphans=three)),
            await self._measure("history suffices, answer makes 1 call", lambda: self._ask(calls=1, keep=(one,))),
            await self._measure("the same with 3 parallel calls", lambda: self._ask(calls=3, keep=(one,))),
            await self._measure(
                "the same with 3 parallel calls, not streamed", lambda: self._ask(calls=3, keep=(one,), stream=False)
            ),
            await self._measure("trimmed, 1 result, answer makes 1 call", lambda: self._ask(calls=1, orphans=(one,))),
            await self._measure("first turn of a conversation, makes 1 call", lambda: self._ask(calls=1)),
        ]

    async def by_length(self, lengths: Sequence[int]) -> list[Cost]:
        """The cost of one and the same turn as its conversation grows."""
        answer = await self._ask(calls=1)
        held = 1
        costs = []
        for length in lengths:
            while held < length:
                more = min(GROWTH_STEP, length - held)
                answer = await self._ask(calls=more, keep=answer.calls)
                held += more
            oldest = answer.calls[:1]
            turn = f"trimmed, 1 result, answer makes 1 call; {length} calls before"
            costs.append(await self._measure(turn, lambda calls=oldest: self._ask(calls=1, orphans=calls)))  # type: ignore[misc]
            held += self._repeats
        return costs

    async def _measure(self, kind: str, turn: Callable[[], Coroutine[Any, Any, Answer]]) -> Cost:
        first = len(self._operations)
        for _ in range(self._repeats):
            await turn()
        made = self._operations[first:]

        def mean(total: int) -> float:
            return total / self._repeats

        return Cost(
            kind,
            mean(sum(operation.is_read for operation in made)),
            mean(sum(not operation.is_read for operation in made)),
            mean(sum(operation.read_units for operation in made)),
            mean(sum(operation.write_units for operation in made)),
        )

    async def _ask(
        self,
        *,
        calls: int = 0,
        keep: Sequence[GivenCall] = (),
        orphans: Sequence[GivenCall] = (),
        stream: bool = True,
    ) -> Answer:
        """A turn with the results of some calls, of which the history shows those to keep."""
        self._number += LONG_EVERY  # never one of the conversations with long arguments
        task = Task(self._number, 0, calls, len(keep) + len(orphans))
        results = [result(call.id, task.text) for call in (*keep, *orphans)]
        messages: list[Message] = [{"role": "user", "content": results or task.text}]
        if keep:
            blocks = [call.block for call in keep]
            messages = [{"role": "user", "content": "Go on."}, {"role": "assistant", "content": blocks}, *messages]
        return await self._client.ask(Question(task, messages, stream))


def cost_table(costs: Sequence[Cost]) -> str:
    """The costs as a Markdown table."""
    lines = [HEADINGS, ("---", *["---:"] * (len(HEADINGS) - 1)), *(cost.cells() for cost in costs)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
