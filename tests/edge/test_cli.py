"""The `bridge` command as a newcomer runs it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scripted.server import ScriptedUpstream

BRIDGE = Path(sys.executable).with_name("bridge")
CLEAN = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}


def bridge(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [BRIDGE, *arguments], cwd=folder, env=CLEAN | environment, capture_output=True, text=True, timeout=60
    )


@contextmanager
def serving(folder: Path, *arguments: str, **environment: str) -> Iterator[list[str]]:
    """`bridge serve` on a free port; yields the text it greets with."""
    command = [BRIDGE, "serve", "--port", "0", *arguments]
    process = subprocess.Popen(
        command, cwd=folder, env=CLEAN | environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout
    assert process.stderr
    greeting: list[str] = []
    try:
        for line in process.stdout:
            greeting.append(line.strip())
            if line.strip().startswith("OPENAI_BASE_URL"):
                break
        yield greeting
    finally:
        process.terminate()
        process.communicate(timeout=20)


def url_in(greeting: list[str]) -> str:
    found = re.search(r"http://127\.0\.0\.1:\d+", greeting[0])
    assert found, greeting
    return found.group()


def line_of(greeting: list[str], start: str) -> str:
    return next(line for line in greeting if line.startswith(start))


def run_pasted(line: str, folder: Path) -> str:
    """Run a line of the greeting in a shell, as someone who pastes it would."""
    path = f"{BRIDGE.parent}:{CLEAN['PATH']}"
    done = subprocess.run(
        line, shell=True, cwd=folder, env=CLEAN | {"PATH": path}, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_with_nothing_configured_the_pasted_lines_work(tmp_path: Path) -> None:
    with serving(tmp_path) as greeting:
        assert "demo model" in greeting[0]
        assert line_of(greeting, "ANTHROPIC_BASE_URL").endswith(" claude")
        assert "demo model" in run_pasted(line_of(greeting, "OPENAI_BASE_URL"), tmp_path)
        if shutil.which("curl"):
            streamed = run_pasted(line_of(greeting, "curl"), tmp_path)
            assert streamed.startswith("event: message_start")
            assert streamed.rstrip().endswith('data: {"type":"message_stop"}')


def test_the_demo_answers_any_model_and_key_and_calls_tools(tmp_path: Path) -> None:
    tool = {
        "name": "get_weather",
        "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    }
    body = {
        "max_tokens": 99,
        "tools": [tool],
        "messages": [{"role": "user", "content": "What is the weather in Paris?"}],
    }
    with serving(tmp_path) as greeting:
        for model in ("claude-opus-5-5", "gpt-x", "gemini-9", "anything at all"):
            answer = httpx2.post(
                f"{url_in(greeting)}/v1/messages", json=body | {"model": model}, headers={"x-api-key": f"key-{model}"}
            ).json()
            assert answer["stop_reason"] == "tool_use"
            assert answer["content"][-1]["input"] == {"city": "Paris"}


@pytest.mark.req("C10")
def test_settings_may_stand_in_a_dotenv_file(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    upstream.script = [{"reply": {"chat": {"text": "from the provider"}}}]
    (tmp_path / ".env").write_text(f"UPSTREAM_OPENAI_BASE_URL={upstream.url}/v1\nOPENAI_API_KEY=sk-file\n")
    with serving(tmp_path) as greeting:
        assert "answered by openai" in greeting[0]
        body = {"model": "openai/gpt-x", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
        answer = httpx2.post(f"{url_in(greeting)}/v1/messages", json=body).json()
    assert answer["content"][0]["text"] == "from the provider"
    assert upstream.received[0].headers["authorization"] == "Bearer sk-file"


@pytest.mark.parametrize(
    ("arguments", "environment", "says"),
    [
        (["serve"], {"STATE_TTL_SECONDS": "soon"}, "STATE_TTL_SECONDS"),
        (["serve", "--host", "0.0.0.0"], {}, "OPENAI_API_KEY"),
        (["serve", "--host", "0.0.0.0"], {"OPENAI_API_KEY": "sk-1"}, "WORKER_TOKEN is not set"),
        (["--env-file", "nowhere.env", "serve"], {}, "nowhere.env does not exist"),
        (["serve", "--port", "99999"], {}, "is not a port"),
        (["dance"], {}, "invalid choice"),
        (["serve", "--host", "nosuchhost.invalid"], {}, "cannot listen on 'nosuchhost.invalid': there is no such host"),
        (
            ["serve", "--host", "192.0.2.1"],
            {"WORKER_TOKEN": "a-long-token", "OPENAI_API_KEY": "sk-1"},
            "--host takes an address of this machine",
        ),
        (["route", ""], {}, "model: say which one"),
        (
            ["serve"],
            {"OPENAI_API_KEY": "secretsmanager:toolbridge/openai"},
            "OPENAI_API_KEY: secret toolbridge/openai cannot be read: no AWS region is set (AWS_DEFAULT_REGION)",
        ),
        (["doctor"], {"GEMINI_API_KEY": "ssm:/a/b"}, "GEMINI_API_KEY: parameter /a/b cannot be read: no AWS region"),
    ],
)
def test_a_start_that_cannot_work_says_why(
    tmp_path: Path, arguments: list[str], environment: dict[str, str], says: str
) -> None:
    done = bridge(tmp_path, *arguments, **environment)
    assert done.returncode != 0
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_in_use_is_a_clear_message(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    done = bridge(tmp_path, "serve", "--port", str(upstream.port))
    assert done.returncode == 2
    assert "choose another port: make run PORT=8790, or --port" in done.stderr


def test_version_and_help(tmp_path: Path) -> None:
    assert re.fullmatch(r"bridge \d+\.\d+\.\d+\n", bridge(tmp_path, "--version").stdout)
    for words in ([], ["serve"], ["table"], ["table", "create"], ["doctor"]):
        assert bridge(tmp_path, *words, "--help").returncode == 0


def test_doctor_finds_what_is_wrong_and_shows_no_secret(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    good = bridge(tmp_path, "doctor", UPSTREAM_OPENAI_BASE_URL=upstream.url, OPENAI_API_KEY="sk-canary")
    assert good.returncode == 0, good.stdout
    assert f"ok    openai: {upstream.url}/v1/models answered 200" in good.stdout
    assert "ok    store: SQLite file" in good.stdout
    assert "sk-canary" not in good.stdout + good.stderr
    upstream.script = [{"reply": {"status": 401, "json": {}}}]
    refused = bridge(tmp_path, "doctor", UPSTREAM_OPENAI_BASE_URL=upstream.url, OPENAI_API_KEY="sk-canary")
    assert refused.returncode == 1
    assert "FAIL  openai" in refused.stdout
    assert "check the key" in refused.stdout
    down = bridge(tmp_path, "doctor", UPSTREAM_GEMINI_BASE_URL="http://127.0.0.1:9")
    assert down.returncode == 1
    assert "FAIL  gemini" in down.stdout
    nothing = bridge(tmp_path, "doctor")
    assert nothing.returncode == 1
    assert "none: set a key" in nothing.stdout
