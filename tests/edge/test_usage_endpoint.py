"""GET /v1/usage and `bridge usage` over a real ledger: whose lines, which days, in which form."""

from __future__ import annotations

import csv
import time
from datetime import UTC, date, datetime, timedelta
from io import StringIO
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from handler.cli import main
from handler.usage_endpoint import days_of
from support import running_bridge

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from scripted.server import ScriptedUpstream

TOKENS = "admin:admin-token,laptop:laptop-token,ci:ci-robot-token,boss:boss-token-x"
ASK = {"max_tokens": 9, "messages": [{"role": "user", "content": "Hello"}]}
TODAY = datetime.now(UTC).date()


def get(url: str, token: str, **query: str) -> httpx2.Response:
    return httpx2.get(f"{url}/v1/usage", params=query, headers={"x-api-key": token})


def spend(url: str, token: str, model: str) -> None:
    answer = httpx2.post(f"{url}/v1/messages", json={**ASK, "model": model}, headers={"x-api-key": token})
    assert answer.status_code == 200, answer.text


@pytest.fixture
def bridge(upstream: ScriptedUpstream, tmp_path: Path) -> Iterator[str]:
    upstream.script = [{"reply": {"chat": {"text": "Hi", "usage": {"prompt_tokens": 100, "completion_tokens": 7}}}}]
    environment = {
        "UPSTREAM_OPENAI_BASE_URL": upstream.url,
        "OPENAI_API_KEY": "sk-held",
        "WORKER_TOKEN": TOKENS,
        "ADMIN_PRINCIPALS": "admin,boss",
    }
    with running_bridge(tmp_path, **environment) as url:
        spend(url, "laptop-token", "openai/gpt-4.1")
        spend(url, "laptop-token", "openai/gpt-4.1")
        spend(url, "ci-robot-token", "openai/=cmd()")
        yield url


@pytest.mark.req("LEDGER")
def test_a_principal_sees_its_own_usage_and_no_other(bridge: str) -> None:
    report = get(bridge, "laptop-token").json()
    assert report["principal"] == "laptop"
    (row,) = report["rows"]
    assert (row["principal"], row["provider"], row["model"]) == ("laptop", "openai", "gpt-4.1")
    assert (row["requests"], row["output_tokens"]) == (2, report["total"]["output_tokens"])
    assert row["input_tokens"] > 0
    assert (row["day"], row["priced"]) == (TODAY.isoformat(), True)
    assert report["total"]["cost_usd"] == row["cost_usd"] > 0
    assert get(bridge, "ci-robot-token").json()["total"]["requests"] == 1


@pytest.mark.req("LEDGER")
@pytest.mark.parametrize("token", ["admin-token", "boss-token-x"])
def test_administrators_see_everybody(bridge: str, token: str) -> None:
    report = get(bridge, token).json()
    assert report["principal"] is None
    assert {row["principal"]: row["requests"] for row in report["rows"]} == {"ci": 1, "laptop": 2}
    assert report["total"]["requests"] == 3
    assert report["total"]["priced"] is False, "the ci robot's model has no price"


@pytest.mark.req("LEDGER")
def test_the_days_are_chosen_by_the_query(bridge: str) -> None:
    yesterday = (TODAY - timedelta(1)).isoformat()
    assert get(bridge, "laptop-token", **{"from": yesterday, "to": yesterday}).json()["rows"] == []
    report = get(bridge, "laptop-token", **{"from": yesterday, "to": TODAY.isoformat()}).json()
    assert (report["from"], report["to"], len(report["rows"])) == (yesterday, TODAY.isoformat(), 1)


@pytest.mark.req("LEDGER")
def test_a_spreadsheet_gets_a_table_without_formulas(bridge: str) -> None:
    answer = get(bridge, "admin-token", format="csv")
    assert answer.headers["content-type"].startswith("text/csv")
    assert "attachment" in answer.headers["content-disposition"]
    assert answer.headers["cache-control"] == "no-store"
    rows = list(csv.DictReader(StringIO(answer.text)))
    assert {row["model"] for row in rows} == {"gpt-4.1", "'=cmd()"}


@pytest.mark.req("LEDGER", "C11")
@pytest.mark.parametrize(
    ("query", "says"),
    [
        ({"from": "yesterday"}, "from: takes a day as YYYY-MM-DD"),
        ({"to": "2026-02-30"}, "to: takes a day as YYYY-MM-DD"),
        ({"format": "xml"}, "format: takes json or csv"),
        ({"principal": "laptop"}, "principal: not a parameter"),
        ({"from": "2026-02-02", "to": "2026-02-01"}, "is before the first"),
        ({"from": "2020-01-01", "to": "2026-01-01"}, "366 days at most"),
    ],
)
def test_a_query_that_makes_no_sense_is_refused_by_name(bridge: str, query: dict[str, str], says: str) -> None:
    answer = get(bridge, "laptop-token", **query)
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")
    assert says in answer.json()["error"]["message"]


@pytest.mark.req("C8")
def test_without_a_token_there_is_nothing_to_see(bridge: str) -> None:
    assert get(bridge, "a-wrong-token").status_code == 401
    assert httpx2.get(f"{bridge}/v1/usage").status_code == 401


def test_a_bridge_that_counts_nothing_says_so(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    with running_bridge(tmp_path, UPSTREAM_OPENAI_BASE_URL=upstream.url, LEDGER="off") as url:
        answer = get(url, "any-key")
    assert answer.status_code == 404
    assert "LEDGER=off" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        (None, None, (date(2026, 3, 4), date(2026, 3, 10))),
        (None, "2026-03-01", (date(2026, 2, 23), date(2026, 3, 1))),
        ("2026-03-09", None, (date(2026, 3, 9), date(2026, 3, 10))),
    ],
)
def test_a_week_up_to_today_is_meant_where_nothing_is_said(
    first: str | None, last: str | None, expected: tuple[date, date]
) -> None:
    assert days_of(first, last, date(2026, 3, 10)) == expected


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """`bridge` with some settings; what it printed."""

    def run(*arguments: str, **environment: str) -> tuple[int, str, str]:
        monkeypatch.chdir(tmp_path)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        code = main(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.mark.req("LEDGER")
def test_without_tokens_the_command_shows_what_its_key_used(
    upstream: ScriptedUpstream, tmp_path: Path, command: Any
) -> None:
    upstream.script = [{"reply": {"chat": {"text": "Hi"}}}]
    with running_bridge(tmp_path, UPSTREAM_OPENAI_BASE_URL=upstream.url) as url:
        spend(url, "any", "openai/gpt-4.1")
        code, printed, _ = command("usage", "--url", url, "--token", "any")
        _, others, _ = command("usage", "--url", url, "--token", "another")
    assert (code, printed.splitlines()[-1].split()[:2]) == (0, ["total", "1"])
    assert others.startswith("nothing was used")


@pytest.mark.req("LEDGER")
def test_the_command_prints_a_table_from_a_running_bridge(bridge: str, command: Any) -> None:
    code, printed, _ = command("usage", "--url", bridge, WORKER_TOKEN=TOKENS)
    head, ci, laptop, total = printed.splitlines()
    assert code == 0
    assert head.split()[:5] == ["day", "principal", "provider", "model", "requests"]
    assert (ci.split()[1], laptop.split()[1:5]) == ("ci", ["laptop", "openai", "gpt-4.1", "2"])
    assert total.split()[:2] == ["total", "3"]


@pytest.mark.req("LEDGER")
def test_the_command_shows_one_token_what_it_may_see(bridge: str, command: Any) -> None:
    code, printed, _ = command("usage", "--url", bridge, "--csv", WORKER_TOKEN="laptop:laptop-token")
    rows = list(csv.DictReader(StringIO(printed)))
    assert (code, [row["principal"] for row in rows]) == (0, ["laptop"])


@pytest.mark.req("LEDGER")
def test_the_command_reads_the_store_itself(bridge: str, command: Any, tmp_path: Path) -> None:
    for _ in range(50):  # a local bridge writes a moment after the answer
        code, printed, _ = command("usage", STATE_FILE=str(tmp_path / "state.sqlite3"))
        if "total" in printed:
            break
        time.sleep(0.1)
    assert code == 0
    assert ["ci" in printed, "laptop" in printed, printed.splitlines()[-1].split()[:2]] == [True, True, ["total", "3"]]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--from", "soon"), "from: takes a day"),
        (("--url", "http://127.0.0.1:9"), "nothing answers at http://127.0.0.1:9"),
    ],
)
def test_the_command_says_why_there_is_no_report(
    command: Any, tmp_path: Path, arguments: tuple[str, ...], says: str
) -> None:
    code, _, complaint = command("usage", *arguments, STATE_FILE=str(tmp_path / "none.sqlite3"))
    assert (code, says in complaint) == (1, True)


def test_the_command_says_that_nothing_was_used(command: Any, tmp_path: Path) -> None:
    code, printed, _ = command(
        "usage", "--from", "2026-01-01", "--to", "2026-01-02", STATE_FILE=str(tmp_path / "new.sqlite3")
    )
    assert (code, printed) == (0, "nothing was used from 2026-01-01 to 2026-01-02\n")


def test_the_command_tells_what_the_bridge_refused(bridge: str, command: Any) -> None:
    code, _, complaint = command("usage", "--url", bridge, WORKER_TOKEN="stranger:not-known-here")
    assert code == 1
    assert "answered 401" in complaint
    assert "the token was refused: give another with --token or BRIDGE_TOKEN" in complaint
    _, _, complaint = command("usage", "--url", bridge, "--token", "laptop:canary-with-name")
    assert "--token and BRIDGE_TOKEN take the part after the colon, without the name" in complaint
    assert "canary" not in complaint
