"""Parts that the whole suite shares: a scripted upstream, the bridge before it, DynamoDB Local."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from dynamodb_local import CREDENTIALS, dynamodb_local
from emulator import build_host_package
from scripted.server import serving
from support import close_opened, running_bridge

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from scripted.server import ScriptedUpstream


@pytest.fixture(autouse=True)
def _close_clients() -> Iterator[None]:
    yield
    close_opened()


@pytest.fixture
def bridge_log() -> Iterator[list[logging.LogRecord]]:
    """What the bridge logs, whoever else listens."""
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    logger = logging.getLogger("toolbridge")
    logger.addHandler(handler)
    yield records
    logger.removeHandler(handler)


@pytest.fixture(scope="session")
def _scripted_upstream() -> Iterator[ScriptedUpstream]:
    with serving([]) as upstream:
        yield upstream


@pytest.fixture
def upstream(_scripted_upstream: ScriptedUpstream) -> ScriptedUpstream:
    """A scripted upstream on a real socket, with nothing received yet and no script."""
    _scripted_upstream.script = []
    _scripted_upstream.received.clear()
    return _scripted_upstream


@pytest.fixture(scope="session")
def _shared_bridge(_scripted_upstream: ScriptedUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One bridge for all tests that need no settings of their own."""
    url = _scripted_upstream.url
    with running_bridge(tmp_path_factory.mktemp("bridge"), UPSTREAM_OPENAI_BASE_URL=url) as bridge:
        yield bridge


@pytest.fixture
def bridge_url(_shared_bridge: str, upstream: ScriptedUpstream) -> str:
    """The URL of a bridge whose OpenAI provider is the scripted upstream."""
    return _shared_bridge


@pytest.fixture(scope="session")
def dynamodb_endpoint() -> Iterator[str]:
    """DynamoDB Local, started once for the whole run."""
    with dynamodb_local() as endpoint:
        yield endpoint


@pytest.fixture
def aws_environment(dynamodb_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """boto3 in this process talks to DynamoDB Local; returned for child processes."""
    environment = {**CREDENTIALS, "AWS_ENDPOINT_URL_DYNAMODB": dynamodb_endpoint}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return environment


@pytest.fixture(scope="session")
def host_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Lambda package, built by the same script for this machine and interpreter."""
    return build_host_package(tmp_path_factory.mktemp("host") / "package")
