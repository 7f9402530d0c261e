"""A stream that begins before its answer is known: signs of life first, then whatever the answer turns out to be."""

from __future__ import annotations

import secrets
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import orjson

from bridge.canonical.events import StreamFailed
from bridge.canonical.head import AnswerHead
from bridge.errors import BridgeError, ErrorKind, kind_for_status
from bridge.exchange import Answer
from bridge.protocols import registry
from bridge.streams import EVENT_STREAM

if TYPE_CHECKING:
    from bridge.exchange import Write
    from bridge.providers import ProtocolName


def beginning(protocol: ProtocolName) -> Answer:
    """How a stream begins whose answer is not known yet."""
    return Answer(200, {"content-type": EVENT_STREAM}, b"", registry.heartbeat(protocol))


def continued(answer: Answer, protocol: ProtocolName, model: str) -> Answer:
    """The answer as the rest of a stream that has begun: its status is out, so a failure is told in the stream."""
    if not isinstance(answer.body, bytes):
        return answer
    is_stream = answer.headers.get("content-type", "").startswith("text/event-stream")
    rest = answer.body if answer.status < 300 and is_stream else _failure(protocol, _error_in(answer), model)

    async def write_all(write: Write) -> None:
        await write(rest)

    return replace(answer, body=write_all)


def _failure(protocol: ProtocolName, error: BridgeError, model: str) -> bytes:
    """A stream of Responses has to begin before it can fail; the others just say it."""
    if protocol != "openai_responses":
        return registry.encode_stream_error(protocol, error)
    head = AnswerHead(f"resp_{secrets.token_hex(24)}", model, int(time.time()))
    return registry.client(protocol).stream_encoder(head).encode([StreamFailed(error)])


def _error_in(answer: Answer) -> BridgeError:
    """The error that an answer tells of, from its own body: it may be a provider's, passed through."""
    if answer.status < 300:
        return BridgeError(ErrorKind.API, "the provider sent a document where a stream was asked for")
    message, code = f"the provider answered {answer.status}", None
    try:
        error = orjson.loads(answer.body if isinstance(answer.body, bytes) else b"{}")["error"]
        message, code = str(error["message"]), error.get("code")
    except (KeyError, TypeError, ValueError):
        pass
    kind = kind_for_status(answer.status)
    return BridgeError(kind, message, status=answer.status, code=code if isinstance(code, str) else None)
