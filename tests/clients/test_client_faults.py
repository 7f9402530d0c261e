"""Providers and stores that fail under a client at work: it ends with the answer or a clear message, in time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anthropic
import pytest

from clients.claude_code import run
from clients.turns import SEAL, Call, Json, Ran, asked, assistant_texts, rounds, seals, turn, user_texts
from dynamodb_local import CREDENTIALS

if TYPE_CHECKING:
    from collections.abc import Callable

    from clients.conftest import Served
    from clients.processes import Desk

pytestmark = pytest.mark.clients

LISTING = {"command": "ls"}
LISTED = turn("gpt", None, Call("Bash", LISTING))
ANSWER = turn("gpt", "One file.")
HALF_A_TEXT: Json = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "Half"}}]}
HALF_A_CALL: Json = {
    "choices": [
        {
            "index": 0,
            "delta": {"tool_calls": [{"index": 0, "id": "c1", "function": {"name": "Bash", "arguments": '{"comm'}}]},
        }
    ]
}
BASH: Any = {"name": "Bash", "description": "Run", "input_schema": {"type": "object", "properties": {}}}


def refusal(status: int, **headers: str) -> Json:
    return {"status": status, "json": {"error": {"message": "come back later"}}, "headers": headers}


def broken(*items: Json, how: str = "reset") -> Json:
    return {"sse": [*items, {"$delay_ms": 50}, {"$cut": how}]}


PASSING = {
    "429_with_a_short_wait": refusal(429, **{"retry-after": "1"}),
    "429_without_a_wait": refusal(429),
    "529": refusal(529),
    "500": refusal(500),
    "no_answer": {"cut": "reset"},
}
# What passes is tried again by the bridge, or where that is switched off by the client, but by one of them only.
by_whom = pytest.mark.parametrize("retries", ["2", "0"], ids=["by_the_bridge", "by_the_client"])
CUT = {
    "in_a_text": broken(HALF_A_TEXT),
    "in_a_call": broken(HALF_A_TEXT, HALF_A_CALL),
    "in_a_text_by_closing": broken(HALF_A_TEXT, how="close"),
}


@pytest.mark.req("C12", "C11")
@by_whom
@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING)
def test_claude_code_gets_over_a_refusal_that_passes(
    serve: Callable[..., Served], desk: Desk, fault: Json, retries: str
) -> None:
    gpt = serve("gpt", UPSTREAM_RETRIES=retries)
    gpt.replies(LISTED, fault, ANSWER)
    assert run(desk, gpt, "How many files?").succeeded().out == "One file.\n"
    _, refused, answered = asked(gpt.upstream)
    assert refused["messages"] == answered["messages"]
    assert rounds(answered) == [[Ran("Bash", LISTING, "README.md")]]


@pytest.mark.req("C12", "C11")
@pytest.mark.parametrize("fault", CUT.values(), ids=CUT)
def test_claude_code_gets_over_a_stream_that_breaks(gpt: Served, desk: Desk, fault: Json) -> None:
    gpt.replies(LISTED, fault, ANSWER, turn("gpt", "README.md."))
    assert run(desk, gpt, "How many files?").succeeded().out == "One file.\n"
    assert run(desk, gpt, "Which one?", "--continue").succeeded().out == "README.md.\n"
    _, cut, again, continued = asked(gpt.upstream)
    assert rounds(cut) == rounds(again) == rounds(continued) == [[Ran("Bash", LISTING, "README.md")]]
    # The client keeps a block that was complete when the stream broke.
    assert assistant_texts(continued) in (["One file."], ["Half", "One file."])


@pytest.mark.req("C12")
def test_claude_code_waits_through_a_silence(serve: Callable[..., Served], desk: Desk) -> None:
    served = serve("gpt", HEARTBEAT_SECONDS="0.2")
    silent = {"sse": [HALF_A_TEXT, {"$hang_ms": 3000}, *ending(" of it.")]}
    served.replies(LISTED, silent)
    assert run(desk, served, "How many files?").succeeded().out == "Half of it.\n"
    assert len(asked(served.upstream)) == 2


@pytest.mark.req("C11")
@pytest.mark.parametrize(("status", "requests"), [(401, 1), (403, 1), (400, 6)])
def test_claude_code_says_why_and_gives_up_when_it_is_refused_for_good(
    gpt: Served, desk: Desk, status: int, requests: int
) -> None:
    """After a 400 it tries again with less: without betas, without system turns, without deferred tools."""
    gpt.replies(*[{"status": status, "json": {"error": {"message": "this will never work"}}}] * requests)
    ran = run(desk, gpt, "How many files?")
    assert ran.code == 1
    assert "this will never work" in ran.out
    assert len(asked(gpt.upstream)) == requests


@pytest.mark.req("FR5.4", "S4")
@pytest.mark.parametrize("dialect", ["gpt", "gemini"])
def test_claude_code_works_on_when_the_store_is_down(
    serve: Callable[..., Served], desk: Desk, monkeypatch: pytest.MonkeyPatch, dialect: str
) -> None:
    lose_the_store(monkeypatch)
    served = serve(dialect, STATE_TABLE="gone")
    served.says((None, Call("Bash", LISTING)), ("One file.",))
    assert run(desk, served, "How many files?").succeeded().out == "One file.\n"
    _, second = asked(served.upstream)
    assert rounds(second) == [[Ran("Bash", LISTING, "README.md")]]
    assert SEAL not in seals(second)
    # Without its own signature, Gemini takes a documented stand-in.
    assert len(seals(second)) == (1 if dialect == "gemini" else 0)


# --- an SDK, as a program would use it ------------------------------------------------------------


def sdk(served: Served) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=served.url, api_key="sk-client", timeout=20)


@pytest.mark.req("C12", "C11")
@by_whom
@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING)
@pytest.mark.parametrize("streaming", [False, True])
def test_the_sdk_gets_over_a_refusal_that_passes(
    serve: Callable[..., Served], fault: Json, streaming: bool, retries: str
) -> None:
    gpt = serve("gpt", UPSTREAM_RETRIES=retries)
    gpt.replies(fault, ANSWER)
    assert ask(gpt, streaming).content[0].text == "One file."
    assert len(asked(gpt.upstream)) == 2


@pytest.mark.req("C11")
@pytest.mark.parametrize("fault", CUT.values(), ids=CUT)
def test_the_sdk_raises_when_a_stream_breaks(gpt: Served, fault: Json) -> None:
    gpt.replies(fault)
    with pytest.raises(anthropic.APIStatusError, match=r"(?i)connection|broke"):
        ask(gpt, streaming=True)
    assert len(asked(gpt.upstream)) == 1


@pytest.mark.req("FR5.4", "FR5.5")
@pytest.mark.parametrize("streaming", [False, True])
def test_a_loop_of_the_sdk_works_on_when_the_store_is_down(
    serve: Callable[..., Served], monkeypatch: pytest.MonkeyPatch, streaming: bool
) -> None:
    lose_the_store(monkeypatch)
    served = serve("gpt", STATE_TABLE="gone")
    served.says((None, Call("Bash", LISTING)), ("One file.",))
    call = ask(served, streaming).content[0]
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "README.md"}
    history = [{"role": "assistant", "content": [call.to_dict()]}, {"role": "user", "content": [result]}]
    assert ask(served, streaming, *history).content[0].text == "One file."
    assert rounds(asked(served.upstream)[-1]) == [[Ran("Bash", LISTING, "README.md")]]
    assert user_texts(asked(served.upstream)[-1]) == ["How many files?"]
    with pytest.raises(anthropic.APIStatusError) as raised:
        ask(served, streaming, *history[1:])
    assert raised.value.status_code == 529
    assert len(asked(served.upstream)) == 2


def ask(served: Served, streaming: bool, *history: Json) -> Any:
    messages: Any = [{"role": "user", "content": "How many files?"}, *history]
    with sdk(served) as client:
        if not streaming:
            return client.messages.create(model="gpt-4.1", max_tokens=100, tools=[BASH], messages=messages)
        with client.messages.stream(model="gpt-4.1", max_tokens=100, tools=[BASH], messages=messages) as stream:
            return stream.get_final_message()


def lose_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store is DynamoDB at a port that nobody listens on."""
    for name, value in {**CREDENTIALS, "AWS_ENDPOINT_URL_DYNAMODB": "http://127.0.0.1:9"}.items():
        monkeypatch.setenv(name, value)


def ending(text: str) -> list[Any]:
    return [
        {"choices": [{"index": 0, "delta": {"content": text}}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
        "[DONE]",
    ]
