"""The bridge on a real socket, in this process, for tests that talk to it over HTTP."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from handler.http1.server import HttpServer, listen
from handler.settings import load_settings
from handler.wiring import build_app

if TYPE_CHECKING:
    from collections.abc import Iterator

C = TypeVar("C", bound="SupportsClose")
_OPENED: list[SupportsClose] = []

ROOT = Path(__file__).resolve().parent.parent
FIXTURES = ROOT / "tests" / "fixtures"


class SupportsClose(Protocol):
    def close(self) -> None: ...


def opened(client: C) -> C:
    """An SDK's client, to be closed when the test is over: its connections would outlive it."""
    _OPENED.append(client)
    return client


def close_opened() -> None:
    while _OPENED:
        _OPENED.pop().close()


# Does what it is told and nothing more: what it sends is compared to the letter, what fails fails at once.
PLAIN = {"LOG_LEVEL": "error", "LOOP_GUARD": "off", "UPSTREAM_RETRIES": "0", "CIRCUIT_BREAKER": "off"}


@contextmanager
def running_bridge(tmp_path: Path, **environment: str) -> Iterator[str]:
    """Serve the bridge, plain but for these settings; yields its URL."""
    settings = load_settings({"STATE_FILE": str(tmp_path / "state.sqlite3"), **PLAIN, **environment})
    listener = listen("127.0.0.1", 0)
    server = HttpServer(build_app(settings, as_json=False))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve(listener)), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.stop()
        thread.join(timeout=10)
        listener.close()
        assert not thread.is_alive(), "the bridge did not stop"
