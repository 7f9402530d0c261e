"""Who gets in, and what of their credentials goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx2
import pytest

from bridge.errors import BridgeError, ErrorKind
from handler.auth import identify
from support import running_bridge

if TYPE_CHECKING:
    from pathlib import Path

TOKENS = {"first-token": "ann", "second-token": "bob"}


@pytest.mark.req("C8", "PRINCIPAL")
@pytest.mark.parametrize(
    ("headers", "principal", "credential"),
    [
        ({"x-worker-token": "first-token"}, "ann", None),
        ({"x-api-key": "second-token"}, "bob", None),
        ({"authorization": "Bearer first-token"}, "ann", None),
        ({"authorization": "bearer first-token"}, "ann", None),
        ({"x-worker-token": "first-token", "x-api-key": "sk-own"}, "ann", "sk-own"),
        ({"x-worker-token": "first-token", "x-api-key": "second-token"}, "ann", None),
        ({"authorization": "Bearer first-token", "x-api-key": "sk-own"}, "ann", "sk-own"),
    ],
)
def test_a_token_names_the_principal_and_never_leaves(
    headers: dict[str, str], principal: str, credential: str | None
) -> None:
    identity = identify(headers, TOKENS)
    assert (identity.principal, identity.credential) == (principal, credential)


@pytest.mark.req("C8")
@pytest.mark.parametrize(
    "headers", [{}, {"x-api-key": "wrong"}, {"authorization": "Basic first-token"}, {"x-api-key": "ünï"}]
)
def test_without_a_token_nobody_gets_in(headers: dict[str, str]) -> None:
    with pytest.raises(BridgeError) as refused:
        identify(headers, TOKENS)
    assert refused.value.kind is ErrorKind.AUTHENTICATION


@pytest.mark.parametrize(
    ("sent", "is_told"), [("ann:first-token", True), ("nobody:nothing", True), ("wrong", False), ("", False)]
)
@pytest.mark.parametrize("header", ["x-worker-token", "x-api-key"])
def test_a_token_with_its_name_is_refused_with_a_hint(header: str, sent: str, is_told: bool) -> None:
    with pytest.raises(BridgeError) as refused:
        identify({header: sent}, TOKENS)
    assert ("only the part after the colon, without the name" in refused.value.message) == is_told


@pytest.mark.req("PRINCIPAL", "NFR5")
def test_without_tokens_the_credential_makes_the_principal_without_showing_it() -> None:
    one, same, other = (identify({"x-api-key": key}, {}).principal for key in ("sk-1", "sk-1", "sk-2"))
    assert one == same != other
    assert "sk-1" not in one
    assert identify({"authorization": "Bearer sk-1"}, {}).principal == one
    assert identify({}, {}).principal == "local"


@pytest.mark.req("C8")
def test_every_endpoint_but_health_is_behind_the_token(tmp_path: Path) -> None:
    with running_bridge(tmp_path, WORKER_TOKEN="a-long-token") as url:
        assert httpx2.get(f"{url}/health").status_code == 200
        body = {"model": "gpt-x", "max_tokens": 1, "messages": []}
        for path in ("/v1/messages", "/v1/chat/completions", "/v1/conversations/c/terminate"):
            answer = httpx2.post(url + path, json=body)
            assert answer.status_code == 401, path
            assert answer.json()["error"]["type"] == "authentication_error"


@pytest.mark.req("C8")
def test_browsers_are_served_only_from_allowed_origins(tmp_path: Path) -> None:
    with running_bridge(tmp_path, ALLOW_ORIGINS="https://good.example") as url:
        good = httpx2.options(f"{url}/v1/messages", headers={"origin": "https://good.example"})
        bad = httpx2.options(f"{url}/v1/messages", headers={"origin": "https://evil.example"})
    assert (good.status_code, good.headers["access-control-allow-origin"]) == (204, "https://good.example")
    assert "access-control-allow-origin" not in bad.headers


@pytest.mark.req("C8")
def test_a_body_over_the_cap_is_refused(tmp_path: Path) -> None:
    with running_bridge(tmp_path, MAX_BODY_BYTES="2000") as url:
        told = httpx2.post(f"{url}/v1/messages", content=b"x" * 3000)
        chunked = httpx2.post(f"{url}/v1/messages", content=iter([b"x" * 1500, b"x" * 1500]))
    for answer in (told, chunked):
        assert answer.status_code == 413
        assert answer.json()["error"]["type"] == "request_too_large"
        assert "MAX_BODY_BYTES" in answer.json()["error"]["message"]
