"""`bridge tail`: the log of a running bridge, a line per request, for people."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import orjson

from handler.printing import printable

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Iterator

_COUNTS = {
    "tool_call_count": "tools",
    "repaired_calls": "repaired",
    "replayed_calls": "replayed",
    "upstream_retries": "retries",
    "fallbacks": "fallbacks",
    "conflicts": "conflicts",
    "store_retries": "store retries",
    "state_failures": "NOT STORED",
}
_LISTS = {"losses": "lost", "policies": "policies"}
_MILLISECONDS = ("latency_ms", "ttft_ms")
_WHOLE = frozenset({*_COUNTS, "input_tokens", "output_tokens"})
_LOCAL_REQUEST = re.compile(r"(\d\d:\d\d:\d\d) ([A-Z]+ /.*?)(?= trace_id=\S+ status=\d{3}\b)")
_FIELD = re.compile(r" ([a-z_]+)=")
_KEPT = "\n\t"  # the frames of a failure have lines of their own


class TailError(Exception):
    """Why nothing can be followed, in words for the terminal."""


def add_tail_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """Declare the command and its options."""
    command = commands.add_parser(
        "tail",
        help="follow the requests of a bridge",
        description="Show a bridge's log a line per request: of a deployment with --log-group, else from a file or "
        "standard input.",
    )
    command.add_argument("file", nargs="?", metavar="FILE", help="log file (default: standard input)")
    command.add_argument("--log-group", metavar="NAME", help="CloudWatch log group: the output LogGroup of the stack")
    return command


def readable(line: str) -> str | None:
    """One line of a log for people; None for what only machines read. What is not the bridge's stays as it is."""
    try:
        said: Any = orjson.loads(line)
    except orjson.JSONDecodeError:
        said = _local_request(line.rstrip("\n"))
    if not isinstance(said, dict):
        return printable(line.rstrip("\n"), _KEPT)
    if "_aws" in said or str(said.get("type", "")).startswith("platform."):
        return None
    return printable(_request_line(said) if "latency_ms" in said else _other_line(said), _KEPT)


def _local_request(line: str) -> dict[str, Any] | None:
    """The fields of a request's line in the log of a local bridge: `12:34:56 POST /v1/messages trace_id=… status=…`."""
    begins = _LOCAL_REQUEST.match(line)
    if begins is None:
        return None
    names = list(_FIELD.finditer(line, begins.end(2)))
    ends = [found.start() for found in names[1:]] + [len(line)]
    told: dict[str, Any] = {}
    for found, end in zip(names, ends, strict=True):
        told.setdefault(found[1], _value(found[1], line[found.end() : end]))
    if not isinstance(told.get("latency_ms", 0.0), float):
        return None
    return {"latency_ms": 0.0, **told, "clock": begins[1], "message": begins[2]}


def _value(name: str, text: str) -> Any:
    """A field as it was before it was written; what clients can put into a line is never taken at its word."""
    if name in _LISTS:
        return re.findall(r"'([^']*)'", text)
    if name == "usage_estimated":
        return text == "True"
    try:
        return float(text) if name in _MILLISECONDS else int(text) if name in _WHOLE else text
    except ValueError:
        return None


def _request_line(said: dict[str, Any]) -> str:
    target = "/".join(part for part in (said.get("provider"), said.get("wire_model")) if part)
    parts = [_clock(said), str(said.get("status", "")), str(said.get("message", "")), target, _times(said)]
    parts += [_tokens(said)]
    parts += [f"{title} {said[name]}" for name, title in _COUNTS.items() if said.get(name)]
    parts += [f"{title}: {', '.join(map(str, said[name]))}" for name, title in _LISTS.items() if said.get(name)]
    parts += [str(said["error_kind"])] if said.get("error_kind") else []
    parts += [str(said.get("principal") or ""), str(said["trace_id"])]
    return "  ".join(part for part in parts if part)


def _other_line(said: dict[str, Any]) -> str:
    exception = str(said.get("exception") or "").strip()
    parts = [_clock(said), str(said.get("level", "")), str(said.get("message", "")), str(said.get("trace_id", ""))]
    parts += [f"{name}={value}" for name, value in _step(said).items()]
    text = "  ".join(part for part in parts if part)
    return f"{text}\n{exception}" if exception else text


def _step(said: dict[str, Any]) -> dict[str, Any]:
    """What a debug line tells of one step of a request."""
    step = said.get("step")
    return step if isinstance(step, dict) else {}


def _clock(said: dict[str, Any]) -> str:
    """The time of day of `2026-11-18 12:34:56,789+0000` and its relatives."""
    return str(said.get("clock") or str(said.get("timestamp", ""))[11:19])


def _times(said: dict[str, Any]) -> str:
    latency, ttft = said["latency_ms"], said.get("ttft_ms")
    return f"{latency / 1000:.2f}s" + (f" (first byte {ttft / 1000:.2f}s)" if ttft is not None else "")


def _tokens(said: dict[str, Any]) -> str:
    taken, given = said.get("input_tokens") or 0, said.get("output_tokens") or 0
    about = "~" if said.get("usage_estimated") else ""
    return f"{about}{taken:,} -> {about}{given:,} tokens" if taken or given else ""


def follow(lines: Iterable[str], write: Callable[[str], object]) -> None:
    """Write each line for people, as it comes."""
    for line in lines:
        text = readable(line)
        if text:
            write(text + "\n")


def deployed_lines(log_group: str, client: Any = None) -> Iterator[str]:
    """The lines of a log group as CloudWatch Logs Live Tail hands them over: for three hours at most."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield from _live_tail(client or _logs_client(), log_group)
    except (BotoCoreError, ClientError) as error:
        raise TailError(f"{log_group} cannot be followed: {error}") from None


def _logs_client() -> Any:
    import boto3

    return boto3.client("logs")


def _live_tail(client: Any, log_group: str) -> Iterator[str]:
    groups = client.describe_log_groups(logGroupNamePrefix=log_group)["logGroups"]
    arn = next((group["logGroupArn"] for group in groups if group["logGroupName"] == log_group), None)
    if arn is None:
        raise TailError(f"there is no log group {log_group} in this account and region")
    answer = client.start_live_tail(logGroupIdentifiers=[arn])
    for event in answer["responseStream"]:
        for result in event.get("sessionUpdate", {}).get("sessionResults", ()):
            yield result["message"]
