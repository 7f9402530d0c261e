"""aider edits a file: it asks for text, no tools, through either of its providers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from clients.installed import client
from clients.turns import asked, user_texts

if TYPE_CHECKING:
    from collections.abc import Callable

    from clients.conftest import Served
    from clients.processes import Desk
    from clients.turns import Dialect

pytestmark = [pytest.mark.clients, pytest.mark.slow]

EDIT = """I will change it.

README.md
```
The harvest is due in May.
```
"""
QUIET = (
    "--yes-always",
    "--no-git",
    "--no-check-update",
    "--no-show-model-warnings",
    "--no-show-release-notes",
    "--analytics-disable",
    "--no-detect-urls",
    "--no-suggest-shell-commands",
    "--map-tokens=0",
    "--edit-format=whole",
)


# litellm knows Anthropic's models by their names: the bridge's own map says who answers.
MODELS = {"openai": "openai/any", "anthropic": "anthropic/claude-sonnet-5-5"}


@pytest.mark.req("C15", "G1")
@pytest.mark.parametrize(
    ("vendor", "dialect", "streaming"),
    [
        ("openai", "claude", True),
        ("openai", "gemini", False),
        ("anthropic", "gpt", True),
        ("anthropic", "gemini", False),
    ],
)
def test_a_file_is_edited(
    serve: Callable[..., Served], desk: Desk, vendor: str, dialect: Dialect, streaming: bool
) -> None:
    served = serve(dialect)
    served.says((EDIT,))
    variables = {
        "OPENAI_API_BASE": f"{served.url}/v1",
        "OPENAI_API_KEY": "sk-client",
        "ANTHROPIC_API_BASE": served.url,
        "ANTHROPIC_API_KEY": "sk-client",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    }
    options = ["--stream" if streaming else "--no-stream", "--model", MODELS[vendor]]
    command = [*client("aider"), *QUIET, *options, "--message", "Make it May", "README.md"]
    ran = desk.with_variables(variables).run(command).succeeded()
    assert "Applied edit to README.md" in ran.out
    assert (desk.folder / "README.md").read_text() == "The harvest is due in May.\n"
    (body,) = asked(served.upstream)
    assert body.get("stream", False) is streaming
    assert "Make it May" in user_texts(body)[-1]
    assert any("The harvest is due in August." in text for text in user_texts(body))
