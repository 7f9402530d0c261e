"""What the loop does next, from what has happened so far."""

from __future__ import annotations

from dataclasses import replace

import pytest
from loop_parts import REQUEST, answer

from bridge.canonical.content import Replay, Text, Thinking, ToolResult, ToolUse
from bridge.canonical.events import MessageEnd, Usage
from bridge.canonical.fold import Message
from bridge.canonical.request import ToolChoice, Turn
from bridge.toolloop.loop import Ask, Finish, LoopState, Run, next_action

OURS, THEIRS = ToolUse("toolu_1", "ours", {"a": 1}), ToolUse("toolu_2", "theirs", {})
RESULT = ToolResult("toolu_1", (Text("done"),))
STATE = LoopState(REQUEST, frozenset({"ours"}))
pytestmark = pytest.mark.req("C7")


def test_without_an_answer_the_model_is_asked() -> None:
    assert next_action(STATE) == Ask(REQUEST)


@pytest.mark.parametrize("reason", ["end_turn", "max_tokens", "refusal", "stop_sequence"])
def test_an_answer_without_calls_of_ours_ends_with_its_own_reason(reason: str) -> None:
    assert next_action(STATE.answered(answer(Text("hi"), reason=reason))) == Finish(reason)  # type: ignore[arg-type]


def test_calls_of_the_client_alone_are_left_to_it() -> None:
    assert next_action(STATE.answered(answer(THEIRS))) == Finish("tool_use")


def test_calls_of_ours_are_run_and_only_those_without_a_result() -> None:
    second = replace(OURS, id="toolu_9")
    state = STATE.answered(answer(OURS, second))
    assert next_action(state) == Run((OURS, second))
    assert next_action(state.with_results({"toolu_1": RESULT})) == Run((second,))


def test_a_provider_that_calls_the_end_of_a_turn_with_calls_end_turn_is_understood() -> None:
    assert next_action(STATE.answered(answer(OURS, reason="end_turn"))) == Run((OURS,))


def test_results_go_back_with_the_answer_that_asked_for_them() -> None:
    state = STATE.answered(answer(Thinking("hm", "sig"), Text("I look"), OURS)).with_results({"toolu_1": RESULT})
    action = next_action(state)
    assert isinstance(action, Ask)
    assert action.request.turns == (
        *REQUEST.turns,
        Turn("assistant", (Thinking("hm", "sig"), Text("I look"), OURS)),
        Turn("user", (RESULT,)),
    )


def test_what_the_provider_wants_back_with_its_turn_goes_back_at_the_first_call() -> None:
    signed = replace(OURS, replay=Replay(call={"s": "1"}))
    message = Message((Text("x"), signed), MessageEnd("tool_use", Usage(), turn_data={"t": "2"}))
    action = next_action(STATE.answered(message).with_results({"toolu_1": RESULT}))
    assert isinstance(action, Ask)
    call = action.request.turns[-2].content[1]
    assert isinstance(call, ToolUse)
    assert call.replay == Replay({"s": "1"}, {"t": "2"})


def test_a_turn_with_calls_of_both_ends_for_the_client_once_ours_are_run() -> None:
    state = STATE.answered(answer(OURS, THEIRS))
    assert next_action(state) == Run((OURS,))
    assert next_action(state.with_results({"toolu_1": RESULT})) == Finish("tool_use")


@pytest.mark.parametrize("reason", ["max_tokens", "refusal", "model_context_window_exceeded"])
def test_calls_of_an_answer_that_was_cut_off_are_not_run(reason: str) -> None:
    cut = answer(OURS, reason=reason)  # type: ignore[arg-type]
    assert next_action(STATE.answered(cut)) == Finish(reason, refused=(OURS,))  # type: ignore[arg-type]


def test_the_last_round_ends_with_a_pause_that_the_client_can_continue() -> None:
    done = replace(STATE, rounds=7).answered(answer(OURS)).with_results({"toolu_1": RESULT})
    assert next_action(done) == Finish("pause_turn")
    assert isinstance(next_action(replace(done, rounds=6)), Ask)


def test_when_time_is_up_no_further_round_begins() -> None:
    done = replace(STATE.answered(answer(OURS)).with_results({"toolu_1": RESULT}), out_of_time=True)
    assert next_action(done) == Finish("pause_turn")


@pytest.mark.parametrize(
    ("choice", "later"),
    [
        (ToolChoice("any", parallel=False), ToolChoice("auto", parallel=False)),
        (ToolChoice("tool", "ours"), ToolChoice("auto")),
        (ToolChoice("auto"), ToolChoice("auto")),
        (None, None),
    ],
)
def test_a_tool_is_demanded_only_once(choice: ToolChoice | None, later: ToolChoice | None) -> None:
    state = replace(STATE, request=replace(REQUEST, tool_choice=choice))
    action = next_action(state.answered(answer(OURS)).with_results({"toolu_1": RESULT}))
    assert isinstance(action, Ask)
    assert action.request.tool_choice == later


def test_rounds_are_counted_from_the_second_question_on() -> None:
    asked = STATE.asked(REQUEST)
    assert asked.rounds == 0
    assert asked.answered(answer(OURS)).asked(REQUEST).rounds == 1
