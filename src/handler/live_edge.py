"""The edge with secrets that rotate: asked for before each request, rebuilt when a secret has changed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from handler.settings import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from handler.endpoints import Edge

RETRY_SECONDS = 30.0
"""How soon a look for newer secrets may follow another."""


class EdgeSource(Protocol):
    """Who knows the edge of the moment."""

    edge: Edge

    def current(self) -> Edge:
        """The edge to serve a request with."""

    async def newer(self) -> Edge | None:
        """Another edge, if a look at the secrets brings one: for whoever was refused with the present one."""


class FixedEdge:
    """Settings that never change."""

    def __init__(self, edge: Edge) -> None:
        self.edge = edge

    def current(self) -> Edge:
        return self.edge

    async def newer(self) -> Edge | None:
        return None


class LiveEdge:
    """Looks again when the secrets are old, in the background; the old ones serve until the new ones are there."""

    def __init__(
        self,
        edge: Edge,
        secrets: Mapping[str, str],
        fetch: Callable[[], Mapping[str, str]],
        rebuild: Callable[[Edge, Mapping[str, str]], Edge],
        ttl: float,
    ) -> None:
        self.edge = edge
        self._secrets = secrets
        self._fetch = fetch
        self._rebuild = rebuild
        self._ttl = ttl
        self._looked_at: float | None = None
        self._looking: asyncio.Task[None] | None = None

    def current(self) -> Edge:
        now = asyncio.get_running_loop().time()
        if self._looked_at is None:
            self._looked_at = now
        if now - self._looked_at >= self._ttl:
            self._look()
        return self.edge

    async def newer(self) -> Edge | None:
        before = self.edge
        await asyncio.shield(self._look())
        return self.edge if self.edge is not before else None

    def _look(self) -> asyncio.Task[None]:
        now = asyncio.get_running_loop().time()
        if self._looking is None or (self._looking.done() and now - (self._looked_at or 0.0) >= RETRY_SECONDS):
            self._looked_at = now
            self._looking = asyncio.ensure_future(self._refresh())
        return self._looking

    async def _refresh(self) -> None:
        try:
            secrets = await asyncio.to_thread(self._fetch)
            if secrets != self._secrets:
                self.edge, self._secrets = self._rebuild(self.edge, secrets), secrets
        except SettingsError as error:  # what served until now goes on serving
            self.edge.observer.warn(f"secrets were not refreshed: {error}")
