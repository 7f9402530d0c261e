"""Metrics of each request, as one EMF document on stdout: CloudWatch makes metrics of it, nothing is called for that.

Powertools writes the document. Zeros are left out, since CloudWatch bills every metric that it hears of in an hour.
For the same reason metrics are broken down only as far as `Breakdown` says, and models by family, never by a name that
a client chose.
"""

from __future__ import annotations

import re
import sys
from enum import Enum
from functools import lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import orjson

from bridge.errors import ErrorKind, kind_for_status
from bridge.values import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from bridge.exchange import Record

NAMESPACE = "Toolbridge"
CRASH = "CRASH"


class Breakdown(Enum):
    """How finely a metric is counted: the dimensions that it has besides the total."""

    TOTAL = (("service",),)
    PROVIDER = (("service",), ("service", "provider"))
    MODEL = (("service",), ("service", "provider"), ("service", "provider", "model"))


@dataclass(frozen=True, slots=True)
class Metric:
    unit: str = "Count"
    breakdown: Breakdown = Breakdown.TOTAL


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the edge knows of a finished exchange."""

    status: int
    latency_ms: float
    ttft_ms: float | None
    sent_bytes: int


def error_metric(kind: str) -> str:
    """The metric that counts one kind of error: RATE_LIMIT -> RateLimitErrors."""
    return "".join(word.capitalize() for word in kind.split("_")) + "Errors"


# Metric -> the field of Record that holds its value.
_COUNTED = {
    "UpstreamRetries": "upstream_retries",
    "Fallbacks": "fallbacks",
    "Reroutes": "rerouted",
    "Emulations": "emulations",
    "ToolCalls": "tool_call_count",
    "ClientsGone": "client_gone",
    "DeadlineEndings": "deadline_endings",
    "StoreReads": "store_reads",
    "StoreWrites": "store_writes",
    "StoreRetries": "store_retries",
    "StoreConflicts": "conflicts",
    "StoreMisses": "store_misses",
    "StoreExpiredReads": "expired_reads",
    "StoreFailures": "state_failures",
    "StoreReadLatency": "store_read_ms",
    "StoreWriteLatency": "store_write_ms",
    "ConversationsStarted": "conversations_started",
    "ConversationsTerminated": "conversations_terminated",
    "ConversationsExpired": "conversations_expired",
    "RepairedCalls": "repaired_calls",
    "ReplayedCalls": "replayed_calls",
    "ThreadTurns": "thread_turns",
}
_TOKENS = {
    "InputTokens": "input_tokens",
    "OutputTokens": "output_tokens",
    "CacheReadTokens": "cache_read_tokens",
    "CacheWriteTokens": "cache_write_tokens",
}
_LATENCY = Metric("Milliseconds", Breakdown.PROVIDER)

METRICS: Mapping[str, Metric] = {
    "Requests": Metric(breakdown=Breakdown.MODEL),
    "Errors": Metric(breakdown=Breakdown.PROVIDER),
    "Faults": Metric(breakdown=Breakdown.PROVIDER),
    "Latency": _LATENCY,
    "TimeToFirstToken": _LATENCY,
    **dict.fromkeys(_TOKENS, Metric(breakdown=Breakdown.MODEL)),
    "StreamedBytes": Metric("Bytes"),
    "ColdStarts": Metric(),
    "RateLimitHits": Metric(),
    "UpstreamThrottles": Metric(breakdown=Breakdown.PROVIDER),
    "Losses": Metric(),
    "PolicyDecisions": Metric(),
    **{name: Metric("Milliseconds" if name.endswith("Latency") else "Count") for name in _COUNTED},
    **{error_metric(kind): Metric() for kind in (*ErrorKind.__members__, CRASH)},
}
"""Every metric that the bridge emits."""

# Errors that are not the client's: what alarms look at.
_FAULTS = frozenset({ErrorKind.API.name, ErrorKind.TIMEOUT.name, ErrorKind.OVERLOADED.name, CRASH})

_read_counted = attrgetter(*_COUNTED.values())
_read_tokens = attrgetter(*_TOKENS.values())

_FAMILIES = re.compile(
    r"(?P<family>claude-(?:\d[\d.-]*-)?(?P<tier>opus|sonnet|haiku)|claude|gpt-oss|gpt|chatgpt|o(?=\d)"
    r"|gemini(?:-[\d.]+)?-(?P<size>pro|flash)|gemini|gemma|deepseek|qwen|llama|mistral|mixtral|codestral|devstral"
    r"|magistral|grok|kimi|glm|minimax|command|nova|demo)"
)


@lru_cache(maxsize=256)
def model_family(model: str) -> str:
    """The family of a model, of which there are few: claude-opus-4-1 -> claude-opus, made-up names -> other."""
    found = _FAMILIES.match(model.rpartition("/")[2].lower())
    if found is None:
        return "other"
    if found["tier"]:
        return f"claude-{found['tier']}"
    return f"gemini-{found['size']}" if found["size"] else found["family"]


def measured(record: Record, outcome: Outcome) -> dict[str, float]:
    """What one exchange adds to which metric, zeros left out."""
    values: dict[str, float] = dict(zip(_COUNTED, _read_counted(record), strict=True))
    if record.used is not None:
        values.update(zip(_TOKENS, _read_tokens(record.used), strict=True))
    if record.provider:
        values["Latency"] = outcome.latency_ms
        values["TimeToFirstToken"] = outcome.ttft_ms or 0
        values["StreamedBytes"] = outcome.sent_bytes
    kind = _error_kind(record, outcome)
    if kind is not None:
        values["Errors"] = values[error_metric(kind)] = 1
        values["Faults"] = kind in _FAULTS
    refused = kind == ErrorKind.RATE_LIMIT.name
    values["RateLimitHits"] = refused and not record.upstream_status
    values["UpstreamThrottles"] = record.upstream_status == 429
    values["Losses"], values["PolicyDecisions"] = len(record.losses), len(record.policies)
    return {"Requests": 1, **{name: +value for name, value in values.items() if value}}  # + makes numbers of truths


def _error_kind(record: Record, outcome: Outcome) -> str | None:
    """The kind of error that an exchange ended in; a provider's own refusal, passed through, counts by its status."""
    if record.error_kind:
        return record.error_kind
    return kind_for_status(outcome.status).name if outcome.status >= 400 else None


class MetricsWriter:
    """Writes one document per exchange. The first of a process is the one that saw the cold start."""

    def __init__(self, service: str, write: Callable[[str], object] | None = None) -> None:
        from aws_lambda_powertools.metrics.provider.cloudwatch_emf.cloudwatch import AmazonCloudWatchEMFProvider

        self._provider = AmazonCloudWatchEMFProvider(namespace=NAMESPACE)
        self._service = service
        self._write = write or _write_line
        self._is_cold = True

    def emit(self, record: Record, outcome: Outcome) -> None:
        """Write the metrics of one exchange."""
        values = measured(record, outcome)
        if self._is_cold:
            values["ColdStarts"], self._is_cold = 1, False
        self._write(orjson.dumps(self._document(values, record)).decode())

    def _document(self, values: Mapping[str, float], record: Record) -> dict[str, Any]:
        dimensions = {"service": self._service}
        if record.provider:
            dimensions |= {"provider": record.provider, "model": model_family(record.wire_model)}
        metrics = {name: {"Unit": METRICS[name].unit, "Value": value} for name, value in values.items()}
        document: dict[str, Any] = dict(self._provider.serialize_metric_set(metrics, dimensions))
        document["_aws"]["CloudWatchMetrics"] = _directives(metrics, dimensions)
        return document


def _directives(metrics: Mapping[str, Mapping[str, Any]], dimensions: Mapping[str, str]) -> list[dict[str, Any]]:
    """One directive per breakdown, in place of Powertools' one for all: every dimension set of a metric costs."""
    by_breakdown: dict[Breakdown, list[dict[str, str]]] = {}
    for name, metric in metrics.items():
        breakdown = METRICS[name].breakdown if "provider" in dimensions else Breakdown.TOTAL
        by_breakdown.setdefault(breakdown, []).append({"Name": name, "Unit": metric["Unit"]})
    return [
        {"Namespace": NAMESPACE, "Dimensions": breakdown.value, "Metrics": listed}
        for breakdown, listed in by_breakdown.items()
    ]


def _write_line(line: str) -> None:
    """Flushed at once: between invocations nothing runs that would do it."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def make_metrics(chosen: str, *, as_json: bool, service: str) -> MetricsWriter | None:
    """The writer where metrics are wanted: on Lambda unless switched off, elsewhere if switched on."""
    wanted = chosen == "on" or (chosen == "auto" and as_json)
    return MetricsWriter(service) if wanted else None
