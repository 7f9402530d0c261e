"""A scripted upstream on a thread, and plain ways to talk to it."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest

from scripted.server import ScriptedUpstream, serving

CHAT = "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        """The data of the events, parsed where it is JSON."""
        data = [line.removeprefix("data: ") for line in self.body.decode().split("\n") if line.startswith("data: ")]
        return [json.loads(text) if text.startswith("{") else text for text in data]


Post = Callable[..., Answer]
Raw = Callable[..., list[tuple[float, bytes]]]


@pytest.fixture
def upstream() -> Iterator[ScriptedUpstream]:
    with serving([]) as upstream:
        yield upstream


@pytest.fixture
def post(upstream: ScriptedUpstream) -> Post:
    """Send a request on a connection of its own and read the whole answer."""

    def send(
        body: object = None, path: str = CHAT, method: str = "POST", headers: dict[str, str] | None = None
    ) -> Answer:
        with closing(http.client.HTTPConnection("127.0.0.1", upstream.port, timeout=5)) as connection:
            connection.request(method, path, json.dumps(body if body is not None else {}), headers or {})
            response = connection.getresponse()
            named = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, named, response.read())

    return send


@pytest.fixture
def raw(upstream: ScriptedUpstream) -> Raw:
    """Send a request and note when which bytes arrive, until the peer ends or `until` is seen."""

    def send(body: object = None, until: bytes = b"0\r\n\r\n") -> list[tuple[float, bytes]]:
        content = json.dumps(body or {}).encode()
        head = f"POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(content)}\r\n\r\n".encode()
        arrived: list[tuple[float, bytes]] = []
        with socket.create_connection(("127.0.0.1", upstream.port), timeout=5) as connection:
            started = time.monotonic()
            connection.sendall(head + content)
            while not b"".join(data for _, data in arrived).endswith(until):
                data = connection.recv(65536)
                arrived.append((time.monotonic() - started, data))
                if not data:
                    break
        return arrived

    return send


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool]], None]:
    """Wait until something holds that another thread brings about."""

    def wait(holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 2
        while not holds():
            assert time.monotonic() < deadline, "it never came to hold"
            time.sleep(0.005)

    return wait
