"""What is asked: the same question in Anthropic's and in OpenAI's words."""

from __future__ import annotations

from typing import Any

import orjson

TEXT = "The quick brown fox jumps over the lazy dog, and then it reads the file again. "
MESSAGE_CHARACTERS = 2350
TOOL_COUNT = 20
SCHEMA = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "description": "Where to read."},
        "limit": {"type": "integer", "description": "How many lines at most."},
    },
    "required": ["path"],
}
Message = dict[str, Any]


def anthropic_body(model: str, messages: int = 1, provider: str = "openai/") -> bytes:
    """A streaming request to /v1/messages; with more than one message it has tools and their results."""
    body: dict[str, Any] = {"model": provider + model, "max_tokens": 4096, "stream": True}
    if messages > 1:
        body["tools"] = [{"name": name, "description": TEXT, "input_schema": SCHEMA} for name in _tool_names()]
    return orjson.dumps(body | {"messages": _history(messages, _anthropic_turns)})


def tool_result_body(model: str, tool_id: str, name: str = "") -> bytes:
    """A request that brings a tool's result; without a name the call itself has been trimmed from the history."""
    call = {"type": "tool_use", "id": tool_id, "name": name, "input": {"city": "Par" * 48}}
    result = {"type": "tool_result", "tool_use_id": tool_id, "content": "sunny"}
    asked: list[Message] = [{"role": "user", "content": "Hello!"}, {"role": "assistant", "content": [call]}]
    messages = [*(asked if name else []), {"role": "user", "content": [result]}]
    body = {"model": f"openai/{model}", "max_tokens": 4096, "stream": True, "messages": messages}
    return orjson.dumps(body | {"tools": [{"name": "get_weather", "input_schema": {"type": "object"}}]})


def chat_body(model: str, messages: int = 1) -> bytes:
    """The same request to /v1/chat/completions."""
    body: dict[str, Any] = {"model": model, "max_completion_tokens": 4096, "stream": True}
    body["stream_options"] = {"include_usage": True}
    if messages > 1:
        body["tools"] = [
            {"type": "function", "function": {"name": name, "description": TEXT, "parameters": SCHEMA}}
            for name in _tool_names()
        ]
    return orjson.dumps(body | {"messages": _history(messages, _chat_turns)})


def _tool_names() -> list[str]:
    return [f"read_file_{number}" for number in range(TOOL_COUNT)]


def _history(messages: int, turns: Any) -> list[Message]:
    text = (TEXT * (MESSAGE_CHARACTERS // len(TEXT) + 1))[:MESSAGE_CHARACTERS]
    if messages == 1:
        return [{"role": "user", "content": "Hello!"}]
    made = [turn for number in range(messages // 4) for turn in turns(number, text)]
    return [*made[:-1], {"role": "user", "content": "Go on."}]


def _anthropic_turns(number: int, text: str) -> list[Message]:
    tool_id, name = f"toolu_{number:024}", f"read_file_{number % TOOL_COUNT}"
    call = {"type": "tool_use", "id": tool_id, "name": name, "input": {"path": text, "limit": 10}}
    result = {"type": "tool_result", "tool_use_id": tool_id, "content": [{"type": "text", "text": text}]}
    return [
        {"role": "user", "content": text},
        {"role": "assistant", "content": [{"type": "text", "text": "I look."}, call]},
        {"role": "user", "content": [result]},
        {"role": "assistant", "content": [{"type": "text", "text": text}]},
    ]


def _chat_turns(number: int, text: str) -> list[Message]:
    tool_id, name = f"toolu_{number:024}", f"read_file_{number % TOOL_COUNT}"
    arguments = orjson.dumps({"path": text, "limit": 10}).decode()
    call = {"id": tool_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return [
        {"role": "user", "content": text},
        {"role": "assistant", "content": "I look.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": tool_id, "content": text},
        {"role": "assistant", "content": text},
    ]
