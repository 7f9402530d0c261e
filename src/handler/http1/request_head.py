"""The head of an HTTP/1.1 request, once it is parsed: what is refused in it, and what the app is told."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

import httptools

if TYPE_CHECKING:
    from handler.asgi import Scope

Header = tuple[bytes, bytes]
# Twice what the app takes: it refuses in the client's own protocol, which says more than a plain 431.
MAX_HEAD_BYTES = 128 * 1024
MAX_HEADERS = 1000

_ONCE = (b"host", b"content-length", b"transfer-encoding")
_ASGI = {"version": "3.0", "spec_version": "2.3"}


class RefusedError(Exception):
    """A request that is not taken: `status` and `text` are for the client."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


def check_head(named: dict[bytes, bytes], headers: list[Header], version: str) -> None:
    """RefusedError for what the parser lets through, and what two readers may read in two ways."""
    if version != "1.1" and version != "1.0":
        raise RefusedError(505, "HTTP/1.1 is spoken here")
    if b"host" not in named and version == "1.1":
        raise RefusedError(400, "the Host header is missing")
    if len(headers) > MAX_HEADERS:
        raise RefusedError(431, "too many headers")
    if len(named) != len(headers):
        _check_doubles(headers)
    if b"transfer-encoding" in named:
        _check_transfer_encoding(named, version)


def _check_doubles(headers: list[Header]) -> None:
    names = [name for name, _ in headers]
    if any(names.count(name) > 1 for name in _ONCE):
        raise RefusedError(400, "a header that may come once came twice")


def _check_transfer_encoding(named: dict[bytes, bytes], version: str) -> None:
    said = named[b"transfer-encoding"].strip().lower()
    if said != b"chunked" or version != "1.1" or b"content-length" in named:
        raise RefusedError(400, "Transfer-Encoding: only chunked is taken, and no Content-Length beside it")


def check_size(url: bytes, headers: list[Header]) -> None:
    """RefusedError for a head that is too long."""
    if len(url) + sum(len(name) + len(value) + 4 for name, value in headers) > MAX_HEAD_BYTES:
        raise too_long()


def too_long() -> RefusedError:
    return RefusedError(431, "the request line and the headers are too long")


def http_scope(method: str, url: bytes, version: str, headers: list[Header]) -> Scope:
    """What the app is told of a request; whose connection it is on is for the caller to add."""
    if url.startswith(b"/") and b"#" not in url:
        raw_path, _, query = url.partition(b"?")
    else:
        parsed = httptools.parse_url(url)
        raw_path, query = parsed.path or b"/", parsed.query or b""
    path = raw_path.decode("ascii")
    return {
        "type": "http",
        "asgi": _ASGI,
        "http_version": version,
        "scheme": "http",
        "method": method,
        "root_path": "",
        "path": unquote(path) if "%" in path else path,
        "raw_path": raw_path,
        "query_string": query,
        "headers": headers,
    }


def without_upgrade(method: str, url: bytes, version: str, headers: list[Header]) -> bytes:
    """The same head, asking for no upgrade: HTTP/1.1 is what is spoken, as RFC 9110 allows."""
    if method == "CONNECT":
        raise RefusedError(501, "CONNECT is not served")
    lines = [b"%b: %b\r\n" % header for header in headers if header[0] != b"upgrade"]
    return b"%b %b HTTP/%b\r\n%b\r\n" % (method.encode(), url, version.encode(), b"".join(lines))
