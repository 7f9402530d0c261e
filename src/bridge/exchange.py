"""One request of a client and its answer, as the edge and the pipeline hand them to each other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, TypeAlias

from bridge.canonical.events import add_usage
from bridge.errors import BridgeError, DeadlineError, invalid_request
from bridge.values import dataclass

if TYPE_CHECKING:
    from bridge.canonical.events import Usage
    from bridge.canonical.json import JsonObject
    from bridge.providers import ProtocolName

MAX_STATE_ERROR = 300
Write: TypeAlias = Callable[[bytes], Awaitable[None]]
StreamBody: TypeAlias = Callable[[Write], Awaitable[None]]


@dataclass(slots=True)
class Record:
    """What is worth a log line about one exchange; the pipeline fills it in as it learns it."""

    principal: str = ""
    provider: str = ""
    wire_model: str = ""
    route_reason: str = ""
    upstream_status: int = 0
    upstream_retries: int = 0
    fallbacks: int = 0
    rerouted: bool = False
    input_shape: Mapping[str, int] | None = None
    """How much of what a translated request holds: counts, never content. None where nobody wants to know."""
    tool_call_count: int = 0
    called_tools: tuple[str, ...] = ()
    stop_reason: str = ""
    usage: Usage | None = None
    """What the answer used, once it has come to its end."""
    spent: Usage | None = None
    """What was used without that: rounds of a tool loop so far, an answer that broke off or that nobody waited for."""
    client_gone: bool = False
    losses: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    error_kind: str = ""
    conversation_id: str = ""
    store_reads: int = 0
    store_writes: int = 0
    conflicts: int = 0
    repaired_calls: int = 0
    replayed_calls: int = 0
    state_failures: int = 0
    state_error: str = ""
    """Why something could not be kept or found: the last reason."""
    deadline_endings: int = 0
    emulations: int = 0
    thread_turns: int = 0
    store_retries: int = 0
    store_misses: int = 0
    expired_reads: int = 0
    store_read_ms: float = 0.0
    store_write_ms: float = 0.0
    conversations_started: int = 0
    conversations_terminated: int = 0
    conversations_expired: int = 0

    def count_retry(self) -> None:
        self.upstream_retries += 1

    @property
    def used(self) -> Usage | None:
        return self.usage or self.spent

    def spend(self, usage: Usage | None) -> None:
        """Count what an answer used of which no end was told."""
        if usage is not None:
            self.spent = add_usage(self.spent, usage) if self.spent else usage

    def fail_state(self, reason: str) -> None:
        """Something could not be kept, or not be found."""
        self.state_failures += 1
        self.state_error = reason[:MAX_STATE_ERROR]

    def fail(self, error: BridgeError) -> None:
        """The exchange ended in an error."""
        self.error_kind = error.kind.name
        self.deadline_endings += isinstance(error, DeadlineError)


@dataclass(frozen=True, slots=True)
class ClientCall:
    """A request that passed the edge: who asks, in which protocol, until when."""

    protocol: ProtocolName
    headers: Mapping[str, str]
    body: bytes
    principal: str
    credential: str | None = None
    deadline: float | None = None
    record: Record = field(default_factory=Record)
    method: str = "POST"
    query: str = ""
    document: JsonObject | None = None
    """The body, parsed and found to be within its limits; None where there is none."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back: a whole body, or one that writes itself piece by piece."""

    status: int
    headers: Mapping[str, str]
    body: bytes | StreamBody
    heartbeat: bytes = b""
    """What keeps the connection of a silent stream alive."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """The fields that decide the way of a request, read without building the rest of it."""

    model: str
    thread: object = None


def read_envelope(document: JsonObject | None) -> Envelope:
    """Where a request wants to go; BridgeError if it does not say. What else is wrong with it, its parser says."""
    said = document or {}
    model = said.get("model")
    if not isinstance(model, str):
        raise invalid_request("model: Field required" if model is None else "model: Input should be a valid string")
    if not model:
        raise invalid_request("model: is empty")
    return Envelope(model, said.get("thread"))
