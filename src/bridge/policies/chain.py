"""The policies in their order. Each leaves a request alone, the very same object, when it changes nothing."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Literal

from bridge.policies.answer_after_results import answer_after_results
from bridge.policies.guardrail import add_guardrail
from bridge.policies.read_only import keep_reading_tools
from bridge.policies.reminders import count_reminders, strip_reminders
from bridge.policies.repeated_text import drop_repeated_text
from bridge.policies.result_text import count_user_texts, drop_result_text
from bridge.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.canonical.request import Request


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """Which policies apply."""

    loop_guard: Literal["off", "standard", "strict"] = "standard"
    read_only_intent: bool = False
    read_only_tools: tuple[str, ...] = ()
    """Names of tools that only read, as globs, beside the built-in list."""
    repeat_hint: bool = False
    """Ask once more, with a hint, when an answer repeats a tool call; `repeated_calls` tells."""


@dataclass(frozen=True, slots=True)
class Decision:
    """That a policy changed a request, and how much: counts, never what anybody said."""

    policy: str
    detail: str


@dataclass(frozen=True, slots=True)
class Policy:
    name: str
    applies: Callable[[PolicySettings], bool]
    change: Callable[[Request, PolicySettings], Request]
    detail: Callable[[Request, Request], str]


def apply_policies(request: Request, settings: PolicySettings) -> tuple[Request, tuple[Decision, ...]]:
    """The request as the policies want it, and which of them changed it."""
    decisions: list[Decision] = []
    for policy in _applying(settings):
        changed = policy.change(request, settings)
        if changed is not request:
            decisions.append(Decision(policy.name, policy.detail(request, changed)))
            request = changed
    return request, tuple(decisions)


@lru_cache(maxsize=8)
def _applying(settings: PolicySettings) -> tuple[Policy, ...]:
    return tuple(policy for policy in POLICIES if policy.applies(settings))


def _is_on(settings: PolicySettings) -> bool:
    return settings.loop_guard != "off"


def _is_strict(settings: PolicySettings) -> bool:
    return settings.loop_guard == "strict"


def _texts_left_out(before: Request, after: Request) -> str:
    return f"{count_user_texts(before) - count_user_texts(after)} texts left out"


def _reminders_left_out(before: Request, after: Request) -> str:
    return f"{count_reminders(before) - count_reminders(after)} reminders left out"


def _tools_kept(before: Request, after: Request) -> str:
    choice = after.tool_choice.mode if after.tool_choice else "unset"
    return f"{len(after.tools)} of {len(before.tools)} tools kept, tool_choice {choice}"


def _choice_changed(before: Request, _after: Request) -> str:
    return f"tool_choice {before.tool_choice.mode if before.tool_choice else 'unset'} -> none"


POLICIES = (
    Policy("loop_guard.system_reminder", _is_strict, lambda request, _: strip_reminders(request), _reminders_left_out),
    Policy("loop_guard.result_text", _is_strict, lambda request, _: drop_result_text(request), _texts_left_out),
    Policy(
        "loop_guard.repeated_text",
        _is_on,
        lambda request, settings: drop_repeated_text(request, everywhere=_is_strict(settings)),
        _texts_left_out,
    ),
    Policy(
        "read_only_intent",
        lambda settings: settings.read_only_intent,
        lambda request, settings: keep_reading_tools(request, settings.read_only_tools),
        _tools_kept,
    ),
    Policy("loop_guard.tool_choice", _is_strict, lambda request, _: answer_after_results(request), _choice_changed),
    Policy("loop_guard.guardrail", _is_on, lambda request, _: add_guardrail(request), lambda *_: "sentence added"),
)
