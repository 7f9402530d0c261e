"""What the tests of the chat encoder share: answers, and how the official client reads a stream of them."""

from __future__ import annotations

import json
from typing import Any

from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk

from bridge.canonical.content import Citation, RedactedThinking, ServerBlock, Text, Thinking, ToolUse
from bridge.canonical.events import MessageEnd, Usage
from bridge.canonical.fold import Message, parse_arguments
from bridge.canonical.head import AnswerHead

USAGE = Usage(input_tokens=10, output_tokens=7, cache_read_tokens=4, cache_write_tokens=2, reasoning_tokens=3)
CALL = ToolUse("toolu_1", "get_weather", {"city": "Paris"})

ANSWERS: dict[str, Message] = {
    "text": Message((Text("Hello, “world”\n\U0001f600"),), MessageEnd("end_turn", USAGE)),
    "nothing": Message((), MessageEnd("end_turn", USAGE)),
    "one_call": Message((CALL,), MessageEnd("tool_use", USAGE)),
    "a_call_without_arguments": Message((ToolUse("toolu_1", "now", {}),), MessageEnd("tool_use", USAGE)),
    "text_and_calls_in_turns": Message(
        (Text("First "), CALL, Text("then "), ToolUse("toolu_2", "now", {}), ToolUse("toolu_3", "look", {"a": [1]})),
        MessageEnd("tool_use", USAGE),
    ),
    "thinking": Message((Thinking("Hm. ", "sig"), Text("Four.")), MessageEnd("end_turn", USAGE)),
    "thinking_between_calls": Message(
        (Thinking("One. ", "s"), CALL, Thinking("Two.", "s"), ToolUse("toolu_2", "now", {})),
        MessageEnd("tool_use", USAGE),
    ),
    "only_for_anthropic": Message(
        (
            RedactedThinking("x"),
            ServerBlock("server_tool_use", {"type": "server_tool_use"}),
            Thinking("", "s"),
            Text("a"),
        ),
        MessageEnd("pause_turn", USAGE),
    ),
    "citations": Message(
        (
            Text("It is "),
            Text("12 degrees", citations=(Citation("https://a.example", "A", "12°"), Citation("https://b.example"))),
            Text(" and "),
            Text("sunny.", citations=(Citation("https://c.example", "C"),)),
        ),
        MessageEnd("end_turn", USAGE),
    ),
    "cut_off": Message((Text("Once"),), MessageEnd("max_tokens", USAGE)),
    "context_full": Message((Text("Once"),), MessageEnd("model_context_window_exceeded", USAGE)),
    "refused": Message((Text("No."),), MessageEnd("refusal", USAGE)),
    "stopped": Message((Text("One"),), MessageEnd("stop_sequence", USAGE, "END")),
}


def head(**echo: Any) -> AnswerHead:
    return AnswerHead("chatcmpl-1", "claude-sonnet-4-5", 1_700_000_000, echo)


def frames(stream: bytes) -> list[Any]:
    """What each event of a stream holds; `[DONE]` as text."""
    assert stream.endswith(b"\n\n")
    data = [frame.removeprefix(b"data: ") for frame in stream.removesuffix(b"\n\n").split(b"\n\n")]
    return [frame.decode() if frame == b"[DONE]" else json.loads(frame) for frame in data]


def chunks(stream: bytes) -> list[Any]:
    """The chunks of a complete stream."""
    *whole, done = frames(stream)
    assert done == "[DONE]"
    return whole


def deltas(stream: bytes) -> list[Any]:
    return [choice["delta"] for chunk in chunks(stream) for choice in chunk["choices"]]


def accumulated(stream: bytes) -> dict[str, Any]:
    """The choice that the official client puts together."""
    state: ChatCompletionStreamState[None] = ChatCompletionStreamState()
    for chunk in chunks(stream):
        state.handle_chunk(ChatCompletionChunk.model_validate(chunk, strict=True))
    return state.current_completion_snapshot.choices[0].to_dict()


def comparable(message: Any) -> dict[str, Any]:
    """A message without what only one of stream and whole answer has: indexes, empty text for none, JSON's spaces."""
    said = {name: value for name, value in message.items() if value and name not in ("parsed", "refusal")}
    if "tool_calls" in said:
        said["tool_calls"] = [_comparable_call(call) for call in said["tool_calls"]]
    if "annotations" in said:
        said["annotations"] = [{k: v for k, v in entry.items() if k != "index"} for entry in said["annotations"]]
    if "function_call" in said:
        said["function_call"] = _comparable_function(said["function_call"])
    return said


def _comparable_call(call: dict[str, Any]) -> dict[str, Any]:
    return {"id": call["id"], "type": call["type"], "function": _comparable_function(call["function"])}


def _comparable_function(function: dict[str, Any]) -> dict[str, Any]:
    return {"name": function["name"], "arguments": parse_arguments(function["arguments"])}
