"""What the SDKs are put through: every recorded answer of an upstream, and every way that one can fail.

The upstream tells the cases apart by the model, so that one bridge before one upstream serves them all.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from support import FIXTURES

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from scripted.received import Received

Json = dict[str, Any]

# A name that no provider takes: the bridge shortens it, the upstream calls it by that, the client gets it back.
LONG_TOOL_NAME = "mcp__a_very_long_name__" + "of_a_tool_that_a_server_offers_" * 2
SHORT_TOOL_NAME = "mcp__short_abc"
# Models whose answers are known to hold <think> tags are known by their name.
TAGGED_MODEL = "qwq-"
# The upstream counted nothing: the bridge estimates, and the estimate of the input depends on the request.
ESTIMATED_USAGE = frozenset({"usage_never", "gemini_thoughts"})


@dataclass(frozen=True, slots=True)
class Case:
    """A request and how the upstream answers it."""

    name: str
    request: Json
    rules: tuple[Json, ...]
    expected: Json


@dataclass(frozen=True, slots=True)
class Fault:
    """A request whose upstream fails; `says` is part of the message, `started` if the client saw a beginning."""

    name: str
    request: Json
    rules: tuple[Json, ...]
    status: int
    says: str
    started: bool


def request_for(model: str) -> Json:
    return {"model": f"openai/{model}", "max_tokens": 100, "messages": [{"role": "user", "content": "Hi"}]}


def rules_for(model: str, streamed: object, whole: object) -> tuple[Json, ...]:
    return (
        {"when": {"model": model, "stream": True}, "reply": streamed},
        {"when": {"model": model, "stream": False}, "reply": whole},
    )


# --- answers --------------------------------------------------------------------------------------


def fixture_cases() -> list[Case]:
    return [_fixture_case(folder) for folder in sorted((FIXTURES / "openai_chat").iterdir())]


def _fixture_case(folder: Path) -> Case:
    expected = json.loads((folder / "expected.json").read_text())
    recorded = {"sse_file": str(folder / "stream.sse")}
    # Some servers stream although nobody asked: what has no whole answer is answered so.
    whole = _whole(folder / "response.json") if (folder / "response.json").exists() else recorded
    case = Case(folder.name, request_for(folder.name), rules_for(folder.name, recorded, whole), expected)
    reading = folder / "reading.json"
    for key, value in (json.loads(reading.read_text()) if reading.exists() else {}).items():
        case = ADAPTATIONS[key](case, value, folder)
    return case


def _whole(path: Path) -> Json:
    return {"body": path.read_bytes(), "headers": {"content-type": "application/json"}}


def _with_stop_sequences(case: Case, sequences: list[str], _folder: Path) -> Case:
    return replace(case, request=case.request | {"stop_sequences": sequences}) if sequences else case


def _with_tags(case: Case, tags: str, _folder: Path) -> Case:
    assert tags == "think"
    model = TAGGED_MODEL + case.name
    rules = tuple(rule | {"when": rule["when"] | {"model": model}} for rule in case.rules)
    return replace(case, request=case.request | {"model": f"openai/{model}"}, rules=rules)


def _with_tool_names(case: Case, names: Mapping[str, str], folder: Path) -> Case:
    """The fixture's short name stands for the one that the bridge makes, which only the upstream gets to see."""
    (original,) = names.values()
    assert list(names) == [SHORT_TOOL_NAME]
    tool = {"name": LONG_TOOL_NAME, "description": "Long", "input_schema": {"type": "object", "properties": {}}}
    expected = json.loads(json.dumps(case.expected).replace(original, LONG_TOOL_NAME))
    streamed, whole = (folder / "stream.sse").read_text(), (folder / "response.json").read_text()
    rules = rules_for(
        case.name,
        lambda received: {"sse": [{"$raw": streamed.replace(SHORT_TOOL_NAME, declared_name(received))}]},
        lambda received: {"json": json.loads(whole.replace(SHORT_TOOL_NAME, declared_name(received)))},
    )
    return Case(case.name, case.request | {"tools": [tool]}, rules, expected)


def declared_name(received: Received) -> str:
    return str(received.json["tools"][0]["function"]["name"])


# What a case's reading.json asks of the request. A key that is not here fails, rather than be passed over.
ADAPTATIONS: Mapping[str, Callable[[Case, Any, Path], Case]] = {
    "stop_sequences": _with_stop_sequences,
    "reasoning_tags": _with_tags,
    "tool_names": _with_tool_names,
}


# --- failures -------------------------------------------------------------------------------------

HELLO: Json = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "Hello"}, "finish_reason": None}]}
HALF_CALL: Json = {
    "choices": [
        {
            "index": 0,
            "delta": {"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "f", "arguments": '{"a":'}}]},
            "finish_reason": None,
        }
    ]
}
DIED: Json = {"error": {"message": "the model died", "code": 502}}
PAGE = {"body": "<html><body>Bad gateway</body></html>", "headers": {"content-type": "text/html"}}
HALF_A_BODY = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 900\r\n\r\n" + '{"choices": [{"mess'
BAD_CHUNKS = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n"


def fault_cases() -> list[Fault]:
    return [*_late_faults(), *_early_faults()]


def _late_faults() -> list[Fault]:
    """The upstream fails after the client got the beginning of a stream."""
    half, broken = {"wire": HALF_A_BODY}, "broke in the middle"
    return [
        _late("reset_in_the_stream", [HELLO, {"$cut": "reset"}], half, "connection"),
        _late("closed_in_the_stream", [HELLO, {"$cut": "close"}], half, broken),
        _late("closed_in_a_call", [HELLO, HALF_CALL, {"$cut": "close"}], half, broken),
        _late("ends_too_early", [HELLO], {"sse": [HELLO]}, "cut off"),
        _late("error_chunk", [HELLO, DIED], {"json": DIED}, "the model died"),
        _late("garbage", [HELLO, {"$raw": "data: garbage\n\n"}], {"body": "garbage"}, "not JSON"),
        _late("bad_chunk_framing", [HELLO, {"$bad_chunk": True}], {"wire": BAD_CHUNKS}, broken),
    ]


def _late(name: str, items: list[Json], whole: Json, says: str) -> Fault:
    """A moment passes before the failure, so that the beginning is out."""
    paused = [items[0], {"$delay_ms": 30}, *items[1:]]
    model = f"fault-{name}"
    return Fault(name, request_for(model), rules_for(model, {"sse": paused}, whole), 502, says, started=True)


def _early_faults() -> list[Fault]:
    """The upstream fails before it said anything: the status tells."""
    return [
        _early("status_400", _refused(400, "no such parameter"), 400, "no such parameter"),
        _early("status_401", _refused(401, "bad key"), 401, "bad key"),
        _early("status_429", _refused(429, "slow down") | {"headers": {"retry-after": "7"}}, 429, "slow down"),
        _early("status_500", _refused(500, "oh no"), 500, "oh no"),
        _early("status_503", _refused(503, "busy"), 529, "busy"),
        _early("status_529", _refused(529, "busy"), 529, "busy"),
        _early("page_with_200", PAGE, 502, "check the base URL"),
        _early("page_with_502", PAGE | {"status": 502}, 502, "HTML page"),
        _early("error_with_200", {"json": {"error": {"message": "no credits", "code": 429}}}, 429, "no credits"),
        _early("reset_at_once", {"cut": "reset"}, 502, "connection"),
        _early("closed_at_once", {"cut": "close"}, 502, "connection"),
        _early("not_http", {"wire": "SSH-2.0-OpenSSH_9.9\r\n"}, 502, "connection"),
        _early("empty_stream", {"sse": []}, 502, "cut off"),
        _early("only_done", {"sse": ["[DONE]"]}, 502, "without an answer"),
    ]


def _early(name: str, reply: Json, status: int, says: str) -> Fault:
    model = f"fault-{name}"
    return Fault(name, request_for(model), rules_for(model, reply, reply), status, says, started=False)


def _refused(status: int, message: str) -> Json:
    return {"status": status, "json": {"error": {"message": message}}}
