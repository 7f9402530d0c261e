"""Recognises a prompt that is too long for the model, in the words of each provider.

Claude Code compacts its history, or asks for fewer tokens, when it reads Anthropic's own words for this, and
gets stuck when it reads any others. So the error begins with these; what the provider said follows.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bridge.canonical.json import JsonValue

_CODES = frozenset({"context_length_exceeded", "model_max_prompt_tokens_exceeded"})
_PARTS_OF_A_TOTAL = re.compile(
    r"(\d+) (?:(?:in|from) the (?:input )?messages|of text input).{0,80}?(\d+) (?:in|for) the (?:completion|output)",
    re.S,
)
_TOO_MANY_WANTED = re.compile(r"(\d+) input tokens \((\d+) > (\d+) - \1\)")
_MESSAGES_AND_LIMIT = re.compile(r"maximum context length is (\d+).{0,80}?resulted in (\d+) tokens", re.S | re.I)
_LIMIT = re.compile(r"(?:maximum context length is|context (?:length|window) of|context limit of)\D{0,20}(\d+)", re.I)
_COUNT_AND_LIMIT = re.compile(r"token count \(?(\d+)\)? exceeds the maximum number of tokens allowed \(?(\d+)", re.I)
_SIGNS = re.compile(
    r"maximum context length|context[ _]length[ _]exceeded|exceeds? the (?:model's )?context|context window|"
    r"prompt is too long|too many tokens|exceeds the maximum number of tokens|token count exceeds|"
    r"exceed_context_size|exceeds the available context size|input tokens \(\d+ > \d+ - \d+\)",
    re.I,
)


def context_overflow(message: str, details: JsonValue) -> str | None:
    """Anthropic's words for a prompt that does not fit, if that is what the provider complains about."""
    code = details.get("code") if isinstance(details, dict) else None
    if code not in _CODES and not _SIGNS.search(message):
        return None
    limit, parts = _LIMIT.search(message), _PARTS_OF_A_TOTAL.search(message)
    if limit and parts:
        prompt, completion = parts.groups()
        return f"input length and `max_tokens` exceed context limit: {prompt} + {completion} > {limit[1]}"
    if wanted := _TOO_MANY_WANTED.search(message):
        return f"input length and `max_tokens` exceed context limit: {wanted[1]} + {wanted[2]} > {wanted[3]}"
    if resulted := _MESSAGES_AND_LIMIT.search(message):
        return f"prompt is too long: {resulted[2]} tokens > {resulted[1]} maximum"
    if counted := _COUNT_AND_LIMIT.search(message):
        return f"prompt is too long: {counted[1]} tokens > {counted[2]} maximum"
    return "prompt is too long"
