"""Which URLs may be called: rules over their text, before any name is resolved. Pure.

One parser reads the URL for the rules and for the connection, so that the two cannot disagree about the host.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import httpx2

from bridge.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_URL_CHARACTERS = 2048
HTTPS_PORT = 443
LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")
_UNSAFE = re.compile(r"[\x00-\x20\x7f\\]")
_AUTHORITY = re.compile(r"[/?#]")
_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_NAME = re.compile(rf"(?:{_LABEL}\.)+(?=[a-z])[a-z0-9-]{{1,62}}[a-z0-9]")
"""A name with a dot whose last label begins with a letter: no number in any notation is one."""


class UrlRefusedError(ValueError):
    """The URL is not to be called; `code` is Anthropic's word for why."""

    def __init__(self, message: str, code: str = "url_not_allowed") -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class AllowList:
    """Host globs such as `docs.example.com` or `*.example.com:8443`; without a port, 443 is meant."""

    entries: tuple[str, ...] = ()
    loopback: bool = False
    """Also plain http to this machine: for servers of the operator's own, in development."""

    @classmethod
    def parse(cls, text: str, *, loopback: bool = False) -> AllowList:
        entries = (entry.strip().lower().removesuffix(".") for entry in text.replace(",", " ").split())
        return cls(tuple(entry for entry in entries if entry), loopback)

    def __bool__(self) -> bool:
        return bool(self.entries) or self.loopback

    def check(self, text: str) -> httpx2.URL:
        """The URL if it may be called, without its fragment; UrlRefusedError if not."""
        url = _parsed(text)
        host = url.raw_host.decode("ascii")
        if self.loopback and host.strip("[]") in LOOPBACK_HOSTS:
            return url
        if url.scheme != "https":
            raise UrlRefusedError("only https URLs are called")
        if not _NAME.fullmatch(host):
            raise UrlRefusedError("the host is not a public name; addresses are not called")
        port = HTTPS_PORT if url.port is None else url.port
        if not any(_matches(entry, host, port) for entry in self.entries):
            raise UrlRefusedError(f"{host}:{port} is not among the hosts that may be called")
        return url


def names_loopback(text: str) -> bool:
    """True if an allowlist names this machine: only then it is called, and without TLS too."""
    return any(entry.strip().lower() in LOOPBACK_HOSTS for entry in text.replace(",", " ").split())


def _parsed(text: str) -> httpx2.URL:
    if len(text) > MAX_URL_CHARACTERS:
        raise UrlRefusedError(f"the URL is longer than {MAX_URL_CHARACTERS} characters", "url_too_long")
    if _UNSAFE.search(text):
        raise UrlRefusedError("the URL holds characters that a URL cannot hold", "invalid_tool_input")
    try:
        url = httpx2.URL(text)
    except (httpx2.InvalidURL, ValueError, TypeError):
        raise UrlRefusedError("not a URL", "invalid_tool_input") from None
    if url.scheme not in ("http", "https") or not url.raw_host:
        raise UrlRefusedError("not a URL of the web", "invalid_tool_input")
    if "@" in _AUTHORITY.split(text, maxsplit=3)[2]:
        raise UrlRefusedError("URLs with a user name or password are not called")
    return url.copy_with(fragment=None)


def _matches(entry: str, host: str, port: int) -> bool:
    glob, _, wanted = entry.partition(":")
    return fnmatchcase(host, glob) and (wanted or str(HTTPS_PORT)) in ("*", str(port))


def in_domains(url: httpx2.URL, domains: Iterable[str]) -> bool:
    """True if a domain that a client named, or one above it, is the URL's; a domain may end in a path."""
    host, path = url.raw_host.decode("ascii"), url.path
    for domain in domains:
        name, slash, below = domain.lower().partition("/")
        wanted = slash + below.removesuffix("*")
        if (host == name or host.endswith(f".{name}")) and path.lower().startswith(wanted):
            return True
    return False
