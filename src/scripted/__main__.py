"""`python -m scripted`: a scripted upstream as a process of its own."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from scripted.bench_models import bench_rules
from scripted.demo import demo_rules
from scripted.server import ScriptedUpstream
from scripted.shape import ScriptError

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until told to stop."""
    parser = _parser()
    options = parser.parse_args(arguments)
    script = options.script or (bench_rules() if options.bench else demo_rules())
    try:
        upstream = ScriptedUpstream(script, options.host, options.port, control=True)
    except ScriptError as error:
        parser.error(str(error))
    try:
        asyncio.run(_serve(upstream))
    except OSError as error:
        parser.exit(1, f"cannot listen: {error.strerror}\n")
    return 0


async def _serve(upstream: ScriptedUpstream) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    async with upstream:
        sys.stdout.write(f"scripted upstream on {upstream.url}\n")
        sys.stdout.flush()
        await stopped.wait()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m scripted",
        description="A scripted model provider. GET and DELETE /_received, PUT /_script control it.",
    )
    parser.add_argument("--host", default="127.0.0.1", help="where to listen (default %(default)s)")
    parser.add_argument("--port", type=int, default=9100, help="0 takes a free one (default %(default)s)")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument("--script", type=Path, metavar="FILE", help="rules in a JSON file")
    kind.add_argument("--demo", action="store_true", help="the demo model (the default)")
    kind.add_argument("--bench", action="store_true", help="models named fake-<N>x<ms>, fake-<N>b0, fake-tool")
    return parser


if __name__ == "__main__":
    sys.exit(main())
