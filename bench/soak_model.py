"""The model behind the bridges: its tool calls follow from the prompt, so that every later sight of one can be checked.

The text of a prompt or of a tool result says which turn of which conversation it is and how many calls to make. Names
are unique, so a call that came back under another id, or from another conversation, cannot look right. The provider's
own ids are the same in every answer, as some providers have them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from scripted.prompt import messages_of, text_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scripted.received import Received

NOTES = ("", "plain", 'with "quotes", \\ and\nlines', "für Zoë, 東京 ☂", "x" * 200)
LONG_NOTE = "a long note, as of a file that is written. " * 70
LONG_EVERY = 8  # one conversation of so many has arguments of about 3 KB
SLOW_EVERY = 10  # one of so many is answered at a model's pace, so that kills hit streams
SLOW_CHUNK_MS = 4
_TASK = re.compile(r"soak (\d+) (\d+) calls (\d+) results (\d+)")


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call without its id."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Task:
    """What one turn is to do: how many calls its answer makes, how many results its history shows."""

    conversation: int
    turn: int
    calls: int
    results: int

    @property
    def text(self) -> str:
        return f"soak {self.conversation} {self.turn} calls {self.calls} results {self.results}"

    @property
    def answer(self) -> str:
        return f"done {self.conversation} {self.turn}"

    def expected_calls(self) -> tuple[Call, ...]:
        return tuple(self._call(number) for number in range(self.calls))

    def _call(self, number: int) -> Call:
        is_long = self.conversation % LONG_EVERY == LONG_EVERY - 1
        note = LONG_NOTE if is_long else NOTES[(self.conversation + self.turn + number) % len(NOTES)]
        arguments = {"conversation": self.conversation, "turn": self.turn, "call": number, "note": note}
        return Call(f"tool_{self.conversation}_{self.turn}_{number}", arguments)


def read_task(text: str) -> Task:
    """The task that a text names."""
    found = _TASK.search(text)
    if found is None:
        raise ValueError(f"not a task: {text[:100]!r}")
    return Task(*map(int, found.groups()))


@dataclass(slots=True)
class Book:
    """Which call each id was given for, and what the model saw that differs from it."""

    calls: dict[str, Call] = field(default_factory=dict)
    wrong_names: int = 0
    wrong_arguments: int = 0
    lost_calls: int = 0
    examples: list[str] = field(default_factory=list)

    def check(self, messages: Sequence[Mapping[str, Any]], task: Task) -> bool:
        """Whether every call is the one its id stands for, and every result has its call."""
        before = len(self.examples)
        shown: set[str] = set()
        results = 0
        for message in messages:
            for call in message.get("tool_calls") or ():
                shown.add(call["id"])
                self._compare(call["id"], call["function"])
            if message.get("role") == "tool":
                results += 1
                if message["tool_call_id"] not in shown:
                    self.lost_calls += 1
                    self.examples.append(f"{task.text}: a result without its call, {message['tool_call_id']}")
        if results != task.results:
            self.lost_calls += 1
            self.examples.append(f"{task.text}: {results} results arrived")
        return len(self.examples) == before

    def _compare(self, tool_id: str, function: Mapping[str, Any]) -> None:
        known = self.calls.get(tool_id)
        if known is None or function["name"] != known.name:
            self.wrong_names += 1
            self.examples.append(f"{tool_id}: {function['name']} instead of {known and known.name}")
        elif orjson.loads(function["arguments"]) != known.arguments:
            self.wrong_arguments += 1
            self.examples.append(f"{tool_id}: {function['arguments'][:100]} instead of {known.arguments}")


def model_rules(book: Book) -> list[dict[str, Any]]:
    """The script of the upstream."""

    def reply(received: Received) -> Mapping[str, Any]:
        messages = messages_of(received.request)
        task = read_task(text_of(messages[-1].get("content")))
        if not book.check(messages, task):
            return {"status": 400, "json": {"error": {"message": f"soak: wrong history in {task.text}"}}}
        pace = {"chunk_delay_ms": SLOW_CHUNK_MS} if task.conversation % SLOW_EVERY == 1 else {}
        return {"chat": _chat(task)} | pace

    return [{"when": {"method": "POST", "path": "*/chat/completions"}, "reply": reply}]


def _chat(task: Task) -> dict[str, Any]:
    if not task.calls:
        return {"text": task.answer}
    calls = enumerate(task.expected_calls())
    return {
        "tool_calls": [
            {"id": f"call_{number}", "name": call.name, "arguments": call.arguments} for number, call in calls
        ]
    }
