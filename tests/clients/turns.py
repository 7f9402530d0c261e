"""What a scripted model says turn by turn, in the dialect of each provider, and what came back to it.

A turn is told once and rendered for GPT (chat completions, or Responses where it reasons), Claude (messages) and
Gemini (chat completions with signed calls). What a provider sealed has to come back to it, whatever the client is.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from conformance.outbound import order_defects

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scripted.received import Received
    from scripted.server import ScriptedUpstream

Json: TypeAlias = dict[str, Any]
Dialect: TypeAlias = Literal["gpt", "reasoning-gpt", "claude", "gemini"]
SEAL = "c2VhbGVkIGJ5IHRoZSBwcm92aWRlcg=="
OVER: Json = {"status": 400, "json": {"error": {"message": "the script is over", "type": "invalid_request_error"}}}


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call that the model makes."""

    name: str
    arguments: Json


@dataclass(frozen=True, slots=True)
class Ran:
    """A tool call in a history, with the result that belongs to it by id."""

    name: str
    arguments: Json
    result: str


def turn(dialect: Dialect, text: str | None = None, *calls: Call) -> Json:
    """The reply that says this in a dialect."""
    said: Json = {} if text is None else {"text": text}
    made: list[Json] = [{"name": call.name, "arguments": call.arguments} for call in calls]
    match dialect:
        case "claude":
            uses = [{"name": call.name, "input": call.arguments} for call in calls]
            return {"messages": said | {"tool_uses": uses}}
        case "reasoning-gpt":
            reasoning = {"reasoning": "Let me think.", "encrypted": SEAL} if calls else {}
            return {"responses": reasoning | said | {"calls": made}}
        case "gemini" if calls:
            # Of calls made at once Gemini signs the first.
            made[0]["extra"] = {"extra_content": {"google": {"thought_signature": SEAL}}}
    return {"chat": said | {"tool_calls": made}}


def in_order(*replies: Any) -> list[Json]:
    """A script that gives each reply once; whoever asks more often is told that it is over."""
    posted = {"method": "POST"}
    rules = [{"when": posted | {"call": number}, "reply": reply} for number, reply in enumerate(replies, 1)]
    return [*rules, {"when": posted, "reply": OVER}]


def asked(upstream: ScriptedUpstream) -> list[Json]:
    """The bodies of all requests to the model."""
    return [received.request for received in posts(upstream)]


def posts(upstream: ScriptedUpstream) -> list[Received]:
    return [received for received in upstream.received if received.method == "POST"]


def rounds(body: Json) -> list[list[Ran]]:
    """The tool calls of a history, one list per assistant turn that made any, each with its own result.

    Fails on a call without a result right after it, on a result without a call, and on an id used twice.
    """
    turns = _turns(body)
    found = []
    for calls, results in turns:
        assert sorted(calls) == sorted(results), f"calls {calls} have the results {results}"
        found.append([Ran(name, arguments, results[ident]) for ident, (name, arguments) in calls.items()])
    idents = [ident for calls, _ in turns for ident in calls]
    assert len(set(idents)) == len(idents), f"ids used twice: {idents}"
    return found


def declared(body: Json) -> list[str]:
    """The names of the tools that a request declares."""
    return [tool.get("function", tool)["name"] for tool in body.get("tools", ())]


def user_texts(body: Json) -> list[str]:
    """What the user said, turn by turn."""
    said = [entry for entry in _entries(body) if entry.get("role") == "user"]
    return [text for entry in said for text in _texts(entry["content"])]


def assistant_texts(body: Json) -> list[str]:
    """What the model said, turn by turn, as it comes back to it."""
    said = [entry for entry in _entries(body) if entry.get("role") == "assistant"]
    return [text for entry in said for text in _texts(entry["content"] or []) if text]


def seals(body: Json) -> list[str]:
    """What providers sealed and get back: signatures of Gemini's calls, encrypted reasoning, signed thinking."""
    return [seal for entry in _entries(body) for seal in _seals(entry)]


def _seals(entry: Json) -> list[str]:
    match entry:
        case {"tool_calls": calls}:
            google = [call.get("extra_content", {}).get("google", {}) for call in calls or ()]
            return [signed["thought_signature"] for signed in google if "thought_signature" in signed]
        case {"type": "reasoning", "encrypted_content": str(encrypted)}:
            return [encrypted]
        case {"role": "assistant", "content": list(blocks)}:
            return [block["signature"] for block in blocks if "signature" in block]
        case _:
            return []


def _entries(body: Json) -> list[Json]:
    entries: list[Json] = body["messages"] if "messages" in body else body["input"]
    return entries


Turn: TypeAlias = "tuple[dict[str, tuple[str, Json]], dict[str, str]]"


def _turns(body: Json) -> list[Turn]:
    if "input" in body:
        return _responses_turns(body["input"])
    calling = any(message["role"] == "tool" or "tool_calls" in message for message in body["messages"])
    return _chat_turns(body["messages"]) if calling else _claude_turns(body["messages"])


def _chat_turns(messages: Sequence[Json]) -> list[Turn]:
    assert order_defects(list(messages)) == []
    turns: list[Turn] = []
    for message in messages:
        if calls := message.get("tool_calls"):
            made = {call["id"]: call["function"] for call in calls}
            assert len(made) == len(calls), f"one id for two calls: {calls}"
            turns.append(({ident: (made[ident]["name"], json.loads(made[ident]["arguments"])) for ident in made}, {}))
        elif message["role"] == "tool":
            turns[-1][1][message["tool_call_id"]] = "\n".join(_texts(message["content"]))
    return turns


def _claude_turns(messages: Sequence[Json]) -> list[Turn]:
    turns: list[Turn] = []
    for message in messages:
        blocks = message["content"] if isinstance(message["content"], list) else []
        if uses := [block for block in blocks if block["type"] == "tool_use"]:
            made = {use["id"]: (use["name"], use["input"]) for use in uses}
            assert len(made) == len(uses), f"one id for two calls: {uses}"
            turns.append((made, {}))
        for block in blocks:
            if block["type"] == "tool_result":
                turns[-1][1][block["tool_use_id"]] = "\n".join(_texts(block.get("content") or ""))
    return turns


def _responses_turns(items: Sequence[Json]) -> list[Turn]:
    turns: list[Turn] = []
    for before, item in zip([{}, *items], items, strict=False):
        if item.get("type") == "function_call":
            if before.get("type") != "function_call":
                turns.append(({}, {}))
            assert item["call_id"] not in turns[-1][0], f"one id for two calls: {item['call_id']}"
            turns[-1][0][item["call_id"]] = (item["name"], json.loads(item["arguments"]))
        elif item.get("type") == "function_call_output":
            turns[-1][1][item["call_id"]] = "\n".join(_texts(item["output"]))
    return turns


def _texts(content: str | Sequence[Json]) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [part["text"] for part in content if part.get("type") in ("text", "input_text", "output_text")]
