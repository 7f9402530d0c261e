"""Policies: what each changes, what it leaves alone, and the experiments of the loop guard."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.canonical.content import Block, CacheMark, Image, Text, ToolChange, ToolResult, ToolUse, UrlSource
from bridge.canonical.events import MessageEnd, Usage
from bridge.canonical.fold import Message
from bridge.canonical.request import Request, ServerTool, Tool, ToolChoice, Turn
from bridge.canonical.target import Target
from bridge.policies.chain import POLICIES, Decision, PolicySettings, apply_policies
from bridge.policies.guardrail import GUARDRAIL
from bridge.policies.repeated_calls import repeated_calls, with_hint
from bridge.protocols.openai_chat.render_request import render_request

if TYPE_CHECKING:
    from collections.abc import Sequence

ASK = "Read README and summarize."
REMINDER = "<system-reminder>Mind the to-do list.</system-reminder>"
PICTURE = Image(UrlSource("https://example.com/a.png"))
GUARDS: tuple[Literal["off", "standard", "strict"], ...] = ("off", "standard", "strict")


def tool(name: str) -> Tool:
    return Tool(name, {"type": "object"})


READ, GLOB, EDIT, BASH = (tool(name) for name in ("Read", "Glob", "Edit", "Bash"))


def block(said: Block | str) -> Block:
    return Text(said) if isinstance(said, str) else said


def user(*said: Block | str) -> Turn:
    return Turn("user", tuple(map(block, said)))


def system(*said: Block | str) -> Turn:
    return Turn("system", tuple(map(block, said)))


def assistant(*said: Block | str) -> Turn:
    return Turn("assistant", tuple(map(block, said)))


def use(tool_id: str = "t1", name: str = "Read", **arguments: Any) -> ToolUse:
    return ToolUse(tool_id, name, arguments or {"file_path": "README.md"})


def result(tool_id: str = "t1", content: str = "# Project") -> ToolResult:
    return ToolResult(tool_id, (Text(content),))


def request(*turns: Turn, tools: Sequence[Tool | ServerTool] = (GLOB, READ), **more: Any) -> Request:
    return Request("m", turns, 100, tools=tuple(tools), **more)


def guarded(given: Request, guard: Literal["off", "standard", "strict"] = "standard", **more: Any) -> Request:
    return apply_policies(given, PolicySettings(loop_guard=guard, **more))[0]


def decided(given: Request, guard: Literal["off", "standard", "strict"] = "standard", **more: Any) -> list[Decision]:
    return list(apply_policies(given, PolicySettings(loop_guard=guard, **more))[1])


def chat(given: Request) -> dict[str, Any]:
    """What an OpenAI upstream is asked."""
    return render_request(given, Target("openai", "gpt-x", "https://api.openai.com/v1")).body


def roles(body: dict[str, Any]) -> list[str]:
    return [message["role"] for message in body["messages"]]


def answer(*content: Any) -> Message:
    return Message(content, MessageEnd("tool_use", Usage()))


FIRST = request(user(ASK))
CALLED = (user(ASK), assistant(use()))
ANSWERED = request(*CALLED, user(result()))


# The experiments of the loop guard, up to what the upstream is asked.


@pytest.mark.req("R3")
def test_minimal_chain_asks_once_and_may_use_tools_in_standard() -> None:
    assert roles(chat(guarded(FIRST))) == ["system", "user"]
    second = chat(guarded(ANSWERED))
    assert roles(second) == ["system", "user", "assistant", "tool"]
    assert "tool_choice" not in second
    assert [declared["function"]["name"] for declared in second["tools"]] == ["Glob", "Read"]


@pytest.mark.req("R3")
def test_minimal_chain_is_answered_in_words_in_strict() -> None:
    assert "tool_choice" not in chat(guarded(FIRST, "strict"))
    second = chat(guarded(ANSWERED, "strict"))
    assert second["tool_choice"] == "none"
    assert len(second["tools"]) == 2


@pytest.mark.req("R8")
@pytest.mark.parametrize("guard", ["standard", "strict"])
def test_mixed_turn_forwards_only_the_result(guard: Literal["standard", "strict"]) -> None:
    mixed = request(*CALLED, user(result(), ASK))
    assert roles(chat(mixed)) == ["user", "assistant", "tool", "user"]
    assert roles(chat(guarded(mixed, guard))) == ["system", "user", "assistant", "tool"]


@pytest.mark.req("R7")
@pytest.mark.parametrize("guard", ["standard", "strict"])
def test_replayed_history_does_not_ask_again(guard: Literal["standard", "strict"]) -> None:
    replayed = request(*CALLED, user(result(), ASK), assistant("A project."), user("Thanks. Which licence?"))
    asked = [message["content"] for message in chat(guarded(replayed, guard))["messages"] if message["role"] == "user"]
    assert asked == [ASK, "Thanks. Which licence?"]


@pytest.mark.req("R7")
def test_replayed_text_in_a_turn_of_its_own_after_the_results_is_dropped_in_strict() -> None:
    replayed = request(*CALLED, user(result()), user(ASK))
    assert guarded(replayed, "strict").turns == (*CALLED, user(result()))
    assert guarded(replayed, "standard").turns == replayed.turns


@pytest.mark.req("R10")
@pytest.mark.parametrize("guard", GUARDS)
def test_intentional_refresh_reaches_the_model_with_tools(guard: Literal["off", "standard", "strict"]) -> None:
    refresh = request(*CALLED, user(result()), assistant("A project."), user("re-read README"))
    asked = chat(guarded(refresh, guard))
    assert asked["messages"][-1] == {"role": "user", "content": "re-read README"}
    assert "tool_choice" not in asked
    assert repeated_calls(guarded(refresh, guard), answer(use("t2"))) == ()


@pytest.mark.req("R7", "R8", "R9")
@pytest.mark.parametrize("guard", GUARDS)
def test_streaming_is_guarded_like_everything_else(guard: Literal["off", "standard", "strict"]) -> None:
    mixed = request(*CALLED, user(result(), ASK))
    streamed = guarded(replace(mixed, stream=True), guard)
    assert streamed.stream
    assert replace(streamed, stream=False) == guarded(mixed, guard)


# Repeated text.


@pytest.mark.req("R7", "R8")
def test_new_text_beside_a_result_is_forwarded_in_standard() -> None:
    assert guarded(request(*CALLED, user(result(), "Now the licence."))).turns[-1] == user(result(), "Now the licence.")


@pytest.mark.req("R7", "R8")
def test_text_that_differs_by_one_letter_is_no_repetition() -> None:
    assert guarded(request(*CALLED, user(result(), f"{ASK} "))).turns[-1] == user(result(), f"{ASK} ")


@pytest.mark.req("R7", "R8")
def test_repeated_text_without_a_result_is_forwarded_in_standard() -> None:
    turns = (user("go on"), assistant("1"), user("go on"))
    assert guarded(request(*turns)).turns == turns


@pytest.mark.req("R7", "R8")
def test_text_of_assistant_and_system_turns_is_not_what_the_user_said() -> None:
    turns = (user("Hi"), system("Go."), assistant("Go.", use()), user(result(), "Go."))
    assert guarded(request(*turns)).turns == turns


@pytest.mark.req("R7", "R8")
def test_repetition_within_the_result_turn_is_dropped() -> None:
    assert guarded(request(*CALLED, user(result(), "Go.", "Go."))).turns[-1] == user(result(), "Go.")


@pytest.mark.req("R7", "R8")
def test_pictures_and_results_beside_repeated_text_stay() -> None:
    assert guarded(request(*CALLED, user(PICTURE, ASK, result()))).turns[-1] == user(PICTURE, result())
    assert guarded(request(*CALLED, user(PICTURE, "New.", result())), "strict").turns[-1] == user(PICTURE, result())


@pytest.mark.req("R7", "R8")
def test_cache_mark_of_dropped_text_moves_to_the_block_before_it() -> None:
    mark = CacheMark("1h")
    turn = guarded(request(*CALLED, user(result(), Text(ASK, mark)))).turns[-1]
    assert turn == user(replace(result(), cache=mark))


@pytest.mark.req("R8")
def test_text_of_result_turns_is_dropped_in_strict_and_counts_as_unsaid() -> None:
    turns = (*CALLED, user(result(), "Be brief."), assistant("Done."), user("Be brief."))
    assert guarded(request(*turns), "strict").turns == (*CALLED, user(result()), assistant("Done."), user("Be brief."))


@pytest.mark.req("R8")
@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        ((user("A"), assistant("1"), user("A")), (user("A"), assistant("1"), user("A"))),
        ((user("A"), assistant("1"), user("A"), assistant("2"), user("B")), None),
        ((user("A"), user("A")), (user("A"),)),
        ((user("A", "A"),), (user("A"),)),
        ((user("A"), assistant("1"), user("A", PICTURE)), (user("A"), assistant("1"), user(PICTURE))),
        ((user("A"), assistant("1"), user("A"), user("B")), (user("A"), assistant("1"), user("B"))),
        ((user("A"), assistant("1"), user("A"), user("A")), (user("A"), assistant("1"), user("A"))),
        ((user("A"), assistant("1"), system("S"), user("A")), (user("A"), assistant("1"), system("S"), user("A"))),
        ((user(""), assistant("1"), user("")), None),
    ],
    ids=[
        "the end of a history stays",
        "the only text between answers stays",
        "neighbouring turns",
        "the same turn",
        "beside a picture",
        "before new text",
        "one of several stays",
        "a system turn is no user turn",
        "empty text",
    ],
)
def test_strict_sends_identical_text_once_where_turns_still_alternate(
    turns: tuple[Turn, ...], expected: tuple[Turn, ...] | None
) -> None:
    assert guarded(request(*turns), "strict").turns == (expected or turns)


# Reminders.


@pytest.mark.req("R2")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{REMINDER}\nHello", "Hello"),
        (f"Hello {REMINDER} there", "Hello \n there"),
        (f"{REMINDER}{REMINDER}Hello{REMINDER}", "Hello"),
        ("a<system-reminder>b\n<system-reminder>c</system-reminder>d</system-reminder>e", "a\ne"),
        ("<system-reminder>never closed: Hello", "<system-reminder>never closed: Hello"),
        (f"<system-reminder>never closed {REMINDER} Hello", "<system-reminder>never closed \n Hello"),
        ("Hello</system-reminder>", "Hello</system-reminder>"),
        ("<system-<system-reminder>x</system-reminder>reminder>Hi", "<system-\nreminder>Hi"),
        ("<system_reminder>Hello</system_reminder>", "<system_reminder>Hello</system_reminder>"),
        (f"{REMINDER}\n    indented", "    indented"),
    ],
    ids=[
        "before", "within", "several", "nested", "unclosed", "unclosed before a whole one", "unopened",
        "removal makes no new tag", "another tag", "indentation",
    ],
)  # fmt: skip
def test_reminders_are_stripped_from_user_and_system_text_in_strict(text: str, expected: str) -> None:
    stripped = guarded(request(user(text), system(text), tools=(), system=(Text(text),)), "strict")
    assert stripped.turns == (user(expected), system(expected))
    assert stripped.system == (Text(expected),)


@pytest.mark.req("R2")
def test_text_that_is_nothing_but_reminders_disappears_with_its_cache_mark_kept() -> None:
    mark = CacheMark()
    stripped = guarded(
        request(user(REMINDER, "Hi"), system=(Text("Be brief."), Text(REMINDER, mark)), tools=()), "strict"
    )
    assert stripped.turns == (user("Hi"),)
    assert stripped.system == (Text("Be brief.", mark),)


@pytest.mark.req("R2")
def test_turn_of_nothing_but_reminders_stays_where_it_is_all_that_was_said() -> None:
    turns = (user("Hi"), assistant("Hello."), user(REMINDER))
    assert guarded(request(*turns, tools=()), "strict").turns == turns


@pytest.mark.req("R2")
@pytest.mark.parametrize("guard", ["off", "standard"])
def test_reminders_stay_outside_strict(guard: Literal["off", "standard"]) -> None:
    given = request(user(REMINDER, "Hi"), tools=(), system=(Text(REMINDER),))
    assert guarded(given, guard) is given


@pytest.mark.req("R2")
def test_reminders_in_tool_results_and_answers_are_history() -> None:
    turns = (user("Hi"), assistant(REMINDER, use()), user(result(content=REMINDER)))
    assert guarded(request(*turns), "strict").turns == turns


# Tool choice.


@pytest.mark.req("R3")
@pytest.mark.parametrize(
    ("given", "mode"),
    [
        (ANSWERED, "none"),
        (replace(ANSWERED, turns=(*ANSWERED.turns, system("Mind the time."))), "none"),
        (replace(ANSWERED, tool_choice=ToolChoice("tool", "Read")), "none"),
        (replace(ANSWERED, tool_choice=ToolChoice("any", parallel=False)), "none"),
        (replace(ANSWERED, turns=(*ANSWERED.turns, user("And now?"))), None),
        (replace(ANSWERED, turns=(*ANSWERED.turns, assistant("It is"))), None),
        (replace(ANSWERED, tools=()), None),
        (FIRST, None),
        (replace(FIRST, tool_choice=ToolChoice("any")), "any"),
    ],
    ids=[
        "after a result", "a system turn follows", "a demanded tool", "any tool", "the user went on", "prefill",
        "no tools", "no result", "no result, as asked",
    ],
)  # fmt: skip
def test_strict_allows_no_tool_call_right_after_results(given: Request, mode: str | None) -> None:
    choice = guarded(given, "strict").tool_choice
    assert (choice.mode if choice else None) == mode
    assert guarded(given, "strict").tools == given.tools


@pytest.mark.req("R3")
def test_strict_keeps_the_wish_against_parallel_calls_and_forgets_the_name() -> None:
    given = replace(ANSWERED, tool_choice=ToolChoice("tool", "Read", parallel=False))
    assert guarded(given, "strict").tool_choice == ToolChoice("none", None, parallel=False)


@pytest.mark.req("R3")
@pytest.mark.parametrize("guard", ["off", "standard"])
def test_tool_choice_is_what_the_client_asked_outside_strict(guard: Literal["off", "standard"]) -> None:
    given = replace(ANSWERED, tool_choice=ToolChoice("tool", "Read"))
    assert guarded(given, guard).tool_choice == ToolChoice("tool", "Read")


# Guardrail.


@pytest.mark.req("R10")
@pytest.mark.parametrize("guard", ["standard", "strict"])
def test_guardrail_ends_the_system_prompt_when_tools_are_declared(guard: Literal["standard", "strict"]) -> None:
    prompt = Text("Be brief.", CacheMark())
    assert guarded(replace(FIRST, system=(prompt,)), guard).system == (prompt, Text(GUARDRAIL))
    assert guarded(FIRST, guard).system == (Text(GUARDRAIL),)


@pytest.mark.req("R10")
def test_guardrail_is_one_sentence_and_allows_refreshing() -> None:
    assert GUARDRAIL.count(". ") == 0
    assert "refresh" in GUARDRAIL


@pytest.mark.req("R10")
@pytest.mark.parametrize(
    "tools",
    [(), (replace(READ, deferred=True),), (ServerTool("web_search_20250305", "web_search", {}),)],
    ids=["none", "only a deferred one", "only the provider's own"],
)
def test_no_guardrail_without_tools_to_call(tools: tuple[Tool | ServerTool, ...]) -> None:
    given = request(user("Hi"), tools=tools)
    assert guarded(given) is given


@pytest.mark.req("R10")
def test_guardrail_counts_tools_that_a_system_turn_added() -> None:
    assert guarded(request(user("Hi"), system(ToolChange("add", "Read", READ)), tools=())).system == (Text(GUARDRAIL),)


# The chain.


@pytest.mark.req("R7")
def test_off_is_the_identity() -> None:
    given = request(user(REMINDER, ASK), assistant(use()), user(result(), ASK), system=(Text(REMINDER),))
    assert apply_policies(given, PolicySettings(loop_guard="off")) == (given, ())
    assert guarded(given, "off") is given


@pytest.mark.req("C9", "R7")
def test_decisions_say_how_much_was_changed_and_nothing_that_was_said() -> None:
    given = request(
        user(f"{REMINDER}{ASK}"),
        assistant(use()),
        user(result(), ASK, "secret"),
        user(ASK),
        assistant(use("t2")),
        user(result("t2")),
        tools=(READ, EDIT),
        system=(Text(REMINDER),),
    )
    assert decided(given, "strict", read_only_intent=True) == [
        Decision("loop_guard.system_reminder", "2 reminders left out"),
        Decision("loop_guard.result_text", "2 texts left out"),
        Decision("loop_guard.repeated_text", "1 texts left out"),
        Decision("read_only_intent", "1 of 2 tools kept, tool_choice unset"),
        Decision("loop_guard.tool_choice", "tool_choice unset -> none"),
        Decision("loop_guard.guardrail", "sentence added"),
    ]


@pytest.mark.req("C9")
def test_policies_have_names_of_their_own() -> None:
    names = [policy.name for policy in POLICIES]
    assert len(set(names)) == len(names)


TEXTS = st.sampled_from(
    [ASK, "Go on.", "Fix it.", "", " ", REMINDER, f"{REMINDER}{ASK}", "<system-reminder>x", "</system-reminder>"]
)
SAID = st.builds(Text, TEXTS, st.sampled_from([None, CacheMark()]))
IDS = st.sampled_from(["t1", "t2", "t3"])
USES = st.builds(ToolUse, IDS, st.sampled_from(["Read", "Edit"]), st.sampled_from([{}, {"a": 1}]))
USER_TURNS = st.builds(
    lambda content: Turn("user", tuple(content)),
    st.lists(SAID | st.builds(ToolResult, IDS) | st.just(PICTURE), max_size=4),
)
OTHER_TURNS = st.builds(
    lambda role, content: Turn(role, tuple(content)), st.just("system"), st.lists(SAID, max_size=2)
) | st.builds(lambda content: Turn("assistant", tuple(content)), st.lists(SAID | USES, min_size=1, max_size=3))
REQUESTS = st.builds(
    lambda turns, tools, prompt, choice: request(*turns, tools=tools, system=tuple(prompt), tool_choice=choice),
    st.lists(USER_TURNS | OTHER_TURNS, max_size=8),
    st.lists(st.sampled_from([READ, EDIT, BASH]), unique_by=lambda declared: declared.name),
    st.lists(SAID, max_size=2),
    st.sampled_from([None, ToolChoice("auto"), ToolChoice("any"), ToolChoice("tool", "Edit"), ToolChoice("none")]),
)
SETTINGS = st.builds(PolicySettings, st.sampled_from(GUARDS), st.booleans(), st.sampled_from([(), ("Ed*",)]))


@pytest.mark.req("R7", "R8", "R2", "R3", "R10", "RO")
@given(REQUESTS, SETTINGS)
def test_policies_are_idempotent(given: Request, settings: PolicySettings) -> None:
    once, _ = apply_policies(given, settings)
    twice, decisions = apply_policies(once, settings)
    assert twice is once
    assert decisions == ()


@pytest.mark.req("R7", "R8")
@given(REQUESTS, SETTINGS)
def test_policies_take_out_text_only_and_keep_every_stretch_between_answers(
    given: Request, settings: PolicySettings
) -> None:
    changed, decisions = apply_policies(given, settings)
    assert (changed is given) == (decisions == ())
    assert [turn for turn in changed.turns if turn.role == "assistant"] == [
        turn for turn in given.turns if turn.role == "assistant"
    ]
    assert _things(changed) == _things(given)
    assert _spoken_stretches(changed) == _spoken_stretches(given)


def _things(given: Request) -> list[Block]:
    blocks = [block for turn in given.turns for block in turn.content if not isinstance(block, Text)]
    return [replace(block, cache=None) if isinstance(block, ToolResult | Image) else block for block in blocks]


def _spoken_stretches(given: Request) -> list[bool]:
    """Between which answers the user said something."""
    stretches = [False]
    for turn in given.turns:
        if turn.role == "assistant":
            stretches.append(False)
        elif turn.role == "user" and turn.content:
            stretches[-1] = True
    return stretches


# Repeated calls.


@pytest.mark.req("ST")
@pytest.mark.parametrize(
    ("turns", "calls", "names"),
    [
        ((*CALLED, user(result())), (use("t2"),), ("Read",)),
        ((*CALLED, user(result())), (use("t2", file_path="other.md"),), ()),
        ((*CALLED, user(result())), (use("t2", "Grep"),), ()),
        (CALLED, (use("t2"),), ()),
        ((*CALLED, user(result(), "Read it again.")), (use("t2"),), ()),
        ((*CALLED, user(result()), assistant("Done."), user("Read it again.")), (use("t2"),), ()),
        ((*CALLED, user(result(), REMINDER)), (use("t2"),), ("Read",)),
        ((*CALLED, user(result()), system("Mind the time.")), (use("t2"),), ("Read",)),
        ((*CALLED, user(result()), assistant(use("t2", "Grep")), user(result("t2"))), (use("t3"),), ("Read",)),
        ((*CALLED, user(result()), assistant(use("t2", "Edit")), user(result("t2"))), (use("t3"),), ()),
        ((user("Go."), assistant(use("t1", "Bash", c="ls")), user(result())), (use("t2", "Bash", c="ls"),), ("Bash",)),
        ((user("Go."), assistant(use(), use("t2", "Edit")), user(result(), result("t2"))), (use("t3"),), ()),
        ((*CALLED, user(result())), (Text("Once more."), use("t2"), use("t3"), use("t4", "Glob")), ("Read",)),
    ],
    ids=[
        "identical", "other arguments", "another tool", "no result yet", "the user spoke beside the result",
        "the user asked anew", "a reminder is not the user", "nor is a system turn", "only reading since",
        "something may have changed since", "any tool right after its result", "changed in the same turn",
        "among other calls",
    ],
)  # fmt: skip
def test_repeated_calls(turns: tuple[Turn, ...], calls: tuple[Any, ...], names: tuple[str, ...]) -> None:
    assert repeated_calls(request(*turns), answer(*calls)) == names


@pytest.mark.req("ST")
@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ({"a": 1, "b": {"c": [1], "d": 2}}, {"b": {"d": 2, "c": [1]}, "a": 1}, True),
        ({"a": [1, 2]}, {"a": [2, 1]}, False),
        ({"a": 1}, {"a": True}, False),
        ({"a": 2**70}, {"a": 2**70}, True),
        ({"a": "é"}, {"a": "é"}, True),
    ],
    ids=["another order of keys", "another order of items", "one is not true", "a large number", "letters"],
)
def test_arguments_are_compared_as_json(first: dict[str, Any], second: dict[str, Any], same: bool) -> None:
    turns = (user(ASK), assistant(ToolUse("t1", "Read", first)), user(result()))
    assert bool(repeated_calls(request(*turns), answer(ToolUse("t2", "Read", second)))) is same


@pytest.mark.req("ST")
def test_hint_follows_the_results_and_is_given_once() -> None:
    hinted = with_hint(ANSWERED, ("Read", "Glob"))
    assert hinted.turns[:-1] == ANSWERED.turns
    assert hinted.turns[-1].role == "system"
    assert isinstance(hint := hinted.turns[-1].content[0], Text)
    assert "Read, Glob" in hint.text
    assert with_hint(hinted, ("Read", "Glob")) is hinted
    assert with_hint(ANSWERED, ()) is ANSWERED
    assert roles(chat(hinted)) == ["user", "assistant", "tool", "system"]
