"""Each function measures one thing on all systems, turn by turn, so that a busy moment hits them alike."""

from __future__ import annotations

import math
from contextlib import ExitStack
from statistics import median
from typing import TYPE_CHECKING

from bench.cold_start import bare_start, bridge_entry, clean_interpreter, cold_start, floor_entry
from bench.conversation import LongConversation
from bench.load import Connection, run
from bench.package import unzipped_bytes
from bench.plan import PACED_STREAMS, SIZES, STREAMS
from bench.report import Row

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from bench.cores import Cores
    from bench.load import Request
    from bench.plan import Plan
    from bench.processes import Service
    from bench.systems import System, Systems

PACED_TOKENS = 200
SHORT_TOKENS = 20
SHORT_STREAMS_SECONDS = 90.0


def cold_start_rows(package: Path, provider: Service, folder: Path, cores: Cores, plan: Plan) -> list[Row]:
    """The Lambda entry, from process start."""
    python = clean_interpreter(folder / "interpreter")
    bridge, floor = bridge_entry(python, package, provider), floor_entry(python, package, provider)
    for entry in (bridge, floor):
        cold_start(entry, folder, cores)  # the first start reads the package from disk
    bare, bridges, floors = [], [], []
    for _ in range(plan.starts):
        bare.append(bare_start(python, cores) * 1e3)
        floors.append(cold_start(floor, folder, cores))
        bridges.append(cold_start(bridge, folder, cores))
    return [
        Row(
            "cold start until ready, ms",
            median(start.ready for start in bridges) * 1e3,
            median(start.ready for start in floors) * 1e3,
            median(bare),
        ),
        Row(
            "cold start to first byte, ms",
            median(start.first_byte for start in bridges) * 1e3,
            median(start.first_byte for start in floors) * 1e3,
            median(bare),
        ),
    ]


def package_row(package: Path) -> Row:
    """What the function weighs."""
    return Row("package unzipped, MB", unzipped_bytes(package) / 1e6)


def first_token_rows(systems: Systems, plan: Plan) -> list[Row]:
    """How much later the first token comes than from the upstream itself."""
    direct, floor, bridge = first_tokens([system.request(1) for system in systems], plan.first_tokens)
    base = median(direct)
    return [
        Row("added first token, median ms", median(bridge) - base, median(floor) - base, base, digits=2),
        Row("added first token, p95 ms", p95(bridge) - base, p95(floor) - base, p95(direct), digits=2),
    ]


def throughput_rows(systems: Systems, plan: Plan) -> list[Row]:
    """Chunks per second when the upstream does not wait."""
    return [_throughput(systems, plan, streams) for streams in STREAMS]


def cpu_row(systems: Systems, plan: Plan) -> Row:
    """CPU time for 32 streams of one chunk every 5 ms: what a real model's pace costs."""
    bridge, floor = (cpu_per_1000(system, plan) for system in (systems.bridge, systems.floor))
    return Row("CPU ms per 1,000 chunks, paced", bridge, floor)


def memory_rows(systems: Systems, plan: Plan) -> list[Row]:
    """What is held after many short streams: the second figure shows whether it grows."""
    rows, done = [], 0
    for streams in plan.memory_streams:
        for system in (systems.bridge, systems.floor):
            run_short_streams(system, streams - done)
        held = [system.service.resident_bytes() / 1e6 for system in (systems.bridge, systems.floor)]
        rows.append(Row(f"memory after {streams:,} streams, MB", held[0], held[1]))
        done = streams
    return rows


def conversation_rows(systems: Systems, plan: Plan) -> list[Row]:
    """The time of one and the same turn, its history trimmed, as its conversation grows."""
    conversation, rows = LongConversation(systems.bridge), []
    for calls in plan.tool_calls:
        conversation.grow_to(calls)
        (times,) = first_tokens([conversation.trimmed_turn()], plan.conversation_turns)
        rows.append(Row(f"turn after {calls:,} tool calls, trimmed, ms", median(times), digits=2))
    return rows


def memory_row(systems: Systems, when: str) -> Row:
    """The most memory held so far."""
    bridge, floor = (system.service.peak_bytes() / 1e6 for system in (systems.bridge, systems.floor))
    return Row(f"peak memory after {when}, MB", bridge, floor)


def large_request_rows(systems: Systems, plan: Plan) -> list[Row]:
    """What a long history with tools adds to the first token, beyond what its bytes cost the upstream."""
    rows = []
    for size in SIZES:
        requests = [system.request(1, messages=size.messages) for system in systems]
        direct, floor, bridge = first_tokens(requests, plan.large_requests, systems.direct.forget)
        base = median(direct)
        name = f"added by a {size.label} request ({size.messages} messages), ms"
        rows.append(Row(name, median(bridge) - base, median(floor) - base, base, digits=2))
    return rows


def p95(values: Sequence[float]) -> float:
    """The value that 95 of 100 do not pass."""
    return sorted(values)[math.ceil(len(values) * 0.95) - 1]


def first_tokens(
    requests: Sequence[Request], count: int, after_turn: Callable[[], None] = lambda: None
) -> list[list[float]]:
    """Times to the first token in ms, per request, one connection each."""
    with ExitStack() as stack:
        connections = [stack.enter_context(Connection(request)) for request in requests]
        times: list[list[float]] = [[] for _ in requests]
        warm_up = max(1, count // 10)
        for turn in range(warm_up + count):
            for connection, measured in zip(connections, times, strict=True):
                seconds = connection.exchange().first_seconds
                if turn >= warm_up:
                    measured.append(seconds * 1e3)
            after_turn()
    return times


def _throughput(systems: Systems, plan: Plan, streams: int) -> Row:
    per_second: dict[str, list[float]] = {system.name: [] for system in systems}
    for _ in range(plan.rounds):
        for system in systems:
            # A single stream needs a few answers to last long enough to be timed.
            total = max(streams, 4) * plan.burst_answers
            per_second[system.name].append(chunks_per_second(system, plan, streams, total))
    middle = {name: median(values) for name, values in per_second.items()}
    name = f"chunks per second, {streams} stream{'s' if streams > 1 else ''}"
    return Row(name, middle["bridge"], middle["floor"], middle["direct"], digits=0)


def chunks_per_second(system: System, plan: Plan, streams: int, answers: int) -> float:
    """Chunks per second of one run."""
    return run(system.request(plan.burst_tokens), streams, answers, plan.seconds).tokens_per_second


def run_short_streams(system: System, count: int) -> None:
    """Ask for so many short answers."""
    run(system.request(SHORT_TOKENS), PACED_STREAMS, count, SHORT_STREAMS_SECONDS)


def cpu_per_1000(system: System, plan: Plan) -> float:
    """CPU ms for 1,000 chunks of paced streams."""
    before = system.service.cpu_seconds()
    total = PACED_STREAMS * plan.paced_answers
    outcome = run(system.request(PACED_TOKENS, "x5"), PACED_STREAMS, total, plan.seconds)
    return (system.service.cpu_seconds() - before) * 1e6 / outcome.tokens
