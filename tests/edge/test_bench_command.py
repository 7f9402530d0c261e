"""`bridge bench` against a real `bridge serve` and scripted providers."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from handler.cli import main
from handler.measuring.asking import Target, request_body
from handler.measuring.progress import Progress
from handler.measuring.run import Plan, measure
from scripted.server import serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scripted.server import ScriptedUpstream

BRIDGE = Path(sys.executable).with_name("bridge")
CLEAN = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
TOKEN = "bench-canary-token"
MODEL = "openai/gpt-4.1"
NOT_MEANT = ("BRIDGE_URL", "BRIDGE_TOKEN", "BRIDGE_MODEL", "DIRECT_KEY", "WORKER_TOKEN")
ROWS = ["first token, ms", "whole answer, ms", "longest gap", "output tokens per second", "chunks per second"]
HELLO = {"chat": {"text": "one two three four five"}}
BEGINNING: list[dict[str, Any]] = [
    {"type": "message_start", "message": {}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}},
]


@pytest.fixture(scope="module")
def served(_scripted_upstream: ScriptedUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a `bridge serve` that wants a token and whose provider is the scripted upstream."""
    settings = {
        "WORKER_TOKEN": f"bench:{TOKEN}",
        "UPSTREAM_OPENAI_BASE_URL": _scripted_upstream.url,
        "OPENAI_API_KEY": "sk-provider",
        "UPSTREAM_RETRIES": "0",
        "CIRCUIT_BREAKER": "off",
        "LOG_LEVEL": "error",
    }
    process = subprocess.Popen(
        [BRIDGE, "serve", "--port", "0"],
        cwd=tmp_path_factory.mktemp("served"),
        env=CLEAN | settings,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    try:
        found = re.search(r"http://127\.0\.0\.1:\d+", process.stdout.readline())
        assert found
        yield found.group()
    finally:
        process.terminate()
        process.communicate(timeout=20)


@pytest.fixture
def bench(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """`bridge bench` with some arguments and variables: its exit code and what it wrote."""
    monkeypatch.chdir(tmp_path)
    for name in NOT_MEANT:
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: str, **environment: str) -> tuple[int, str, str]:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        try:
            code = main(["bench", *arguments])
        except SystemExit as ended:
            code = int(ended.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def asked(upstream: ScriptedUpstream) -> list[dict[str, Any]]:
    return [json.loads(received.body) for received in upstream.received if received.method == "POST"]


# --- what is measured ---------------------------------------------------------------------------


@pytest.mark.req("C9")
@pytest.mark.parametrize("protocol", ["messages", "chat", "responses"])
def test_a_bridge_is_measured_in_each_protocol(
    served: str, upstream: ScriptedUpstream, bench: Any, protocol: str
) -> None:
    upstream.script = [{"reply": {**HELLO, "chunk_delay_ms": 2}}]
    arguments = ("--url", served, "--token", TOKEN, "--model", MODEL, "--protocol", protocol, "--requests", "6")
    code, out, err = bench(*arguments, "--json", "--max-tokens", "33")
    said = json.loads(out)
    assert (code, said["bridge"]["asked"], said["bridge"]["answered"], said["bridge"]["failures"]) == (0, 6, 6, [])
    assert said["bridge"]["output_tokens"] == 6 * 5
    for name in ("first_token_ms", "total_ms", "longest_gap_ms", "tokens_per_second", "chunks_per_second"):
        figures = said["bridge"][name]
        assert 0 < figures["min"] <= figures["median"] <= figures["max"]
        assert figures["p95"] is None  # of so few
    assert said["bridge"]["first_token_ms"]["max"] < said["bridge"]["total_ms"]["max"]
    assert said["bridge"]["first"]["first_token_ms"] > 0
    assert said["health_ms"]["median"] > 0
    assert (said["direct"], said["added"], said["stopped"]) == (None, None, False)
    assert [body["max_tokens"] for body in asked(upstream)] == [33] * 6
    assert "6 of 6" not in err


def test_people_get_a_table_and_are_told_beforehand_what_is_sent(
    served: str, upstream: ScriptedUpstream, bench: Any
) -> None:
    upstream.script = [{"reply": {**HELLO, "chunk_delay_ms": 2}}]
    code, out, err = bench("--model", MODEL, "--requests", "3", BRIDGE_URL=served, BRIDGE_TOKEN=TOKEN)
    assert code == 0
    assert [row for row in ROWS if row not in out] == []
    assert "3 of 3 answered, 15 output tokens" in out
    assert "n/a" in out
    assert "first request (not in the table)" in out
    assert "GET /health" in out
    assert f"3 requests to {served} (model {MODEL}, messages), at most 128 output tokens each, 2 at a time" in err
    assert TOKEN not in out + err


def test_no_more_than_so_many_at_a_time(upstream: ScriptedUpstream, bench: Any) -> None:
    upstream.script = [{"reply": {"messages": {"text": "one two"}, "delay_ms": 20}}]
    before = upstream.accepted_connections
    code, _, _ = bench("--url", upstream.url, "--model", "m", "--requests", "12", "--concurrency", "3")
    assert (code, len(asked(upstream))) == (0, 12)
    assert 1 <= upstream.accepted_connections - before <= 3


def test_nothing_wakes_the_bridge_before_the_first_request(upstream: ScriptedUpstream, bench: Any) -> None:
    upstream.script = [{"reply": {"messages": {"text": "one two"}}}]
    bench("--url", upstream.url, "--model", "m", "--requests", "2")
    assert [received.route for received in upstream.received][:2] == ["/v1/messages", "/health"]


def test_answers_without_a_word_are_told(upstream: ScriptedUpstream, bench: Any) -> None:
    upstream.script = [{"reply": {"sse": [BEGINNING[0], {"type": "message_stop"}]}}]
    code, out, _ = bench("--url", upstream.url, "--model", "m", "--requests", "2")
    assert code == 0
    assert "2 without content" in out


# --- what fails ---------------------------------------------------------------------------------


def test_a_wrong_token_is_refused_once_and_not_tried_again(served: str, upstream: ScriptedUpstream, bench: Any) -> None:
    code, out, err = bench("--url", served, "--token", "wrong-canary-token", "--model", MODEL)
    assert code == 1
    assert "1 x http 401: authentication_error: the bridge's token is missing or wrong" in out
    assert "the token was refused: give another with --token or BRIDGE_TOKEN" in out
    assert "9 requests not sent" in out
    assert "wrong-canary-token" not in out + err
    assert upstream.received == []


def test_an_unknown_model_is_named_by_its_provider(served: str, upstream: ScriptedUpstream, bench: Any) -> None:
    refusal = {"error": {"type": "invalid_request_error", "message": "The model gpt-nine does not exist"}}
    upstream.script = [{"reply": {"status": 404, "json": refusal}}]
    code, out, _ = bench("--url", served, "--token", TOKEN, "--model", "openai/gpt-nine")
    assert code == 1
    assert "1 x http 404" in out
    assert "The model gpt-nine does not exist" in out


@pytest.mark.parametrize("protocol", ["messages", "responses"])
def test_a_provider_that_dies_in_the_middle_is_an_error_event(
    served: str, upstream: ScriptedUpstream, bench: Any, protocol: str
) -> None:
    begun = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "Hel"}, "finish_reason": None}]}
    upstream.script = [
        {"when": {"call": 2}, "reply": {"sse": [begun, {"$cut": "reset"}]}},
        {"reply": HELLO},
    ]
    arguments = ("--url", served, "--token", TOKEN, "--model", MODEL, "--protocol", protocol, "--requests", "4")
    code, out, _ = bench(*arguments, "--json")
    said = json.loads(out)["bridge"]
    assert (code, said["asked"], said["answered"]) == (1, 4, 3)
    assert [(failure["kind"], failure["count"]) for failure in said["failures"]] == [("error event", 1)]


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        ({"sse": BEGINNING}, "ended early"),
        ({"sse": [*BEGINNING, {"$cut": "reset"}]}, "connection lost"),
        ({"sse": [*BEGINNING, {"$bad_chunk": True}]}, "connection lost"),
        ({"cut": "close"}, "connection lost"),
        ({"sse": [*BEGINNING, {"$hang_ms": 60_000}]}, "timeout"),
        ({"messages": {"text": "late"}, "delay_ms": 60_000}, "timeout"),
        ({"status": 529, "json": {"error": {"type": "overloaded_error", "message": "busy"}}}, "http 529"),
        ({"status": 500, "body": "<h1>oops</h1>"}, "http 500"),
    ],
)
def test_each_way_to_fail_has_a_name(upstream: ScriptedUpstream, bench: Any, reply: dict[str, Any], kind: str) -> None:
    upstream.script = [{"when": {"path": "/health"}, "reply": {"json": {}}}, {"reply": reply}]
    arguments = ("--url", upstream.url, "--model", "m", "--requests", "2", "--timeout", "1")
    code, out, _ = bench(*arguments, "--json")
    failures = json.loads(out)["bridge"]["failures"]
    assert code == 1
    assert [(failure["kind"], failure["count"]) for failure in failures] == [(kind, 2)]
    assert failures[0]["first"]


def test_a_page_is_not_a_stream(upstream: ScriptedUpstream, bench: Any) -> None:
    upstream.script = [{"reply": {"body": "<html>", "headers": {"content-type": "text/html"}}}]
    code, out, _ = bench("--url", upstream.url, "--model", "m")
    assert code == 1
    assert "not a stream: the answer is text/html" in out


def test_a_refused_connection_is_told(bench: Any) -> None:
    code, out, err = bench("--url", "http://127.0.0.1:9", "--model", "m")
    assert code == 1
    assert "1 x no connection: nothing answers at http://127.0.0.1:9" in out
    assert "Traceback" not in out + err


# --- secrets ------------------------------------------------------------------------------------


@pytest.mark.req("C8")
def test_the_token_follows_no_redirect(upstream: ScriptedUpstream, bench: Any) -> None:
    with serving([{"reply": {"messages": {"text": "caught"}}}]) as elsewhere:
        headers = {"location": f"{elsewhere.url}/v1/messages"}
        upstream.script = [{"reply": {"status": 307, "json": {}, "headers": headers}}]
        code, out, _ = bench("--url", upstream.url, "--token", TOKEN, "--model", "m")
        assert elsewhere.received == []
    assert code == 1
    assert "http 307: redirects are not followed" in out


@pytest.mark.req("C8")
def test_a_server_that_repeats_the_token_does_not_get_it_printed(upstream: ScriptedUpstream, bench: Any) -> None:
    message = f"no such key: {TOKEN}, nor sk-ant-1234567890\x1b[2J"
    upstream.script = [{"reply": {"status": 401, "json": {"error": {"message": message}}}}]
    for form in ((), ("--json",)):
        _, out, err = bench("--url", upstream.url, "--token", TOKEN, "--model", "m", *form)
        assert "no such key: ***" in out
        assert not any(secret in out + err for secret in (TOKEN, "sk-ant-1234567890", "\x1b", "\\u001b"))


# --- the provider itself ------------------------------------------------------------------------


def test_the_provider_itself_is_asked_as_often_and_each_sees_its_own_key(
    served: str, upstream: ScriptedUpstream, bench: Any
) -> None:
    upstream.script = [{"reply": {**HELLO, "chunk_delay_ms": 2}}]
    with serving([{"reply": {**HELLO, "chunk_delay_ms": 2}}]) as provider:
        where = ("--direct-url", provider.url, "--direct-model", "gpt-4.1", "--direct-protocol", "chat")
        arguments = ("--url", served, "--token", TOKEN, "--model", MODEL, "--requests", "4")
        code, out, err = bench(*arguments, *where, DIRECT_KEY="sk-direct-canary")
        heads = [received.headers for received in provider.received]
        bodies = asked(provider)
    assert code == 0
    assert [head["authorization"] for head in heads] == ["Bearer sk-direct-canary"] * 4
    assert TOKEN not in str(heads)
    assert {(body["model"], body["stream"], body["max_tokens"]) for body in bodies} == {("gpt-4.1", True, 128)}
    assert len(asked(upstream)) == 4
    assert f"and as many to {provider.url} (model gpt-4.1, chat)" in err
    assert re.search(r"added by the bridge, in the median: [+-][\d.]+ ms to the first token, [+-][\d.]+ ms", out)
    assert "sk-direct-canary" not in out + err


def test_a_provider_that_refuses_is_asked_once_and_the_bridge_still_measured(
    served: str, upstream: ScriptedUpstream, bench: Any
) -> None:
    upstream.script = [{"reply": HELLO}]
    with serving([{"reply": {"status": 401, "json": {"error": {"message": "no"}}}}]) as provider:
        arguments = ("--url", served, "--token", TOKEN, "--model", MODEL, "--requests", "3", "--json")
        code, out, _ = bench(*arguments, "--direct-url", provider.url)
        assert len(provider.received) == 1
    said = json.loads(out)
    assert (code, said["bridge"]["answered"], said["added"]) == (1, 3, None)
    assert said["direct"]["failures"] == [{"kind": "http 401", "count": 1, "first": "no"}]


@pytest.mark.parametrize(
    ("model", "field"), [("gpt-4.1", "max_tokens"), ("openai/gpt-5", "max_completion_tokens"), ("llama", "max_tokens")]
)
def test_chat_is_asked_in_the_field_that_the_model_takes(model: str, field: str) -> None:
    body = json.loads(request_body("openai_chat", "https://api.example.com", model, "Hi", 5))
    assert {name: value for name, value in body.items() if name.startswith("max")} == {field: 5}


# --- bounds, progress, interruption -------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--requests", "1001"], "from 1 to 1,000"),
        (["--requests", "0"], "from 1 to 1,000"),
        (["--requests", "ten"], "from 1 to 1,000"),
        (["--concurrency", "65"], "from 1 to 64"),
        (["--max-tokens", "0"], "from 1 to 100,000"),
        (["--timeout", "901"], "from 1 to 900"),
        (["--prompt", " "], "takes text"),
        (["--protocol", "soap"], "invalid choice"),
        (["--model", ""], "takes text"),
        (["--url", "ftp://example.com"], "--url takes a URL such as"),
        (["--url", "https://user:canary@example.com"], "--url takes a URL without credentials"),
        (["--url", "http://example.com:70000"], "takes a port"),
        (["--token", "clé-canary"], "--token takes plain ASCII"),
        (["--direct-key", "sk-canary"], "needs the provider's --direct-url"),
        (["--direct-url", "nowhere"], "--direct-url takes a URL such as"),
        (["--direct-url", "http://127.0.0.1:9", "--direct-key", "clé-canary"], "--direct-key takes plain ASCII"),
    ],
)
def test_what_cannot_be_sent_is_a_usage_error(bench: Any, arguments: list[str], says: str) -> None:
    code, out, err = bench("--model", "m", *arguments)
    assert (code, out) == (2, "")
    assert says in err
    assert "canary" not in err


def test_a_model_has_to_be_named(bench: Any) -> None:
    code, _, err = bench()
    assert code == 2
    assert "--model or BRIDGE_MODEL" in err


def bench_process(folder: Path, upstream: ScriptedUpstream, stderr: int) -> subprocess.Popen[str]:
    command = [str(BRIDGE), "bench", "--url", upstream.url, "--model", "m", "--concurrency", "1"]
    return subprocess.Popen(command, cwd=folder, env=CLEAN, stdout=subprocess.PIPE, stderr=stderr, text=True)


def wait_for(what: Callable[[], bool]) -> None:
    for _ in range(600):
        if what():
            return
        time.sleep(0.05)
    pytest.fail("it did not come to pass")


def test_ctrl_c_prints_what_has_been_measured(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    hanging = {"sse": [*BEGINNING, {"$hang_ms": 60_000}]}
    upstream.script = [
        {"when": {"method": "POST", "call": 4}, "reply": hanging},
        {"reply": {"messages": {"text": "one two three"}}},
    ]
    process = bench_process(tmp_path, upstream, subprocess.PIPE)
    wait_for(lambda: len(asked(upstream)) == 4)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "3 of 3 answered" in out
    assert "stopped after 3 of 10" in out
    assert "Traceback" not in err
    assert len(asked(upstream)) == 4


def test_on_a_terminal_one_line_tells_the_progress(tmp_path: Path, upstream: ScriptedUpstream) -> None:
    upstream.script = [
        {"when": {"method": "POST", "call": 2}, "reply": {"sse": [*BEGINNING, {"$hang_ms": 60_000}]}},
        {"reply": {"messages": {"text": "one two three"}}},
    ]
    terminal, child = pty.openpty()
    process = bench_process(tmp_path, upstream, child)
    os.close(child)
    shown = ""
    while "\r\x1b[K1 of 10 done, 1 under way" not in shown:
        shown += os.read(terminal, 1024).decode()
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=20)
    os.close(terminal)
    assert "under way" not in out
    assert "1 of 1 answered" in out


def test_elsewhere_progress_is_plain_lines(upstream: ScriptedUpstream) -> None:
    upstream.script = [{"reply": {"messages": {"text": "one two three"}, "chunk_delay_ms": 10}}]
    target = Target("bridge", upstream.url, "anthropic", "m", request_body("anthropic", "", "m", "Hi", 9), None)
    written = StringIO()
    plan = Plan(target, None, requests=3, concurrency=1, max_tokens=9, seconds=60)
    measured = asyncio.run(measure(plan, Progress(written, plan.total, seconds=0.01)))
    assert (measured.done, measured.failed) == (3, 0)
    lines = written.getvalue().splitlines()
    assert lines
    assert [line for line in lines if not re.fullmatch(r"\d of 3 done, \d under way, \d+ s", line)] == []


# --- beside the other commands ------------------------------------------------------------------


def test_usage_names_the_bridge_and_its_token_in_the_same_way(
    served: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in NOT_MEANT:
        monkeypatch.delenv(name, raising=False)
    assert main(["usage", "--url", served]) == 1
    assert "answered 401" in capsys.readouterr().err
    assert main(["usage", "--url", served, "--token", TOKEN]) == 0
    monkeypatch.setenv("BRIDGE_URL", served)
    monkeypatch.setenv("BRIDGE_TOKEN", TOKEN)
    assert main(["usage"]) == 0
    monkeypatch.setenv("BRIDGE_URL", "http://[")
    assert main(["usage"]) == 2
    assert "BRIDGE_URL" in capsys.readouterr().err


def test_the_command_loads_nothing_of_it_before_it_is_used() -> None:
    code = "import sys, handler.cli; print([n for n in sys.modules if n.startswith('handler.measuring')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"
