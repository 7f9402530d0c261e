"""The demo model: no intelligence, but the manners of one. It streams text and makes tool calls."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from scripted.demo_arguments import sample, shortened
from scripted.prompt import messages_of, text_of

if TYPE_CHECKING:
    from scripted.received import Received

WORD_DELAY_MS = 15
BUILT = 1_700_000_000
REMINDER = re.compile(r"<system-reminder>.*?(?:</system-reminder>|\Z)", re.DOTALL)
NAME_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
# Words that many tools share and that say nothing about what one is for.
EMPTY_PARTS = frozenset({"get", "set", "do", "tool", "the", "a", "an", "to", "by", "of", "for", "current", "call"})
# What people say where a coding agent's tool is named after the thing.
SYNONYMS = {"run": "bash", "execute": "bash", "open": "read"}
SETTINGS = "OPENAI_API_KEY, OPENROUTER_API_KEY, GEMINI_API_KEY or ANTHROPIC_API_KEY"

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Tool:
    """A function the model may call."""

    name: str
    schema: Json


@dataclass(frozen=True, slots=True)
class Turn:
    """What the newest part of a conversation asks: a user's text, or an answer to tool results."""

    text: str
    results: tuple[tuple[str, str], ...]


def demo_rules() -> list[dict[str, Any]]:
    """The script that puts the demo model behind chat completions."""
    models = {"object": "list", "data": [{"id": "demo", "object": "model", "created": BUILT, "owned_by": "toolbridge"}]}
    return [
        {"when": {"method": "POST", "path": "*/chat/completions"}, "reply": _reply_to},
        {"when": {"method": "GET", "path": "*/models"}, "reply": {"json": models}},
    ]


def demo_reply(request: Json) -> dict[str, Any]:
    """The reply to a chat completions request."""
    return {"chat": {**_chat(request), "fingerprint": "fp_demo"}, "chunk_delay_ms": WORD_DELAY_MS}


def _reply_to(received: Received) -> dict[str, Any]:
    return demo_reply(received.request)


def _chat(request: Json) -> dict[str, Any]:
    turn, tools = read_turn(request), tuple(_tools(request))
    if not turn.results and (tool := choose_tool(tools, request.get("tool_choice"), turn.text)):
        return {"tool_calls": [{"name": tool.name, "arguments": sample(tool.schema, turn.text)}]}
    match request.get("response_format"):
        case {"type": "json_schema", "json_schema": {"schema": schema}}:
            return {"text": orjson.dumps(sample(schema, turn.text)).decode()}
        case {"type": "json_object"}:
            return {"text": orjson.dumps({"answer": shortened(turn.text, 80)}).decode()}
        case _:
            return {"text": _after_tools(turn) if turn.results else _greeting(turn, tools)}


def read_turn(request: Json) -> Turn:
    """The newest turn; instructions of the system and reminders inside user texts are not part of it."""
    messages = [message for message in messages_of(request) if message.get("role") not in ("system", "developer")]
    texts, results = [], []
    for message in reversed(messages):
        if message.get("role") == "assistant":
            break
        if message.get("role") == "tool":
            results.append((_name_of(message.get("tool_call_id"), messages), text_of(message.get("content"))))
        else:
            texts.append(_intent(text_of(message.get("content"))))
    return Turn(next(filter(None, texts), ""), tuple(reversed(results)))


def choose_tool(tools: Sequence[Tool], choice: object, text: str) -> Tool | None:
    """The tool that is forced, else the one that the text names or resembles most."""
    named = _named(tools, text)
    match choice:
        case "none":
            return None
        case {"function": {"name": forced}}:
            return next((tool for tool in tools if tool.name == forced), None)
        case "required":
            return named or next(iter(tools), None)
        case _:
            return named


def _named(tools: Sequence[Tool], text: str) -> Tool | None:
    """Ties go to what the text says first."""
    ranked = [(*resemblance(tool.name, text), tool) for tool in tools]
    likely = [entry for entry in ranked if entry[0] >= 0.5]
    return max(likely, key=lambda entry: (entry[0], -entry[1]))[2] if likely else None


def resemblance(name: str, text: str) -> tuple[float, int]:
    """How much the text speaks of a tool, most if it has the very name, and where."""
    if exact := re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text, re.IGNORECASE):
        return 2.0, exact.start()
    # An MCP tool is mcp__server__tool; only its own name says what it does.
    own = name.rpartition("__")[2]
    parts = [part.lower() for part in NAME_PARTS.findall(own) if part.lower() not in EMPTY_PARTS]
    places = [place for part in parts if (place := _place_of(part, text)) is not None]
    # Of two whole matches the one with more words wins: ListAgents before Agent.
    return (len(places) / len(parts) + len(places) / 100, min(places)) if places else (0.0, 0)


def _place_of(part: str, text: str) -> int | None:
    for word in re.finditer(r"[^\W_]+", text.lower()):
        said = SYNONYMS.get(word.group(), word.group())
        if len(part) > 2 and said.startswith(part) and len(said) - len(part) <= 3:
            return word.start()
    return None


def _tools(request: Json) -> Iterator[Tool]:
    for tool in request.get("tools") or ():
        match tool:
            case {"function": {"name": str(name), "parameters": Mapping() as schema}}:
                yield Tool(name, schema)
            case {"function": {"name": str(name)}}:
                yield Tool(name, {"type": "object"})


def _intent(text: str) -> str:
    return REMINDER.sub("", text).strip()


def _name_of(id_: object, messages: Sequence[Json]) -> str:
    calls = (call for message in messages for call in message.get("tool_calls") or ())
    return next((call["function"]["name"] for call in calls if call.get("id") == id_), "tool")


def _after_tools(turn: Turn) -> str:
    quotes = " ".join(f"The {name} call returned: “{shortened(text, 200)}”." for name, text in turn.results)
    return f"{quotes} That was a whole tool round trip through Toolbridge, with its built-in demo model."


def _greeting(turn: Turn, tools: Sequence[Tool]) -> str:
    said = f" You said: “{shortened(turn.text, 100)}”." if turn.text else ""
    names = shortened(", ".join(tool.name for tool in tools), 100)
    offer = f" Name one of your tools and it will be called: {names}." if tools else ""
    return (
        "This is Toolbridge's built-in demo model, which answers because no provider is configured."
        f"{said}{offer} For a real model set {SETTINGS} in the environment or in .env, and start again."
    )
