"""One log line per exchange, through Powertools: JSON on Lambda, readable on a terminal. Never a body or a key."""

from __future__ import annotations

import logging
import random
import sys
import time
import traceback
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

import orjson

from handler.metrics import Outcome
from handler.redaction import redacted

if TYPE_CHECKING:
    from bridge.exchange import Record
    from handler.metrics import MetricsWriter
    from handler.request import HttpRequest

SERVICE = "toolbridge"
MAX_CLIENT_META = 2048
_LEVELS = {"warn": "WARNING"}


class SentResponse(Protocol):
    """What is known of a response once it is out."""

    status: int
    sent_bytes: int
    first_byte_at: float | None
    last_byte_at: float | None
    copy: bytearray | None
    """The beginning of the body, where it is to be logged."""


def make_logger(level: str, *, as_json: bool) -> logging.Logger:
    """The bridge's logger. On Lambda Powertools writes JSON; a person at a terminal gets plain lines."""
    name = _LEVELS.get(level, level.upper())
    for library in ("httpx2", "mcp"):  # they log URLs
        logging.getLogger(library).setLevel(logging.WARNING)
    # What no line of ours says need not be found out for each of them.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    if as_json:
        from aws_lambda_powertools import Logger

        return Logger(service=SERVICE, level=name)  # type: ignore[return-value]
    logger = logging.getLogger(SERVICE)
    logger.setLevel(name)
    logger.propagate = False
    if not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(_TerminalFormatter("%(asctime)s %(message)s"))
        logger.addHandler(handler)
    return logger


class _TerminalFormatter(logging.Formatter):
    """Message first, then the fields worth a look."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802
        return _time_of_day(int(record.created))

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = getattr(record, "fields", {})
        told = [f" {name}={value}" for name, value in fields.items() if value]
        line = _one_line(super().format(record) + "".join(told))
        if record.levelno >= logging.WARNING:
            line += f" level={record.levelname}"
        return line + getattr(record, "frames", "")


@lru_cache(maxsize=1)
def _time_of_day(second: int) -> str:
    return time.strftime("%H:%M:%S", time.localtime(second))


def _one_line(text: str) -> str:
    """Nobody but the bridge begins a line of its log."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


class Observer:
    """Watches exchanges from start to end."""

    def __init__(
        self,
        logger: logging.Logger,
        *,
        as_json: bool,
        body_share: float = 0.0,
        metrics: MetricsWriter | None = None,
    ) -> None:
        self._logger = logger
        self._as_json = as_json
        self._metrics = metrics
        self._body_share = body_share
        if body_share:
            self.warn(
                f"LOG_BODIES is on: bodies of {body_share:.0%} of all requests are logged; switch it off when done"
            )

    def ended(self, request: HttpRequest, record: Record, response: SentResponse, started: float) -> None:
        """An exchange is over, however it went; `started` is monotonic time."""
        outcome = _outcome(response, started)
        self._log(request, record, outcome)
        if self._metrics is not None:
            self._metrics.emit(record, outcome)
        if response.copy is not None:
            self._log_bodies(request, response.copy)

    def _diagnose(self, request: HttpRequest, record: Record) -> None:
        """The steps of one exchange under names that stay; counts and names, never content."""
        steps: dict[str, dict[str, object]] = {
            "bridge.input": dict(record.input_shape or {}),
            "bridge.route": {
                "provider": record.provider,
                "wire_model": record.wire_model,
                "reason": record.route_reason,
                "rerouted": record.rerouted,
            },
            "bridge.policies": {"applied": record.policies},
            "bridge.upstream": {
                "status": record.upstream_status,
                "retries": record.upstream_retries,
                "losses": record.losses,
            },
            "bridge.tools": {"calls": record.tool_call_count, "names": record.called_tools},
        }
        for name, values in steps.items():
            if not any(values.values()):  # a step that was not taken
                continue
            fields = {"trace_id": request.id, **values}
            self._logger.debug(name, extra={"step": fields} if self._as_json else {"fields": fields})

    @property
    def is_detailed(self) -> bool:
        """True if the steps of exchanges are logged."""
        return self._logger.isEnabledFor(logging.DEBUG)

    def samples_bodies(self) -> bool:
        """True if this request's bodies are to be logged."""
        return self._body_share > 0 and random.random() < self._body_share  # noqa: S311

    def _log_bodies(self, request: HttpRequest, answer: bytearray) -> None:
        fields = {"trace_id": request.id, "request": redacted(request.body), "response": redacted(bytes(answer))}
        self._logger.warning("bodies", extra=fields if self._as_json else {"fields": fields})

    def warn(self, message: str) -> None:
        """Something that the operator should know."""
        self._logger.warning(message)

    def crashed(self, request: HttpRequest) -> None:
        """An exception that nobody expected: what and where, not its message, which may quote what a user wrote."""
        kind, _, trace = sys.exc_info()
        frames = "\n" + "".join(traceback.format_tb(trace))
        message = f"{request.method} {request.path} failed with {kind.__name__ if kind else 'an error'} ({request.id})"
        self._logger.error(message, extra={"frames": frames})

    def _log(self, request: HttpRequest, record: Record, outcome: Outcome) -> None:
        level = logging.INFO if outcome.status < 500 and not record.error_kind else logging.WARNING
        if record.state_failures:
            level = logging.ERROR
        if not self._logger.isEnabledFor(level):
            return
        if self.is_detailed:
            self._diagnose(request, record)
        usage = record.used
        fields = {
            "trace_id": request.id,
            "status": outcome.status,
            "provider": record.provider,
            "wire_model": record.wire_model,
            "route_reason": record.route_reason,
            "principal": record.principal,
            "upstream_status": record.upstream_status,
            "upstream_retries": record.upstream_retries,
            "fallbacks": record.fallbacks,
            "rerouted": record.rerouted,
            "latency_ms": outcome.latency_ms,
            "ttft_ms": outcome.ttft_ms,
            "streamed_bytes": outcome.sent_bytes,
            "tool_call_count": record.tool_call_count,
            "stop_reason": record.stop_reason,
            "input_tokens": usage.input_tokens if usage else 0,
            "output_tokens": usage.output_tokens if usage else 0,
            "usage_estimated": usage.estimated if usage else False,
            "client_meta": _client_meta(request.headers.get("x-client-meta", "")),
            "losses": record.losses,
            "policies": record.policies,
            "conversation_id": record.conversation_id,
            "store_reads": record.store_reads,
            "store_writes": record.store_writes,
            "store_retries": record.store_retries,
            "store_misses": record.store_misses,
            "expired_reads": record.expired_reads,
            "store_read_ms": round(record.store_read_ms, 1),
            "store_write_ms": round(record.store_write_ms, 1),
            "conflicts": record.conflicts,
            "repaired_calls": record.repaired_calls,
            "replayed_calls": record.replayed_calls,
            "state_failures": record.state_failures,
            "state_error": record.state_error,
            "client_gone": record.client_gone,
            "error_kind": record.error_kind,
        }
        message = f"{request.method} {request.path}"
        self._logger.log(level, message, extra=fields if self._as_json else {"fields": fields})


def _outcome(response: SentResponse, started: float) -> Outcome:
    first, last = response.first_byte_at, response.last_byte_at or time.monotonic()
    ttft_ms = _milliseconds(first - started) if first else None
    return Outcome(response.status, _milliseconds(last - started), ttft_ms, response.sent_bytes)


def _client_meta(header: str) -> object:
    """What a client says of itself in x-client-meta: JSON, bounded, for the log alone."""
    if not header or len(header) > MAX_CLIENT_META:
        return None
    try:
        return orjson.loads(header)
    except orjson.JSONDecodeError:
        return None


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 1)
