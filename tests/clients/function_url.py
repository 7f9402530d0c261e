"""A Function URL on loopback: HTTP requests become events for a function under AWS's emulator, answers HTTP again."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from emulator import Emulator


@contextmanager
def function_url(function: Emulator) -> Iterator[str]:
    """The URL; one invocation at a time, as one environment of a function serves them."""
    one_at_a_time = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers.get("content-length", "0"))
            with one_at_a_time:
                answer = function.invoke(self._event(self.rfile.read(length).decode()))
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(answer.body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer.body)

        do_GET = do_HEAD = do_POST  # noqa: N815

        def _event(self, body: str) -> dict[str, Any]:
            path, _, query = self.path.partition("?")
            http = {"method": self.command, "path": path, "protocol": "HTTP/1.1", "sourceIp": "127.0.0.1"}
            return {
                "version": "2.0",
                "rawPath": path,
                "rawQueryString": query,
                "headers": {name.lower(): value for name, value in self.headers.items()},
                "requestContext": {"http": http, "requestId": "local", "timeEpoch": 0},
                "body": body,
                "isBase64Encoded": False,
            }

        def log_message(self, *_arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join(timeout=10)
        server.server_close()
