"""What somebody who starts the bridge for the first time gets wrong, and what they are told."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from handler.greeting import example_model, greeting
from handler.setting_warnings import warnings_of
from handler.settings import load_settings
from support import running_bridge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scripted.server import ScriptedUpstream

BRIDGE = Path(sys.executable).with_name("bridge")
CLEAN = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
LLAMA = {"object": "list", "data": [{"id": "text-embedder"}, {"id": "llama3:8b"}]}
CLAUDE_HINT = "Claude Code asks for claude-… models; nothing maps them"


def bridge(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [BRIDGE, *arguments], cwd=folder, env=CLEAN | environment, capture_output=True, text=True, timeout=60
    )


@contextmanager
def served(folder: Path, **environment: str) -> Iterator[tuple[str, list[str]]]:
    """What `bridge serve` greets with, up to the page, and what it warns of."""
    process = subprocess.Popen(
        [BRIDGE, "serve", "--port", "0"],
        cwd=folder, env=CLEAN | environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout
    lines, warnings = [], []  # type: list[str], list[str]
    try:
        for line in process.stdout:
            lines.append(line)
            if line.startswith("Open "):
                break
        yield "".join(lines), warnings
    finally:
        process.terminate()
        warnings += process.communicate(timeout=20)[1].splitlines()


# --- the .env file --------------------------------------------------------------------------------


@pytest.mark.req("C10")
@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("OPEN_AI_API_KEY=sk-canary\n", ".env line 1: OPEN_AI_API_KEY is not a setting; did you mean OPENAI_API_KEY?"),
        ("\n# mine\n\nMODEL_MAPS={}\n", ".env line 4: MODEL_MAPS is not a setting; did you mean MODEL_MAP?"),
        ("openai_api_key=sk-canary\n", ".env line 1: openai_api_key is not a setting; did you mean OPENAI_API_KEY?"),
        ("A=1\nOPENAI_API_KEY\n", ".env line 2: OPENAI_API_KEY has no value; write OPENAI_API_KEY=…"),
    ],
)
def test_a_slip_in_the_env_file_is_a_warning(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / ".env").write_text(text, "utf-8")
    told = bridge(tmp_path, "doctor").stdout
    assert f"WARN  {says}" in told
    assert "canary" not in told


@pytest.mark.req("C10")
def test_the_start_warns_of_a_slip_and_goes_on(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("OPEN_AI_API_KEY=sk-canary\n", "utf-8")
    with served(tmp_path) as (text, warnings):
        assert "demo model" in text
    assert warnings[0] == "bridge: .env line 1: OPEN_AI_API_KEY is not a setting; did you mean OPENAI_API_KEY?"


def test_other_programs_may_have_variables_in_the_file(tmp_path: Path) -> None:
    others = (
        "DATABASE_URL=x\nAWS_REGION=y\nOPENAI_BASE_URL=z\nOPENAI_ORG_ID=o\nBRIDGE_TOKEN=t\nPAGER=less\nexport EDITOR\n"
    )
    (tmp_path / ".env").write_text(others, "utf-8")
    assert "WARN" not in bridge(tmp_path, "doctor").stdout


@pytest.mark.req("C10")
@pytest.mark.parametrize(
    ("text", "line"),
    [
        (b"OPENAI_API_KEY: sk-canary\n", 1),
        (b"OPENAI_API_KEY:sk-canary\n", 1),
        (b"LOG_LEVEL=info\n\nOPENAI_API_KEY='sk-canary\n", 3),
        (b'OPENAI_API_KEY="sk-canary\nLOG_LEVEL=info\n', 1),
        (b"sk-canary\n", 1),
    ],
)
@pytest.mark.parametrize("command", ["serve", "doctor"])
def test_a_line_that_is_no_setting_stops_the_start(tmp_path: Path, command: str, text: bytes, line: int) -> None:
    (tmp_path / ".env").write_bytes(text)
    done = bridge(tmp_path, command)
    assert (done.returncode, done.stderr) == (2, f"bridge: .env line {line} is not NAME=value\n")


def test_a_file_from_another_editor_is_read(tmp_path: Path) -> None:
    (tmp_path / ".env").write_bytes(b"\xef\xbb\xbfGEMINI_API_KEY=canary\r\nPAGE=off\r\n")
    told = bridge(tmp_path, "route", "gemini-9").stdout
    assert re.search(r"configured +True", told)
    (tmp_path / ".env").write_bytes(b"GEMINI_API_KEY=\xff\xfe\n")
    assert bridge(tmp_path, "route", "x").stderr == "bridge: .env is not text in UTF-8\n"


# --- the greeting ---------------------------------------------------------------------------------


def test_the_lines_name_a_model_that_the_provider_has(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    upstream.script = [
        {"when": {"method": "GET"}, "reply": {"json": LLAMA}},
        {"when": {"model": "llama3:8b"}, "reply": {"chat": {"text": "from llama"}}},
    ]
    with served(tmp_path, UPSTREAM_OPENAI_BASE_URL=upstream.url) as (text, warnings):
        assert '"model":"openai/llama3:8b"' in text
        pasted = next(line.strip() for line in text.splitlines() if line.strip().startswith("OPENAI_BASE_URL"))
        done = subprocess.run(pasted, shell=True, cwd="/", env=CLEAN, capture_output=True, text=True, timeout=60)
        assert done.stdout.strip() == "from llama", done.stderr
        assert re.search(
            r"^  ANTHROPIC_BASE_URL=\S+ ANTHROPIC_AUTH_TOKEN=any claude --model openai/llama3:8b$", text, re.M
        )
        assert re.search(r"^Open http://127\.0\.0\.1:\d+/ in a browser", text, re.M)
    assert warnings[:1] == [f"""bridge: {CLAUDE_HINT}. Set MODEL_MAP='{{"claude-*": "openai/llama3:8b"}}'"""]


def test_a_provider_that_is_silent_does_not_hold_up_the_start(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    upstream.script = [{"reply": {"json": {}, "delay_ms": 60_000}}]
    with served(tmp_path, UPSTREAM_OPENAI_BASE_URL=upstream.url) as (text, _):
        assert '"model":"openai/gpt-5.5"' in text


@pytest.mark.parametrize(
    ("configured", "lists", "model"),
    [
        ([], {}, "demo"),
        (["openai"], {}, "openai/gpt-5.5"),
        (["openai"], {"openai": ["whisper-1", "gpt-5.5", "o9"]}, "openai/gpt-5.5"),
        (["openai"], {"openai": ["text-embedding-3", "meta/llama"]}, "openai/meta/llama"),
        (["openai"], {"openai": ["x'; rm -rf ~; '", "$(id)"]}, "openai/gpt-5.5"),
        (["openai"], {"openai": []}, "openai/gpt-5.5"),
        (["anthropic"], {"anthropic": ["claude-sonnet-5-5-20260401"]}, "claude-sonnet-5-5"),
        (["anthropic", "gemini"], {"gemini": ["gemini-9-flash"]}, "gemini/gemini-9-flash"),
        (["openrouter"], {"openrouter": ["acme/one"]}, "openrouter/acme/one"),
    ],
)
def test_the_model_to_try_is_the_usual_one_or_of_the_list(
    configured: list[str], lists: dict[str, list[str]], model: str
) -> None:
    assert example_model(configured, lists) == model


def test_the_openai_line_uses_the_interpreter_that_has_the_library() -> None:
    text = greeting(load_settings({}), "http://127.0.0.1:1", [], "demo")
    line = next(line for line in text.splitlines() if "OPENAI_BASE_URL" in line)
    assert shlex.split(line)[2] == sys.executable


@pytest.mark.parametrize(("page", "is_named"), [("on", True), ("off", False)])
def test_the_page_is_named_where_there_is_one(page: str, is_named: bool) -> None:
    text = greeting(load_settings({"PAGE": page}), "http://127.0.0.1:1", [], "demo")
    assert ("Open http://127.0.0.1:1/ in a browser" in text) == is_named


# --- settings that are hardly meant ---------------------------------------------------------------

OPENAI = {"OPENAI_API_KEY": "sk-proj-1"}
LOCAL = {"UPSTREAM_OPENAI_BASE_URL": "http://127.0.0.1:9"}
WHOLE_NAME = "the whole name goes to openai"
NAMES = "anthropic, openai, openrouter, gemini"
MAPPED = {"MODEL_MAP": '{"claude-*": "openai/gpt-5.5"}'}


@pytest.mark.parametrize(
    ("environment", "lists", "says"),
    [
        ({}, {}, []),
        ({"ANTHROPIC_API_KEY": "sk-ant-1"}, {}, []),
        ({"OPENROUTER_API_KEY": "sk-or-1"}, {}, []),
        (OPENAI, {}, [f"""{CLAUDE_HINT}. Set MODEL_MAP='{{"claude-*": "e/x"}}'"""]),
        (
            OPENAI | {"MODEL_MAP_SONNET": "openai/gpt-5.5"},
            {},
            [f"""{CLAUDE_HINT} for opus and haiku. Set MODEL_MAP='{{"claude-*": "e/x"}}'"""],
        ),
        (OPENAI | MAPPED, {}, []),
        (OPENAI | MAPPED, {"openai": ["gpt-5.5-2026-04-01", "o9"]}, []),
        (
            OPENAI | MAPPED,
            {"openai": ["llama3:8b"]},
            ["MODEL_MAP claude-* -> openai/gpt-5.5: not in the list of openai (1 model: llama3:8b)"],
        ),
        (
            OPENAI | MAPPED,
            {"openai": ["gpt-5.4", *"abcdef"]},
            ["MODEL_MAP claude-* -> openai/gpt-5.5: not in the list of openai (7 models: gpt-5.4)"],
        ),
        (
            OPENAI | {"MODEL_MAP": '{"claude-*": "nowhere/gpt-4.1"}'},
            {},
            [f"MODEL_MAP claude-* -> nowhere/gpt-4.1: 'nowhere' is not a provider ({NAMES}); {WHOLE_NAME}"],
        ),
        (LOCAL | {"MODEL_MAP": '{"claude-*": "meta/llama"}'}, {}, []),
        (LOCAL | {"MODEL_MAP": '{"claude-*": "meta/llama"}'}, {"openai": ["meta/llama"]}, []),
        ({"OPENROUTER_API_KEY": "sk-or-1", "MODEL_MAP": '{"claude-*": "meta/llama"}'}, {}, []),
        (
            {"ANTHROPIC_API_KEY": "sk-ant-1", "MODEL_MAP": '{"x": "gemini/gemini-9"}'},
            {},
            ["MODEL_MAP x -> gemini/gemini-9: there is no key for gemini here; clients must send their own"],
        ),
        (
            OPENAI | MAPPED | {"FALLBACK_MODELS": "gpt,gpt-4.1"},
            {},
            [f"FALLBACK_MODELS gpt: no provider is named ({NAMES}); the whole name goes to openai"],
        ),
        ({"ANTHROPIC_API_KEY": "sk-proj-canary"}, {}, ["ANTHROPIC_API_KEY: looks like a key of openai"]),
        ({"ANTHROPIC_API_KEY": "sk-proj-1", "UPSTREAM_ANTHROPIC_BASE_URL": "http://127.0.0.1:9"}, {}, []),
    ],
)
def test_what_is_hardly_meant_is_told(
    environment: dict[str, str], lists: dict[str, list[str]], says: list[str]
) -> None:
    assert warnings_of(load_settings(environment), lists, "e/x") == says


def test_doctor_compares_the_map_with_the_list(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    upstream.script = [{"reply": {"json": {"data": [{"id": "llama3:8b"}]}}}]
    environment = {"UPSTREAM_OPENAI_BASE_URL": upstream.url, "MODEL_MAP": '{"claude-*": "openai/nope"}'}
    done = bridge(tmp_path, "doctor", **environment)
    assert "WARN  MODEL_MAP claude-* -> openai/nope: not in the list of openai (1 model: llama3:8b)" in done.stdout
    assert 'MODEL_MAP={"claude-*":"openai/nope"}' in done.stdout
    assert done.stdout.endswith("\neverything answers, 1 warning\n")
    assert done.returncode == 0


def test_doctor_shows_values_as_they_are_typed(tmp_path: Path) -> None:
    environment = {"ADMIN_PRINCIPALS": "ann, bob", "CACHE_PROMPTS": "off", "OPENAI_API_KEY": "sk-canary"}
    told = bridge(tmp_path, "doctor", **environment, UPSTREAM_OPENAI_BASE_URL="http://127.0.0.1:9").stdout
    for line in ("ADMIN_PRINCIPALS=ann,bob", "CACHE_PROMPTS=false", "OPENAI_API_KEY=(set)"):
        assert f"  {line}\n" in told
    assert "check the base URL and that it is running" in told


def test_doctor_without_a_network_says_so(tmp_path: Path) -> None:
    """A proxy that nobody runs stands for a network that is not there."""
    told = bridge(tmp_path, "doctor", OPENAI_API_KEY="sk-1", HTTPS_PROXY="http://127.0.0.1:9").stdout
    assert "FAIL  openai: https://api.openai.com/v1/models: openai: cannot be reached; check the network\n" in told


# --- where a model goes ---------------------------------------------------------------------------


def test_route_says_that_the_demo_would_answer(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    first = "no provider is configured: bridge serve would answer with the demo model\n"
    assert bridge(tmp_path, "route", "demo").stdout.startswith(first)
    assert first not in bridge(tmp_path, "route", "demo", UPSTREAM_OPENAI_BASE_URL=upstream.url).stdout


def test_route_asks_a_running_bridge(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    settings: dict[str, Any] = {"WORKER_TOKEN": "ann:canary-token", "UPSTREAM_GEMINI_BASE_URL": upstream.url}
    with running_bridge(tmp_path, **settings) as url:
        told = bridge(tmp_path, "route", "any-name", "--url", url, BRIDGE_TOKEN="canary-token")
        named = bridge(tmp_path, "route", "any-name", "--url", url, BRIDGE_TOKEN="ann:canary-token")
        missing = bridge(tmp_path, "route", "any-name", "--url", url)
    assert re.search(r"provider +gemini\n", told.stdout)
    assert (named.returncode, missing.returncode) == (1, 1)
    assert "BRIDGE_TOKEN take the part after the colon, without the name" in named.stderr
    assert "it wants a token: give it with --token or BRIDGE_TOKEN" in missing.stderr
    assert "canary" not in named.stderr
    gone = bridge(tmp_path, "route", "x", "--url", "http://127.0.0.1:9")
    assert gone.stderr.startswith("bridge: nothing answers at http://127.0.0.1:9")


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/chat/completions", "/v1/responses", "/v1/embeddings"])
def test_an_empty_name_is_called_empty(bridge_url: str, path: str) -> None:
    answer = httpx2.post(bridge_url + path, json={"model": "", "max_tokens": 9, "messages": [], "input": "x"})
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, "model: is empty")


# --- the demo model -------------------------------------------------------------------------------


def test_the_demo_model_goes_by_its_own_name(tmp_path: Path) -> None:
    with served(tmp_path) as (text, _):
        url = text.split()[2].rstrip(",")
        listed = httpx2.get(f"{url}/v1/models").json()["data"]
        body = {"model": "demo", "messages": [{"role": "user", "content": "Hi"}]}
        answer = httpx2.post(f"{url}/v1/chat/completions", json=body).json()
    assert [model["id"] for model in listed] == ["demo"]
    assert answer["system_fingerprint"] == "fp_demo"
