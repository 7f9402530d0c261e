"""What settings say that is allowed and hardly meant: told at start and by `bridge doctor`."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING

from bridge.providers import PROTOCOLS
from bridge.routing import BY_DEFAULT, lacks_rule, route
from handler.model_lists import is_public, names_model

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from bridge.providers import Provider
    from bridge.routing import RoutingTable
    from handler.settings import Settings

# One name for each kind of model that Claude Code asks for.
CLAUDE_CODE_MODELS = {"opus": "claude-opus-5-5", "sonnet": "claude-sonnet-5-5", "haiku": "claude-haiku-4-5"}
_MOST_NAMES = 5


def warnings_of(settings: Settings, lists: Mapping[str, Sequence[str]], example: str) -> list[str]:
    """Every warning; `lists` are the models of the providers that told them, `example` a model to suggest."""
    if not settings.has_provider:
        return []
    table = settings.routing()
    return [*_keys(table), *_claude_models(table, example), *_targets(settings, table, lists)]


def _keys(table: RoutingTable) -> Iterator[str]:
    for name, provider in table.providers.items():
        for owner in _owners(table, provider):
            yield f"{name.upper()}_API_KEY: looks like a key of {owner}"


def _owners(table: RoutingTable, provider: Provider) -> list[str]:
    """Whose keys a provider was given instead of its own. A server of the operator's may want any key."""
    strange = [key for key in provider.keys if is_public(provider) and not provider.may_see(key)]
    return sorted({other.name for key in strange for other in table.providers.values() if other.may_see(key)})


def _claude_models(table: RoutingTable, example: str) -> Iterator[str]:
    missing = [tier for tier, model in CLAUDE_CODE_MODELS.items() if lacks_rule(table, model)]
    if missing:
        which = "" if len(missing) == len(CLAUDE_CODE_MODELS) else f" for {' and '.join(missing)}"
        yield (
            f"Claude Code asks for claude-… models; nothing maps them{which}. "
            f"""Set MODEL_MAP='{{"claude-*": "{example}"}}'"""
        )


def _targets(settings: Settings, table: RoutingTable, lists: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Each model that a setting names, and why it may not be there."""
    named = [(f"MODEL_MAP {pattern} -> {target}", target) for pattern, target in table.model_map]
    named += [(f"MODEL_MAP_{tier.upper()} {target}", target) for tier, target in table.tiers.items()]
    named += [(f"FALLBACK_MODELS {target}", target) for target in settings.fallback_models]
    unmapped = replace(table, model_map=(), tiers={})
    for title, target in named:
        problem = _problem(unmapped, target, lists)
        if problem:
            yield f"{title}: {problem}"


def _problem(table: RoutingTable, target: str, lists: Mapping[str, Sequence[str]]) -> str:
    found = route(table, target)
    provider, models = found.provider, lists.get(found.provider.name)
    if models is not None and names_model(models, found.wire_model):
        return ""
    if found.reason == BY_DEFAULT and provider.name != "openrouter" and is_public(provider):
        vendor, slash, _ = target.partition("/")
        names = ", ".join(PROTOCOLS)
        what = f"{vendor!r} is not a provider ({names})" if slash else f"no provider is named ({names})"
        return f"{what}; the whole name goes to {provider.name}"
    if not provider.configured:
        return f"there is no key for {provider.name} here; clients must send their own"
    return f"not in the list of {provider.name} ({_shown(models, found.wire_model)})" if models else ""


def _shown(models: Sequence[str], wanted: str) -> str:
    count = f"{len(models)} model{'' if len(models) == 1 else 's'}"
    names = models if len(models) <= _MOST_NAMES else get_close_matches(wanted, models, n=3, cutoff=0.5)
    return f"{count}: {', '.join(names)}" if names else count
