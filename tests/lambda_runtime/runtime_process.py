"""The runtime as a process that a test started, and the test's end of the app's side channel."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from runtime_api import PATIENCE

if TYPE_CHECKING:
    import socket
    import subprocess
    from pathlib import Path


class Channel:
    """The test's end of the app's side channel."""

    def __init__(self, server: socket.socket) -> None:
        server.settimeout(PATIENCE)
        self._server = server
        self._stack = ExitStack()

    @property
    def port(self) -> int:
        port: int = self._server.getsockname()[1]
        return port

    def accept(self) -> None:
        connection, _ = self._server.accept()
        connection.settimeout(PATIENCE)
        self._stack.enter_context(connection)
        self._connection = connection
        self._lines = self._stack.enter_context(connection.makefile("r"))

    def hear(self) -> str:
        return self._lines.readline().strip()

    def say(self, line: str) -> None:
        self._connection.sendall(f"{line}\n".encode())

    def close(self) -> None:
        self._stack.close()


class Process:
    """The runtime as a process."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process = process
        self._log = log
        self.pid = process.pid

    def terminate(self) -> None:
        self._process.terminate()

    def exit_code(self) -> int:
        return self._process.wait(PATIENCE)

    def is_running(self) -> bool:
        return self._process.poll() is None

    def output(self) -> str:
        return self._log.read_text()

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


Run = Callable[..., Process]
