"""`bridge bench`: how fast a running bridge answers, measured with real requests."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING, TextIO

from handler.running_bridge import add_bridge_options, bridge_token, bridge_url, checked_secret, checked_url
from handler.settings import SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.providers import ProtocolName
    from handler.measuring.run import Plan
    from handler.settings import Settings

LOCAL_URL = "http://127.0.0.1:8787"
MODEL_VARIABLE = "BRIDGE_MODEL"
DIRECT_KEY_VARIABLE = "DIRECT_KEY"
PROMPT = "Count from one to fifty in words, separated by commas. Write nothing else."
MAX_REQUESTS = 1000
MAX_CONCURRENCY = 64
MAX_TOKENS = 100_000
MAX_SECONDS = 900
PROTOCOLS: dict[str, ProtocolName] = {
    "messages": "anthropic",
    "chat": "openai_chat",
    "responses": "openai_responses",
}


def add_bench_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> argparse.ArgumentParser:
    """Declare the command and its options."""
    command = commands.add_parser(
        "bench",
        help="measure a running bridge with real requests",
        description="Ask a running bridge for streamed answers and say how fast they come. These are real requests to "
        "a real model, which may cost money. The exit code is 1 if one of them failed.",
    )
    add_bridge_options(command, otherwise=LOCAL_URL)
    command.add_argument("--model", type=_text, help=f"the model to ask for (default: {MODEL_VARIABLE})")
    command.add_argument("--protocol", choices=PROTOCOLS, default="messages", help="how to ask (default: %(default)s)")
    _add_number(command, "--requests", 10, MAX_REQUESTS, "how many requests to send")
    _add_number(command, "--concurrency", 2, MAX_CONCURRENCY, "how many of them at a time, after the first")
    _add_number(command, "--max-tokens", 128, MAX_TOKENS, "the longest answer to ask for, in tokens")
    _add_number(command, "--timeout", 120, MAX_SECONDS, "seconds that one answer may take")
    command.add_argument("--prompt", type=_text, default=PROMPT, help="what to ask (default: a count to fifty)")
    command.add_argument("--json", action="store_true", help="print JSON instead of a table")
    _add_direct_options(command)
    return command


def _add_direct_options(command: argparse.ArgumentParser) -> None:
    direct = command.add_argument_group(
        "comparison", "ask the provider itself as well, as often, to see what the bridge adds"
    )
    direct.add_argument("--direct-url", metavar="URL", help="base URL of the provider")
    direct.add_argument("--direct-key", metavar="KEY", help=f"key of the provider (default: {DIRECT_KEY_VARIABLE})")
    direct.add_argument("--direct-model", metavar="MODEL", type=_text, help="its name there (default: --model)")
    direct.add_argument("--direct-protocol", choices=PROTOCOLS, help="how to ask there (default: --protocol)")


def plan_of(arguments: argparse.Namespace, settings: Settings) -> Plan:
    """What the command line asks for; SettingsError says what it lacks."""
    from handler.measuring.asking import Target, request_body
    from handler.measuring.run import Plan

    def target(name: str, url: str, secret: str | None, model: str, protocol: ProtocolName) -> Target:
        body = request_body(protocol, url, model, arguments.prompt, arguments.max_tokens)
        return Target(name, url, protocol, model, body, secret)

    model = arguments.model or os.environ.get(MODEL_VARIABLE)
    if not model or not model.isprintable():
        raise SettingsError(f"name the model to ask for with --model or {MODEL_VARIABLE}")
    protocol = PROTOCOLS[arguments.protocol]
    url, token = bridge_url(arguments.url) or LOCAL_URL, bridge_token(arguments.token, settings)
    direct = None
    if arguments.direct_url:
        direct = target(
            "provider",
            checked_url(arguments.direct_url, "--direct-url"),
            _direct_key(arguments),
            arguments.direct_model or model,
            PROTOCOLS[arguments.direct_protocol] if arguments.direct_protocol else protocol,
        )
    elif arguments.direct_key or arguments.direct_model or arguments.direct_protocol:
        raise SettingsError("a comparison needs the provider's --direct-url")
    bridge = target("bridge", url, token, model, protocol)
    return Plan(
        bridge, direct, arguments.requests, arguments.concurrency, arguments.max_tokens, float(arguments.timeout)
    )


def run_bench(plan: Plan, *, as_json: bool, out: TextIO, progress_on: TextIO) -> int:
    """Measure and report; returns the exit code."""
    import asyncio

    from handler.measuring.progress import Progress
    from handler.measuring.report import announcement, json_report, text_report
    from handler.measuring.run import measure

    progress_on.write(f"bridge bench {announcement(plan)}")
    progress_on.flush()
    measured = asyncio.run(measure(plan, Progress(progress_on, plan.total)))
    out.write(json_report(plan, measured) if as_json else text_report(plan, measured))
    out.flush()
    if measured.stopped:
        return 130
    return 1 if measured.failed else 0


def _direct_key(arguments: argparse.Namespace) -> str | None:
    key = arguments.direct_key or os.environ.get(DIRECT_KEY_VARIABLE)
    return checked_secret(key, "--direct-key" if arguments.direct_key else DIRECT_KEY_VARIABLE) if key else None


def _add_number(command: argparse.ArgumentParser, name: str, default: int, most: int, about: str) -> None:
    command.add_argument(
        name, type=_up_to(most), default=default, metavar="N", help=f"{about}, {most:,} at most (default: {default})"
    )


def _up_to(most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 10 and 1 <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"takes a whole number from 1 to {most:,}")
        return int(text)

    return parse


def _text(text: str) -> str:
    """Words for a request: not empty, and not bytes that are no text."""
    if not text.strip() or any("\ud800" <= letter <= "\udfff" for letter in text):
        raise argparse.ArgumentTypeError("takes text in UTF-8")
    return text
