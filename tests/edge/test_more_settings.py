"""Settings in one variable: for a deployment, whose template has no parameter for each."""

from __future__ import annotations

import pytest

from handler.settings import SettingsError, load_settings

TOKEN = {"WORKER_TOKEN": "ann:0123456789abcdef"}


def test_each_word_is_a_setting() -> None:
    more = "PAGE=off  METRICS=off RATE_LIMIT_TOKENS_PER_DAY=1000 FALLBACK_MODELS=openai/a,gemini/b"
    settings = load_settings(TOKEN | {"MORE_SETTINGS": more})
    assert (settings.page, settings.metrics, settings.tokens_per_day) == ("off", "off", 1000)
    assert settings.fallback_models == ("openai/a", "gemini/b")
    assert settings.worker_token == {"0123456789abcdef": "ann"}


def test_quotes_hold_a_value_together() -> None:
    settings = load_settings(
        {"MORE_SETTINGS": """MODEL_MAP='{"claude-*": "openai/gpt-5"}' OPENROUTER_TITLE="My app" """}
    )
    assert settings.openrouter_title == "My app"
    assert [pattern for pattern, _ in settings.model_map] == ["claude-*"]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("PAGES=off", "PAGES is not a setting; PAGE is"),
        ("QQQQ=1", "QQQQ is not a setting"),
        ("PAGE", "takes words of the form NAME=value"),
        ("=off", "takes words of the form NAME=value"),
        ("PAGE=off PAGE=on", "PAGE is set already"),
        ("LOG_LEVEL=debug", "LOG_LEVEL is set already; take it out here or there"),
        ("OPENAI_API_KEY=sk-canary", "OPENAI_API_KEY is a secret, which has a variable of its own"),
        ("MORE_SETTINGS=x", "MORE_SETTINGS is not a setting"),
        ("OPENROUTER_TITLE='open", "a quote is not closed"),
        ("HEARTBEAT_SECONDS=soon", "HEARTBEAT_SECONDS"),
    ],
)
def test_what_cannot_be_meant_stops_the_start(more: str, says: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load_settings({"LOG_LEVEL": "info", "MORE_SETTINGS": more})
    assert says in str(refused.value)
    assert "canary" not in str(refused.value)


def test_an_empty_one_says_nothing() -> None:
    assert load_settings({"MORE_SETTINGS": " "}) == load_settings({})
