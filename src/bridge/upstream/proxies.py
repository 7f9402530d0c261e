"""Proxies that the environment names; calls through them go by httpx2's own transport."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.request import getproxies

import httpx2

if TYPE_CHECKING:
    from collections.abc import Mapping


class Proxies:
    """HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY as they were at the start."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        self._named = dict(getproxies() if environment is None else environment)
        self._transports: dict[str, httpx2.AsyncHTTPTransport] = {}

    def transport_for(self, url: httpx2.URL) -> httpx2.AsyncHTTPTransport | None:
        """The transport to the proxy for a URL; None if it is called directly."""
        proxy = self._named.get(url.scheme) or self._named.get("all")
        if not proxy or _is_exempt(url, self._named.get("no", "")):
            return None
        if proxy not in self._transports:
            named = proxy if "://" in proxy else f"http://{proxy}"
            self._transports[proxy] = httpx2.AsyncHTTPTransport(proxy=named)
        return self._transports[proxy]

    async def aclose(self) -> None:
        for transport in self._transports.values():
            await transport.aclose()


def _is_exempt(url: httpx2.URL, exempt: str) -> bool:
    """True if NO_PROXY names the host, a domain it belongs to, the host with its port, or everything."""
    host = url.host.lower()
    for entry in exempt.lower().split(","):
        name = entry.strip().removeprefix(".")
        if name in ("*", host, f"[{host}]", f"{host}:{url.port}") or (name and host.endswith(f".{name}")):
            return True
    return False
