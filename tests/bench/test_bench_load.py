"""The load generator counts what really came, and refuses to time what is not a whole answer."""

from __future__ import annotations

import socket
import time
from threading import Thread
from typing import TYPE_CHECKING

import pytest
from bench.bodies import anthropic_body, chat_body
from bench.load import Connection, LoadError, Request, payload, post, run

from scripted.bench_models import bench_rules
from scripted.server import serving

if TYPE_CHECKING:
    from collections.abc import Iterator

CHAT = "/v1/chat/completions"
MARKER = b'"content":" '
HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with serving(bench_rules()) as upstream:
        yield upstream.port


def request_for(port: int, model: str, tokens: int) -> Request:
    return Request(port, post(port, CHAT, "token", chat_body(model)), MARKER, tokens)


def answer_in_pieces(listener: socket.socket, pieces: list[bytes]) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.recv(65536)
        for piece in pieces:
            connection.sendall(piece)
            time.sleep(0.01)


@pytest.mark.parametrize(("streams", "total"), [(1, 3), (4, 4), (4, 10)])
def test_every_token_of_every_answer_is_counted(port: int, streams: int, total: int) -> None:
    outcome = run(request_for(port, "fake-50x0", 50), streams, total, seconds=10)
    assert (outcome.answers, outcome.tokens) == (total, total * 50)


def test_no_new_request_is_sent_after_the_time_is_over(port: int) -> None:
    outcome = run(request_for(port, "fake-5x0", 5), streams=2, total=1_000_000, seconds=0.1)
    assert 2 <= outcome.answers < 1_000_000


def test_the_first_token_comes_before_the_end(port: int) -> None:
    with Connection(request_for(port, "fake-5x5", 5)) as connection:
        answer = connection.exchange()
    assert 0 < answer.first_seconds < answer.total_seconds


def test_an_answer_that_lacks_tokens_has_no_time(port: int) -> None:
    with pytest.raises(LoadError, match="5 of 6 tokens"):
        run(request_for(port, "fake-5x0", 6), streams=1, total=1, seconds=10)


@pytest.mark.parametrize("cut", [1, 3, 6, 7, 12])
def test_the_end_is_seen_however_it_is_cut(cut: int) -> None:
    whole = HEAD + b"5\r\ntoken\r\n0\r\n\r\n"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = Thread(target=answer_in_pieces, args=(listener, [whole[:-cut], whole[-cut:]]))
        server.start()
        with Connection(Request(listener.getsockname()[1], b"x", b"token", 1)) as connection:
            answer = connection.exchange()
        server.join()
    assert answer.raw == whole


def test_a_connection_that_ends_too_early_has_no_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = Thread(target=answer_in_pieces, args=(listener, [HEAD + b"5\r\ntoken\r\n"]))
        server.start()
        request = Request(listener.getsockname()[1], b"x", b"token", 1)
        with Connection(request) as connection, pytest.raises(LoadError, match="ended"):
            connection.exchange()
        server.join()


def test_a_refusal_has_no_time(port: int) -> None:
    with pytest.raises(LoadError, match="404"):
        run(request_for(port, "unknown", 1), streams=1, total=1, seconds=10)


def test_the_framing_is_taken_off_even_where_it_cuts_a_token() -> None:
    assert payload(HEAD + b"5\r\nab to\r\n4\r\nken \r\n0\r\n\r\n") == b"ab token "


def test_a_long_history_is_as_large_as_its_name_says() -> None:
    for body in (anthropic_body, chat_body):
        assert 0.9e6 < len(body("fake-1x0", 400)) < 1.1e6
        assert 4.5e6 < len(body("fake-1x0", 2000)) < 5 * 1024 * 1024
