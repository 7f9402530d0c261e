"""What the core asks of the world. Adapters stand in `upstream/` and `state/`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from bridge.values import dataclass

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from bridge.canonical.events import StreamEvent, Usage
    from bridge.state.records import Found, Liveness, Origin, Recent, ToolRecord


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
    """Names in lower case."""

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

    def unfinished_usage(self) -> Usage | None:
        """What an answer has used about which no end was told; None for one that ended, or that never began."""


class StreamEncoder(Protocol):
    """Canonical events in, bytes of a client's stream out."""

    def encode(self, batch: Sequence[StreamEvent]) -> bytes: ...


class ConversationStore(Protocol):
    """What conversations leave behind. A partition is one conversation of one principal."""

    async def check(self) -> str:
        """Reach the store and say in a few words what it is; BridgeError if it does not answer."""

    async def save(
        self,
        partition: str,
        records: Sequence[ToolRecord],
        known: Liveness | None = None,
        origin: Origin | None = None,
    ) -> int:
        """Keep tool calls, each written once, and keep the conversation alive; how many ids had another name.

        `known` is what a load of the same request found: while it is fresh, nothing is written for the lifetime.
        `origin` is kept if the conversation begins with this save; one that began without is not listed.
        """

    async def load(self, wanted: Mapping[str, Sequence[str]]) -> Found:
        """The tool calls of some partitions, in one round trip, consistent; keeps their conversations alive."""

    async def forget(self, partition: str, tool_id: str) -> bool:
        """Delete one tool call; True if it was there."""

    async def terminate(self, partition: str) -> int:
        """Forget everything of one conversation; how many tool calls that were."""

    async def recent(self, owner: str, limit: int) -> Recent:
        """The living conversations of one owner that began last, newest first, in a bounded number of reads."""

    async def aclose(self) -> None:
        """Close what is kept open between operations."""


class DocumentStore(Protocol):
    """Whole documents by key, of any size; what is read lives on."""

    async def put(self, key: str, payload: bytes) -> None:
        """Keep a document."""

    async def put_new(self, key: str, payload: bytes) -> bool:
        """Keep a document of at most one item unless there is one already; False if there is."""

    async def get(self, keys: Sequence[str]) -> dict[str, bytes]:
        """Those that are there, in at most two round trips, consistent."""

    async def delete(self, key: str) -> bool:
        """Forget a document; True if it was there."""


class ThreadStore(Protocol):
    """Message threads: a head that names the newest answer, and the turns that led to it."""

    async def begin(self, partition: str, message_id: str, payload: bytes) -> None:
        """Keep the first turn of a thread."""

    async def claim(self, partition: str, previous: str, lease: str) -> list[bytes]:
        """Take the head to continue `previous`, and read every turn; BridgeError with a thread code if that fails."""

    async def extend(self, partition: str, lease: str, message_id: str, number: int, payload: bytes) -> None:
        """Keep the next turn and give the head to it; BridgeError if the lease was lost."""

    async def release(self, partition: str, lease: str) -> None:
        """Give a head back without a new turn."""
