"""The upstreams: who they are, which protocol they speak, where they listen."""

from __future__ import annotations

import re
from dataclasses import field
from typing import TYPE_CHECKING, Literal, TypeAlias
from urllib.parse import urlsplit

from bridge.traits import traits_of
from bridge.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

ProtocolName: TypeAlias = Literal["anthropic", "openai_chat", "openai_responses"]
ProviderName: TypeAlias = Literal["anthropic", "openai", "openrouter", "gemini"]
OpenAiApi: TypeAlias = Literal["auto", "responses", "chat"]

_HAS_API_ROOT = re.compile(r"/(v\d+\w*|openai)$")
_GOOGLE_HOST = "https://generativelanguage.googleapis.com"

ANSWER_PATHS: dict[ProtocolName, str] = {
    "anthropic": "/messages",
    "openai_chat": "/chat/completions",
    "openai_responses": "/responses",
}
PROTOCOL_NAMES: tuple[ProtocolName, ...] = tuple(ANSWER_PATHS)
_OPENAI_HOST = "api.openai.com"
# Keys that say whom they were made for; such a key is shown to nobody else.
_KEY_OWNERS: tuple[tuple[str, ProviderName], ...] = (
    ("sk-ant-", "anthropic"),
    ("sk-or-", "openrouter"),
    ("sk-proj-", "openai"),
    ("AIza", "gemini"),
)
_OAUTH_TOKEN = "sk-ant-oat"  # noqa: S105  (how such a token begins)
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
    openai_api: OpenAiApi = "chat"
    """Which of OpenAI's two protocols it is asked in; `auto`: by model."""

    def url(self, path: str) -> str:
        return self.api_root + path

    def protocol_for(self, model: str, client: ProtocolName) -> ProtocolName:
        """The protocol to ask for a model's answer in: the client's own where the provider surely speaks it."""
        if self.protocol == client or self.openai_api == "chat":
            return self.protocol
        if self.openai_api == "responses" or traits_of(self.name, self.api_root, model).api == "responses":
            return "openai_responses"
        return client if client == "openai_responses" and _is_openai(self.api_root) else self.protocol

    @property
    def keeps_responses(self) -> bool:
        """True if this provider has a Responses API of its own, where responses are kept."""
        is_openai = self.configured and _is_openai(self.api_root)
        return self.openai_api == "responses" or (self.openai_api == "auto" and is_openai)

    def may_see(self, credential: str) -> bool:
        """False for a client's key that was evidently made for another provider."""
        owner = next((owner for prefix, owner in _KEY_OWNERS if credential.startswith(prefix)), self.name)
        return owner == self.name

    def call_headers(self, key: str | None, client_headers: Mapping[str, str]) -> dict[str, str]:
        """What a call carries: the key the way this provider wants it, and nothing it need not know."""
        if self.protocol == "anthropic":
            told = {name: client_headers.get(name, "") for name in _ANTHROPIC_HEADERS}
            passed = {name: value for name, value in told.items() if value and value.isascii() and value.isprintable()}
            version = {"anthropic-version": DEFAULT_ANTHROPIC_VERSION, **passed, **self.extra_headers}
            if key and not key.startswith(_OAUTH_TOKEN):
                return version | {"x-api-key": key}
            return version | ({"authorization": f"Bearer {key}"} if key else {})
        auth = {"authorization": f"Bearer {key}"} if key else {}
        return {**self.extra_headers, **auth}


def _is_openai(root: str) -> bool:
    return urlsplit(root).hostname == _OPENAI_HOST


def api_root(base_url: str) -> str:
    """The URL that API paths are appended to: users give base URLs with and without the version."""
    base = base_url.rstrip("/")
    if base == _GOOGLE_HOST:
        return DEFAULT_BASE_URLS["gemini"]
    return base if _HAS_API_ROOT.search(base) else f"{base}/v1"
