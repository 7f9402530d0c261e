"""The peers: LiteLLM and claude-code-router, each as its own documentation starts it, out of its own environment.

Both check a token as the bridge does, and neither writes a log. Nothing of them is imported here.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from bench.bodies import anthropic_body
from bench.load import Connection, Request, post
from bench.processes import Command, Service, StartError, running
from bench.soak_services import free_ports
from bench.systems import ROOT, TOKEN, System, base_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from bench.cores import Cores

PEER_START_SECONDS = 60.0
POLL_SECONDS = 0.002
LITELLM = ROOT / ".tools/litellm/bin/litellm"
ROUTER = ROOT / "bench/peers/node/node_modules/@musistudio/claude-code-router/dist/cli.js"
CONFIGS = ROOT / "bench/peers"
TEXT_DELTA = b'"text_delta"'


@dataclass(frozen=True, slots=True)
class Peer:
    """Another system that answers /v1/messages out of an OpenAI provider."""

    name: str
    model_prefix: str
    """Before the model's name in a request: which provider it is at."""
    arguments: Callable[[int], tuple[str, ...]]
    settings: dict[str, str]
    starts: int
    """How often its cold start is measured: some take seconds."""

    def command(self, folder: Path, port: int, provider: Service, core: int | None) -> Command:
        """How it is started, with a home of its own."""
        home = folder / f"home-{self.name}-{port}"
        _write_home(home)
        environment = {
            **self.settings,
            "HOME": str(home),
            "SERVICE_PORT": str(port),
            "UPSTREAM": _upstream_of(self.name, provider),
            "ROUTER_TOKEN": TOKEN,
        }
        return Command(f"{self.name}-{port}", self.arguments(port), environment, folder, core)

    def system(self, service: Service) -> System:
        """The running peer as something to measure."""
        return System(
            self.name, service, "/v1/messages", TEXT_DELTA, partial(anthropic_body, provider=self.model_prefix)
        )


def _litellm_arguments(port: int) -> tuple[str, ...]:
    config = str(CONFIGS / "litellm.yaml")
    return (str(LITELLM), "--config", config, "--host", "127.0.0.1", "--port", str(port), "--num_workers", "1")


def _router_arguments(_port: int) -> tuple[str, ...]:
    return ("node", str(ROUTER), "start")


ROUTER_NAME, LITELLM_NAME = "claude-code-router", "LiteLLM"
PEERS = (
    Peer(ROUTER_NAME, "openai,", _router_arguments, {}, 7),
    Peer(
        LITELLM_NAME,
        "",
        _litellm_arguments,
        {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_MODE": "PRODUCTION", "LITELLM_LOG": "ERROR"},
        3,
    ),
)


def check_installed() -> None:
    """StartError if a peer is not there."""
    for path in (LITELLM, ROUTER):
        if not path.exists():
            raise StartError(f"{path.relative_to(ROOT)} is missing: `make bench-peers` installs it")


@contextmanager
def serving_peer(peer: Peer, folder: Path, provider: Service, core: int | None) -> Iterator[System]:
    """Run a peer, from the moment it accepts connections."""
    (port,) = free_ports(1)
    command = peer.command(folder, port, provider, core)
    with running(command) as process:
        _connect(port, command, lambda: process.poll() is None).close()
        yield peer.system(Service(process.pid, port))


def cold_start_of_peer(peer: Peer, folder: Path, provider: Service, cores: Cores) -> float:
    """Seconds from the start of the process to the first byte of the first streamed answer."""
    (port,) = free_ports(1)
    command = peer.command(folder, port, provider, cores.system)
    body = anthropic_body("fake-20x0", provider=peer.model_prefix)
    started = time.perf_counter()
    with running(command) as process:
        _connect(port, command, lambda: process.poll() is None).close()
        request = Request(port, post(port, "/v1/messages", TOKEN, body), TEXT_DELTA, 20)
        asked_after = time.perf_counter() - started
        with Connection(request) as connection:
            return asked_after + connection.exchange().first_seconds


@contextmanager
def paused(services: Sequence[Service]) -> Iterator[None]:
    """Hold these still: what they do in the background must not be in the way of the one that is measured."""
    _signal(services, signal.SIGSTOP)
    try:
        yield
    finally:
        _signal(services, signal.SIGCONT)


def _signal(services: Sequence[Service], number: signal.Signals) -> None:
    for service in services:
        with suppress(ProcessLookupError):
            os.killpg(service.pid, number)


def _connect(port: int, command: Command, is_alive: Callable[[], bool]) -> socket.socket:
    deadline = time.monotonic() + PEER_START_SECONDS
    while is_alive() and time.monotonic() < deadline:
        with suppress(OSError):
            return socket.create_connection(("127.0.0.1", port), 1)
        time.sleep(POLL_SECONDS)
    raise StartError(f"{command.name} did not start: {command.log.read_text(errors='replace')[-2000:]}")


def _write_home(home: Path) -> None:
    settings = home / ".claude-code-router"
    settings.mkdir(parents=True, exist_ok=True)
    shutil.copy(CONFIGS / "claude-code-router.json", settings / "config.json")


def _upstream_of(name: str, provider: Service) -> str:
    return base_url(provider) + ("/v1" if name == LITELLM_NAME else "")
