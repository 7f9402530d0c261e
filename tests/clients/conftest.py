"""A desk to run clients at, and bridges before a scripted GPT, Claude and Gemini."""

from __future__ import annotations

import json
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from bridge.state.dynamodb_table import connect
from bridge.state.table import create_table
from clients.processes import Desk
from clients.turns import Call, Dialect, Json, in_order, turn
from support import PLAIN, running_bridge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from scripted.server import ScriptedUpstream

MODELS: dict[Dialect, str] = {
    "gpt": "openai/gpt-4.1",
    "reasoning-gpt": "openai/gpt-5.5",
    "claude": "anthropic/claude-sonnet-5-5",
    "gemini": "gemini/gemini-3-pro-preview",
}

# Clients meet the bridge as it is delivered: an empty variable is an unset one.
DEFAULTS = dict.fromkeys(PLAIN, "") | {"LOG_LEVEL": "error"}


@dataclass(frozen=True, slots=True)
class Served:
    """A bridge before one scripted model."""

    dialect: Dialect
    url: str
    upstream: ScriptedUpstream

    @property
    def model(self) -> str:
        return MODELS[self.dialect].partition("/")[2]

    @property
    def seals(self) -> bool:
        """True if this model's calls come with something that has to come back with them."""
        return self.dialect in ("gemini", "reasoning-gpt")

    def says(self, *turns: tuple[str | None, *tuple[Call, ...]]) -> None:
        """The model's turns, each a text and the calls made with it."""
        self.upstream.script = in_order(*(turn(self.dialect, *said) for said in turns))

    def replies(self, *replies: Json) -> None:
        """The model's replies as a script holds them, for what is not a plain turn."""
        self.upstream.script = in_order(*replies)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """An empty home and a folder to work in, with a README."""
    home, folder = tmp_path / "home", tmp_path / "home" / "project"
    folder.mkdir(parents=True)
    (folder / "README.md").write_text("The harvest is due in August.\n")
    return Desk(home, folder)


@pytest.fixture
def serve(
    upstream: ScriptedUpstream, tmp_path: Path, aws_environment: dict[str, str]
) -> Iterator[Callable[..., Served]]:
    """Starts a bridge on DynamoDB Local whose every model is the scripted one of a dialect; settings may be added."""
    table = f"clients-{uuid4().hex}"
    client = connect()
    create_table(client, table)
    client.close()
    with ExitStack() as stack:

        def start(dialect: Dialect, **settings: str) -> Served:
            provider = MODELS[dialect].partition("/")[0]
            given = DEFAULTS | {
                f"UPSTREAM_{provider.upper()}_BASE_URL": upstream.url,
                f"{provider.upper()}_API_KEY": "sk-held-by-the-bridge",
                "MODEL_MAP": json.dumps({"*": MODELS[dialect]}),
                "STATE_TABLE": table,
            }
            url = stack.enter_context(running_bridge(tmp_path, **{**given, **settings}))
            return Served(dialect, url, upstream)

        yield start


@pytest.fixture
def gpt(serve: Callable[..., Served]) -> Served:
    return serve("gpt")


@pytest.fixture
def claude(serve: Callable[..., Served]) -> Served:
    return serve("claude")


@pytest.fixture(params=["gpt", "claude", "gemini"])
def plain_model(request: pytest.FixtureRequest, serve: Callable[..., Served]) -> Served:
    """Each of the scripted models that does not speak Responses itself."""
    return serve(request.param)


@pytest.fixture(params=MODELS)
def any_model(request: pytest.FixtureRequest, serve: Callable[..., Served]) -> Served:
    """Each of the scripted models in turn."""
    return serve(request.param)
