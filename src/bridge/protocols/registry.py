"""The codecs by protocol name, each imported when the first request needs it."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import orjson

from bridge.sse import encode_event
from bridge.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.canonical.events import Usage
    from bridge.canonical.fold import Message
    from bridge.canonical.head import AnswerHead
    from bridge.canonical.json import JsonObject, JsonValue
    from bridge.canonical.reading import Reading, Rendered
    from bridge.canonical.request import Request
    from bridge.canonical.target import Target
    from bridge.errors import BridgeError
    from bridge.ports import StreamDecoder, StreamEncoder
    from bridge.providers import ProtocolName


@dataclass(frozen=True, slots=True)
class ClientSide:
    """A protocol as clients speak it to the bridge."""

    id_prefix: str
    """What the ids of its answers begin with."""
    parse_request: Callable[[bytes], Request]
    render_response: Callable[[Message, AnswerHead], JsonObject]
    render_content: Callable[[Message], JsonValue]
    stream_encoder: Callable[[AnswerHead], StreamEncoder]


@dataclass(frozen=True, slots=True)
class ServerSide:
    """A protocol as the bridge speaks it to providers."""

    render_request: Callable[[Request, Target], Rendered]
    parse_response: Callable[[bytes, Reading], Message]
    stream_decoder: Callable[[Reading], StreamDecoder]
    parse_error: Callable[[int, bytes, str, str | None], BridgeError]


@cache
def client(protocol: ProtocolName) -> ClientSide:
    """The codec towards clients of a protocol."""
    if protocol == "openai_chat":
        from bridge.protocols.openai_chat.parse_request import parse_request as parse_chat
        from bridge.protocols.openai_chat.render_response import render_content as render_chat_content
        from bridge.protocols.openai_chat.render_response import render_response as render_chat
        from bridge.protocols.openai_chat.stream_encoder import ChatStreamEncoder

        return ClientSide("chatcmpl-", parse_chat, render_chat, render_chat_content, ChatStreamEncoder)
    if protocol == "openai_responses":
        from bridge.protocols.openai_responses.parse_request import parse_request as parse_responses
        from bridge.protocols.openai_responses.render_response import render_content as render_items
        from bridge.protocols.openai_responses.render_response import render_response as render_whole
        from bridge.protocols.openai_responses.stream_encoder import ResponsesStreamEncoder

        return ClientSide("resp_", parse_responses, render_whole, render_items, ResponsesStreamEncoder)
    from bridge.protocols.anthropic.parse_request import parse_request
    from bridge.protocols.anthropic.render_response import render_content, render_response
    from bridge.protocols.anthropic.stream_encoder import MessagesStreamEncoder

    return ClientSide("msg_", parse_request, render_response, render_content, MessagesStreamEncoder)


@cache
def server(protocol: ProtocolName) -> ServerSide:
    """The codec towards providers of a protocol."""
    if protocol == "anthropic":
        from bridge.protocols.anthropic.errors import parse_error as parse_anthropic_error
        from bridge.protocols.anthropic.parse_response import parse_response as parse_message
        from bridge.protocols.anthropic.render_request import render_request as render_messages
        from bridge.protocols.anthropic.stream_decoder import MessagesStreamDecoder

        return ServerSide(render_messages, parse_message, MessagesStreamDecoder, parse_anthropic_error)
    if protocol == "openai_responses":
        from bridge.protocols.openai_errors import parse_error as parse_openai_error
        from bridge.protocols.openai_responses.parse_response import parse_response as parse_whole
        from bridge.protocols.openai_responses.render_request import render_request as render_responses
        from bridge.protocols.openai_responses.stream_decoder import ResponsesStreamDecoder

        return ServerSide(render_responses, parse_whole, ResponsesStreamDecoder, parse_openai_error)
    from bridge.protocols.openai_chat.parse_response import parse_response
    from bridge.protocols.openai_chat.render_request import render_request
    from bridge.protocols.openai_chat.stream_decoder import ChatStreamDecoder
    from bridge.protocols.openai_errors import parse_error

    return ServerSide(render_request, parse_response, ChatStreamDecoder, parse_error)


@cache
def error_renderer(protocol: ProtocolName) -> Callable[[BridgeError], tuple[int, JsonObject]]:
    """How clients of a protocol are told about errors."""
    if protocol == "anthropic":
        from bridge.protocols.anthropic.errors import render_error as anthropic

        return anthropic
    from bridge.protocols.openai_errors import render_error as openai

    return openai


@cache
def usage_of(protocol: ProtocolName) -> Callable[[JsonObject, Usage | None], Usage | None]:
    """Reads the token counts of an answer, or of an event of its stream; what earlier events told is kept."""
    if protocol == "anthropic":
        from bridge.protocols.anthropic.usage import usage_in as anthropic

        return anthropic
    if protocol == "openai_responses":
        from bridge.protocols.openai_responses.usage import usage_in as responses

        return responses
    from bridge.protocols.openai_chat.usage import usage_in as openai

    return openai


_PING = encode_event(b"ping", b'{"type":"ping"}')


def heartbeat(protocol: ProtocolName) -> bytes:
    """What a stream says when there is nothing to say: an event that clients of the protocol skip."""
    return _PING if protocol == "anthropic" else b": keep-alive\n\n"


def encode_stream_error(protocol: ProtocolName, error: BridgeError) -> bytes:
    """An error in a stream that is passed through."""
    if protocol == "openai_responses":
        from bridge.protocols.openai_responses.stream_encoder import encode_error

        return encode_error(error)
    data = orjson.dumps(error_renderer(protocol)(error)[1])
    return encode_event(b"error", data) if protocol == "anthropic" else b"data: %b\n\n" % data
