"""How much a model shall think, on one scale."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.canonical.request import Reasoning

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_BUDGETS = ((1024, "minimal"), (4096, "low"), (16384, "medium"))


def level_of(reasoning: Reasoning) -> str | None:
    """How much thinking is asked for; None when nothing was said."""
    if reasoning.enabled is False:
        return "none"
    if reasoning.effort in EFFORTS:
        return reasoning.effort
    if reasoning.budget_tokens is not None:
        return next((level for most, level in _BUDGETS if reasoning.budget_tokens <= most), "high")
    return None


def is_wanted(reasoning: Reasoning) -> bool:
    """True if the client asked for thinking, however much."""
    return reasoning.enabled is True or level_of(reasoning) not in (None, "none")


def nearest_effort(level: str, accepted: Sequence[str]) -> str:
    """The accepted effort that is closest, rather lower than higher; `none` is never close to anything else."""
    if level in accepted:
        return level
    rank = EFFORTS.index(level)
    candidates = [effort for effort in accepted if effort != "none"]
    return min(candidates, key=lambda effort: (abs(EFFORTS.index(effort) - rank), EFFORTS.index(effort)))
