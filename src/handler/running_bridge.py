"""How a command names a bridge that is running somewhere, the token that opens it, and what it asks there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pydantic import TypeAdapter, ValidationError

from handler.setting_types import BaseUrl
from handler.settings import SettingsError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    import httpx2

    from handler.settings import Settings

URL_VARIABLE = "BRIDGE_URL"
TOKEN_VARIABLE = "BRIDGE_TOKEN"  # noqa: S105  (a name)


class RunningBridgeError(Exception):
    """Why there is nothing to show, in words for the terminal."""


def add_bridge_options(command: argparse.ArgumentParser, otherwise: str) -> None:
    """Declare `--url` and `--token`; `otherwise` says what is meant where no URL is given."""
    command.add_argument("--url", help=f"base URL of a running bridge (default: {URL_VARIABLE}, else {otherwise})")
    command.add_argument(
        "--token",
        help=f"token of that bridge (default: {TOKEN_VARIABLE}, else WORKER_TOKEN); a process list shows arguments, "
        "but not variables",
    )


def bridge_url(given: str | None) -> str | None:
    """The URL of the command line, else of the environment; None if neither names one."""
    named = given if given is not None else os.environ.get(URL_VARIABLE)
    url = checked_url(named, "--url" if given is not None else URL_VARIABLE) if named else None
    return url.removesuffix("/v1") if url else None  # as OpenAI's clients write it


def bridge_token(given: str | None, settings: Settings) -> str | None:
    """The token of the command line or of the environment, else an administrator's of the settings, else the first."""
    named = given or os.environ.get(TOKEN_VARIABLE)
    if named:
        return checked_secret(named, "--token" if given else TOKEN_VARIABLE)
    tokens = settings.worker_token
    chosen = [token for token, name in tokens.items() if name in settings.admin_principals] or list(tokens)
    return checked_secret(chosen[0], "WORKER_TOKEN") if chosen else None


def checked_url(text: str, name: str) -> str:
    """A URL as settings take them, without a trailing slash."""
    try:
        url = TypeAdapter(BaseUrl).validate_python(text)
        port = urlsplit(url or "").port
    except ValidationError as error:
        raise SettingsError(f"{name} {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None
    except ValueError:
        raise SettingsError(f"{name} takes a port from 1 to 65535") from None
    if url is None or port == 0:
        raise SettingsError(f"{name} takes a port from 1 to 65535")
    return url


def checked_secret(text: str, name: str) -> str:
    """A token or key that can stand in a header."""
    if not (text.isascii() and text.isprintable()):
        raise SettingsError(f"{name} takes plain ASCII characters")
    return text


def ask_bridge(url: str, token: str | None, path: str, asked: Mapping[str, str | None]) -> httpx2.Response:
    """What a running bridge answers; RunningBridgeError says what to change where it refuses."""
    import httpx2

    parameters = {name: value for name, value in asked.items() if value}
    headers = {"x-worker-token": token, "x-api-key": token} if token else {}  # without tokens, whose key it is counts
    try:
        answer = httpx2.get(f"{url}{path}", params=parameters, headers=headers, timeout=30)
    except httpx2.HTTPError as error:
        raise RunningBridgeError(f"nothing answers at {url}: {error}") from None
    if answer.status_code == 401:
        raise RunningBridgeError(f"{url} answered 401: {token_hint(token)}")
    if answer.status_code != 200:
        raise RunningBridgeError(f"{url} answered {answer.status_code}: {_message(answer.text)}")
    return answer


def token_hint(token: str | None) -> str:
    """What to do about a bridge that wants another token."""
    if not token:
        return f"it wants a token: give it with --token or {TOKEN_VARIABLE}"
    if ":" in token:
        return f"the token was refused: --token and {TOKEN_VARIABLE} take the part after the colon, without the name"
    return f"the token was refused: give another with --token or {TOKEN_VARIABLE}"


def _message(body: str) -> str:
    import orjson

    try:
        return str(orjson.loads(body)["error"]["message"])
    except (KeyError, TypeError, ValueError):
        return body[:200]
