"""The record of what ran, so that nothing with a side effect runs twice.

A client that lost an answer sends the same request again. The model then makes the same call under a new id, so an id
says nothing: a call is known by the history it was made in, its tool, its arguments, and how often the same call was
made before in the chain of answers to this request.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Protocol, assert_never

import orjson

from bridge.canonical.content import Base64Source, Document, Image, Text, ToolUse
from bridge.canonical.json import dumps
from bridge.toolloop.tools import ToolOutput

if TYPE_CHECKING:
    from hashlib import _Hash

    from bridge.canonical.content import Block
    from bridge.canonical.json import JsonObject, JsonValue, WireObject
    from bridge.canonical.request import Request
    from bridge.toolloop.tools import OutputPart

MAX_RECORD_BYTES = 300 * 1024
"""A DynamoDB item holds 400 KB."""


class Claim(Enum):
    OURS = "nobody has begun this call: run it"
    BEGUN = "somebody has begun this call, and no result is recorded"


class ExecutionLog(Protocol):
    """Remembers calls for as long as clients retry: minutes."""

    async def claim(self, key: str) -> ToolOutput | Claim:
        """Take a call, atomically; its output if it ran before. BridgeError if the record cannot be reached."""

    async def begin(self, key: str) -> None:
        """Take a call whatever was recorded of it before."""

    async def record(self, key: str, output: ToolOutput) -> None:
        """Keep the output of a call that was taken."""


@dataclass(slots=True)
class InMemoryExecutionLog:
    """A record within one process."""

    kept: dict[str, bytes | None] = field(default_factory=dict)

    async def claim(self, key: str) -> ToolOutput | Claim:
        if key not in self.kept:
            self.kept[key] = None
            return Claim.OURS
        recorded = self.kept[key]
        return Claim.BEGUN if recorded is None else load_output(recorded)

    async def begin(self, key: str) -> None:
        self.kept[key] = None

    async def record(self, key: str, output: ToolOutput) -> None:
        self.kept[key] = dump_output(output)


class CallKeys:
    """Names the calls of one chain of answers; `scope` is the conversation of a principal."""

    def __init__(self, scope: str, request: Request) -> None:
        self._scope, self._request = scope, request
        self._seen: Counter[bytes] = Counter()

    @cached_property
    def _history(self) -> _Hash:
        digest = sha256(self._scope.encode())
        for turn in self._request.turns:
            digest.update(repr((turn.role, tuple(map(_lasting, turn.content)))).encode("utf-8", "replace"))
        return digest

    def key(self, call: ToolUse) -> str:
        """The name of this call; each call is to be named once, in the order in which they were made."""
        said = json.dumps([call.name, call.input], sort_keys=True).encode()
        digest = self._history.copy()
        digest.update(b"%b#%d" % (said, self._seen[said]))
        self._seen[said] += 1
        return digest.hexdigest()[:40]


def _lasting(block: Block) -> Block:
    """A block without what the store attaches to it, which a retry may not find again."""
    return replace(block, replay=None) if isinstance(block, Text | ToolUse) else block


def dump_output(output: ToolOutput) -> bytes:
    """An output for the store; files that would not fit are told in words."""
    kept = dumps(_document(output))
    if len(kept) <= MAX_RECORD_BYTES:
        return kept
    parts = tuple(_without_file(part) for part in output.content)
    return dumps(_document(replace(output, content=parts, shown={})))


def load_output(data: bytes) -> ToolOutput:
    kept: WireObject = orjson.loads(data)
    return ToolOutput(tuple(_part(part) for part in kept["content"]), kept["is_error"], kept["shown"])


def _document(output: ToolOutput) -> JsonObject:
    content: list[JsonValue] = [_said(part) for part in output.content]
    return {"content": content, "is_error": output.is_error, "shown": output.shown}


def _said(part: OutputPart) -> JsonObject:
    match part:
        case Text(text):
            return {"text": text}
        case Image(Base64Source(media_type, data)):
            return {"image": data, "media_type": media_type}
        case Document(Base64Source(media_type, data), title, context):
            return {"file": data, "media_type": media_type, "title": title, "context": context}
        case Document(tuple(pieces), title, context):
            return {"pieces": [_said(piece) for piece in pieces], "title": title, "context": context}
        case Image() | Document():
            raise TypeError("tools give files as bytes, not by reference")
        case _:
            assert_never(part)


def _part(kept: WireObject) -> OutputPart:
    match kept:
        case {"text": text}:
            return Text(text)
        case {"image": data}:
            return Image(Base64Source(kept["media_type"], data))
        case {"file": data}:
            return Document(Base64Source(kept["media_type"], data), kept["title"], kept["context"])
    pieces = tuple(piece for piece in map(_part, kept["pieces"]) if isinstance(piece, Text | Image))
    return Document(pieces, kept["title"], kept["context"])


def _without_file(part: OutputPart) -> OutputPart:
    match part:
        case Image(Base64Source(media_type, data)) | Document(Base64Source(media_type, data)):
            return Text(f"[{media_type} of {len(data) * 3 // 4} bytes was shown in an earlier attempt]")
    return part
