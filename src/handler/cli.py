"""The `bridge` command: serve locally, create the table, see what is configured."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.errors import BridgeError
from bridge.providers import PROTOCOL_NAMES
from bridge.routing import explain
from handler.bench_command import add_bench_command, plan_of, run_bench
from handler.running_bridge import RunningBridgeError, add_bridge_options, ask_bridge, bridge_token, bridge_url
from handler.secrets import fetch, find_references
from handler.setting_types import as_typed
from handler.settings import SettingsError, is_secret, load_settings, setting_fields
from handler.tail import TailError, add_tail_command, deployed_lines, follow
from handler.usage_command import UsageQuery, add_usage_command, show

if TYPE_CHECKING:
    from collections.abc import Sequence

    from handler.settings import Settings

DESCRIPTION = """\
Toolbridge: Claude clients to any model, OpenAI clients to Claude, with a memory for tool calls.

Settings come from environment variables or a .env file; docs/settings.md lists them all."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        arguments.warnings = _load_dotenv(arguments.env_file)
        settings = load_settings({**os.environ, **fetch(find_references(os.environ))})
        return int(arguments.run(arguments, settings) or 0)
    except (SettingsError, BridgeError) as error:
        print(f"bridge: {error}", file=sys.stderr)
        return 2
    except RunningBridgeError as error:
        print(f"bridge: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bridge", description=DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="version", version=f"bridge {version('toolbridge')}")
    parser.add_argument("--env-file", type=Path, metavar="FILE", help="read settings from FILE instead of ./.env")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    serve = commands.add_parser("serve", help="serve on this machine", description="Serve the bridge on this machine.")
    serve.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    serve.add_argument("--port", type=_port, default=8787, help="port to listen on, 0 for any (default: %(default)s)")
    serve.set_defaults(run=_serve)

    table = commands.add_parser("table", help="the DynamoDB table", description="Manage the DynamoDB state table.")
    table_commands = table.add_subparsers(title="commands", required=True, metavar="COMMAND")
    create = table_commands.add_parser(
        "create",
        help="create the table as template.yaml defines it",
        description="Create the state table exactly as template.yaml defines it, for DynamoDB Local "
        "(set AWS_ENDPOINT_URL_DYNAMODB) or an account without the stack.",
    )
    create.add_argument("--table", metavar="NAME", help="name of the table (default: STATE_TABLE)")
    create.set_defaults(run=_create_table)

    route = commands.add_parser(
        "route",
        help="say where a model would go, and why",
        description="Say which provider would answer for a model, under which name and in which protocol.",
    )
    route.add_argument("model", help="the model's name as a client would send it")
    route.add_argument("--client", choices=PROTOCOL_NAMES, default="anthropic", help="the client's protocol")
    add_bridge_options(route, otherwise="the settings here")
    route.set_defaults(run=_route)

    doctor = commands.add_parser(
        "doctor",
        help="check the configuration, the providers and the store",
        description="Say what is configured, try every configured provider and the store. "
        "The exit code is 1 if something is wrong.",
    )
    doctor.set_defaults(run=_doctor)
    add_usage_command(commands).set_defaults(run=_usage)
    add_tail_command(commands).set_defaults(run=_tail)
    add_bench_command(commands).set_defaults(run=_bench)
    return parser


def _port(text: str) -> int:
    if not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port (0 to 65535)")
    return int(text)


def _load_dotenv(chosen: Path | None) -> list[str]:
    """A .env file fills in what the environment does not set; returns what is doubtful in it."""
    path = chosen or Path(".env")
    if path.is_file():
        from handler.env_file import load_env_file

        return load_env_file(path)
    if chosen is not None:
        raise SettingsError(f"{chosen} does not exist")
    return []


def _serve(arguments: argparse.Namespace, settings: Settings) -> int:
    from handler.local import serve

    for warning in arguments.warnings:
        print(f"bridge: {warning}", file=sys.stderr)
    return asyncio.run(serve(settings, arguments.host, arguments.port))


def _create_table(arguments: argparse.Namespace, settings: Settings) -> int:
    from botocore.exceptions import BotoCoreError, ClientError

    from bridge.state.dynamodb_table import connect
    from bridge.state.table import create_table

    name = arguments.table or settings.state_table
    if not name:
        raise SettingsError("STATE_TABLE is not set: name the table there or with --table")
    print(f"creating the table {name} and waiting until it is there, a minute at most", file=sys.stderr)
    try:
        created = create_table(connect(), name)
    except (BotoCoreError, ClientError) as error:
        print(f"bridge: cannot create the table {name}: {error}", file=sys.stderr)
        return 1
    print(f"table {name} created" if created else f"table {name} is there already")
    return 0


def _route(arguments: argparse.Namespace, settings: Settings) -> int:
    url = bridge_url(arguments.url)
    if url:
        asked = {"model": arguments.model, "client": arguments.client}
        said = ask_bridge(url, bridge_token(arguments.token, settings), "/v1/route", asked).json()
    else:
        said = explain(settings.routing(), arguments.model, arguments.client, None)
        if not settings.has_provider:
            print("no provider is configured: bridge serve would answer with the demo model\n")
    for name, value in said.items():
        print(f"{name:18} {value}")
    return 0


def _doctor(arguments: argparse.Namespace, settings: Settings) -> int:
    from handler.doctor import Finding, examine

    _print_settings(settings)
    findings = [Finding("WARN", text) for text in arguments.warnings] + asyncio.run(examine(settings))
    for finding in findings:
        print(f"  {finding.level:4}  {finding.text}")
    bad, doubtful = (sum(finding.level == level for finding in findings) for level in ("FAIL", "WARN"))
    verdict = f"{_count(bad, 'problem')} found" if bad else "everything answers"
    print(f"\n{verdict}" + (f", {_count(doubtful, 'warning')}" if doubtful else ""))
    return 1 if bad else 0


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _usage(arguments: argparse.Namespace, settings: Settings) -> int:
    url = bridge_url(arguments.url)
    token = bridge_token(arguments.token, settings) if url else None
    query = UsageQuery(arguments.first, arguments.last, arguments.csv, url, token)
    print(show(query, settings), end="")
    return 0


def _tail(arguments: argparse.Namespace, _settings: Settings) -> int:
    def write(text: str) -> None:
        print(text, end="", flush=True)

    try:
        if arguments.log_group:
            print(f"following {arguments.log_group}, Ctrl-C ends it", file=sys.stderr)
            follow(deployed_lines(arguments.log_group), write)
        elif arguments.file:
            with Path(arguments.file).open(encoding="utf-8", errors="replace") as lines:
                follow(lines, write)
        else:
            follow(sys.stdin, write)
    except (TailError, OSError) as error:
        print(f"bridge: {error}", file=sys.stderr)
        return 1
    return 0


def _bench(arguments: argparse.Namespace, settings: Settings) -> int:
    plan = plan_of(arguments, settings)
    return run_bench(plan, as_json=arguments.json, out=sys.stdout, progress_on=sys.stderr)


def _print_settings(settings: Settings) -> None:
    print("Settings")
    for field_name, field in type(settings).model_fields.items():
        value = getattr(settings, field_name)
        if field_name in settings.model_fields_set:
            print(f"  {field.alias}={'(set)' if is_secret(field) else as_typed(value)}")
    unset = [name for name, field in setting_fields().items() if is_secret(field) and not os.environ.get(name)]
    print(f"  not set: {', '.join(unset) or 'none of the secrets'}\n\nChecks")


if __name__ == "__main__":
    sys.exit(main())
