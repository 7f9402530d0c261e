"""One sentence at the end of the system prompt against repeated tool calls (R10).

It never changes, so that it does not defeat a provider's prompt cache.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bridge.canonical.content import Text
from bridge.canonical.declared import declared_tools

if TYPE_CHECKING:
    from bridge.canonical.request import Request

GUARDRAIL = (
    "If the conversation already contains the result of a tool call with identical arguments, do not repeat that call "
    "unless the user explicitly asks to refresh it or something done since then may have changed its result; "
    "once you have what you need, answer."
)
_SENTENCE = Text(GUARDRAIL)


def add_guardrail(request: Request) -> Request:
    """The request with the sentence in its system prompt, if it declares tools."""
    if _SENTENCE in request.system or not declared_tools(request):
        return request
    return replace(request, system=(*request.system, _SENTENCE))
