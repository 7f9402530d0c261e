"""`python -m bench.floor_server`: the relay under uvicorn, set up as `bridge serve` sets it up."""

from __future__ import annotations

import asyncio
import os
import socket

import uvicorn

from bench.relay import UPSTREAM, Relay


def main() -> None:
    """Serve on a free port until told to stop."""
    config = uvicorn.Config(
        Relay(os.environ[UPSTREAM]),
        log_level="warning",
        access_log=False,
        lifespan="off",
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=2,
    )
    # asyncio turns Nagle's algorithm off only where the protocol is named.
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1024)
        print(f"floor on http://127.0.0.1:{listener.getsockname()[1]}", flush=True)
        asyncio.run(uvicorn.Server(config).serve(sockets=[listener]))


if __name__ == "__main__":
    main()
