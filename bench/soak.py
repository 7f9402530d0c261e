"""`python -m bench.soak`: thousands of forgetful tool turns over bridges that are killed, on a store that fails.

First without faults: what the memory costs and what it adds to a turn. Then with them: does every turn complete, and
does the model ever see a wrong name. The exit code is 1 if not.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from bench.command import end_by_the_blocks, say
from bench.measure import p95
from bench.processes import StartError
from bench.soak_client import Client, TurnError, make_http
from bench.soak_cost import PRICES, CostMeter, cost_table
from bench.soak_latency import measure_added
from bench.soak_model import Book, model_rules
from bench.soak_proxy import BAD_DAY, MILD_DAY, NO_FAULTS, FaultyProxy
from bench.soak_services import CREDENTIALS, TABLE, Fleet, dynamodb_local, free_ports
from bench.soak_talk import Limits, Tally, converse_all
from bench.systems import ROOT
from scripted.server import ScriptedUpstream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.soak_cost import Cost
    from bench.soak_latency import Added
    from bench.soak_proxy import Faults
    from bench.soak_services import Logged

COMPLETION = 0.999
ADDED_P95_MS = 50.0
AT_ONCE = 24
LATENCY_AT_ONCE = 4
FIRST_KILL_SECONDS = 0.3
GRACE_SECONDS = 120.0  # for what comes before the soak itself, and for its last turns


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is done; everything is bounded in count and in time."""

    turns: int
    bridges: int
    seconds: float
    seed: int
    quick: bool

    @property
    def cost_repeats(self) -> int:
        return 2 if self.quick else 20

    @property
    def lengths(self) -> tuple[int, ...]:
        return (10, 100) if self.quick else (10, 100, 1000)

    @property
    def latency_rounds(self) -> int:
        return 40 if self.quick else 600

    @property
    def faults(self) -> Faults:
        return MILD_DAY if self.quick else BAD_DAY

    @property
    def kill_pause(self) -> tuple[float, float]:
        return (1.0, 2.5) if self.quick else (4.0, 9.0)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Everything that a run found."""

    plan: Plan
    costs: Sequence[Cost]
    growth: Sequence[Cost]
    plain_ms: float
    added: Sequence[Added]
    tally: Tally
    book: Book
    client: Client
    proxy: FaultyProxy
    kills: int
    logged: Logged
    seconds: float

    def verdicts(self) -> list[tuple[bool, str]]:
        """What had to hold, and whether it did."""
        done, book = self.tally.completion, self.book
        wrong = book.wrong_names + book.wrong_arguments + book.lost_calls
        verdicts = [
            (done > COMPLETION, f"completion {done:.4%} must be over {COMPLETION:.1%}"),
            (wrong == 0, f"{wrong} wrong or lost tool calls must be 0"),
        ]
        if self.plan.quick:
            return verdicts
        both = self.added[-1].p95
        return [
            *verdicts,
            (both < ADDED_P95_MS, f"P95 added {both:.1f} ms must be under {ADDED_P95_MS:.0f} ms"),
            (self.tally.tool_turns >= self.plan.turns, f"{self.tally.tool_turns:,} of {self.plan.turns:,} tool turns"),
        ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the soak; returns the exit code."""
    plan = _plan(arguments)
    end_by_the_blocks()
    try:
        outcome = _run(plan)
    except (OSError, StartError, TurnError) as error:
        print(f"soak: {error!r}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(_report(outcome))
    return 0 if all(good for good, _ in outcome.verdicts()) else 1


def _run(plan: Plan) -> Outcome:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="bridge-soak-")))
        proxy_port, upstream_port = free_ports(2)
        settings = {
            **CREDENTIALS,
            "AWS_ENDPOINT_URL_DYNAMODB": f"http://127.0.0.1:{proxy_port}",
            "STATE_TABLE": TABLE,
            "LEDGER": "off",  # it costs a write per answer, whatever the state does
            "UPSTREAM_OPENAI_BASE_URL": f"http://127.0.0.1:{upstream_port}",
            "LOG_LEVEL": "error",
            "PYTHONPATH": str(ROOT / "src"),
        }
        database = stack.enter_context(dynamodb_local(folder))
        fleet = stack.enter_context(Fleet(folder, plan.bridges, settings))
        for number in range(plan.bridges):
            fleet.start(number)
        proxy = FaultyProxy(database, random.Random(plan.seed), port=proxy_port)
        return asyncio.run(_soak(plan, fleet, proxy, upstream_port))


async def _soak(plan: Plan, fleet: Fleet, proxy: FaultyProxy, upstream_port: int) -> Outcome:
    book, tally, dice = Book(), Tally(), random.Random(plan.seed + 1)
    upstream = ScriptedUpstream(model_rules(book), port=upstream_port, keep=0)
    async with (
        asyncio.timeout(plan.seconds + GRACE_SECONDS),
        upstream,
        proxy.serving(),
        make_http(AT_ONCE) as http,
    ):
        client = Client(fleet.ports, book, http, dice)
        await measure_added(client, 10 * plan.bridges, LATENCY_AT_ONCE)  # warms up
        say("costs")
        meter = CostMeter(client, proxy.operations, plan.cost_repeats)
        costs, growth = await meter.by_kind(), await meter.by_length(plan.lengths)
        say("what the store adds")
        plain_ms, added = await measure_added(client, plan.latency_rounds, LATENCY_AT_ONCE)
        say(f"{plan.turns:,} tool turns with faults and kills, {plan.seconds:.0f} s at most")
        proxy.operations.clear()
        proxy.faults = plan.faults
        started = time.monotonic()
        killing = asyncio.create_task(_kill_now_and_then(fleet, dice, plan.kill_pause))
        try:
            await converse_all(client, tally, Limits(plan.turns, started + plan.seconds, AT_ONCE), first_number=0)
        finally:
            killing.cancel()
            with suppress(asyncio.CancelledError):
                await killing  # raises if a bridge did not come back
        proxy.faults = NO_FAULTS
        seconds = time.monotonic() - started
    return Outcome(
        plan, costs, growth, plain_ms, added, tally, book, client, proxy, fleet.kills, fleet.logged(), seconds
    )


async def _kill_now_and_then(fleet: Fleet, dice: random.Random, pause: tuple[float, float]) -> None:
    """One bridge after the other is killed and comes back; the others go on."""
    await asyncio.sleep(FIRST_KILL_SECONDS)
    while True:
        number = dice.randrange(len(fleet.ports))
        fleet.kill(number)
        await asyncio.sleep(dice.uniform(0.1, 1.0))
        await asyncio.to_thread(fleet.start, number)
        await asyncio.sleep(dice.uniform(*pause))


def _report(outcome: Outcome) -> str:
    tally, book, client = outcome.tally, outcome.book, outcome.client
    made = Counter(operation.name for operation in outcome.proxy.operations)
    puts = [operation for operation in outcome.proxy.operations if operation.name == "PutItem"]
    sizes = [operation.largest_item_bytes for operation in puts] or [0]
    seconds = sorted(tally.seconds) or [0.0]
    lines = [
        "Cost of state per turn, no faults (mean):",
        cost_table([*outcome.costs, *outcome.growth]),
        PRICES,
        "",
        f"Added by the store, no faults, {LATENCY_AT_ONCE} clients, DynamoDB Local and all else on this machine",
        f"(the counting proxy included; a turn without tool state: median {outcome.plain_ms:.1f} ms):",
        *(f"  {added.kind}: P50 {added.middle:.1f} ms, P95 {added.p95:.1f} ms" for added in outcome.added),
        "",
        f"Soak: {outcome.plan.bridges} bridges, {AT_ONCE} conversations at once, {outcome.seconds:.0f} s",
        f"  turns                {tally.turns:,} ({tally.tool_turns:,} with tool results, {tally.openings:,} openings)",
        f"  trimmed turns        {tally.trimmed_turns:,} with {tally.orphans:,} results whose call was gone",
        f"  completed            {tally.completed:,} ({tally.completion:.4%})",
        f"  wrong names          {book.wrong_names}",
        f"  wrong arguments      {book.wrong_arguments}",
        f"  lost calls           {book.lost_calls}",
        f"  operations           {_counts(made)}",
        f"  items written        mean {mean(sizes):,.0f} bytes, largest {max(sizes):,} bytes",
        f"  faults injected      {_counts(outcome.proxy.injected)}",
        f"  kills                {outcome.kills}",
        f"  balancer retries     {client.balancer_retries}",
        f"  client retries       {_counts(client.retries) or 'none'}",
        f"  answers not stored   {client.not_stored} (told by x-bridge-state)",
        f"  state failures       {outcome.logged.state_failures} (in the logs of the bridges)",
        f"  tracebacks           {len(outcome.logged.tracebacks)} (in the same logs)",
        f"  turn time            P50 {median(seconds):.3f} s, P95 {p95(seconds):.3f} s, longest {seconds[-1]:.1f} s",
        *(f"  failed: {failure}" for failure in tally.failures),
        *(f"  wrong: {example}" for example in book.examples[:10]),
        *outcome.logged.tracebacks[:3],
        "",
        *(f"{'ok  ' if good else 'FAIL'} {text}" for good, text in outcome.verdicts()),
    ]
    return "\n".join(lines)


def _counts(counter: Counter[str]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counter.most_common())


def _plan(arguments: Sequence[str] | None) -> Plan:
    parser = argparse.ArgumentParser(
        prog="python -m bench.soak",
        description="Tool turns with trimmed histories over several bridges on one store, with faults and kills.",
    )
    parser.add_argument("--turns", type=int, help="turns that bring tool results (default 10000; quick 1000)")
    parser.add_argument("--bridges", type=int, default=3, help="bridge processes (default %(default)s)")
    parser.add_argument("--seconds", type=float, help="no new turn after that (default 240; quick 12)")
    parser.add_argument("--seed", type=int, default=1, help="of faults, kills and conversations (default %(default)s)")
    parser.add_argument("--quick", action="store_true", help="a short run; only completion and names decide")
    options = parser.parse_args(arguments)
    quick = bool(options.quick)
    return Plan(
        turns=options.turns or (1000 if quick else 10_000),
        bridges=options.bridges,
        seconds=options.seconds or (12.0 if quick else 240.0),
        seed=options.seed,
        quick=quick,
    )


if __name__ == "__main__":
    sys.exit(main())
