"""Claude Code in print mode, unmodified: what it prints and what the model behind the bridge gets to see."""

from __future__ import annotations

import json
import re
import signal
import time
from typing import TYPE_CHECKING

import pytest

from clients.claude_code import QUIET, at, command, run
from clients.images import RED, RED_TEXT
from clients.processes import ended
from clients.turns import SEAL, Call, Ran, asked, assistant_texts, declared, posts, rounds, seals, turn, user_texts

if TYPE_CHECKING:
    from collections.abc import Callable

    from clients.conftest import Served
    from clients.processes import Desk
    from scripted.server import ScriptedUpstream

pytestmark = pytest.mark.clients


@pytest.mark.req("C15", "C13", "S1", "S6", "R4", "R5")
def test_steps_and_calls_at_once_reach_the_model_whole_and_in_order(any_model: Served, desk: Desk) -> None:
    readme = str(desk.folder / "README.md")
    slow, quick = {"command": "sleep 0.4; echo slow"}, {"command": "echo quick"}
    any_model.says(
        ("Let me read.", Call("Read", {"file_path": readme})),
        (None, Call("Bash", slow), Call("Bash", quick)),
        ("The harvest is due in August, says pineapple.",),
    )
    ran = run(desk, any_model, "Read README.md and summarize").succeeded()
    assert ran.out == "The harvest is due in August, says pineapple.\n"
    first, second, third = asked(any_model.upstream)
    assert rounds(first) == []
    (read,) = rounds(second)
    assert [(call.name, call.arguments) for call in read] == [("Read", {"file_path": readme})]
    assert "The harvest is due in August." in read[0].result
    assert rounds(third) == [read, [Ran("Bash", slow, "slow"), Ran("Bash", quick, "quick")]]
    assert any("Read README.md and summarize" in text for text in user_texts(third))
    assert declared(third) == declared(first)
    assert seals(third) == ([SEAL, SEAL] if any_model.seals else [])


@pytest.mark.req("C5.2", "R6")
def test_an_image_that_a_tool_reads_is_seen_once(any_model: Served, desk: Desk) -> None:
    picture = {"file_path": str(desk.folder / "red.png")}
    (desk.folder / "red.png").write_bytes(RED)
    any_model.says((None, Call("Read", picture), Call("Bash", {"command": "echo hi"})), ("Red.",))
    assert run(desk, any_model, "Which colour?").succeeded().out == "Red.\n"
    _, last = asked(any_model.upstream)
    ((read, said),) = rounds(last)
    assert (read.arguments, said.result) == (picture, "hi")
    assert json.dumps(last).count(RED_TEXT) == 1


@pytest.mark.req("FR5.1")
def test_a_tool_that_fails_is_seen_to_have_failed(gpt: Served, desk: Desk) -> None:
    missing = {"file_path": str(desk.folder / "missing.txt")}
    failing = {"command": "echo broken >&2; exit 3"}
    gpt.says((None, Call("Read", missing), Call("Bash", failing)), ("Neither worked.",))
    assert run(desk, gpt, "Try both").succeeded().out == "Neither worked.\n"
    (_, second) = asked(gpt.upstream)
    ((read, bash),) = rounds(second)
    assert (read.arguments, bash.arguments) == (missing, failing)
    assert re.search(r"(?i)error", read.result)
    assert re.search(r"(?i)error", bash.result)
    assert "broken" in bash.result


@pytest.mark.req("FR2.1-2.4", "C15")
def test_a_subagent_has_a_conversation_of_its_own(gpt: Served, desk: Desk) -> None:
    task = {"description": "Count words", "prompt": "Count the words of README.md", "subagent_type": "general-purpose"}
    counting = {"command": "wc -w < README.md"}
    gpt.says(
        (None, Call("Agent", task | {"run_in_background": False})),
        (None, Call("Bash", counting)),
        ("There are six words, says the subagent.",),
        ("Six.",),
    )
    assert run(desk, gpt, "How long is the README?").succeeded().out == "Six.\n"
    first, inside, counted, last = asked(gpt.upstream)
    assert "How long is the README?" in user_texts(first)[-1]
    assert any("Count the words of README.md" in text for text in user_texts(inside))
    assert not any("How long is the README?" in text for text in user_texts(inside))
    assert rounds(counted) == [[Ran("Bash", counting, "6")]]
    ((agent,),) = rounds(last)
    assert (agent.name, agent.arguments["prompt"]) == ("Agent", task["prompt"])
    assert "There are six words, says the subagent." in agent.result


@pytest.mark.req("S6", "FR2.1-2.4")
def test_a_session_is_continued_with_all_that_happened(gpt: Served, desk: Desk) -> None:
    listing = {"command": "ls"}
    gpt.says((None, Call("Bash", listing)), ("One file.",), ("README.md, as I said.",))
    assert run(desk, gpt, "How many files?").succeeded().out == "One file.\n"
    assert run(desk, gpt, "Which one?", "--continue").succeeded().out == "README.md, as I said.\n"
    continued = asked(gpt.upstream)[-1]
    assert len(asked(gpt.upstream)) == 3
    assert rounds(continued) == [[Ran("Bash", listing, "README.md")]]
    assert "Which one?" in user_texts(continued)[-1]
    assert assistant_texts(continued) == ["One file."]


def test_a_tool_that_was_deferred_is_found_and_loaded(gpt: Served, desk: Desk) -> None:
    search = {"query": "select:NotebookEdit", "max_results": 1}
    gpt.says((None, Call("ToolSearch", search)), ("Found it.",))
    assert run(desk, gpt, "Find the notebook tool").succeeded().out == "Found it.\n"
    first, second = asked(gpt.upstream)
    ((found,),) = rounds(second)
    assert (found.name, found.arguments) == ("ToolSearch", search)
    assert "NotebookEdit" in found.result
    assert "NotebookEdit" not in declared(first)
    assert "NotebookEdit" in declared(second)


@pytest.mark.req("C4")
def test_a_model_is_asked_for_by_its_own_name(serve: Callable[..., Served], desk: Desk) -> None:
    served = serve("gpt", MODEL_MAP="{}")
    served.says((None, Call("Bash", {"command": "echo hi"})), ("Done by GPT.",))
    assert run(desk, served, "Say hi", "--model", "gpt-4.1-mini").succeeded().out == "Done by GPT.\n"
    assert [body["model"] for body in asked(served.upstream)] == ["gpt-4.1-mini"] * 2
    assert rounds(asked(served.upstream)[-1]) == [[Ran("Bash", {"command": "echo hi"}, "hi")]]


@pytest.mark.req("C6.2", "S6")
def test_partial_messages_add_up_to_the_whole_ones(gpt: Served, desk: Desk) -> None:
    gpt.says(("First a look.", Call("Bash", {"command": "echo hi"})), ("It said hi, that is all.",))
    options = ("--output-format", "stream-json", "--include-partial-messages", "--verbose")
    ran = run(desk, gpt, "Say hi", *options).succeeded()
    lines = [json.loads(line) for line in ran.out.splitlines()]
    events = [line["event"] for line in lines if line["type"] == "stream_event"]
    started = [event["message"]["id"] for event in events if event["type"] == "message_start"]
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    texts = "".join(delta["text"] for delta in deltas if delta["type"] == "text_delta")
    arguments = "".join(delta["partial_json"] for delta in deltas if delta["type"] == "input_json_delta")
    assert len(set(started)) == 2
    assert texts == "First a look.It said hi, that is all."
    assert json.loads(arguments) == {"command": "echo hi"}
    blocks = [block for line in lines if line["type"] == "assistant" for block in line["message"]["content"]]
    assert [block["type"] for block in blocks] == ["text", "tool_use", "text"]
    (result,) = [line for line in lines if line["type"] == "result"]
    assert (result["result"], result["is_error"], result["num_turns"]) == ("It said hi, that is all.", False, 2)
    assert result["usage"]["output_tokens"] > 0
    assert len(asked(gpt.upstream)) == 2


@pytest.mark.req("C12")
def test_an_interrupted_session_goes_on_where_it_was(gpt: Served, desk: Desk) -> None:
    listing = {"command": "ls"}
    slow = turn("gpt", "word " * 200) | {"chunk_delay_ms": 100}
    gpt.replies(turn("gpt", None, Call("Bash", listing)), slow, turn("gpt", "Here I am again."))
    with at(desk, gpt).started(command("Talk at length")) as process:
        wait_for_requests(gpt, 2)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        interrupted = ended(process, seconds=15)
    assert interrupted.out in ("", "Execution error")
    wait_until(lambda: gpt.upstream.disconnects > 0, "the bridge to leave the upstream")
    assert run(desk, gpt, "Are you there?", "--continue").succeeded().out == "Here I am again.\n"
    resumed = asked(gpt.upstream)[-1]
    assert len(asked(gpt.upstream)) == 3
    assert rounds(resumed) == [[Ran("Bash", listing, "README.md")]]
    assert "Are you there?" in user_texts(resumed)[-1]


@pytest.mark.req("C8", "C3")
@pytest.mark.parametrize("variable", ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"])
def test_the_bridges_token_opens_it_in_either_header(serve: Callable[..., Served], desk: Desk, variable: str) -> None:
    served = serve("gpt", WORKER_TOKEN="ada:let-me-in-please")
    served.says(("Hello.",))
    known = dict.fromkeys(QUIET, "1") | {"ANTHROPIC_BASE_URL": served.url, variable: "let-me-in-please"}
    assert desk.with_variables(known).run(command("Hi")).succeeded().out == "Hello.\n"
    unknown = desk.with_variables(known | {variable: "let-me-in-now"}).run(command("Hi"))
    assert unknown.code == 1
    assert re.search(r"401|API key|logged in", unknown.out)
    (received,) = posts(served.upstream)
    assert "let-me-in" not in str(received.headers)


@pytest.mark.req("C5.4")
def test_a_web_search_that_cannot_be_had_is_told_to_the_model(gpt: Served, desk: Desk) -> None:
    gpt.says((None, Call("WebSearch", {"query": "harvest"})), ("No search here.",))
    assert run(desk, gpt, "Search for it").succeeded().out == "No search here.\n"
    _, last = asked(gpt.upstream)
    ((searched,),) = rounds(last)
    assert searched.arguments == {"query": "harvest"}
    assert "web_search" in searched.result


def wait_for_requests(served: Served, count: int) -> None:
    wait_until(lambda: len(asked(served.upstream)) >= count, f"request {count}")


def wait_until(holds: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + 15
    while not holds():
        assert time.monotonic() < end, f"waited in vain for {what}"
        time.sleep(0.02)


@pytest.mark.req("E1", "E5", "R3", "R10")
@pytest.mark.parametrize("level", ["off", "standard", "strict"])
def test_a_file_is_read_once_at_every_level_of_the_guard(serve: Callable[..., Served], desk: Desk, level: str) -> None:
    served = serve("gpt", LOOP_GUARD=level)
    readme = {"file_path": str(desk.folder / "README.md")}
    served.says((None, Call("Read", readme)), ("In August.",))
    assert run(desk, served, "Read README and summarize.").succeeded().out == "In August.\n"
    first, second = asked(served.upstream)
    ((read,),) = rounds(second)
    assert (read.name, read.arguments) == ("Read", readme)
    assert ("tool_choice" in second and second["tool_choice"] == "none") is (level == "strict")
    asked_for = [text for text in user_texts(second) if "Read README and summarize." in text]
    assert len(asked_for) == 1
    assert len(first["tools"]) > 0


@pytest.mark.req("C5.4")
def test_a_web_search_is_run_by_the_provider_and_counted(
    serve: Callable[..., Served], desk: Desk, upstream: ScriptedUpstream
) -> None:
    served = serve(
        "gpt",
        SERVER_TOOLS_MODE="emulate",
        UPSTREAM_OPENROUTER_BASE_URL=upstream.url,
        MODEL_MAP=json.dumps({"*": "openrouter/openai/gpt-4.1"}),
    )
    page = {"url": "https://example.com/harvest", "title": "Harvest", "content": "in August"}
    cited = {"type": "url_citation", "url_citation": page}
    found = {"choices": [{"index": 0, "delta": {"content": "In August.", "annotations": [cited]}}]}
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    served.replies(
        turn("gpt", None, Call("WebSearch", {"query": "harvest"})),
        {"sse": [found, end, "[DONE]"]},
        turn("gpt", "It is due in August."),
    )
    ran = run(desk, served, "Search for the harvest", "--output-format", "json").succeeded()
    told = json.loads(ran.out)
    assert told["result"] == "It is due in August."
    assert sum(used["webSearchRequests"] for used in told["modelUsage"].values()) == 1
    _, search, last = asked(upstream)
    assert search["plugins"] == [{"id": "web"}]
    ((searched,),) = rounds(last)
    assert "https://example.com/harvest" in searched.result
