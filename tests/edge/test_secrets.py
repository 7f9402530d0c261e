"""Secrets by reference: fetched from Secrets Manager and SSM, and again when they have been rotated."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import boto3
import httpx2
import pytest
from aws_lambda_powertools.utilities import parameters
from moto import mock_aws

from handler import live_edge
from handler.secrets import fetch, find_references
from handler.settings import SettingsError
from handler.wiring import bootstrap

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scripted.server import ScriptedUpstream


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Secrets Manager and SSM as moto plays them."""
    for name in ("AWS_DEFAULT_REGION", "AWS_REGION"):
        monkeypatch.setenv(name, "eu-central-1")
    parameters.clear_caches()
    parameters.base.DEFAULT_PROVIDERS.clear()
    with mock_aws():
        yield
    parameters.base.DEFAULT_PROVIDERS.clear()
    parameters.clear_caches()


def keep(name: str, value: str) -> str:
    made = boto3.client("secretsmanager").create_secret(Name=name, SecretString=value)
    return str(made["ARN"])


@pytest.mark.req("C8", "C10")
def test_every_form_of_a_reference(aws: None) -> None:
    arn = keep("bridge/keys", '{"openai": "sk-openai", "router": "sk-router"}')
    keep("bridge/token", "ann:plain-token")
    boto3.client("ssm").put_parameter(Name="/bridge/gemini", Value="gm-key", Type="SecureString")
    environment = {
        "WORKER_TOKEN": "secretsmanager:bridge/token",
        "OPENAI_API_KEY": f"secretsmanager:{arn}#openai",
        "OPENROUTER_API_KEY": "secretsmanager:bridge/keys:SecretString:router",
        "GEMINI_API_KEY": "ssm:/bridge/gemini",
        "ANTHROPIC_API_KEY": "sk-ant-given-itself",
        "MODEL_MAP": "secretsmanager:not-a-secret-setting",
    }
    assert fetch(find_references(environment)) == {
        "WORKER_TOKEN": "ann:plain-token",
        "OPENAI_API_KEY": "sk-openai",
        "OPENROUTER_API_KEY": "sk-router",
        "GEMINI_API_KEY": "gm-key",
    }


@pytest.mark.req("C10")
@pytest.mark.parametrize(
    ("reference", "told"),
    [
        ("secretsmanager:bridge/absent", "OPENAI_API_KEY: secret bridge/absent cannot be read: "),
        ("ssm:/bridge/absent", "OPENAI_API_KEY: parameter /bridge/absent cannot be read: "),
        ("secretsmanager:bridge/text#field", "OPENAI_API_KEY: the secret is no JSON object with 'field'"),
    ],
)
def test_a_secret_that_cannot_be_had_names_the_variable(aws: None, reference: str, told: str) -> None:
    keep("bridge/text", "canary-value")
    with pytest.raises(SettingsError, match=told) as raised:
        fetch(find_references({"OPENAI_API_KEY": reference}))
    assert "canary-value" not in str(raised.value)


@pytest.mark.req("C8")
def test_rotated_secrets_work_without_a_new_start(
    aws: None, upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep("token", "ann:first-token")
    keep("key", "sk-first")
    monkeypatch.setenv("WORKER_TOKEN", "secretsmanager:token")
    monkeypatch.setenv("OPENAI_API_KEY", "secretsmanager:key")
    monkeypatch.setenv("UPSTREAM_OPENAI_BASE_URL", upstream.url)
    monkeypatch.setenv("STATE_TABLE", "unused")
    monkeypatch.setattr(live_edge, "RETRY_SECONDS", 0.0)
    upstream.script = [{"reply": {"chat": {"text": "ok"}}}]
    asyncio.run(_rotate())
    keys = [received.headers["authorization"] for received in upstream.received]
    assert keys == ["Bearer sk-first", "Bearer sk-second", "Bearer sk-second"]


async def _rotate() -> None:
    app = bootstrap()
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://bridge") as client:

        async def ask(token: str) -> int:
            body = {"model": "gpt-x", "messages": []}
            answer = await client.post("/v1/chat/completions", json=body, headers={"x-worker-token": token})
            return answer.status_code

        assert await ask("first-token") == 200
        assert await ask("second-token") == 401
        manager = boto3.client("secretsmanager")
        manager.put_secret_value(SecretId="token", SecretString="ann:second-token")
        manager.put_secret_value(SecretId="key", SecretString="sk-second")
        assert await ask("second-token") == 200
        assert await ask("first-token") == 401
        manager.delete_secret(SecretId="token", ForceDeleteWithoutRecovery=True)
        assert await ask("wrong-token") == 401
        assert await ask("second-token") == 200
    await app({"type": "lifespan"}, _shutdown, _ignore)


async def _shutdown() -> dict[str, str]:
    return {"type": "lifespan.shutdown"}


async def _ignore(_message: object) -> None:
    pass
