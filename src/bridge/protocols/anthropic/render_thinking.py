"""How much Claude shall think: by effort on the models of today, by a budget on those before."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from bridge.canonical.effort import EFFORTS, is_wanted, level_of, nearest_effort
from bridge.values import dataclass

if TYPE_CHECKING:
    from bridge.canonical.json import JsonObject
    from bridge.canonical.losses import Losses
    from bridge.canonical.request import Reasoning
    from bridge.protocols.anthropic.claude import Claude

MIN_BUDGET = 1024
_BUDGETS = {"minimal": 1024, "low": 4096, "medium": 10_000, "high": 20_000, "xhigh": 32_000, "max": 48_000}


@dataclass(frozen=True, slots=True)
class Plan:
    """What the request says about thinking, and whether Claude will think."""

    thinking: JsonObject | None = None
    effort: str | None = None
    thinks: bool = False


@dataclass(frozen=True, slots=True)
class ThinkingRenderer:
    """Plans the thinking of one request."""

    claude: Claude
    losses: Losses

    def plan(self, reasoning: Reasoning, max_tokens: int, obstacle: str | None) -> Plan:
        """`obstacle` is why Claude cannot think in this request, if it cannot."""
        if reasoning.effort is not None and reasoning.effort not in EFFORTS:
            self.losses.add("reasoning: there is no such effort")
        if obstacle is not None and is_wanted(reasoning):
            self.losses.add(f"thinking: left out: {obstacle}")
        match self.claude.thinking:
            case "none":
                if is_wanted(reasoning):
                    self.losses.add("thinking: this model has none")
                return Plan()
            case "budget":
                return self._budget(reasoning, max_tokens, obstacle)
            case "adaptive":
                return self._adaptive(reasoning, obstacle)
            case _:
                assert_never(self.claude.thinking)

    def _adaptive(self, reasoning: Reasoning, obstacle: str | None) -> Plan:
        level = level_of(reasoning)
        if level == "none" or obstacle is not None:
            return self._without()
        if reasoning.budget_tokens is not None:
            self.losses.add("thinking.budget_tokens: this model takes an effort instead")
        thinks_anyway = self.claude.without_thinking != "omitted"
        effort = self._effort(level) if level else None
        if not is_wanted(reasoning):
            return Plan(thinks=thinks_anyway)
        thinking: JsonObject = {"type": "adaptive"}
        if self.claude.display:
            thinking["display"] = "omitted" if reasoning.exclude else "summarized"
        elif reasoning.exclude:
            self.losses.add("reasoning.exclude: this model shows what it thinks")
        return Plan(thinking, effort, thinks=True)

    def _without(self) -> Plan:
        match self.claude.without_thinking:
            case "omitted":
                return Plan()
            case "disabled":
                return Plan({"type": "disabled"})
            case "impossible":
                self.losses.add("reasoning: this model always thinks; it is asked for little")
                return Plan(effort=self.claude.efforts[0], thinks=True)
            case _:
                assert_never(self.claude.without_thinking)

    def _budget(self, reasoning: Reasoning, max_tokens: int, obstacle: str | None) -> Plan:
        if reasoning.enabled is False:
            return Plan({"type": "disabled"})
        level = level_of(reasoning)
        if not is_wanted(reasoning) or obstacle is not None:
            return Plan()
        if max_tokens <= MIN_BUDGET:
            self.losses.add(f"thinking: left out: it takes {MIN_BUDGET} tokens, and max_tokens is {max_tokens}")
            return Plan()
        if reasoning.exclude:
            self.losses.add("reasoning.exclude: this model shows what it thinks")
        thinking: JsonObject = {"type": "enabled", "budget_tokens": self._tokens(reasoning, level, max_tokens)}
        says_effort = reasoning.effort is not None and level is not None and bool(self.claude.efforts)
        return Plan(thinking, self._effort(level) if says_effort and level else None, thinks=True)

    def _tokens(self, reasoning: Reasoning, level: str | None, max_tokens: int) -> int:
        """The budget, which max_tokens includes; one that only follows from an effort leaves half to the answer."""
        wanted = reasoning.budget_tokens
        if wanted is None:
            return max(MIN_BUDGET, min(_BUDGETS[level or "medium"], max_tokens // 2))
        budget = max(MIN_BUDGET, min(wanted, max_tokens - 1))
        if budget != wanted:
            self.losses.add(f"thinking.budget_tokens: {wanted} made {budget}, to fit into max_tokens")
        return budget

    def _effort(self, level: str) -> str:
        effort = nearest_effort(level, self.claude.efforts)
        if effort != level:
            self.losses.add(f"reasoning: effort {level} told as {effort}")
        return effort
