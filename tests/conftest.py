"""Parts that the whole suite shares: a scripted upstream, the bridge before it, DynamoDB Local."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support import running_bridge

from scripted.server import serving

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scripted.server import ScriptedUpstream


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
