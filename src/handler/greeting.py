"""What `bridge serve` says when it is up: where it is, lines to paste, and what is hardly meant."""

from __future__ import annotations

import re
import shlex
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

from bridge.routing import lacks_rule
from handler.model_lists import names_model
from handler.setting_warnings import CLAUDE_CODE_MODELS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from handler.settings import Settings

_EXAMPLES = {
    "openai": "openai/gpt-5.5",
    "openrouter": "openrouter/openai/gpt-5.5",
    "gemini": "gemini/gemini-3-pro-preview",
    "anthropic": "claude-sonnet-5-5",
}
# A name from a list goes into a line for a shell.
_SAFE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,127}")
_NOT_FOR_TALK = re.compile(
    r"embed|whisper|tts|dall-e|image|moderation|rerank|transcri|realtime|audio|sora|babbage|davinci"
)


def example_model(configured: Collection[str], lists: Mapping[str, Sequence[str]]) -> str:
    """A model to try: the usual one of the first provider, or the first of its list where that is not there."""
    name = next((name for name in _EXAMPLES if name in configured), None)
    if name is None:
        return "demo"
    usual, models = _EXAMPLES[name], lists.get(name, ())
    if not models or names_model(models, usual.removeprefix(f"{name}/")):
        return usual
    talking = (model for model in models if _SAFE_NAME.fullmatch(model) and not _NOT_FOR_TALK.search(model))
    found = next(talking, None)
    return f"{name}/{found}" if found else usual


def greeting(settings: Settings, url: str, configured: Collection[str], model: str) -> str:
    """Lines that work when they are pasted."""
    answers = ", ".join(configured) or "the built-in demo model (set OPENAI_API_KEY or another key)"
    key = "YOUR_WORKER_TOKEN" if settings.worker_token else "any"
    page = f"\nOpen {url}/ in a browser for health, usage and where a model goes.\n" if settings.page == "on" else ""
    return f"""Toolbridge on {url}, answered by {answers}. Paste one of these:

  curl -N {url}/v1/messages -H 'x-api-key: {key}' -H 'content-type: application/json' \
-d '{{"model":"{model}","max_tokens":200,"stream":true,"messages":[{{"role":"user","content":"Hello!"}}]}}'

  ANTHROPIC_BASE_URL={url} ANTHROPIC_AUTH_TOKEN={key} {_claude(settings, configured, model)}

  OPENAI_BASE_URL={url}/v1 OPENAI_API_KEY={key} {_python()} -c \
'from openai import OpenAI; print(OpenAI().chat.completions.create(model="{model}", \
messages=[{{"role": "user", "content": "Hello!"}}]).choices[0].message.content)'
{page}"""


def _claude(settings: Settings, configured: Collection[str], model: str) -> str:
    """Claude Code, told the model where nothing says who answers for its own."""
    is_lost = bool(configured) and lacks_rule(settings.routing(), CLAUDE_CODE_MODELS["sonnet"])
    return f"claude --model {model}" if is_lost else "claude"


def _python() -> str:
    """The interpreter that has OpenAI's library, if this one has it."""
    return shlex.quote(sys.executable) if find_spec("openai") else "python"
