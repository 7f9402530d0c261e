"""Codex at a shell task: the current one speaks Responses, an older one chat completions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from clients.images import RED, RED_TEXT
from clients.installed import client
from clients.turns import SEAL, Call, Json, asked, declared, rounds, seals, turn, user_texts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clients.conftest import Served
    from clients.processes import Desk

pytestmark = pytest.mark.clients

CONFIG = """
model = "{model}"
model_provider = "bridge"
analytics.enabled = false

[model_providers.bridge]
name = "Bridge"
base_url = "{url}/v1"
env_key = "BRIDGE_TOKEN"
wire_api = "{wire}"
request_max_retries = 1
stream_max_retries = 1
"""
FREELY = ("--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--json")
PATCH = """*** Begin Patch
*** Update File: README.md
@@
-The harvest is due in August.
+The harvest is due in May.
*** End Patch"""

REFUSED = "invalid_request_error"
BUSY: Json = {"status": 529, "json": {"type": "error", "error": {"type": "overloaded_error", "message": "Busy"}}}
STARTED: Json = {"type": "message_start", "message": {"usage": {"input_tokens": 1, "output_tokens": 1}}}
CUT: list[Json] = [{"$delay_ms": 50}, {"$cut": "reset"}]
CUT_IN_A_TEXT: Json = {
    "sse": [
        STARTED,
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Half"}},
        *CUT,
    ]
}
CUT_IN_A_CALL: Json = {
    "sse": [
        STARTED,
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "tool_use", "id": "toolu_cut", "name": "exec_command", "input": {}},
        },
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": '{"cm'}},
        *CUT,
    ]
}


def run(desk: Desk, served: Served, *arguments: str, model: str | None = None) -> list[Any]:
    """The events that Codex prints; it has other tools for models that it knows."""
    return _run(desk, "codex", CONFIG.format(model=model or served.model, url=served.url, wire="responses"), arguments)


def run_over_chat(desk: Desk, served: Served, prompt: str) -> list[Any]:
    """The events that the older Codex prints."""
    return _run(desk, "codex-chat", CONFIG.format(model=served.model, url=served.url, wire="chat"), (prompt,))


def _run(desk: Desk, name: str, config: str, arguments: Sequence[str]) -> list[Any]:
    folder = desk.home / ".codex"
    folder.mkdir(exist_ok=True)
    (folder / "config.toml").write_text(config)
    ran = desk.with_variables({"BRIDGE_TOKEN": "sk-client"}).run([*client(name), "exec", *FREELY, *arguments])
    return [json.loads(line) for line in ran.out.splitlines()]


def texts(events: list[Any]) -> list[str]:
    return [item["text"] for item in completed(events) if item["type"] == "agent_message"]


def commands(events: list[Any]) -> list[tuple[str, int]]:
    ran = [item for item in completed(events) if item["type"] == "command_execution"]
    return [(item["aggregated_output"], item["exit_code"]) for item in ran]


def completed(events: list[Any]) -> list[Any]:
    return [event["item"] for event in events if event["type"] == "item.completed"]


@pytest.mark.req("P1", "S1", "S6", "C15")
def test_a_task_of_several_steps_over_responses(plain_model: Served, desk: Desk) -> None:
    reading, failing = {"cmd": "cat README.md"}, {"cmd": "echo oops; exit 3"}
    plain_model.says(
        ("Looking.", Call("exec_command", reading)),
        (None, Call("exec_command", failing), Call("exec_command", {"cmd": "echo fine"})),
        ("The harvest is due in August.",),
    )
    events = run(desk, plain_model, "When is the harvest?")
    assert texts(events) == ["Looking.", "The harvest is due in August."]
    harvest = ("The harvest is due in August.\n", 0)
    assert sorted(commands(events)) == sorted([harvest, ("oops\n", 3), ("fine\n", 0)])
    assert events[-1]["type"] == "turn.completed"
    assert events[-1]["usage"]["output_tokens"] > 0
    bodies = asked(plain_model.upstream)
    assert len(bodies) == 3
    assert "exec_command" in declared(bodies[0])
    (read,), (failed, fine) = rounds(bodies[-1])
    assert (read.name, read.arguments) == ("exec_command", reading)
    assert read.result.endswith("The harvest is due in August.\n")
    assert failed.arguments == failing
    assert "exited with code 3" in failed.result
    assert fine.result.endswith("fine\n")
    assert any("When is the harvest?" in text for text in user_texts(bodies[-1]))
    assert seals(bodies[-1]) == ([SEAL, SEAL] if plain_model.seals else [])


@pytest.mark.req("P1")
def test_a_tool_of_free_text_edits_a_file(plain_model: Served, desk: Desk) -> None:
    plain_model.says((None, Call("apply_patch", {"input": PATCH})), ("Changed.",))
    events = run(desk, plain_model, "Make it May", model="gpt-5.5")
    assert texts(events) == ["Changed."]
    assert (desk.folder / "README.md").read_text() == "The harvest is due in May.\n"
    _, last = asked(plain_model.upstream)
    ((patched,),) = rounds(last)
    assert (patched.name, patched.arguments) == ("apply_patch", {"input": PATCH})
    assert "README.md" in patched.result


@pytest.mark.req("P1")
def test_a_tool_of_a_namespace_runs_code(plain_model: Served, desk: Desk) -> None:
    code = {"input": 'const ran = await tools.exec_command({cmd: "cat README.md"}); text(ran.output)'}
    plain_model.says((None, Call("functions__exec", code)), ("In August.",))
    events = run(desk, plain_model, "When is the harvest?", model="gpt-5.6-sol")
    assert texts(events) == ["In August."]
    assert commands(events) == [("The harvest is due in August.\n", 0)]
    _, last = asked(plain_model.upstream)
    ((ran,),) = rounds(last)
    assert (ran.name, ran.arguments) == ("functions__exec", code)
    assert ran.result.endswith("The harvest is due in August.\n")


@pytest.mark.req("P1")
def test_tools_that_were_deferred_are_found_and_loaded(plain_model: Served, desk: Desk) -> None:
    plain_model.says((None, Call("tool_search", {"query": "spawn agent"})), ("Found.",))
    assert texts(run(desk, plain_model, "Find the agents", model="gpt-5.5")) == ["Found."]
    first, last = asked(plain_model.upstream)
    ((found,),) = rounds(last)
    assert (found.name, found.arguments) == ("tool_search", {"query": "spawn agent"})
    assert "multi_agent_v1__spawn_agent" not in declared(first)
    assert "multi_agent_v1__spawn_agent" in declared(last)


@pytest.mark.req("P1", "C5.2", "R6")
def test_an_image_that_a_tool_shows_is_seen_once(plain_model: Served, desk: Desk) -> None:
    (desk.folder / "red.png").write_bytes(RED)
    plain_model.says((None, Call("view_image", {"path": str(desk.folder / "red.png")})), ("Red.",))
    assert texts(run(desk, plain_model, "Which colour?", model="gpt-5.5")) == ["Red."]
    _, last = asked(plain_model.upstream)
    assert [[seen.name for seen in called] for called in rounds(last)] == [["view_image"]]
    assert json.dumps(last).count(RED_TEXT) == 1


@pytest.mark.req("C11", "C12", "P1")
@pytest.mark.parametrize("fault", [CUT_IN_A_TEXT, CUT_IN_A_CALL, BUSY], ids=["in_a_text", "in_a_call", "busy"])
def test_it_gets_over_a_provider_that_fails_once(claude: Served, desk: Desk, fault: Json) -> None:
    listing = Call("exec_command", {"cmd": "ls"})
    claude.replies(turn("claude", None, listing), fault, turn("claude", "One file."))
    events = run(desk, claude, "How many files?")
    assert texts(events) == ["One file."]
    assert events[-1]["type"] == "turn.completed"
    _, failed, last = asked(claude.upstream)
    assert failed["messages"] == last["messages"]
    assert [called.arguments for called in rounds(last)[0]] == [{"cmd": "ls"}]


@pytest.mark.req("C11")
@pytest.mark.parametrize(
    ("message", "told"),
    [("this will never work", "this will never work"), ("prompt is too long: 9 tokens > 8 maximum", "context window")],
)
def test_it_says_why_when_it_is_refused_for_good(claude: Served, desk: Desk, message: str, told: str) -> None:
    claude.replies({"status": 400, "json": {"type": "error", "error": {"type": REFUSED, "message": message}}})
    failed = run(desk, claude, "How many files?")[-1]
    assert failed["type"] == "turn.failed"
    assert told in failed["error"]["message"]
    assert len(asked(claude.upstream)) == 1


@pytest.mark.req("P1")
def test_a_session_is_resumed_with_all_that_happened(claude: Served, desk: Desk) -> None:
    claude.says(("Looking.", Call("exec_command", {"cmd": "ls"})), ("One file.",), ("README.md, as I said.",))
    assert texts(run(desk, claude, "How many files?")) == ["Looking.", "One file."]
    assert texts(run(desk, claude, "resume", "--last", "Which one?")) == ["README.md, as I said."]
    bodies = asked(claude.upstream)
    assert len(bodies) == 3
    ((listed,),) = rounds(bodies[-1])
    assert listed.result.endswith("README.md\n")
    assert user_texts(bodies[-1])[-1] == "Which one?"


@pytest.mark.req("G1", "G5", "C15")
def test_a_task_of_several_steps_over_chat_completions(plain_model: Served, desk: Desk) -> None:
    reading = {"command": ["bash", "-lc", "cat README.md"]}
    failing = {"command": ["bash", "-lc", "echo oops; exit 3"]}
    plain_model.says((None, Call("shell", reading)), (None, Call("shell", failing)), ("In August.",))
    events = run_over_chat(desk, plain_model, "When is the harvest?")
    assert texts(events) == ["In August."]
    assert commands(events) == [("The harvest is due in August.\n", 0), ("oops\n", 3)]
    bodies = asked(plain_model.upstream)
    assert len(bodies) == 3
    (read,), (failed,) = rounds(bodies[-1])
    assert (read.name, read.arguments, failed.arguments) == ("shell", reading, failing)
    assert json.loads(read.result)["output"] == "The harvest is due in August.\n"
    assert json.loads(failed.result)["metadata"]["exit_code"] == 3


def test_what_was_said_with_a_call_comes_before_it_although_codex_sends_it_after(claude: Served, desk: Desk) -> None:
    claude.says(("Looking.", Call("shell", {"command": ["ls"]})), ("One file.",))
    assert texts(run_over_chat(desk, claude, "How many files?")) == ["Looking.", "One file."]
    (_, last) = asked(claude.upstream)
    (turn,) = [message for message in last["messages"] if message["role"] == "assistant"]
    assert [block["type"] for block in turn["content"]] == ["text", "tool_use"]
