"""Conversations that forget: after the first turn a client sends little more than the results of its tool calls."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from bench.soak_client import Question, TurnError
from bench.soak_model import Task

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

    from bench.soak_client import Answer, Client, GivenCall

PRINCIPALS = 7
TURNS = (5, 14)
FAILURES_KEPT = 10
Trim: TypeAlias = Literal["bare", "partly", "earlier", "whole"]
_TRIMS: dict[Trim, float] = {"bare": 0.5, "partly": 0.25, "earlier": 0.15, "whole": 0.1}
Message: TypeAlias = dict[str, Any]


@dataclass(slots=True)
class Tally:
    """What all conversations came to."""

    openings: int = 0
    tool_turns: int = 0
    trimmed_turns: int = 0
    orphans: int = 0
    completed: int = 0
    seconds: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def turns(self) -> int:
        return self.openings + self.tool_turns

    @property
    def completion(self) -> float:
        return self.completed / self.turns if self.turns else 0.0


@dataclass(frozen=True, slots=True)
class Limits:
    """When no new turn is begun."""

    tool_turns: int
    deadline: float
    at_once: int


async def converse_all(client: Client, tally: Tally, limits: Limits, first_number: int) -> None:
    """Hold conversations, so many at once, until there were enough turns or the time is over."""
    numbers = iter(range(first_number, first_number + 10_000_000))

    def is_over() -> bool:
        return tally.tool_turns >= limits.tool_turns or time.monotonic() >= limits.deadline

    async def hold() -> None:
        while not is_over():
            talk = Talk(client, tally, next(numbers))
            turns = client.dice.randint(*TURNS)
            for number in range(turns):
                if is_over() or not await talk.turn(is_last=number == turns - 1):
                    break

    await asyncio.gather(*(hold() for _ in range(limits.at_once)))


class Talk:
    """One conversation."""

    def __init__(self, client: Client, tally: Tally, number: int) -> None:
        self._client = client
        self._tally = tally
        self._number = number
        self._dice: random.Random = client.dice
        self._names: list[str | None] = [None, f"soak-{number}"]
        self._history: list[Message] = []
        self._open: tuple[GivenCall, ...] = ()
        self._earlier: tuple[GivenCall, ...] = ()
        self._turns = 0

    async def turn(self, *, is_last: bool) -> bool:
        """Ask for one more turn, of which the last makes no calls; False if it failed."""
        question = self._question(calls=0 if is_last else self._dice.choices((1, 2, 3), (6, 2, 2))[0])
        started = time.monotonic()
        try:
            answer = await self._client.ask(question)
        except TurnError as error:
            if len(self._tally.failures) < FAILURES_KEPT:
                self._tally.failures.append(f"{question.task.text}: {error}")
            return False
        self._tally.completed += 1
        self._tally.seconds.append(time.monotonic() - started)
        self._go_on(question, answer)
        return True

    def _question(self, calls: int) -> Question:
        if self._open:
            trim = self._dice.choices(list(_TRIMS), list(_TRIMS.values()))[0]
            shape = self._trimmed(trim)
            self._tally.tool_turns += 1
        else:
            shape = [{"role": "user"}]
            self._tally.openings += 1
        task = Task(self._number, self._turns, calls, _result_count(shape) + len(self._open))
        last = [result(call.id, task.text) for call in self._open] or task.text
        messages = [*shape[:-1], {"role": "user", "content": last}]
        return Question(
            task,
            messages,
            stream=self._dice.random() < 0.6,
            conversation_id=self._dice.choice(self._names),
            key=f"sk-soak-{self._number % PRINCIPALS}",
        )

    def _trimmed(self, trim: Trim) -> list[Message]:
        """What is left of the history, and a place for the results to come."""
        place: Message = {"role": "user"}
        if trim == "whole":
            return [*self._history, place]
        kept: Sequence[GivenCall] = ()
        before: list[Message] = []
        if trim == "partly":
            kept = self._dice.sample(self._open, len(self._open) // 2)
        if trim == "earlier" and self._earlier:
            before = [
                {"role": "user", "content": [result(call.id, "as before") for call in self._earlier]},
                {"role": "assistant", "content": "I see."},
            ]
        self._tally.trimmed_turns += 1
        self._tally.orphans += len(self._open) - len(kept) + (len(self._earlier) if before else 0)
        if kept:
            before += [{"role": "user", "content": "Go on."}, _assistant(kept)]
        return [*before, place]

    def _go_on(self, question: Question, answer: Answer) -> None:
        if answer.conversation_id not in self._names:
            self._names.append(answer.conversation_id)
        self._history += [question.messages[-1], _assistant(answer.calls)]  # type: ignore[list-item]
        self._earlier, self._open = self._open, answer.calls
        self._turns += 1


def result(tool_id: str, text: str) -> Message:
    """A tool's result."""
    return {"type": "tool_result", "tool_use_id": tool_id, "content": text}


def _assistant(calls: Sequence[GivenCall]) -> Message:
    return {"role": "assistant", "content": [call.block for call in calls]}


def _result_count(messages: Sequence[Message]) -> int:
    parts = [part for message in messages if isinstance(message.get("content"), list) for part in message["content"]]
    return sum(part["type"] == "tool_result" for part in parts)
