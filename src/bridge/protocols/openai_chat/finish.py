"""Why an answer ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bridge.canonical.events import StopReason
    from bridge.canonical.json import WireObject

FAILED_REASONS = frozenset({"error", "network_error", "insufficient_system_resource"})
CUT_SHORT = frozenset({"max_tokens", "refusal", "model_context_window_exceeded"})

_REASONS: dict[str, StopReason] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "max_tokens": "max_tokens",
    "model_length": "model_context_window_exceeded",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}
_NATIVE_REASONS: dict[str, StopReason] = {
    "stop_sequence": "stop_sequence",
    "refusal": "refusal",
    "model_context_window_exceeded": "model_context_window_exceeded",
    "model_length": "model_context_window_exceeded",
}


def stop_reason(
    choice: WireObject, stop_sequences: tuple[str, ...], *, has_tools: bool, refused: bool
) -> tuple[StopReason, str | None]:
    """The stop reason and, where it can be known, the sequence that stopped the model."""
    if refused:
        return "refusal", None
    matched = choice.get("stop_reason")  # vLLM says which sequence it was
    if matched in stop_sequences and not has_tools:
        return "stop_sequence", matched
    native = _NATIVE_REASONS.get(str(choice.get("native_finish_reason")))
    if native == "stop_sequence":
        native = None if len(stop_sequences) != 1 else native
    if native is not None and not has_tools:
        return native, stop_sequences[0] if native == "stop_sequence" else None
    reason = _REASONS.get(str(choice.get("finish_reason")), "end_turn")
    if reason in ("tool_use", "end_turn"):  # providers get these two wrong: what was sent decides
        reason = "tool_use" if has_tools else "end_turn"
    return reason, None
