"""`python -m handler.http1 handler.wiring:bootstrap --port 8080`: serve the app that a function makes."""

from __future__ import annotations

import argparse
import asyncio
import sys
from importlib import import_module
from typing import TYPE_CHECKING

from handler.http1.server import HttpServer, listen

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until told to stop; returns the exit code."""
    parser = argparse.ArgumentParser("python -m handler.http1", description="Serve an ASGI app over HTTP/1.1.")
    parser.add_argument("factory", help="the function that makes the app, as module:name")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    chosen = parser.parse_args(arguments)
    module, _, name = chosen.factory.partition(":")
    app = getattr(import_module(module), name)()
    with listen(chosen.host, chosen.port) as listener:
        try:
            asyncio.run(HttpServer(app).serve(listener))
        except KeyboardInterrupt:
            return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
