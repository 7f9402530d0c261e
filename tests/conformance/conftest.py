"""One scripted upstream that knows every case, one bridge before it, and what each SDK makes of it."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from conformance.cases import fault_cases, fixture_cases
from conformance.sdks import run_sdk
from scripted.server import serving
from support import running_bridge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scripted.server import ScriptedUpstream

ANY_OTHER: dict[str, Any] = {"reply": {"chat": {"text": "All is well."}}}


@pytest.fixture(scope="session")
def case_upstream() -> Iterator[ScriptedUpstream]:
    rules = [rule for case in (*fixture_cases(), *fault_cases()) for rule in case.rules]
    with serving([*rules, ANY_OTHER]) as upstream:
        yield upstream


@pytest.fixture(scope="session")
def case_bridge(case_upstream: ScriptedUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A bridge whose every OpenAI-compatible provider is that upstream."""
    names = ("OPENAI", "OPENROUTER", "GEMINI")
    urls = {f"UPSTREAM_{name}_BASE_URL": case_upstream.url for name in names}
    with running_bridge(tmp_path_factory.mktemp("conformance"), **urls) as bridge:
        yield bridge


@pytest.fixture(scope="session")
def sdk_results(case_bridge: str) -> Callable[[str], dict[str, Any]]:
    """The results of an SDK over all cases, run when first asked for."""
    requests = {case.name: case.request for case in (*fixture_cases(), *fault_cases())}
    return cache(lambda name: run_sdk(name, case_bridge, requests))
