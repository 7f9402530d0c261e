"""Canonical message -> Response object."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.errors import ErrorKind
from bridge.protocols.openai_overflow import context_overflow
from bridge.protocols.openai_responses.answer_items import AnswerShape, answer_items

if TYPE_CHECKING:
    from bridge.canonical.events import MessageEnd, Usage
    from bridge.canonical.fold import Message
    from bridge.canonical.head import AnswerHead
    from bridge.canonical.json import JsonObject, JsonValue
    from bridge.errors import BridgeError
    from bridge.protocols.openai_responses.answer_items import ItemStatus

_INCOMPLETE = {
    "max_tokens": "max_output_tokens",
    "model_context_window_exceeded": "max_output_tokens",
    "refusal": "content_filter",
}
_ERROR_CODES = {
    ErrorKind.INVALID_REQUEST: "invalid_prompt",
    ErrorKind.AUTHENTICATION: "invalid_api_key",
    ErrorKind.BILLING: "insufficient_quota",
    ErrorKind.PERMISSION: "permission_error",
    ErrorKind.NOT_FOUND: "model_not_found",
    ErrorKind.METHOD_NOT_ALLOWED: "invalid_prompt",
    ErrorKind.TOO_LARGE: "invalid_prompt",
    ErrorKind.RATE_LIMIT: "rate_limit_exceeded",
    ErrorKind.API: "server_error",
    ErrorKind.TIMEOUT: "server_error",
    ErrorKind.OVERLOADED: "server_error",
}
_CONTEXT_FULL = "context_length_exceeded"
_TOLD_CODES = frozenset({_CONTEXT_FULL, "insufficient_quota", "rate_limit_exceeded", "usage_not_included"})


def render_response(message: Message, head: AnswerHead) -> JsonObject:
    """The whole answer as OpenAI gives it."""
    items = answer_items(message.content, AnswerShape.of(head), last_item_status(message.end))
    return finished_response(head, message.end, list(items))


def render_content(message: Message) -> JsonValue:
    """The items of an answer, as the next request carries them: nothing that has to come back is left out."""
    return list(answer_items(message.content, AnswerShape(), "completed"))


def last_item_status(end: MessageEnd) -> ItemStatus:
    return "incomplete" if end.reason in _INCOMPLETE else "completed"


def finished_response(head: AnswerHead, end: MessageEnd, items: list[JsonValue]) -> JsonObject:
    reason = _INCOMPLETE.get(end.reason)
    return render_envelope(head) | {
        "status": "completed" if reason is None else "incomplete",
        "incomplete_details": None if reason is None else {"reason": reason},
        "output": items,
        "usage": render_usage(end.usage),
    }


def failed_response(head: AnswerHead, error: BridgeError, items: list[JsonValue]) -> JsonObject:
    return render_envelope(head) | {"status": "failed", "output": items, "error": _error(error)}


def render_envelope(head: AnswerHead) -> JsonObject:
    """A response in which nothing has been said yet; what the request left open has the API's defaults."""
    said = head.echo.get("response")
    response: JsonObject = {
        "id": head.id,
        "object": "response",
        "created_at": head.created,
        "status": "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": None,
        "max_tool_calls": None,
        "model": head.model,
        "output": [],
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "prompt_cache_key": None,
        "reasoning": {"effort": None, "summary": None},
        "safety_identifier": None,
        "service_tier": None,
        "store": True,
        "temperature": None,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": 0,
        "top_p": None,
        "truncation": "disabled",
        "usage": None,
        "user": None,
        "metadata": {},
    }
    given = said if isinstance(said, dict) else {}
    for name, value in given.items():
        default = response.get(name)
        if isinstance(value, dict) and isinstance(default, dict):
            response[name] = default | value
        elif value is not None:
            response[name] = value
    return response


def render_usage(usage: Usage) -> JsonObject:
    """Counts as OpenAI gives them: the input includes what came from a cache or went into one."""
    asked = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    return {
        "input_tokens": asked,
        "input_tokens_details": {
            "cached_tokens": usage.cache_read_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": asked + usage.output_tokens,
    }


def _error(error: BridgeError) -> JsonObject:
    return {"code": _error_code(error), "message": _error_message(error)}


def _error_code(error: BridgeError) -> str:
    """The code that clients decide by: they compact, wait, try again or give up."""
    if error.code is not None:
        return error.code
    details = error.provider_details if isinstance(error.provider_details, dict) else {}
    for told in (details.get("code"), details.get("type")):
        if isinstance(told, str) and told in _TOLD_CODES:
            return told
    if error.kind is ErrorKind.INVALID_REQUEST and context_overflow(error.message, error.provider_details):
        return _CONTEXT_FULL
    return _ERROR_CODES[error.kind]


def _error_message(error: BridgeError) -> str:
    """How long to wait is said in words: a stream has no header left to say it in."""
    wait = error.retry_after or ""
    if error.kind is ErrorKind.RATE_LIMIT and wait.isdecimal() and "try again in" not in error.message.lower():
        return f"{error.message} Please try again in {wait}s."
    return error.message
