"""The tool loop as a decision: what to do next, from what has happened so far. Pure: state in, action out.

no answer yet ............................ Ask
an answer that calls nothing of ours ..... Finish, with its own reason
an answer that was cut off ............... Finish; its calls are refused, their arguments may be incomplete
calls of ours without a result ........... Run
all results there, client's calls too .... Finish with `tool_use`: the client answers its own
all results there, bounds reached ........ Finish with `pause_turn`: the client may send it back to go on
all results there ........................ Ask again, with the answer and its results
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, TypeAlias

from bridge.canonical.content import Replay, Text, ToolResult, ToolUse
from bridge.canonical.request import Turn
from bridge.toolloop.tools import MAX_OUTPUT_CHARACTERS
from bridge.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.canonical.content import Block
    from bridge.canonical.events import StopReason
    from bridge.canonical.fold import Message
    from bridge.canonical.request import Request, ToolChoice

MAX_ROUNDS = 8
_CUT_OFF = frozenset({"max_tokens", "refusal", "model_context_window_exceeded"})


@dataclass(frozen=True, slots=True)
class LoopLimits:
    rounds: int = MAX_ROUNDS
    seconds: float = 300.0
    """After this time no further round begins, and tools that run are ended."""
    tool_seconds: float = 60.0
    output_characters: int = MAX_OUTPUT_CHARACTERS
    parallel: int = 8


@dataclass(frozen=True, slots=True)
class LoopState:
    """The request so far, and the newest answer with those of its results that are there."""

    request: Request
    owned: frozenset[str]
    """Names of the tools that the bridge runs."""
    rounds: int = 0
    answer: Message | None = None
    results: Mapping[str, ToolResult] = field(default_factory=dict)
    out_of_time: bool = False
    max_rounds: int = MAX_ROUNDS

    def answered(self, answer: Message) -> LoopState:
        return replace(self, answer=answer, results={})

    def with_results(self, results: Mapping[str, ToolResult]) -> LoopState:
        return replace(self, results={**self.results, **results})

    def asked(self, request: Request) -> LoopState:
        """The state in which an answer to this request is awaited."""
        return replace(self, request=request, rounds=self.rounds + (self.answer is not None), answer=None, results={})


@dataclass(frozen=True, slots=True)
class Ask:
    request: Request


@dataclass(frozen=True, slots=True)
class Run:
    calls: tuple[ToolUse, ...]


@dataclass(frozen=True, slots=True)
class Finish:
    reason: StopReason
    refused: tuple[ToolUse, ...] = ()
    """Calls that are not run, because the answer that holds them was cut off."""


Action: TypeAlias = Ask | Run | Finish


def next_action(state: LoopState) -> Action:
    """What to do now."""
    if state.answer is None:
        return Ask(state.request)
    calls = [block for block in state.answer.content if isinstance(block, ToolUse)]
    ours = tuple(call for call in calls if call.name in state.owned)
    if not ours:
        return Finish(state.answer.end.reason)
    if state.answer.end.reason in _CUT_OFF:
        return Finish(state.answer.end.reason, refused=ours)
    missing = tuple(call for call in ours if call.id not in state.results)
    if missing:
        return Run(missing)
    if len(calls) > len(ours):
        return Finish("tool_use")
    if state.rounds + 1 >= state.max_rounds or state.out_of_time:
        return Finish("pause_turn")
    return Ask(_with_round(state.request, state.answer, tuple(state.results[call.id] for call in ours)))


def _with_round(request: Request, answer: Message, results: tuple[ToolResult, ...]) -> Request:
    turns = (*request.turns, Turn("assistant", _content(answer)), Turn("user", results))
    return replace(request, turns=turns, tool_choice=_unforced(request.tool_choice))


def _content(answer: Message) -> tuple[Block, ...]:
    """The answer's blocks; what the provider wants back with the turn stands at its first call."""
    blocks: list[Block] = [block for block in answer.content if not (isinstance(block, Text) and not block.text)]
    if answer.end.turn_data is None:
        return tuple(blocks)
    for position, block in enumerate(blocks):
        if isinstance(block, ToolUse):
            call = block.replay.call if block.replay else None
            blocks[position] = replace(block, replay=Replay(call, answer.end.turn_data))
            break
    return tuple(blocks)


def _unforced(choice: ToolChoice | None) -> ToolChoice | None:
    """A tool that was demanded has been called: demanded again, it would be called for ever."""
    if choice is None or choice.mode not in ("any", "tool"):
        return choice
    return replace(choice, mode="auto", name=None)
