"""Where models go."""

from __future__ import annotations

import pytest

from bridge.errors import BridgeError
from bridge.providers import api_root
from bridge.routing import RouteHints, route
from handler.settings import load_settings

OPENAI = {"OPENAI_API_KEY": "k"}
ROUTER = {"OPENROUTER_API_KEY": "k"}
CLAUDE = {"ANTHROPIC_API_KEY": "k"}
GEMINI = {"GEMINI_API_KEY": "k"}


@pytest.mark.req("C4")
@pytest.mark.parametrize(
    ("environment", "model", "provider", "wire_model"),
    [
        (OPENAI, "openai/gpt-x", "openai", "gpt-x"),
        ({"UPSTREAM_OPENAI_BASE_URL": "http://127.0.0.1:1"}, "openai/gpt-x", "openai", "gpt-x"),
        (ROUTER, "openai/gpt-x", "openrouter", "openai/gpt-x"),
        (ROUTER, "gpt-x", "openrouter", "openai/gpt-x"),
        (OPENAI | ROUTER, "gpt-x", "openai", "gpt-x"),
        (OPENAI, "o3-mini", "openai", "o3-mini"),
        (OPENAI, "chatgpt-4o-latest", "openai", "chatgpt-4o-latest"),
        (ROUTER, "or:google/gemini-2.5", "openrouter", "google/gemini-2.5"),
        (ROUTER, "or:gpt-x", "openrouter", "openai/gpt-x"),
        (ROUTER | {"OPENROUTER_DEFAULT_VENDOR": "meta"}, "or:llama", "openrouter", "meta/llama"),
        (ROUTER, "openrouter/meta/llama", "openrouter", "meta/llama"),
        (GEMINI, "gemini/gemini-2.5-pro", "gemini", "gemini-2.5-pro"),
        (GEMINI, "gemini-2.5-pro", "gemini", "gemini-2.5-pro"),
        (CLAUDE | OPENAI, "claude-opus-5-5", "anthropic", "claude-opus-5-5"),
        (CLAUDE, "anthropic/claude-x", "anthropic", "claude-x"),
        (OPENAI, "claude-opus-5-5", "openai", "claude-opus-5-5"),
        (ROUTER, "claude-opus-5-5", "openrouter", "anthropic/claude-opus-5-5"),
        (OPENAI | ROUTER, "llama-3", "openai", "llama-3"),
        (OPENAI | ROUTER | {"DEFAULT_PROVIDER": "OpenRouter"}, "llama-3", "openrouter", "openai/llama-3"),
        (OPENAI | {"MODEL_MAP": '{"claude-*": "openai/gpt-5", "*": "openai/gpt-4"}'}, "claude-x", "openai", "gpt-5"),
        (OPENAI | {"MODEL_MAP": '{"claude-*": "openai/gpt-5", "*": "openai/gpt-4"}'}, "llama", "openai", "gpt-4"),
        (CLAUDE | OPENAI | {"MODEL_MAP_HAIKU": "openai/gpt-5-mini"}, "claude-haiku-4-5", "openai", "gpt-5-mini"),
        (CLAUDE | OPENAI | {"MODEL_MAP_HAIKU": "openai/gpt-5-mini"}, "claude-opus-5", "anthropic", "claude-opus-5"),
        ({}, "claude-x", "anthropic", "claude-x"),
        ({}, "gpt-x", "openai", "gpt-x"),
    ],
)
def test_a_model_goes_where_its_name_says(
    environment: dict[str, str], model: str, provider: str, wire_model: str
) -> None:
    found = route(load_settings(environment).routing(), model)
    assert (found.provider.name, found.wire_model) == (provider, wire_model)
    assert found.reason


@pytest.mark.req("C4")
def test_headers_decide_first() -> None:
    table = load_settings(OPENAI | ROUTER).routing()
    assert route(table, "gpt-x", RouteHints(provider="openrouter")).wire_model == "openai/gpt-x"
    assert route(table, "x", RouteHints(model="or:meta/llama")).wire_model == "meta/llama"
    assert route(table, "gpt-x", RouteHints(wire_model="exactly-this")).wire_model == "exactly-this"
    with pytest.raises(BridgeError, match="'acme' is not one of"):
        route(table, "gpt-x", RouteHints(provider="acme"))


@pytest.mark.req("C3")
@pytest.mark.parametrize(
    ("base_url", "expected"),
    [
        ("https://api.openai.com", "https://api.openai.com/v1"),
        ("https://api.openai.com/v1", "https://api.openai.com/v1"),
        ("https://api.openai.com/v1/", "https://api.openai.com/v1"),
        ("https://openrouter.ai/api", "https://openrouter.ai/api/v1"),
        (
            "https://generativelanguage.googleapis.com/v1beta/openai/",
            "https://generativelanguage.googleapis.com/v1beta/openai",
        ),
        ("https://generativelanguage.googleapis.com", "https://generativelanguage.googleapis.com/v1beta/openai"),
        ("http://127.0.0.1:11434/v1", "http://127.0.0.1:11434/v1"),
    ],
)
def test_base_urls_are_taken_with_and_without_version(base_url: str, expected: str) -> None:
    assert api_root(base_url) == expected
