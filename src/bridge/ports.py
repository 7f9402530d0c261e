"""What the core asks of the world. Adapters stand in `upstream/` and `state/`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from bridge.canonical.events import StreamEvent


@dataclass(frozen=True, slots=True)
class UpstreamCall:
    """One HTTP request to a provider."""

    provider: str
    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None


class UpstreamReply(Protocol):
    """A provider's answer: status and headers are here, the body is still to come."""

    status: int
    headers: Mapping[str, str]

    def chunks(self) -> AsyncIterator[bytes]:
        """The body as it arrives. Raises BridgeError when the connection breaks."""

    async def read(self, limit: int) -> bytes:
        """The whole body; BridgeError if it is larger than `limit`."""

    async def aclose(self) -> None:
        """Give the connection back, or drop it if the body was not read to its end."""


class Upstream(Protocol):
    async def send(self, call: UpstreamCall) -> UpstreamReply:
        """Send a call; BridgeError if no answer comes."""

    async def aclose(self) -> None:
        """Close what is kept open between calls."""


class StreamDecoder(Protocol):
    """Bytes of a provider's stream in, canonical events out."""

    def feed(self, data: bytes) -> list[StreamEvent]: ...

    def close(self) -> list[StreamEvent]: ...


class StreamEncoder(Protocol):
    """Canonical events in, bytes of a client's stream out."""

    def encode(self, batch: Iterable[StreamEvent]) -> bytes: ...


class ConversationStore(Protocol):
    """What conversations leave behind, by principal and conversation."""

    async def check(self) -> str:
        """Reach the store and say in a few words what it is; BridgeError if it does not answer."""

    async def terminate(self, principal: str, conversation_id: str) -> int:
        """Forget everything of one conversation; how many items that were."""
