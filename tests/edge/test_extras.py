"""Settings that need a library which is not installed say so at start."""

from __future__ import annotations

import pytest

from handler import wiring
from handler.settings import SettingsError, load_settings


@pytest.mark.req("C10")
@pytest.mark.parametrize(
    ("settings", "library"), [({"MCP_BRIDGE_MODE": "http-sse"}, "mcp"), ({"TOOL_FETCH_ALLOW": "a.example"}, "justhtml")]
)
def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], library: str) -> None:
    wiring.check_extras(load_settings(settings))
    monkeypatch.setattr(wiring, "find_spec", lambda name: None if name == library else object())
    with pytest.raises(SettingsError, match=f"{next(iter(settings))} needs the library {library}"):
        wiring.check_extras(load_settings(settings))
