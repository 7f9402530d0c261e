"""A real https server on loopback, with certificates of a CA made for the run."""

from __future__ import annotations

import ssl
import subprocess
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from ipaddress import IPv4Address, IPv6Address
    from pathlib import Path

NAMES = ("site.test", "other.test", "sub.site.test")
Reply = tuple[int, dict[str, str], bytes]


def loopback_too(address: IPv4Address | IPv6Address) -> bool:
    """The address policy of tests: this machine stands for the public internet."""
    return str(address) == "127.0.0.1"


async def resolves_here(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


@dataclass
class Seen:
    path: str
    headers: dict[str, str]


@dataclass
class Site:
    port: int
    trusting: ssl.SSLContext
    replies: dict[str, Reply | Callable[[BaseHTTPRequestHandler], None]] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    asked_for: list[str | None] = field(default_factory=list)
    """The names that TLS clients asked for."""

    def url(self, path: str = "/", host: str = "site.test") -> str:
        return f"https://{host}:{self.port}{path}"

    def page(
        self, path: str, body: str | bytes, content_type: str = "text/html; charset=utf-8", status: int = 200
    ) -> str:
        data = body.encode() if isinstance(body, str) else body
        self.replies[path] = (status, {"content-type": content_type}, data)
        return self.url(path)

    def redirect(self, path: str, location: str, status: int = 302) -> str:
        self.replies[path] = (status, {"location": location}, b"")
        return self.url(path)


def certificates(folder: Path) -> tuple[Path, Path, Path]:
    """A CA, and a certificate for the names by it: paths of CA, certificate, key."""
    ca, ca_key, key, request, certificate = (folder / name for name in ("ca.pem", "ca.key", "key", "req", "cert.pem"))
    run = lambda *arguments: subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)  # noqa: E731
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    run("req", "-x509", *curve, "-keyout", ca_key, "-out", ca, "-days", "2", "-subj", "/CN=Test CA",
        "-addext", "keyUsage=critical,keyCertSign")  # fmt: skip
    run("req", *curve, "-keyout", key, "-out", request, "-subj", "/CN=site.test")
    extensions = folder / "extensions"
    extensions.write_text("subjectAltName=" + ",".join(f"DNS:{name}" for name in NAMES))
    run("x509", "-req", "-in", request, "-CA", ca, "-CAkey", ca_key, "-CAcreateserial", "-out", certificate,
        "-days", "2", "-extfile", extensions)  # fmt: skip
    return ca, certificate, key


@contextmanager
def serving_https(folder: Path) -> Iterator[Site]:
    ca, certificate, key = certificates(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(lambda: site))
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    site = Site(server.server_address[1], ssl.create_default_context(cafile=str(ca)))
    context.sni_callback = lambda _, name, __: site.asked_for.append(name)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=10)


def _handler(current: Callable[[], Site]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site = current()
            site.seen.append(Seen(self.path, {name.lower(): value for name, value in self.headers.items()}))
            reply = site.replies.get(self.path, (404, {}, b""))
            if callable(reply):
                reply(self)
                return
            status, headers, body = reply
            self.send_response(status)
            for name, value in ({"content-length": str(len(body))} | headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    return Handler
