"""Arrows point one way: who may import whom."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest

from support import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SRC = ROOT / "src"
MODULES = sorted(SRC.glob("bridge/**/*.py")) + sorted(SRC.glob("handler/**/*.py"))


def imports_of(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__")


FORBIDDEN = [
    ("bridge", ("handler", "scripted", "os.environ", "aws_lambda_powertools", "uvicorn", "logging")),
    ("bridge.canonical", ("bridge.protocols", "bridge.state", "bridge.upstream", "bridge.pipeline", "httpx2", "boto3")),
    ("bridge.protocols.anthropic", ("bridge.protocols.openai_chat", "bridge.protocols.openai_responses")),
    ("bridge.protocols.openai_chat", ("bridge.protocols.anthropic", "bridge.protocols.openai_responses")),
    ("bridge.protocols.openai_responses", ("bridge.protocols.anthropic", "bridge.protocols.openai_chat")),
    (
        "bridge.protocols",
        ("asyncio", "time", "random", "secrets", "datetime", "bridge.pipeline", "bridge.state", "httpx2"),
    ),
    ("bridge.policies", ("asyncio", "time", "random", "secrets", "datetime", "bridge.pipeline", "bridge.protocols")),
    ("bridge.toolloop", ("bridge.protocols", "bridge.pipeline", "bridge.translating")),
    ("bridge.schemas", ("bridge.protocols", "bridge.pipeline", "bridge.state")),
    ("bridge.canonical", ("asyncio", "time", "random", "secrets", "datetime")),
    ("bridge.routing", ("asyncio", "httpx2", "bridge.pipeline", "bridge.state", "bridge.upstream")),
    ("bridge.state", ("bridge.protocols", "bridge.pipeline", "bridge.upstream")),
    ("bridge.upstream", ("bridge.protocols", "bridge.pipeline", "bridge.state")),
    ("handler.lambda_runtime", ("handler.http1", "handler.local", "scripted", "uvicorn")),
    ("handler.http1", ("bridge.pipeline", "bridge.protocols", "handler.app", "handler.endpoints", "uvicorn")),
]


@pytest.mark.req("NFR6")
@pytest.mark.parametrize(("package", "forbidden"), FORBIDDEN, ids=[package for package, _ in FORBIDDEN])
def test_no_module_imports_against_the_arrows(package: str, forbidden: tuple[str, ...]) -> None:
    inside = [path for path in MODULES if f"{name_of(path)}.".startswith(f"{package}.")]
    assert inside, package
    wrong = [
        f"{name_of(path)} imports {imported}"
        for path in inside
        for imported in imports_of(path)
        if any(f"{imported}.".startswith(f"{name}.") for name in forbidden)
    ]
    assert wrong == []
