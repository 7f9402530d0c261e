"""Which headers go on to a provider and which come back, where client and provider speak the same protocol.

Towards the provider only what is known to be meant for it: a header of the client's network may hold a secret.
Back everything that describes the answer; what describes the connection, the provider's network or its cookies stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_ON = frozenset(
    {
        "accept",
        "conversation_id",
        "http-referer",
        "idempotency-key",
        "originator",
        "session_id",
        "traceparent",
        "tracestate",
        "user-agent",
        "version",
        "x-app",
        "x-client-request-id",
        "x-title",
    }
)
_TRACE = ("traceparent", "tracestate")
_ON_PREFIXES = ("anthropic-", "openai-", "x-claude-code-", "x-codex-", "x-stainless-")
_NOT_BACK = frozenset(
    {
        "alt-svc",
        "connection",
        "content-encoding",
        "content-length",
        "date",
        "keep-alive",
        "nel",
        "report-to",
        "server",
        "set-cookie",
        "strict-transport-security",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "vary",
        "via",
    }
)
_NOT_BACK_PREFIXES = ("access-control-", "cf-", "proxy-", "x-amz", "x-bridge-", "x-envoy-")


def trace_context(headers: Mapping[str, str]) -> dict[str, str]:
    """The client's trace, for every provider: whoever traces both sides sees one picture."""
    return {name: value for name in _TRACE if (value := headers.get(name)) and _is_plain(value)}


def passed_on(headers: Mapping[str, str]) -> dict[str, str]:
    """What of a client's headers its provider gets to see."""
    return {
        name: value
        for name, value in headers.items()
        if (name in _ON or name.startswith(_ON_PREFIXES)) and _is_plain(value)
    }


def passed_back(headers: Mapping[str, str]) -> dict[str, str]:
    """What of a provider's headers the client gets to see."""
    return {
        name: value
        for name, value in headers.items()
        if name not in _NOT_BACK and not name.startswith(_NOT_BACK_PREFIXES)
    }


def _is_plain(value: str) -> bool:
    return value.isascii() and value.isprintable()
