"""Settings in one variable, for those that have no parameter of their own in the template: `PAGE=off METRICS=off`."""

from __future__ import annotations

import shlex
from difflib import get_close_matches
from typing import TYPE_CHECKING

from handler.settings import SettingsError, is_secret, setting_fields

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE = "MORE_SETTINGS"


def spread(text: str, environment: Mapping[str, str]) -> dict[str, str]:
    """The environment with the settings that a text holds, as words of a shell; SettingsError says what is wrong."""
    try:
        words = shlex.split(text)
    except ValueError:
        raise SettingsError(f"{VARIABLE}: a quote is not closed") from None
    added: dict[str, str] = {}
    for word in words:
        name, separator, value = word.partition("=")
        _check(name, environment, added, has_value=bool(separator))
        added[name] = value
    return {**environment, **{name: value for name, value in added.items() if value.strip()}}


def _check(name: str, environment: Mapping[str, str], added: Mapping[str, str], *, has_value: bool) -> None:
    fields = setting_fields()
    if not has_value or not name:
        raise SettingsError(f"{VARIABLE} takes words of the form NAME=value, with spaces between them")
    if name not in fields or name == VARIABLE:
        close = get_close_matches(name, fields, 1)
        raise SettingsError(f"{VARIABLE}: {name[:64]} is not a setting{f'; {close[0]} is' if close else ''}")
    if is_secret(fields[name]):
        raise SettingsError(f"{VARIABLE}: {name} is a secret, which has a variable of its own")
    if name in environment or name in added:
        raise SettingsError(f"{VARIABLE}: {name} is set already; take it out here or there")
