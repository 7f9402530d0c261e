"""Settings: names, values, and messages that say what to change."""

from __future__ import annotations

import pytest

from handler.settings import SettingsError, load_settings, setting_fields
from support import ROOT


@pytest.mark.req("C10")
@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("STATE_TTL_SECONDS", "soon", "takes a whole number from 60 to 31536000, not 'soon'"),
        ("STATE_TTL_SECONDS", "5", "takes a whole number from 60 to 31536000, not '5'"),
        ("LOG_LEVEL", "loud", "takes debug, info, warn or error, not 'loud'"),
        ("LOOP_GUARD", "maybe", "takes off, standard or strict, not 'maybe'"),
        ("DEFAULT_PROVIDER", "acme", "takes anthropic, openai, openrouter or gemini, not 'acme'"),
        ("SERVER_TOOLS_MODE", "x", "takes error, enforceAnthropic or emulate, not 'x'"),
        ("MAX_BODY_BYTES", "5MB", "takes a whole number from 1024 to 67108864, not '5MB'"),
        ("RATE_LIMIT_TOKENS_PER_DAY", "0", "takes a whole number of 1 or more, not '0'"),
        ("UPSTREAM_IDLE_TIMEOUT_SECONDS", "-1", "takes a number above 0, 3600 at most, not '-1'"),
        ("UPSTREAM_TOTAL_TIMEOUT_SECONDS", "-1", "takes a number above 0, not '-1'"),
        ("UPSTREAM_TOTAL_TIMEOUT_SECONDS", "long", "takes a number, not 'long'"),
        ("LOG_BODIES", "2", "takes a number from 0 to 1, not '2'"),
        ("ALLOW_ORIGINS", "example.com", "takes origins such as https://app.example.com"),
        ("ALLOW_ORIGINS", "https://a.example,https://b.example/path", "takes origins such as"),
        ("TOOL_BRIDGE_STREAM", "perhaps", "takes true or false, not 'perhaps'"),
        ("MODEL_MAP", "claude=gpt", "takes a JSON object"),
        ("MODEL_MAP", '["a"]', "takes a JSON object"),
        ("MODEL_MAP", '{"a": 1}', "takes a JSON object"),
        ("UPSTREAM_OPENAI_BASE_URL", "api.openai.com", "takes a URL"),
        ("UPSTREAM_OPENAI_BASE_URL", "file:///etc/passwd", "takes a URL"),
        ("UPSTREAM_OPENAI_BASE_URL", "http://user:pass@host", "without credentials"),
        ("UPSTREAM_OPENAI_BASE_URL", "http://169.254.169.254/latest", "no link-local"),
        ("UPSTREAM_OPENAI_BASE_URL", "http://[fe80::1]/", "no link-local"),
        ("UPSTREAM_OPENAI_BASE_URL", "http://[::ffff:169.254.169.254]/", "no link-local"),
        ("UPSTREAM_OPENAI_BASE_URL", "http://metadata.google.internal/", "no link-local"),
        ("UPSTREAM_OPENAI_BASE_URL", "http://2852039166/", "no link-local"),
        ("UPSTREAM_OPENAI_BASE_URL", "http://0xa9fea9fe/v1", "no link-local"),
        ("UPSTREAM_OPENAI_BASE_URL", "http://169.254.43518/", "no link-local"),
        ("OPENAI_API_KEY", "sk-ключ", "plain ASCII"),
        ("UPSTREAM_GEMINI_BASE_URL", "http://[fd00:ec2::254]/", "no link-local"),
        ("WORKER_TOKEN", "short", "at least 8 characters"),
        ("WORKER_TOKEN", "bad name:long-enough-token", "name:token"),
        ("WORKER_TOKEN", "a:long-enough-token,b:long-enough-token", "twice"),
    ],
)
def test_a_bad_value_names_the_variable_and_what_it_takes(variable: str, value: str, says: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load_settings({variable: value})
    assert variable in str(refused.value)
    assert says in str(refused.value)
    if variable == "WORKER_TOKEN":
        assert value not in str(refused.value)


@pytest.mark.req("C10")
def test_values_as_people_write_them() -> None:
    settings = load_settings(
        {
            "LOG_LEVEL": "INFO",
            "SERVER_TOOLS_MODE": "enforceAnthropic",
            "TOOL_BRIDGE_STREAM": "False",
            "OPENAI_API_KEY": "one, two",
            "UPSTREAM_OPENAI_BASE_URL": "http://10.0.0.7:8000/v1/",
            "WORKER_TOKEN": "ann:first-token, second-token",
            "ALLOW_ORIGINS": "https://a.example/, http://localhost:3000, null, vscode-webview://x, *",
            "STATE_TABLE": "",
            "PATH": "/usr/bin",
        }
    )
    assert settings.log_level == "info"
    assert settings.server_tools_mode == "enforceanthropic"
    assert settings.tool_bridge_stream is False
    assert settings.openai_api_key == ("one", "two")
    assert settings.openai_base_url == "http://10.0.0.7:8000/v1"
    assert settings.worker_token == {"first-token": "ann", "second-token": "token-2"}
    origins = ("https://a.example", "http://localhost:3000", "null", "vscode-webview://x", "*")
    assert settings.allow_origins == origins
    assert settings.state_table is None


@pytest.mark.req("C10")
def test_the_settings_page_lists_every_setting_and_no_other() -> None:
    page = (ROOT / "docs" / "settings.md").read_text()
    listed = [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")]
    assert listed == list(setting_fields())
    for name, field in setting_fields().items():
        assert str(field.description) in page, name
