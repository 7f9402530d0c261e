"""`python -m bench.floor_server`: the relay under the server of `bridge serve`."""

from __future__ import annotations

import asyncio
import os
import socket

from bench.relay import UPSTREAM, Relay
from handler.http1.server import HttpServer


def main() -> None:
    """Serve on a free port until told to stop."""
    server = HttpServer(Relay(os.environ[UPSTREAM]), grace_seconds=2.0, lifespan=False)
    # asyncio turns Nagle's algorithm off only where the protocol is named.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1024)
        print(f"floor on http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        asyncio.run(server.serve(listener))


if __name__ == "__main__":
    main()
