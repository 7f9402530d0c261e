"""`python -m bench.floor_server`: the relay under the server of `bridge serve`."""

from __future__ import annotations

import asyncio
import os

from bench.relay import UPSTREAM, Relay
from handler.http1.server import HttpServer, listen


def main() -> None:
    """Serve on a free port until told to stop."""
    server = HttpServer(Relay(os.environ[UPSTREAM]), grace_seconds=2.0, lifespan=False)
    with listen("127.0.0.1", 0) as listener:
        print(f"floor on http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        asyncio.run(server.serve(listener))


if __name__ == "__main__":
    main()
