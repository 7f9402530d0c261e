"""A reader of the pages: a folder like a fresh checkout, a shell in it, and what the shell is told to type."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import time
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from documented import Command, commands, inner

from support import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from documented import Block

# What never stands in a fresh checkout, or must not be shared with the one the tests run in.
PRIVATE = {".git", ".env", ".bridge", ".aws-sam", ".pytest_cache", "samconfig.local.toml"}


@dataclass(frozen=True, slots=True)
class Server:
    """A command that runs until it is stopped, and how it shows that it is ready: by a text, or by its port."""

    command: str
    says: str = ""
    log: str = "server.log"

    def is_ready(self, script: str, said: str) -> bool:
        if self.says:
            return bool(re.search(self.says, said))
        port = re.search(r"-port (\d+)", script)
        assert port, script
        return _listens(int(port.group(1)))


SERVERS = (
    Server(r"^make run\b", says=r"Toolbridge on http://", log="bridge.log"),
    Server(r"^java .*DynamoDBLocal\.jar"),
    Server(r"^exec python -m handler\.http1\b"),
    Server(r"^tail -f ", says=r"(?s)\b(req_\w+)\b.*\b\1\b"),  # as the command before it said, from the same file
)

# Environments of the tools are as make made them; a reader's make would look whether they are still up to date.
_MAKE = '#!/bin/sh\nexec {make} -o .venv/.ready -o .tools/sam/.ready -o tests/node/node_modules/.ready "$@"\n'
# A status of 400 and more is a failure here, although curl itself takes it for an answer.
_CURL = '#!/bin/sh\nexec {curl} --fail-with-body "$@"\n'

BLOCK_SECONDS = 60
START_SECONDS = 40


class Reader:
    """Runs the blocks of one page in order. What a page shows for a name, the reader replaces by what is there."""

    def __init__(self, folder: Path, environment: Mapping[str, str], replace: dict[str, str], stack: ExitStack) -> None:
        self.folder = folder
        self._environment = dict(environment)
        self.replace = replace
        self._stack = stack

    def run(self, block: Block, typed: list[Command], extra: Mapping[str, str]) -> list[str]:
        """The output of each command; servers among them stay until the page is done."""
        texts = [self.meant(command.text) for command in typed]
        environment = self._environment | {name: self.meant(value) for name, value in extra.items()}
        if texts and (server := _server(typed[-1].text)):
            self._start(block, server, "\n".join(texts), environment)
            return []
        script = "set -euo pipefail\n" + "\n".join(f"{text}\nprintf '\\0'" for text in texts)
        done = subprocess.run(
            ["bash", "-c", script], cwd=self.folder, env=environment, capture_output=True, text=True,
            timeout=BLOCK_SECONDS, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{block} ended with {done.returncode}\n{script}\n{done.stdout}\n{done.stderr}"
        return done.stdout.split("\0")[:-1]

    def learn(self, shown: str, printed: str) -> None:
        """Ids that the bridge made stand for those on the page from now on."""
        ids = r"\btoolu_\w{20,}"
        self.replace.update(zip(re.findall(ids, shown), re.findall(ids, printed), strict=False))

    def meant(self, text: str) -> str:
        """The text of a page with what is there in place of what is shown."""
        for shown, real in self.replace.items():
            text = text.replace(shown, real)
        return re.sub(r"^make run\b", f"make run PORT={free_port()}", text)

    def _start(self, block: Block, server: Server, script: str, environment: Mapping[str, str]) -> None:
        log = self.folder / server.log
        log.touch()
        before = len(log.read_text("utf-8"))
        process = self._stack.enter_context(_running(script, self.folder, environment, log))
        for _ in range(START_SECONDS * 10):
            said = log.read_text("utf-8")[before:]
            assert process.poll() is None, f"{block} ended with {process.returncode}\n{script}\n{said}"
            if server.is_ready(script, said):
                if served := re.search(r"Toolbridge on (http://[\d.:]+\d)", said):
                    self.replace["http://127.0.0.1:8787"] = served.group(1)
                return
            time.sleep(0.1)
        raise AssertionError(f"{block} is not ready after {START_SECONDS} s\n{script}\n{said}")


@contextmanager
def reading(folder: Path, replace: dict[str, str], **environment: str) -> Iterator[Reader]:
    """A reader in a folder that looks like a checkout, with nothing of this machine's user."""
    for entry in ROOT.iterdir():
        if entry.name not in PRIVATE:
            (folder / entry.name).symlink_to(entry)
    own = folder / "own"
    own.mkdir()
    for name, text in {"make": _MAKE, "curl": _CURL}.items():
        (own / name).write_text(text.format(**{name: shutil.which(name)}))
        (own / name).chmod(0o755)
    path = f"{own}:{ROOT / '.venv/bin'}:{os.environ['PATH']}"
    clean = {"PATH": path, "HOME": str(own), "NO_PROXY": "*"}
    with ExitStack() as stack:
        yield Reader(folder, clean | environment, replace, stack)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def typed_of(block: Block, not_run: Mapping[str, str]) -> list[Command]:
    """The commands of a block that are to be run."""
    return [command for command in commands(block) if not any(re.search(p, inner(command.text)) for p in not_run)]


def _server(text: str) -> Server | None:
    return next((server for server in SERVERS if re.search(server.command, text)), None)


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


@contextmanager
def _running(script: str, folder: Path, environment: Mapping[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("ab") as out:
        process = subprocess.Popen(
            ["bash", "-c", script], cwd=folder, env=environment, stdout=out, stderr=out, start_new_session=True
        )
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.wait(timeout=20)
