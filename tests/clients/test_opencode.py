"""opencode in each of the dialects that it speaks, with no provider but the bridge."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from clients.installed import client
from clients.turns import SEAL, Call, asked, declared, in_order, rounds, seals, turn, user_texts

if TYPE_CHECKING:
    from collections.abc import Callable

    from clients.conftest import Served
    from clients.processes import Desk
    from clients.turns import Dialect, Json
    from scripted.received import Received

pytestmark = [pytest.mark.clients, pytest.mark.slow]

PACKAGES = {"messages": "@ai-sdk/anthropic", "chat": "@ai-sdk/openai-compatible", "responses": "@ai-sdk/openai"}
OFFLINE = dict.fromkeys(
    ("OPENCODE_DISABLE_AUTOUPDATE", "OPENCODE_DISABLE_MODELS_FETCH", "OPENCODE_DISABLE_LSP_DOWNLOAD"), "1"
)


def run(desk: Desk, served: Served, api: str, prompt: str, *options: str) -> list[Any]:
    """The parts that opencode prints."""
    provider = {
        "npm": PACKAGES[api],
        "options": {"baseURL": f"{served.url}/v1", "apiKey": "sk-client"},
        "models": {served.model: {}},
    }
    config = {
        "provider": {"bridge": provider},
        "model": f"bridge/{served.model}",
        "permission": {"*": "allow"},
        "share": "disabled",
    }
    (desk.folder / "opencode.json").write_text(json.dumps(config))
    command = [*client("opencode"), "run", prompt, "--format", "json", *options]
    ran = desk.with_variables(OFFLINE).run(command).succeeded()
    printed = [json.loads(line) for line in ran.out.splitlines()]
    return [line["part"] for line in printed]


def titled(dialect: Dialect, *turns: Json) -> list[Json]:
    """A script whose turns are for the work: a request without tools wants a title, at any time."""
    remaining = iter(turns)

    def reply(received: Received) -> Json:
        return next(remaining) if received.request.get("tools") else turn(dialect, "A title")

    return in_order(*[reply] * (len(turns) + 1))


def at_work(served: Served) -> list[Json]:
    return [body for body in asked(served.upstream) if body.get("tools")]


@pytest.mark.req("C15", "S1", "P1", "G1")
@pytest.mark.parametrize(
    ("api", "dialect"),
    [
        ("messages", "gpt"),
        ("messages", "claude"),
        ("messages", "gemini"),
        ("chat", "claude"),
        ("chat", "gemini"),
        ("responses", "claude"),
        ("responses", "gemini"),
    ],
)
def test_a_loop_with_calls_at_once(serve: Callable[..., Served], desk: Desk, api: str, dialect: Dialect) -> None:
    served = serve(dialect)
    reading = Call("read", {"filePath": str(desk.folder / "README.md")})
    failing = Call("bash", {"command": "echo oops; exit 3", "description": "Fails"})
    served.upstream.script = titled(
        dialect, turn(dialect, "Looking.", reading, failing), turn(dialect, "In August, says pineapple.")
    )
    parts = run(desk, served, api, "When is the harvest?")
    assert [part["text"] for part in parts if part["type"] == "text"] == ["Looking.", "In August, says pineapple."]
    states = {part["tool"]: part["state"] for part in parts if part["type"] == "tool"}
    assert {name: state["status"] for name, state in states.items()} == {"read": "completed", "bash": "completed"}
    first, last = at_work(served)
    assert declared(first) == declared(last)
    ((read, failed),) = rounds(last)
    assert (read.name, read.arguments) == ("read", reading.arguments)
    assert "The harvest is due in August." in read.result
    assert (failed.name, failed.arguments) == ("bash", failing.arguments)
    assert "oops" in failed.result
    assert "When is the harvest?" in user_texts(last)[-1]
    assert seals(last) == ([SEAL] if dialect == "gemini" else [])
    assert len(asked(served.upstream)) == 3


def test_a_session_is_continued_with_all_that_happened(claude: Served, desk: Desk) -> None:
    listing = Call("bash", {"command": "ls README.md", "description": "List"})
    claude.upstream.script = titled(
        "claude", turn("claude", None, listing), turn("claude", "One."), turn("claude", "README.md.")
    )
    run(desk, claude, "chat", "How many files?")
    parts = run(desk, claude, "chat", "Which one?", "--continue")
    assert [part["text"] for part in parts if part["type"] == "text"] == ["README.md."]
    last = at_work(claude)[-1]
    ((listed,),) = rounds(last)
    assert (listed.arguments, listed.result.strip()) == (listing.arguments, "README.md")
    assert "Which one?" in user_texts(last)[-1]
