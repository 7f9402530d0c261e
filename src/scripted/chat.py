"""A scripted turn in OpenAI's dialect: a chat completion, or its stream of chunks."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import orjson

from scripted.shape import checked, listed, required
from scripted.sse import DONE, event
from scripted.wire import Step, chunk

KEYS = {
    "text": str,
    "reasoning": str,
    "reasoning_content": str,
    "tool_calls": list | tuple,
    "finish_reason": str,
    "usage": Mapping,
    "fingerprint": str,
}
CALL_KEYS = {"id": str, "name": str, "arguments": str | Mapping, "extra": Mapping}


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call; `extra` is what else a provider puts beside the function."""

    id: str | None
    name: str
    arguments: str
    extra: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Chat:
    """A turn; providers disagree on the name of the reasoning field, so it is kept as given."""

    text: str | None
    reasoning: Mapping[str, str]
    calls: tuple[Call, ...]
    finish_reason: str
    usage: Mapping[str, Any] | None
    fingerprint: str = "fp_scripted"


def parse_chat(data: object, where: str) -> Chat:
    """The turn of a `chat` reply."""
    entries = checked(data, KEYS, where)
    calls = listed(entries.get("tool_calls", []), f"{where}.tool_calls")
    return Chat(
        text=entries.get("text"),
        reasoning={name: entries[name] for name in ("reasoning", "reasoning_content") if name in entries},
        calls=tuple(_parse_call(call, f"{where}.tool_calls[{number}]") for number, call in enumerate(calls)),
        finish_reason=entries.get("finish_reason", "tool_calls" if calls else "stop"),
        usage=entries.get("usage"),
        fingerprint=entries.get("fingerprint", "fp_scripted"),
    )


def completion(chat: Chat, request: Mapping[str, Any]) -> bytes:
    """The turn as a whole."""
    message: dict[str, Any] = {"role": "assistant", "content": chat.text, "refusal": None, **chat.reasoning}
    if chat.calls:
        message["tool_calls"] = [_whole_call(call) for call in chat.calls]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": chat.finish_reason}
    envelope = _envelope(chat, "chat.completion", request)
    return orjson.dumps({**envelope, "choices": [choice], "usage": _usage(chat, request)})


def completion_stream(chat: Chat, request: Mapping[str, Any]) -> Iterator[Step]:
    """The turn as chunks: words, fragments of arguments, the end, the usage if asked for."""
    envelope = _envelope(chat, "chat.completion.chunk", request)
    with_usage = (request.get("stream_options") or {}).get("include_usage") is True
    if with_usage:
        envelope["usage"] = None
    for delta in _deltas(chat):
        yield chunk(event({**envelope, "choices": [_choice(delta, None)]}))
    yield chunk(event({**envelope, "choices": [_choice({}, chat.finish_reason)]}))
    if with_usage:
        yield chunk(event({**envelope, "choices": [], "usage": _usage(chat, request)}))
    yield chunk(DONE)


def words(text: str) -> list[str]:
    """The text in pieces of one word, with nothing lost."""
    return re.findall(r"\S+\s*|\s+", text)


def fragments(text: str, count: int = 4) -> list[str]:
    """The text in a few pieces of equal size."""
    size = -(-len(text) // count) or 1
    return [text[start : start + size] for start in range(0, len(text), size)]


def tokens(*texts: str | None) -> int:
    """A made-up count that grows with the texts."""
    return sum(len(words(text)) for text in texts if text)


def dumped(value: str | Mapping[str, Any]) -> str:
    """Arguments as JSON text; a string is raw text already."""
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _parse_call(data: object, where: str) -> Call:
    entries = checked(data, CALL_KEYS, where)
    arguments = dumped(entries.get("arguments", {}))
    return Call(entries.get("id"), required(entries, "name", where), arguments, entries.get("extra", {}))


def _deltas(chat: Chat) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": ""}
    for name, reasoning in chat.reasoning.items():
        yield from ({name: word} for word in words(reasoning))
    yield from ({"content": word} for word in words(chat.text or ""))
    for index, call in enumerate(chat.calls):
        opened = _whole_call(call)
        opened["function"]["arguments"] = ""
        yield {"tool_calls": [{"index": index, **opened}]}
        for fragment in fragments(call.arguments):
            yield {"tool_calls": [{"index": index, "function": {"arguments": fragment}}]}


def _whole_call(call: Call) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {
        "id": call.id or f"call_{uuid4().hex[:24]}",
        "type": "function",
        "function": function,
        **call.extra,
    }


def _choice(delta: Mapping[str, Any], finish_reason: str | None) -> dict[str, Any]:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}


def _envelope(chat: Chat, kind: str, request: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{uuid4().hex[:29]}",
        "object": kind,
        "created": int(time.time()),
        "model": request.get("model", "scripted"),
        "system_fingerprint": chat.fingerprint,
    }


def _usage(chat: Chat, request: Mapping[str, Any]) -> Mapping[str, Any]:
    if chat.usage is not None:
        return chat.usage
    prompt = tokens(orjson.dumps(request.get("messages", [])).decode())
    completion = tokens(chat.text, *chat.reasoning.values(), *(call.arguments for call in chat.calls))
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
