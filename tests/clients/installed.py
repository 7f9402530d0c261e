"""Where the clients are: npm packages beside the tests, Python ones in environments under `.tools`."""

from __future__ import annotations

from pathlib import Path

from support import ROOT

HERE = Path(__file__).resolve().parent
RUNNERS = HERE / "runners"
SDK_MODULES = ROOT / "tests" / "node" / "node_modules"
_NODE_MODULES = HERE / "node" / "node_modules"
_CLIENTS = {
    "claude": _NODE_MODULES / ".bin" / "claude",
    "codex": _NODE_MODULES / ".bin" / "codex",
    "codex-chat": _NODE_MODULES / "codex-chat" / "bin" / "codex.js",
    "opencode": _NODE_MODULES / ".bin" / "opencode",
    "python": ROOT / ".tools" / "clients" / "bin" / "python",
    "python-0x": ROOT / ".tools" / "anthropic-0x" / "bin" / "python",
    "llm": ROOT / ".tools" / "clients" / "bin" / "llm",
    "aider": ROOT / ".tools" / "clients-aider" / "bin" / "aider",
}


def client(name: str) -> list[str]:
    """The command that starts a client; `python` has the libraries."""
    path = _CLIENTS[name]
    assert path.exists(), f"{name} is not installed: `make test-clients` does it"
    return ["node", str(path)] if path.suffix == ".js" else [str(path)]
