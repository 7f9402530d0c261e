"""A client as the SDKs are: two retries with backoff, behind a balancer that tries another bridge when one is gone."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx2
import orjson

from bench.soak_model import Call

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence

    from bench.soak_model import Book, Task

RETRIES = 2
FIRST_BACKOFF_SECONDS = 0.5
TIMEOUT_SECONDS = 60.0
RETRIED = frozenset({408, 409, 429})


class TurnError(Exception):
    """A turn that did not come to its right end."""

    def __init__(self, reason: str, *, retryable: bool = False) -> None:
        super().__init__(reason)
        self.retryable = retryable


@dataclass(frozen=True, slots=True)
class GivenCall:
    """A tool call as the client got it."""

    id: str
    call: Call

    @property
    def block(self) -> dict[str, Any]:
        return {"type": "tool_use", "id": self.id, "name": self.call.name, "input": self.call.arguments}


@dataclass(frozen=True, slots=True)
class Answer:
    """An assistant turn as the client got it."""

    conversation_id: str
    text: str
    calls: tuple[GivenCall, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """One turn to be asked for: what it is about, and how it is sent."""

    task: Task
    messages: Sequence[Mapping[str, Any]]
    stream: bool = True
    conversation_id: str | None = None
    key: str = "sk-soak"

    @property
    def headers(self) -> dict[str, str]:
        named = {"x-conversation-id": self.conversation_id} if self.conversation_id else {}
        return {"x-api-key": self.key, "content-type": "application/json", **named}

    @property
    def body(self) -> bytes:
        content = {"model": "openai/gpt-soak", "max_tokens": 1000, "stream": self.stream}
        return orjson.dumps(content | {"tools": TOOLS, "messages": self.messages})


TOOLS = [{"name": "any_tool", "description": "Stands for all.", "input_schema": {"type": "object", "properties": {}}}]


@dataclass(slots=True)
class Client:
    """Asks any of the bridges, notes what it is given, and counts what went wrong on the way."""

    ports: Sequence[int]
    book: Book
    http: httpx2.AsyncClient
    dice: random.Random
    balancer_retries: int = 0
    not_stored: int = 0
    retries: Counter[str] = field(default_factory=Counter)

    async def ask(self, question: Question) -> Answer:
        """The right answer to a question; TurnError if there is none within the retries."""
        for retry in range(RETRIES + 1):
            try:
                return await self._attempt(question)
            except TurnError as error:
                if not error.retryable or retry == RETRIES:
                    raise
                self.retries[str(error)[:60]] += 1
            await asyncio.sleep(FIRST_BACKOFF_SECONDS * 2**retry * self.dice.uniform(0.75, 1))
        raise AssertionError

    async def _attempt(self, question: Question) -> Answer:
        try:
            response = await self._balanced(question)
            try:
                data = await response.aread()
            finally:
                await response.aclose()
        except httpx2.TransportError as error:
            raise TurnError(error.__class__.__name__, retryable=True) from error
        status = response.status_code
        if status != 200:
            retryable = status >= 500 or status in RETRIED
            raise TurnError(f"{status} {data.decode()[:300] if not retryable else ''}", retryable=retryable)
        self.not_stored += "x-bridge-state" in response.headers
        text, calls = _read_stream(data) if question.stream else _read_message(data)
        self._note(question.task, text, calls)
        return Answer(response.headers["x-conversation-id"], text, calls)

    async def _balanced(self, question: Question) -> httpx2.Response:
        """A random bridge; if it is gone before it answers, once another one."""
        first, *others = self.dice.sample(self.ports, len(self.ports))
        try:
            return await self._send(first, question)
        except httpx2.TransportError:
            self.balancer_retries += 1
            return await self._send((others or [first])[0], question)

    async def _send(self, port: int, question: Question) -> httpx2.Response:
        url = f"http://127.0.0.1:{port}/v1/messages"
        request = self.http.build_request("POST", url, headers=question.headers, content=question.body)
        return await self.http.send(request, stream=True)

    def _note(self, task: Task, text: str, calls: Sequence[GivenCall]) -> None:
        given = tuple(item.call for item in calls)
        if given != task.expected_calls() or (not given and text != task.answer):
            self.book.wrong_names += 1
            self.book.examples.append(f"{task.text}: the client was given {given} {text!r}")
            raise TurnError("a wrong answer")
        for item in calls:
            self.book.calls[item.id] = item.call


def make_http(streams: int) -> httpx2.AsyncClient:
    """The connections of all clients."""
    limits = httpx2.Limits(max_connections=4 * streams, max_keepalive_connections=2 * streams)
    return httpx2.AsyncClient(timeout=TIMEOUT_SECONDS, limits=limits, trust_env=False)


def _read_message(data: bytes) -> tuple[str, tuple[GivenCall, ...]]:
    content = orjson.loads(data)["content"]
    text = "".join(block["text"] for block in content if block["type"] == "text")
    calls = [block for block in content if block["type"] == "tool_use"]
    return text, tuple(GivenCall(call["id"], Call(call["name"], call["input"])) for call in calls)


def _read_stream(data: bytes) -> tuple[str, tuple[GivenCall, ...]]:
    text: list[str] = []
    calls: list[GivenCall] = []
    opened: dict[str, Any] = {}
    pieces: list[str] = []
    ended = False
    for line in data.splitlines():
        if not line.startswith(b"data: "):
            continue
        match orjson.loads(line[6:]):
            case {"type": "content_block_start", "content_block": {"type": "tool_use"} as block}:
                opened, pieces = block, []
            case {"type": "content_block_delta", "delta": {"type": "text_delta", "text": piece}}:
                text.append(piece)
            case {"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": piece}}:
                pieces.append(piece)
            case {"type": "content_block_stop"} if opened:
                arguments = orjson.loads("".join(pieces) or "{}")
                calls.append(GivenCall(opened["id"], Call(opened["name"], arguments)))
                opened = {}
            case {"type": "error", "error": {"type": kind}}:
                raise TurnError(f"error in the stream: {kind}", retryable=True)
            case {"type": "message_stop"}:
                ended = True
    if not ended:
        raise TurnError("the stream had no end", retryable=True)
    return "".join(text), tuple(calls)
