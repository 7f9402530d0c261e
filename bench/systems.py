"""The three ways to an answer: the upstream itself, the floor in front of it, the bridge in front of it."""

from __future__ import annotations

import sys
from contextlib import closing, contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING

from bench.bodies import anthropic_body, chat_body
from bench.load import Request, post
from bench.processes import Command, serving
from bench.relay import UPSTREAM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bench.cores import Cores
    from bench.processes import Service

ROOT = Path(__file__).resolve().parent.parent
# With tokens and a key of its own, as a deployment has them: checking them is part of the work.
TOKEN = "sk-bench-worker-token"  # LiteLLM takes only tokens that begin so
SECRETS = {"WORKER_TOKEN": TOKEN, "OPENAI_API_KEY": "sk-bench"}


@dataclass(frozen=True, slots=True)
class System:
    """One of the three, and how it is asked."""

    name: str
    service: Service
    path: str
    marker: bytes
    body: Callable[[str, int], bytes]

    def request(self, tokens: int, pace: str = "x0", messages: int = 1) -> Request:
        """A request that is answered with so many tokens."""
        body = self.body(f"fake-{tokens}{pace}", messages)
        port = self.service.port
        return Request(port, post(port, self.path, TOKEN, body), self.marker, tokens)

    def forget(self) -> None:
        """Have the upstream drop the requests it keeps: large ones would fill the memory."""
        with closing(HTTPConnection("127.0.0.1", self.service.port, timeout=10)) as connection:
            connection.request("DELETE", "/_received")
            connection.getresponse().read()


@dataclass(frozen=True, slots=True)
class Systems:
    """All three, running."""

    direct: System
    floor: System
    bridge: System

    def __iter__(self) -> Iterator[System]:
        return iter((self.direct, self.floor, self.bridge))


@contextmanager
def upstream(folder: Path, cores: Cores) -> Iterator[Service]:
    """The scripted upstream."""
    arguments = (sys.executable, "-m", "scripted", "--bench", "--port", "0")
    with serving(Command("upstream", arguments, {}, folder, cores.upstream)) as service:
        yield service


@contextmanager
def systems(folder: Path, cores: Cores, provider: Service) -> Iterator[Systems]:
    """The floor and the bridge in front of a running upstream."""
    settings = {UPSTREAM: base_url(provider)}
    floor_command = Command(
        "floor",
        (sys.executable, "-m", "bench.floor_server"),
        settings | {"PYTHONPATH": str(ROOT)},
        folder,
        cores.system,
    )
    bridge_command = Command(
        "bridge",
        (sys.executable, "-m", "handler.cli", "serve", "--port", "0"),
        settings | SECRETS,
        folder,
        cores.system,
    )
    with serving(floor_command) as floor, serving(bridge_command) as bridge:
        yield Systems(
            _chat("direct", provider),
            _chat("floor", floor),
            System("bridge", bridge, "/v1/messages", b'"text_delta"', anthropic_body),
        )


def base_url(provider: Service) -> str:
    """Where a service is."""
    return f"http://127.0.0.1:{provider.port}"


def _chat(name: str, service: Service) -> System:
    return System(name, service, "/v1/chat/completions", b'"content":" ', chat_body)
