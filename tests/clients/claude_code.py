"""Claude Code in print mode, with no traffic but that to the bridge."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clients.installed import client

if TYPE_CHECKING:
    from clients.conftest import Served
    from clients.processes import Desk, Finished

QUIET = (
    "IS_SANDBOX",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
    "DISABLE_TELEMETRY",
    "DISABLE_AUTOUPDATER",
    "DISABLE_ERROR_REPORTING",
)


def command(prompt: str, *options: str) -> list[str]:
    return [*client("claude"), "-p", prompt, "--dangerously-skip-permissions", *options]


def at(desk: Desk, served: Served) -> Desk:
    """A desk at which Claude Code knows the bridge and nothing else."""
    variables = dict.fromkeys(QUIET, "1") | {"ANTHROPIC_BASE_URL": served.url, "ANTHROPIC_API_KEY": "sk-client"}
    return desk.with_variables(variables)


def run(desk: Desk, served: Served, prompt: str, *options: str) -> Finished:
    return at(desk, served).run(command(prompt, *options))
