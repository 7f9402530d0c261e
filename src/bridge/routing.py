"""Where a request goes, from the model's name: one table, no I/O.

The order: an explicit header, an explicit prefix of the model name, MODEL_MAP, MODEL_MAP_OPUS and its
siblings, the family that a bare name belongs to, and last the default provider.
"""

from __future__ import annotations

from dataclasses import field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from bridge.errors import invalid_request
from bridge.providers import ANSWER_PATHS, PROTOCOL_NAMES
from bridge.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.canonical.json import JsonObject
    from bridge.providers import Provider, ProviderName

_PREFERENCE: tuple[ProviderName, ...] = ("anthropic", "openai", "openrouter", "gemini")
_OPENAI_FAMILY = ("gpt-*", "o1*", "o3*", "o4*", "chatgpt-*", "text-embedding-*")
MAX_DECIDED = 256
_TIERS = ("opus", "sonnet", "haiku")
BY_DEFAULT = "the default provider"
"""Why a model goes where it goes, if its name tells nothing."""
_CLAUDE_WITHOUT_RULE = "claude model without an Anthropic key: the default provider"


@dataclass(frozen=True, slots=True)
class RoutingTable:
    """What routing knows: the providers by name and the operator's choices."""

    providers: Mapping[ProviderName, Provider]
    default_provider: ProviderName | None = None
    model_map: tuple[tuple[str, str], ...] = ()
    tiers: Mapping[str, str] = field(default_factory=dict)
    openrouter_default_vendor: str = "openai"
    demo: Provider | None = None
    decided: dict[str, Route] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Where models went by their names: the same few are asked for again and again."""


@dataclass(frozen=True, slots=True)
class Route:
    provider: Provider
    wire_model: str
    reason: str


@dataclass(frozen=True, slots=True)
class RouteHints:
    """What headers may ask for."""

    provider: str | None = None
    model: str | None = None
    wire_model: str | None = None


def route(table: RoutingTable, model: str, hints: RouteHints | None = None) -> Route:
    """The provider and the name it knows the model by, with the rule that decided."""
    if table.demo is not None:
        return Route(table.demo, model, "no provider is configured: the demo model answers")
    hints = hints or RouteHints()
    model = hints.model or model
    found = _by_header(table, model, hints.provider) or _by_name(table, model)
    return Route(found.provider, hints.wire_model, found.reason) if hints.wire_model else found


def explain(table: RoutingTable, model: str, client: str | None, credential: str | None) -> JsonObject:
    """Where a model would go and why, without a secret in it."""
    if not model:
        raise invalid_request("model: say which one, such as gpt-5.5")
    speaks = next((name for name in PROTOCOL_NAMES if name == (client or "anthropic")), None)
    if speaks is None:
        raise invalid_request(f"client: takes one of {', '.join(PROTOCOL_NAMES)}")
    found = route(table, model)
    provider = found.provider
    protocol = provider.protocol_for(found.wire_model, speaks)
    key = "the bridge's" if provider.keys else "the client's" if credential and provider.may_see(credential) else None
    return {
        "model": model,
        "provider": provider.name,
        "wire_model": found.wire_model,
        "reason": found.reason,
        "client_protocol": speaks,
        "upstream_protocol": protocol,
        "translated": protocol != speaks,
        "url": provider.url(ANSWER_PATHS[protocol]),
        "configured": provider.configured,
        "key": key,
    }


def lacks_rule(table: RoutingTable, model: str) -> bool:
    """True for a Claude name that goes as it is to a provider without Claude models; OpenRouter has them."""
    found = route(table, model)
    return found.reason == _CLAUDE_WITHOUT_RULE and found.provider.name != "openrouter"


def _by_header(table: RoutingTable, model: str, provider: str | None) -> Route | None:
    if provider is None:
        return None
    name = provider.strip().lower()
    known = next((candidate for candidate in _PREFERENCE if candidate == name), None)
    if known is None:
        raise invalid_request(f"provider header: {provider!r} is not one of {', '.join(_PREFERENCE)}")
    bare = model.removeprefix(f"{known}/")
    return Route(table.providers[known], _wire_model(table, known, bare), "provider header")


def _by_name(table: RoutingTable, model: str) -> Route:
    known = table.decided.get(model)
    if known is None:
        known = _decide(table, model)
        if len(table.decided) < MAX_DECIDED:
            table.decided[model] = known
    return known


def _decide(table: RoutingTable, model: str) -> Route:
    explicit = _by_prefix(table, model)
    if explicit is not None:
        return explicit
    for pattern, target in table.model_map:
        if fnmatchcase(model, pattern):
            return _mapped(table, target, f"MODEL_MAP {pattern!r}")
    if model.startswith("claude"):
        for tier in _TIERS:
            if tier in model and tier in table.tiers:
                return _mapped(table, table.tiers[tier], f"MODEL_MAP_{tier.upper()}")
    return _by_family(table, model)


def _by_prefix(table: RoutingTable, model: str) -> Route | None:
    providers = table.providers
    if model.startswith("or:"):
        wire_model = _wire_model(table, "openrouter", model[3:])
        return Route(providers["openrouter"], wire_model, "model prefix 'or:'")
    vendor, slash, rest = model.partition("/")
    if not slash or not rest:
        return None
    if vendor == "openai" and not providers["openai"].configured and providers["openrouter"].configured:
        return Route(providers["openrouter"], model, "model prefix 'openai/', served by OpenRouter")
    if vendor in ("anthropic", "openai", "openrouter", "gemini"):
        name: ProviderName = vendor  # type: ignore[assignment]
        return Route(providers[name], _wire_model(table, name, rest), f"model prefix '{vendor}/'")
    return None


def _mapped(table: RoutingTable, target: str, reason: str) -> Route:
    found = _by_prefix(table, target) or _by_family(table, target)
    return Route(found.provider, found.wire_model, reason)


def _by_family(table: RoutingTable, model: str) -> Route:
    providers, default = table.providers, _default_provider(table)
    if model.startswith("claude"):
        if not providers["anthropic"].configured and default != "anthropic":
            return _to(table, default, model, _CLAUDE_WITHOUT_RULE)
        return _to(table, "anthropic", model, "claude model")
    if any(fnmatchcase(model, pattern) for pattern in _OPENAI_FAMILY):
        if not providers["openai"].configured and providers["openrouter"].configured:
            return _to(table, "openrouter", f"openai/{model}", "OpenAI model, served by OpenRouter")
        return _to(table, "openai", model, "OpenAI model")
    if model.startswith("gemini-"):
        return _to(table, "gemini", model, "Gemini model")
    return _to(table, default, model, BY_DEFAULT)


def _to(table: RoutingTable, name: ProviderName, model: str, reason: str) -> Route:
    return Route(table.providers[name], _wire_model(table, name, model), reason)


def _default_provider(table: RoutingTable) -> ProviderName:
    if table.default_provider is not None:
        return table.default_provider
    return next((name for name in _PREFERENCE if table.providers[name].configured), "anthropic")


def _wire_model(table: RoutingTable, provider: ProviderName, model: str) -> str:
    """OpenRouter names every model with its vendor; the others take the bare name."""
    if provider != "openrouter" or "/" in model:
        return model
    vendor = "anthropic" if model.startswith("claude") else table.openrouter_default_vendor
    return f"{vendor}/{model}"
