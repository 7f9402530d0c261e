"""The cold start of a request that needs DynamoDB: a tool's result whose call is only in the store."""

from __future__ import annotations

import re
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from bench.bodies import anthropic_body, tool_result_body
from bench.cold_start import MODEL, bridge_entry
from bench.load import Connection, LoadError, Request, payload, post
from bench.processes import Command, serving
from bench.relay import UPSTREAM
from bench.soak_services import CREDENTIALS, TABLE, dynamodb_local
from bench.systems import SECRETS, TOKEN, base_url

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.cold_start import Entry
    from bench.processes import Service

FRAGMENTS = 50
# What the managed runtime brings: boto3 and what it needs.
RUNTIME_PACKAGES = ("boto3", "botocore", "s3transfer", "jmespath", "dateutil", "urllib3", "six.py")


@contextmanager
def stateful_entry(python: str, package: Path, provider: Service, folder: Path) -> Iterator[Entry]:
    """The bridge as Lambda starts it, and a first request that it cannot serve without reading the table."""
    with dynamodb_local(folder) as port:
        settings = {**CREDENTIALS, "AWS_ENDPOINT_URL_DYNAMODB": f"http://127.0.0.1:{port}", "STATE_TABLE": TABLE}
        tool_id = _stored_call(folder, provider, settings)
        entry = bridge_entry(python, package, provider)
        runtime = _runtime_folder(folder / "runtime")
        environment = entry.environment | settings | {"LAMBDA_RUNTIME_DIR": str(runtime)}
        yield replace(entry, name="bridge-start-state", environment=environment, body=tool_result_body(MODEL, tool_id))


def _stored_call(folder: Path, provider: Service, settings: dict[str, str]) -> str:
    """The id of a tool call that a bridge has put into the table."""
    environment = {**settings, **SECRETS, UPSTREAM: base_url(provider)}
    arguments = (sys.executable, "-m", "handler.cli", "serve", "--port", "0")
    with serving(Command("bridge-state", arguments, environment, folder)) as service:
        body = anthropic_body("fake-tool")
        request = post(service.port, "/v1/messages", TOKEN, body)
        with Connection(Request(service.port, request, b'"input_json_delta"', FRAGMENTS)) as connection:
            said = payload(connection.exchange().raw)
    found = re.search(rb'"id":"(toolu_[^"]+)"', said)
    if found is None:
        raise LoadError(f"no tool call: {said[:600]!r}")
    return found[1].decode()


def _runtime_folder(folder: Path) -> Path:
    import boto3

    folder.mkdir()
    site_packages = Path(boto3.__file__).parents[1]
    for name in RUNTIME_PACKAGES:
        (folder / name).symlink_to(site_packages / name)
    return folder
