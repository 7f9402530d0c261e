"""`python -m scripted`, as a process."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import httpx2
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

Client = httpx2.Client


@contextmanager
def running(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], Client]]:
    command = [sys.executable, "-m", "scripted", "--port", "0", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().removeprefix("scripted upstream on ").strip()
            with Client(base_url=url) as client:
                yield process, client
        finally:
            process.kill()


def failing(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "scripted", *arguments],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ends_cleanly_on_a_signal(number):
    with running("--demo") as (process, client):
        answer = client.post("/v1/chat/completions", json={"model": "m", "messages": []})
        assert "demo model" in answer.json()["choices"][0]["message"]["content"]
        process.send_signal(number)
        _, errors = process.communicate(timeout=5)
        assert (process.returncode, errors) == (0, "")


def test_ends_while_a_response_is_under_way():
    with (
        running("--bench") as (process, client),
        client.stream("POST", "/v1/chat/completions", json={"model": "fake-9x9999", "stream": True}) as response,
    ):
        assert response.status_code == 200
        process.terminate()
        _, errors = process.communicate(timeout=5)
        assert (process.returncode, errors) == (0, "")


def test_is_controlled_over_http(tmp_path):
    file = tmp_path / "script.json"
    file.write_text(json.dumps([{"reply": {"json": 1}}]))
    with running("--script", str(file)) as (_, client):
        assert client.post("/a?b", json={"model": "m"}).json() == 1
        client.post("/c", content=b"no json")
        first, second = client.get("/_received").json()
        assert (first["method"], first["path"], first["body"]) == ("POST", "/a?b", {"model": "m"})
        assert (second["body"], second["headers"]["content-length"]) == ("no json", "7")
        assert client.delete("/_received").status_code == 200
        assert client.get("/_received").json() == []
        assert client.put("/_script", json=[{"reply": {"json": 2}}]).status_code == 200
        assert client.post("/a").json() == 2


@pytest.mark.parametrize(
    ("script", "message"),
    [(b"[{}]", "rule 1: 'reply' is missing"), (b"[", "unexpected end"), (b"{}", "list of rules")],
)
def test_refuses_a_wrong_script_over_http(script, message):
    with running() as (_, client):
        answer = client.put("/_script", content=script)
        assert answer.status_code == 400
        assert message in answer.json()["error"]["message"]


def test_a_wrong_script_file_is_an_error_of_use(tmp_path):
    done = failing("--script", str(tmp_path / "none.json"))
    assert done.returncode == 2
    assert "none.json: No such file" in done.stderr


def test_a_taken_port_is_said_plainly(upstream):
    done = failing("--port", str(upstream.port))
    assert done.returncode == 1
    assert done.stderr.startswith("cannot listen: ")
    assert done.stderr.endswith(f"{upstream.port}): address already in use\n")
