"""The comparison with other systems: what is printed, what is pinned, and that nothing starts by accident."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from bench.bodies import anthropic_body, tool_result_body
from bench.peer_report import PeerRow, Target, peer_table, verdicts
from bench.peer_systems import PEERS, paused
from bench.processes import Service
from bench.report import append_history

ROOT = Path(__file__).resolve().parents[2]
FIGURES = {"bridge": 1.0, "router": 4.0, "slow": 100.0, "floor": 0.5, "direct": 0.1}


def test_the_table_has_each_peer_with_the_ratio_to_it() -> None:
    heading, row = peer_table([PeerRow("first token, ms", FIGURES)], ["router", "slow"]).splitlines()
    assert heading.split() == ["bridge", "router", "x", "slow", "x", "floor", "direct"]
    assert row.split() == ["first", "token,", "ms", "1.0", "4.0", "0.25", "100.0", "0.01", "0.5", "0.1"]


def test_what_a_system_does_not_have_is_a_dash() -> None:
    (_, row) = peer_table([PeerRow("time", {"bridge": 1.0})], ["router"]).splitlines()
    assert row.split() == ["time", "1.0", "-", "-", "-", "-"]


def test_a_difference_lost_in_noise_has_no_ratio() -> None:
    assert PeerRow("time", {"bridge": 1.0, "router": -0.1}).ratio("router") is None


@pytest.mark.parametrize(
    ("target", "is_met"),
    [
        (Target(0.5, 2.0), True),
        (Target(0.5, 1.9), False),
        (Target(12), True),
        (Target(0.9), False),
        (Target(2, 0.5, at_least=True), True),
        (Target(2, 0.6, at_least=True), False),
    ],
)
def test_a_target_is_a_bound_on_the_bridges_figure(target: Target, is_met: bool) -> None:
    assert target.is_met(1.0) is is_met


def test_every_target_gets_a_verdict_that_names_it() -> None:
    met = PeerRow("CPU", FIGURES, target=Target(0.7, 4.0, of_what="router"))
    missed = PeerRow("chunks", FIGURES, 0, Target(2, 4.0, at_least=True, of_what="router"))
    assert verdicts([met, missed, PeerRow("memory", FIGURES)]) == [
        "met    CPU: 1.0, at most 0.7 x router",
        "MISSED chunks: 1, at least 2 x router",
    ]


def test_each_peer_names_the_model_its_own_way_and_gets_the_same_question() -> None:
    bodies = [json.loads(anthropic_body("fake-1x0", provider=peer.model_prefix)) for peer in PEERS]
    assert [body.pop("model") for body in bodies] == ["openai,fake-1x0", "fake-1x0"]
    assert bodies[0] == bodies[1]


@pytest.mark.parametrize("name", ["", "get_weather"])
def test_a_tool_result_comes_with_its_call_or_trimmed(name: str) -> None:
    messages = json.loads(tool_result_body("fake-1x0", "toolu_1", name))["messages"]
    assert len(messages) == (3 if name else 1)
    assert messages[-1]["content"][0]["tool_use_id"] == "toolu_1"


def test_a_peer_has_a_home_of_its_own_and_none_of_the_callers_settings(tmp_path: Path) -> None:
    for peer in PEERS:
        command = peer.command(tmp_path, 4321, Service(1, 1234), None)
        home = Path(command.environment["HOME"])
        assert home.is_relative_to(tmp_path)
        assert json.loads((home / ".claude-code-router/config.json").read_text())["LOG"] is False
        assert command.environment["UPSTREAM"].startswith("http://127.0.0.1:1234")
        assert "4321" in (*command.arguments, command.environment["SERVICE_PORT"])


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="processes cannot be held still here")
def test_what_is_not_measured_is_held_still_and_goes_on_afterwards() -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    try:
        with paused([Service(process.pid, 0)]):
            assert status_becomes(process.pid, psutil.STATUS_STOPPED)
        assert status_becomes(process.pid, psutil.STATUS_SLEEPING)
    finally:
        process.kill()
        process.wait()


def status_becomes(pid: int, wanted: str) -> bool:
    deadline = time.monotonic() + 10
    while psutil.Process(pid).status() != wanted:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_a_run_is_kept_as_one_line(tmp_path: Path) -> None:
    history = tmp_path / "kept/history.jsonl"
    for _ in range(2):
        append_history([{"name": "time", "figures": FIGURES}], "peers-full", history)
    first, _ = [json.loads(line) for line in history.read_text().splitlines()]
    assert (first["plan"], first["rows"]) == ("peers-full", [{"name": "time", "figures": FIGURES}])


def test_the_peers_are_pinned_and_their_locks_name_no_registry() -> None:
    package = json.loads((ROOT / "bench/peers/node/package.json").read_text())
    lock = json.loads((ROOT / "bench/peers/node/package-lock.json").read_text())
    (name, version), *others = package["dependencies"].items()
    assert others == []
    assert lock["packages"][f"node_modules/{name}"]["version"] == version
    assert not any("resolved" in entry for entry in lock["packages"].values())
    wanted = (ROOT / "requirements/litellm.in").read_text().strip().replace("[proxy]", "")
    locked = (ROOT / "requirements/litellm.lock").read_text()
    assert f"\n{wanted} " in locked
    assert "://" not in locked


def test_a_peer_that_is_not_installed_is_told_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from bench import peer_systems, peers

    monkeypatch.setattr(peer_systems, "ROUTER", ROOT / "bench/peers/absent.js")
    assert peers.main(["--quick"]) == 1
    assert "`make bench-peers` installs it" in capsys.readouterr().err
