"""Why a response ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bridge.canonical.events import StopReason
    from bridge.canonical.json import WireObject

TERMINAL = frozenset({"completed", "incomplete", "failed", "cancelled"})

_CUT_SHORT: dict[str, StopReason] = {"max_output_tokens": "max_tokens", "content_filter": "refusal"}


def final_status(kind: str, response: WireObject) -> str:
    """How the response ended: by its own status, else by the name of the event."""
    status = response.get("status")
    return status if isinstance(status, str) and status in TERMINAL else kind.removeprefix("response.")


def incomplete_reason(response: WireObject) -> str:
    """The provider's word for why it stopped early."""
    match response.get("incomplete_details"):
        case {"reason": str(reason)}:
            return reason
    return "incomplete"


def stop_reason(raw_reason: str, *, is_whole: bool, has_calls: bool, refused: bool) -> StopReason:
    """The stop reason; for an answer that was cut short for a reason not known here, that it was cut short."""
    if not is_whole:
        return _CUT_SHORT.get(raw_reason, "max_tokens")
    if refused:
        return "refusal"
    return "tool_use" if has_calls else "end_turn"
