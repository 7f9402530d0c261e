"""GET /v1/models and POST /v1/messages/count_tokens over real HTTP, with the official SDKs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anthropic
import httpx2
import openai
import pytest

from support import opened, running_bridge

if TYPE_CHECKING:
    from pathlib import Path

    from scripted.server import ScriptedUpstream

MODELS = {"object": "list", "data": [{"id": "gpt-5", "created": 1754000000}, {"id": "gpt-4.1", "created": 1744000000}]}
QUESTION: Any = [{"role": "user", "content": "How many tokens is this?"}]


@pytest.fixture
def listing(upstream: ScriptedUpstream, tmp_path: Path) -> Any:
    upstream.script = [{"when": {"path": "*/models"}, "reply": {"json": MODELS}}]
    with running_bridge(tmp_path, UPSTREAM_OPENAI_BASE_URL=upstream.url, OPENAI_API_KEY="sk-held") as url:
        yield url


@pytest.mark.req("X1")
def test_each_sdk_lists_models_in_its_own_shape(listing: str, upstream: ScriptedUpstream) -> None:
    claude = opened(anthropic.Anthropic(base_url=listing, api_key="k", max_retries=0))
    chat = opened(openai.OpenAI(base_url=f"{listing}/v1", api_key="k", max_retries=0))
    wanted = ["openai/gpt-5", "openai/gpt-4.1"]
    assert [model.id for model in claude.models.list()] == wanted
    assert [model.id for model in chat.models.list()] == wanted
    assert claude.models.retrieve("openai/gpt-5").id == "openai/gpt-5"
    assert chat.models.retrieve("openai/gpt-5").created == 1754000000
    assert len(upstream.received) == 1, "the list is cached"


@pytest.mark.req("X1", "C11")
def test_an_unknown_model_is_not_found_in_the_callers_terms(listing: str) -> None:
    claude = opened(anthropic.Anthropic(base_url=listing, api_key="k", max_retries=0))
    chat = opened(openai.OpenAI(base_url=f"{listing}/v1", api_key="k", max_retries=0))
    with pytest.raises(anthropic.NotFoundError, match="no model 'gpt-nine'"):
        claude.models.retrieve("gpt-nine")
    with pytest.raises(openai.NotFoundError, match="no model 'gpt-nine'"):
        chat.models.retrieve("gpt-nine")


@pytest.mark.req("X1")
def test_tokens_are_estimated_where_the_upstream_cannot_count(bridge_url: str, upstream: ScriptedUpstream) -> None:
    claude = opened(anthropic.Anthropic(base_url=bridge_url, api_key="k", max_retries=0))
    short = claude.messages.count_tokens(model="openai/gpt-x", messages=QUESTION).input_tokens
    long = claude.messages.count_tokens(
        model="openai/gpt-x", messages=[{"role": "user", "content": "word " * 1000}]
    ).input_tokens
    assert 5 <= short <= 20
    assert 850 <= long <= 1200
    assert upstream.received == []


@pytest.mark.req("X1")
def test_anthropic_counts_its_own(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    upstream.script = [{"when": {"path": "/v1/messages/count_tokens"}, "reply": {"json": {"input_tokens": 4711}}}]
    settings = {"UPSTREAM_ANTHROPIC_BASE_URL": upstream.url, "ANTHROPIC_API_KEY": "sk-held"}
    with running_bridge(tmp_path, **settings) as url:
        claude = opened(anthropic.Anthropic(base_url=url, api_key="k", max_retries=0))
        counted = claude.messages.count_tokens(model="claude-x", messages=QUESTION)
    assert counted.input_tokens == 4711
    assert upstream.received[0].headers["x-api-key"] == "sk-held"


def test_a_malformed_count_is_refused_with_its_path(bridge_url: str) -> None:
    answer = httpx2.post(
        f"{bridge_url}/v1/messages/count_tokens", json={"model": "gpt-x", "messages": [{"role": "user"}]}
    )
    assert answer.status_code == 400
    assert answer.json()["error"]["message"] == "messages.0.content: Field required"
