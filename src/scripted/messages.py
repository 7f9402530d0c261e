"""A scripted turn in Anthropic's dialect: a message, or its stream of events."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import orjson

from scripted.chat import dumped, fragments, tokens, words
from scripted.shape import ScriptError, checked, listed, required
from scripted.sse import event
from scripted.wire import Step, chunk

KEYS = {
    "text": str,
    "thinking": str,
    "signature": str,
    "tool_uses": list | tuple,
    "stop_reason": str,
    "usage": Mapping,
}
USE_KEYS = {"id": str, "name": str, "input": str | Mapping}
Block = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A tool use; its input may be raw text, to be streamed only."""

    id: str | None
    name: str
    input: str | Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Messages:
    """A turn: thinking, then text, then tool uses."""

    text: str | None
    thinking: str | None
    signature: str
    uses: tuple[ToolUse, ...]
    stop_reason: str
    usage: Mapping[str, Any]


def parse_messages(data: object, where: str) -> Messages:
    """The turn of a `messages` reply."""
    entries = checked(data, KEYS, where)
    if "signature" in entries and "thinking" not in entries:
        raise ScriptError(f"{where}.signature: only thinking is signed, and 'thinking' is missing")
    uses = listed(entries.get("tool_uses", []), f"{where}.tool_uses")
    return Messages(
        text=entries.get("text"),
        thinking=entries.get("thinking"),
        signature=entries.get("signature", ""),
        uses=tuple(_parse_use(use, f"{where}.tool_uses[{number}]") for number, use in enumerate(uses)),
        stop_reason=entries.get("stop_reason", "tool_use" if uses else "end_turn"),
        usage=entries.get("usage", {}),
    )


def message(turn: Messages, request: Mapping[str, Any]) -> bytes:
    """The turn as a whole."""
    end = {"stop_reason": turn.stop_reason, "stop_sequence": None}
    return orjson.dumps({**_envelope(request), "content": _blocks(turn), **end, "usage": _usage(turn, request)})


def message_stream(turn: Messages, request: Mapping[str, Any]) -> Iterator[Step]:
    """The turn as the events that the Messages API sends."""
    return (chunk(event(data, data["type"])) for data in _events(turn, request))


def _events(turn: Messages, request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    usage = _usage(turn, request)
    start: Block = {
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {**usage, "output_tokens": 1},
    }
    yield {"type": "message_start", "message": {**_envelope(request), **start}}
    for index, block in enumerate(_blocks(turn)):
        opened, deltas = _opened(block)
        yield {"type": "content_block_start", "index": index, "content_block": opened}
        if index == 0:
            yield {"type": "ping"}
        yield from ({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas)
        yield {"type": "content_block_stop", "index": index}
    end = {"stop_reason": turn.stop_reason, "stop_sequence": None}
    yield {"type": "message_delta", "delta": end, "usage": usage}
    yield {"type": "message_stop"}


def _opened(block: Block) -> tuple[Block, list[Block]]:
    """The block as its stream starts it, and the deltas that complete it."""
    match block:
        case {"type": "text", "text": text}:
            return {**block, "text": ""}, [{"type": "text_delta", "text": word} for word in words(text)]
        case {"type": "thinking", "thinking": thinking, "signature": signature}:
            deltas = [{"type": "thinking_delta", "thinking": word} for word in words(thinking)]
            signed = {"type": "signature_delta", "signature": signature}
            return {**block, "thinking": "", "signature": ""}, [*deltas, signed]
        case _:
            # The first fragment that the API sends is empty.
            parts = ["", *fragments(dumped(block["input"]))]
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": part} for part in parts]


def _blocks(turn: Messages) -> list[Block]:
    blocks: list[Block] = []
    if turn.thinking is not None:
        blocks.append({"type": "thinking", "thinking": turn.thinking, "signature": turn.signature})
    if turn.text is not None:
        blocks.append({"type": "text", "text": turn.text})
    for use in turn.uses:
        id_ = use.id or f"toolu_{uuid4().hex[:24]}"
        blocks.append({"type": "tool_use", "id": id_, "name": use.name, "input": use.input})
    return blocks


def _parse_use(data: object, where: str) -> ToolUse:
    entries = checked(data, USE_KEYS, where)
    return ToolUse(entries.get("id"), required(entries, "name", where), entries.get("input", {}))


def _envelope(request: Mapping[str, Any]) -> dict[str, Any]:
    model = request.get("model", "scripted")
    return {"id": f"msg_{uuid4().hex[:24]}", "type": "message", "role": "assistant", "model": model}


def _usage(turn: Messages, request: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "input_tokens": tokens(orjson.dumps(request.get("messages", [])).decode()),
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": tokens(turn.text, turn.thinking, *(dumped(use.input) for use in turn.uses)),
        **turn.usage,
    }
