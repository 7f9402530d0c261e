"""`python -m bench`: measure, print one table, keep one line of history."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from bench import measure
from bench.cold_start import ColdStartError
from bench.command import end_by_the_blocks, options, say
from bench.cores import assign_cores, pinned
from bench.load import LoadError
from bench.package import BuildError, build_package
from bench.plan import FULL, QUICK
from bench.processes import StartError
from bench.report import LEGEND, record, table
from bench.systems import systems, upstream

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.cores import Cores
    from bench.plan import Plan
    from bench.report import Row

PROG = "python -m bench"
ABOUT = "Measure the bridge beside a relay that only forwards bytes, against a scripted upstream."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; returns the exit code."""
    chosen = options(PROG, ABOUT).parse_args(arguments)
    end_by_the_blocks()
    plan = QUICK if chosen.quick else FULL
    cores = assign_cores()
    started = time.monotonic()
    try:
        rows = _measure(plan, cores)
    except (BuildError, ColdStartError, LoadError, OSError, StartError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(f"{table(rows)}\n\n{LEGEND}\n{cores}; {time.monotonic() - started:.0f} s.")
    record(rows, plan, chosen.history)
    return 0


def _measure(plan: Plan, cores: Cores) -> list[Row]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="bridge-bench-")))
        stack.enter_context(pinned(cores.load))
        provider = stack.enter_context(upstream(folder, cores))
        package = folder / "package"
        say("building the package")
        build_package(package)
        say("cold starts")
        starts = measure.cold_start_rows(package, provider, folder, cores, plan)
        running = stack.enter_context(systems(folder, cores, provider))
        say("first tokens")
        first_tokens = measure.first_token_rows(running, plan)
        say("streams")
        streams = [*measure.throughput_rows(running, plan), measure.cpu_row(running, plan)]
        # Before the large requests: their bodies would be most of the peak.
        memory = measure.memory_rows(running, plan)
        say("large requests")
        large = measure.large_request_rows(running, plan)
        peak = measure.memory_row(running, "large requests")
        say("a long conversation")
        turns = measure.conversation_rows(running, plan)
        weight = [*memory, peak, measure.package_row(package)]
        return [*starts, *first_tokens, *streams, *large, *turns, *weight]


if __name__ == "__main__":
    sys.exit(main())
