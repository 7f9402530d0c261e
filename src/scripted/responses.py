"""A scripted turn in the dialect of OpenAI's Responses: a response, or its stream of events."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import orjson

from scripted.chat import dumped, fragments, tokens, words
from scripted.shape import checked, listed, required
from scripted.sse import event
from scripted.wire import Step, chunk

KEYS = {"text": str, "reasoning": str, "encrypted": str, "calls": list | tuple, "status": str, "usage": Mapping}
CALL_KEYS = {"call_id": str, "name": str, "arguments": str | Mapping}
Item = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Responses:
    """A turn: reasoning, then text, then function calls; each is an item of the output."""

    items: tuple[Item, ...]
    status: str
    usage: Mapping[str, Any]


def parse_responses(data: object, where: str) -> Responses:
    """The turn of a `responses` reply."""
    entries = checked(data, KEYS, where)
    items: list[Item] = []
    if "reasoning" in entries or "encrypted" in entries:
        summary = [{"type": "summary_text", "text": entries["reasoning"]}] if "reasoning" in entries else []
        items.append({"type": "reasoning", "summary": summary, "encrypted_content": entries.get("encrypted")})
    if "text" in entries:
        part = {"type": "output_text", "text": entries["text"], "annotations": [], "logprobs": []}
        items.append({"type": "message", "role": "assistant", "status": "completed", "content": [part]})
    for number, call in enumerate(listed(entries.get("calls", []), f"{where}.calls")):
        items.append(_call(call, f"{where}.calls[{number}]"))
    return Responses(tuple(items), entries.get("status", "completed"), entries.get("usage", {}))


def response(turn: Responses, request: Mapping[str, Any]) -> bytes:
    """The turn as a whole."""
    return orjson.dumps(_whole(turn, request, _named(turn), f"resp_{uuid4().hex}"))


def response_stream(turn: Responses, request: Mapping[str, Any]) -> Iterator[Step]:
    """The turn as the events that the Responses API sends, numbered from 0."""
    for number, said in enumerate(_events(turn, request)):
        yield chunk(event({**said, "sequence_number": number}, said["type"]))


def _events(turn: Responses, request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    items, response_id = _named(turn), f"resp_{uuid4().hex}"
    begun = {**_whole(turn, request, [], response_id), "status": "in_progress", "usage": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    for index, item in enumerate(items):
        place = {"item_id": item["id"], "output_index": index}
        yield {"type": "response.output_item.added", "output_index": index, "item": _begun(item)}
        for said in _pieces(item):
            yield {**said, **place}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": f"response.{turn.status}", "response": _whole(turn, request, items, response_id)}


def _pieces(item: Item) -> Iterator[dict[str, Any]]:
    match item:
        case {"type": "message", "content": [part]}:
            yield {"type": "response.content_part.added", "content_index": 0, "part": {**part, "text": ""}}
            for word in words(part["text"]):
                yield {"type": "response.output_text.delta", "content_index": 0, "delta": word, "logprobs": []}
            yield {"type": "response.output_text.done", "content_index": 0, "text": part["text"], "logprobs": []}
            yield {"type": "response.content_part.done", "content_index": 0, "part": part}
        case {"type": "reasoning", "summary": [part]}:
            yield {"type": "response.reasoning_summary_part.added", "summary_index": 0, "part": {**part, "text": ""}}
            for word in words(part["text"]):
                yield {"type": "response.reasoning_summary_text.delta", "summary_index": 0, "delta": word}
            yield {"type": "response.reasoning_summary_text.done", "summary_index": 0, "text": part["text"]}
            yield {"type": "response.reasoning_summary_part.done", "summary_index": 0, "part": part}
        case {"type": "function_call", "arguments": arguments, "name": name}:
            for fragment in fragments(arguments):
                yield {"type": "response.function_call_arguments.delta", "delta": fragment}
            yield {"type": "response.function_call_arguments.done", "arguments": arguments, "name": name}


def _begun(item: Item) -> Item:
    match item:
        case {"type": "message"}:
            return {**item, "status": "in_progress", "content": []}
        case {"type": "function_call"}:
            return {**item, "status": "in_progress", "arguments": ""}
        case _:
            return {**item, "summary": []}


def _call(data: object, where: str) -> Item:
    entries = checked(data, CALL_KEYS, where)
    return {
        "type": "function_call",
        "status": "completed",
        "call_id": entries.get("call_id") or f"call_{uuid4().hex[:24]}",
        "name": required(entries, "name", where),
        "arguments": dumped(entries.get("arguments", {})),
    }


def _named(turn: Responses) -> list[Item]:
    prefixes = {"message": "msg", "reasoning": "rs", "function_call": "fc"}
    return [{"id": f"{prefixes[item['type']]}_{uuid4().hex}", **item} for item in turn.items]


def _whole(turn: Responses, request: Mapping[str, Any], items: list[Item], response_id: str) -> dict[str, Any]:
    sent = tokens(orjson.dumps(request.get("input", [])).decode())
    made = tokens(*(orjson.dumps(item).decode() for item in turn.items))
    usage = {
        "input_tokens": sent,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": made,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": sent + made,
    }
    return {
        "id": response_id,
        "object": "response",
        "created_at": int(time.time()),
        "model": request.get("model", "scripted"),
        "status": turn.status,
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if turn.status == "incomplete" else None,
        "instructions": request.get("instructions"),
        "output": items,
        "parallel_tool_calls": True,
        "tool_choice": request.get("tool_choice", "auto"),
        "tools": request.get("tools", []),
        "usage": {**usage, **turn.usage},
    }
