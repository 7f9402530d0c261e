"""The upstreams: who they are, which protocol they speak, where they listen."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

ProtocolName: TypeAlias = Literal["anthropic", "openai_chat"]
ProviderName: TypeAlias = Literal["anthropic", "openai", "openrouter", "gemini"]

_HAS_API_ROOT = re.compile(r"/(v\d+\w*|openai)$")
_GOOGLE_HOST = "https://generativelanguage.googleapis.com"

_ANSWER_PATHS: dict[ProtocolName, str] = {"anthropic": "/messages", "openai_chat": "/chat/completions"}
_ANTHROPIC_HEADERS = ("anthropic-version", "anthropic-beta")
DEFAULT_ANTHROPIC_VERSION = "2023-06-01"

DEFAULT_BASE_URLS: dict[ProviderName, str] = {
    "anthropic": "https://api.anthropic.com",
    "openai": "https://api.openai.com",
    "openrouter": "https://openrouter.ai/api",
    "gemini": f"{_GOOGLE_HOST}/v1beta/openai",
}
PROTOCOLS: dict[ProviderName, ProtocolName] = {
    "anthropic": "anthropic",
    "openai": "openai_chat",
    "openrouter": "openai_chat",
    "gemini": "openai_chat",
}


@dataclass(frozen=True, slots=True)
class Provider:
    """One upstream. `configured` says that the operator chose it, by a key or by a base URL."""

    name: str
    protocol: ProtocolName
    api_root: str
    keys: tuple[str, ...] = ()
    configured: bool = False
    extra_headers: Mapping[str, str] = field(default_factory=dict)
    """Headers that the operator wants on every call: a pinned version, OpenRouter's referer and title."""

    def url(self, path: str) -> str:
        return self.api_root + path

    @property
    def answer_path(self) -> str:
        """Where this provider is asked for an assistant turn."""
        return _ANSWER_PATHS[self.protocol]

    def call_headers(self, key: str | None, client_headers: Mapping[str, str]) -> dict[str, str]:
        """What a call carries: the key the way this provider wants it, and nothing it need not know."""
        if self.protocol == "anthropic":
            passed = {name: client_headers[name] for name in _ANTHROPIC_HEADERS if name in client_headers}
            auth = {"x-api-key": key} if key else {}
            return {"anthropic-version": DEFAULT_ANTHROPIC_VERSION, **passed, **self.extra_headers, **auth}
        auth = {"authorization": f"Bearer {key}"} if key else {}
        return {**self.extra_headers, **auth}


def api_root(base_url: str) -> str:
    """The URL that API paths are appended to: users give base URLs with and without the version."""
    base = base_url.rstrip("/")
    if base == _GOOGLE_HOST:
        return DEFAULT_BASE_URLS["gemini"]
    return base if _HAS_API_ROOT.search(base) else f"{base}/v1"
