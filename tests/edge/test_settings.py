"""Settings: names, values, and messages that say what to change."""

from __future__ import annotations

import pytest

from handler.settings import SettingsError, load_settings, setting_fields
from support import ROOT


@pytest.mark.req("C10")
@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("STATE_TTL_SECONDS", "soon", "valid integer"),
        ("STATE_TTL_SECONDS", "5", "greater than or equal to 60"),
        ("LOG_LEVEL", "loud", "'debug', 'info'"),
        ("LOOP_GUARD", "maybe", "'off', 'standard' or 'strict'"),
        ("DEFAULT_PROVIDER", "acme", "'openrouter'"),
        ("TOOL_BRIDGE_STREAM", "perhaps", "valid boolean"),
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
    assert settings.state_table is None


@pytest.mark.req("C10")
def test_the_settings_page_lists_every_setting_and_no_other() -> None:
    page = (ROOT / "docs" / "settings.md").read_text()
    listed = [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")]
    assert listed == list(setting_fields())
    for name, field in setting_fields().items():
        assert str(field.description) in page, name
