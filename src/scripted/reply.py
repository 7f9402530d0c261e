"""What a rule answers: one kind of content, and how it is sent."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, assert_never

import orjson

from scripted.chat import Chat, completion, completion_stream, parse_chat
from scripted.messages import Messages, message, message_stream, parse_messages
from scripted.responses import Responses, parse_responses, response, response_stream
from scripted.shape import ScriptError, checked, listed
from scripted.sse import parse_items, read_recording
from scripted.wire import EVENT_STREAM, JSON, Cut, Pause, Response, Step, after_head, chunked, head, spaced

SENDING = {
    "status": int,
    "headers": Mapping,
    "delay_ms": int | float,
    "chunk_delay_ms": int | float,
    "burst": bool,
}


@dataclass(frozen=True, slots=True)
class Whole:
    """A body of known length."""

    content_type: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Events:
    """A body sent in chunks."""

    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Broken:
    """No HTTP response at all."""

    steps: tuple[Step, ...]


Content = Whole | Events | Broken | Chat | Messages | Responses


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer that depends on the request no more than its dialect does."""

    content: Content
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    delay: float = 0
    chunk_delay: float = 0
    burst: bool = False

    def to(self, request: Mapping[str, Any]) -> Response:
        """The response to one request."""
        steps = self._steps(_rendered(self.content, request))
        close = self.headers.get("connection") == "close"
        return Response((Pause(self.delay), *steps) if self.delay else steps, close)

    def _steps(self, content: Whole | Events | Broken) -> tuple[Step, ...]:
        match content:
            case Whole(content_type, body):
                length = {"content-length": str(len(body))}
                return (self._head({"content-type": content_type, **length}) + body,)
            case Events(steps):
                headers = {"content-type": EVENT_STREAM, "cache-control": "no-cache"}
                top = self._head({**headers, "transfer-encoding": "chunked"})
                paced = spaced(steps, self.chunk_delay) if self.chunk_delay else steps
                return after_head(top, chunked(paced, burst=self.burst))
            case Broken(steps):
                return steps
            case _:
                assert_never(content)

    def _head(self, headers: Mapping[str, str]) -> bytes:
        return head(self.status, {**headers, **self.headers})


def parse_reply(data: object, where: str, folder: Path) -> Reply:
    """The reply of a rule; files it names are relative to the folder."""
    entries = checked(data, SENDING | dict.fromkeys(KINDS, object), where)
    given = [kind for kind in KINDS if kind in entries]
    if len(given) != 1:
        raise ScriptError(f"{where}: exactly one of {', '.join(KINDS)} is needed, got {', '.join(given) or 'none'}")
    headers = checked(entries.get("headers", {}), dict.fromkeys(entries.get("headers", {}), str), f"{where}.headers")
    content = KINDS[given[0]](entries[given[0]], f"{where}.{given[0]}", folder)
    return Reply(
        content,
        status=entries.get("status", 200),
        headers={name.lower(): value for name, value in headers.items()},
        delay=entries.get("delay_ms", 0) / 1000,
        chunk_delay=entries.get("chunk_delay_ms", 0) / 1000,
        burst=entries.get("burst", False),
    )


def _rendered(content: Content, request: Mapping[str, Any]) -> Whole | Events | Broken:
    stream = request.get("stream") is True
    match content:
        case Chat():
            return (
                Events(tuple(completion_stream(content, request)))
                if stream
                else Whole(JSON, completion(content, request))
            )
        case Messages():
            return Events(tuple(message_stream(content, request))) if stream else Whole(JSON, message(content, request))
        case Responses():
            return (
                Events(tuple(response_stream(content, request))) if stream else Whole(JSON, response(content, request))
            )
        case _:
            return content


def _text(value: object, where: str) -> bytes:
    match value:
        case str():
            return value.encode()
        case bytes():
            return value
        case _:
            raise ScriptError(f"{where}: expected text, got {type(value).__name__}")


def _cut(value: object, where: str) -> Cut:
    if value not in ("reset", "close"):
        raise ScriptError(f"{where}: expected 'reset' or 'close', got {value!r}")
    return Cut(reset=value == "reset")


def _recording(value: object, where: str, folder: Path) -> Events:
    return Events(read_recording(folder / Path(_text(value, where).decode()), where))


KINDS: Mapping[str, Callable[[object, str, Path], Content]] = {
    "json": lambda value, _where, _folder: Whole(JSON, orjson.dumps(value)),
    "body": lambda value, where, _folder: Whole("text/plain; charset=utf-8", _text(value, where)),
    "sse": lambda value, where, _folder: Events(parse_items(listed(value, where), where)),
    "sse_file": _recording,
    "chat": lambda value, where, _folder: parse_chat(value, where),
    "messages": lambda value, where, _folder: parse_messages(value, where),
    "responses": lambda value, where, _folder: parse_responses(value, where),
    "cut": lambda value, where, _folder: Broken((_cut(value, where),)),
    "wire": lambda value, where, _folder: Broken((_text(value, where), Cut(reset=False))),
}
