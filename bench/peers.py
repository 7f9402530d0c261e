"""`python -m bench.peers`: the bridge beside claude-code-router and LiteLLM, in one run on the same upstream."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from bench import measure
from bench.cold_start import ColdStartError, bridge_entry, clean_interpreter, cold_start, floor_entry
from bench.cold_state import stateful_entry
from bench.command import end_by_the_blocks, options, say
from bench.cores import assign_cores, pinned
from bench.load import LoadError
from bench.package import BuildError, build_package
from bench.peer_report import LEGEND, PeerRow, Target, peer_table, verdicts
from bench.peer_systems import PEERS, ROUTER_NAME, check_installed, cold_start_of_peer, paused, serving_peer
from bench.plan import FULL, QUICK
from bench.processes import StartError
from bench.report import append_history
from bench.systems import systems, upstream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from bench.cores import Cores
    from bench.plan import Plan
    from bench.processes import Service
    from bench.systems import System

STREAMS = 8
MESSAGES = 400
PEER_FULL = replace(FULL, first_tokens=120, large_requests=7, memory_streams=(1_000, 0))
PEER_QUICK = replace(QUICK, burst_tokens=100, memory_streams=(50, 0))
NAMES = tuple(peer.name for peer in PEERS)

PROG = "python -m bench.peers"
ABOUT = "Measure the bridge beside claude-code-router and LiteLLM, against a scripted upstream."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the comparison; returns the exit code. A missed target is told, not a failure."""
    chosen = options(PROG, ABOUT).parse_args(arguments)
    end_by_the_blocks()
    plan, cores, started = PEER_QUICK if chosen.quick else PEER_FULL, assign_cores(), time.monotonic()
    try:
        check_installed()
        rows = _measure(plan, cores)
    except (BuildError, ColdStartError, LoadError, OSError, StartError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(f"{peer_table(rows, NAMES)}\n\n{LEGEND}\n{cores}; {time.monotonic() - started:.0f} s.\n")
    print("\n".join(verdicts(rows)))
    figures = [{"name": row.name, "figures": dict(row.figures)} for row in rows]
    append_history(figures, f"peers-{plan.name}", chosen.history)
    return 0


def _measure(plan: Plan, cores: Cores) -> list[PeerRow]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="bridge-peers-")))
        stack.enter_context(pinned(cores.load))
        provider = stack.enter_context(upstream(folder, cores))
        package = folder / "package"
        say("building the package")
        build_package(package)
        starts = _cold_starts(plan, cores, folder, provider, package)
        say("starting all")
        ours = stack.enter_context(systems(folder, cores, provider))
        peers = [stack.enter_context(serving_peer(peer, folder, provider, cores.system)) for peer in PEERS]
        field = Field(ours.direct, (ours.floor, ours.bridge, *peers), plan)
        return [*starts, *field.rows()]


def _cold_starts(plan: Plan, cores: Cores, folder: Path, provider: Service, package: Path) -> list[PeerRow]:
    python = clean_interpreter(folder / "interpreter")
    entries = {"bridge": bridge_entry(python, package, provider), "floor": floor_entry(python, package, provider)}
    seconds = {}
    for name, entry in entries.items():
        say(f"cold start: {name}")
        seconds[name] = _repeated(lambda entry=entry: cold_start(entry, folder, cores).first_byte, plan.starts)  # type: ignore[misc]
    for peer in PEERS:
        say(f"cold start: {peer.name}")
        count = min(peer.starts, plan.starts)
        seconds[peer.name] = _repeated(lambda peer=peer: cold_start_of_peer(peer, folder, provider, cores), count)  # type: ignore[misc]
    say("cold start: bridge with DynamoDB")
    with stateful_entry(python, package, provider, folder) as entry:
        with_state = _repeated(lambda: cold_start(entry, folder, cores).first_byte, plan.starts)
    router = seconds[ROUTER_NAME]
    state = {**{name: seconds[name] for name in NAMES}, "bridge": with_state}
    return [
        PeerRow("cold start, s", seconds, 3, Target(0.45, router, of_what=ROUTER_NAME)),
        PeerRow("cold start with DynamoDB, s", state, 3, Target(0.7, router, of_what=ROUTER_NAME)),
    ]


def _repeated(once: Callable[[], float], count: int) -> float:
    once()  # the first start reads the files from disk, and may compile them
    return median(once() for _ in range(count))


@dataclass(frozen=True, slots=True)
class Field:
    """Everything that runs, measured one at a time; rounds go by all systems, so that a busy moment hits them alike.

    What has a just-in-time compiler gets faster for thousands of chunks, so the first ones are measured by themselves.
    """

    direct: System
    contenders: tuple[System, ...]
    plan: Plan

    def rows(self) -> list[PeerRow]:
        """Every row of the table but the cold starts."""
        say("just started: first tokens and paced streams")
        fresh = [*self._first_token_rows("just started", 1), self._cpu_row("just started", 1)]
        say("throughput and memory")
        chunks, memory = self._throughput(), self._memory()
        say("warmed up: first tokens and paced streams")
        rounds = self.plan.rounds
        warm = [*self._first_token_rows("warmed up", rounds), self._cpu_row("warmed up", rounds)]
        say("large requests")
        large = _added(self._first_tokens(MESSAGES, self.plan.large_requests, rounds), median)
        twice = Target(2, chunks[ROUTER_NAME], at_least=True, of_what=ROUTER_NAME)
        return [
            *fresh,
            *warm,
            PeerRow(f"chunks per second, {STREAMS} streams", chunks, 0, twice),
            PeerRow(f"added by a 1 MB request ({MESSAGES} messages), ms", large, 1, Target(12)),
            PeerRow(f"memory after {self.plan.memory_streams[0]:,} streams, MB", memory, 1, Target(90)),
        ]

    def _first_token_rows(self, when: str, rounds: int) -> list[PeerRow]:
        times = self._first_tokens(1, self.plan.first_tokens, rounds)
        middle, late = _added(times, median), _added(times, measure.p95)
        half = Target(0.5, middle[ROUTER_NAME], of_what=ROUTER_NAME)
        return [
            PeerRow(f"added first token, {when}, median ms", middle, 2, half),
            PeerRow(
                f"added first token, {when}, p95 ms", late, 2, Target(2, middle["bridge"], of_what="its own median")
            ),
        ]

    def _cpu_row(self, when: str, rounds: int) -> PeerRow:
        spent: dict[str, list[float]] = {system.name: [] for system in self.contenders}
        for system in self._turns(rounds):
            spent[system.name].append(measure.cpu_per_1000(system, replace(self.plan, paced_answers=1)))
        figures = {name: median(values) for name, values in spent.items()}
        target = Target(0.7, figures[ROUTER_NAME], of_what=ROUTER_NAME)
        return PeerRow(f"CPU ms per 1,000 paced chunks, {when}", figures, 1, target)

    def _turns(self, rounds: int) -> Iterator[System]:
        """Each system in turn, awake alone."""
        for _ in range(rounds):
            for system in self.contenders:
                with paused([other.service for other in self.contenders if other is not system]):
                    yield system

    def _first_tokens(self, messages: int, count: int, rounds: int) -> dict[str, list[float]]:
        times: dict[str, list[float]] = {"direct": [], **{system.name: [] for system in self.contenders}}
        for system in self._turns(rounds):
            requests = [each.request(1, messages=messages) for each in (self.direct, system)]
            direct, measured = measure.first_tokens(requests, count, self.direct.forget if messages > 1 else _nothing)
            times["direct"] += direct
            times[system.name] += measured
        return times

    def _throughput(self) -> dict[str, float]:
        plan = replace(self.plan, seconds=min(self.plan.seconds, 3.0))
        rates: dict[str, list[float]] = {system.name: [] for system in self.contenders}
        for system in self._turns(self.plan.rounds):
            rates[system.name].append(measure.chunks_per_second(system, plan, STREAMS, 100 * STREAMS))
        direct = measure.chunks_per_second(self.direct, plan, STREAMS, 100 * STREAMS)
        return {"direct": direct, **{name: median(values) for name, values in rates.items()}}

    def _memory(self) -> dict[str, float]:
        held = {}
        for system in self.contenders:
            with paused([other.service for other in self.contenders if other is not system]):
                measure.run_short_streams(system, self.plan.memory_streams[0])
                held[system.name] = system.service.resident_bytes() / 1e6
        return held


def _added(times: Mapping[str, Sequence[float]], of: Callable[[Sequence[float]], float]) -> dict[str, float]:
    """Beyond the median of the upstream itself, whose own figure stands as it is."""
    base = median(times["direct"])
    return {name: of(values) - (0.0 if name == "direct" else base) for name, values in times.items()}


def _nothing() -> None:
    pass


if __name__ == "__main__":
    sys.exit(main())
