"""The commands on the pages run, and those that cannot run here exist with the options they are given."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

import anthropic
import botocore.session
import openai
import pytest
import yaml
from botocore import xform_name
from documented import PAGES, SHELL, blocks, commands, inner, name_of, spoken_commands, words
from reader import free_port, reading, typed_of

from support import ROOT, opened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from documented import Block, Command
    from reader import Reader

    from scripted.server import ScriptedUpstream

# What cannot be run here, by a pattern of the command, and why. Its form is checked all the same.
NOT_RUN = {
    r"^aws ": "needs an AWS account",
    r"^make deploy$": "needs an AWS account",
    r"^make -C \S+ deploy$": "needs an AWS account",
    r"^\.tools/sam/bin/sam (logs|delete)\b": "needs an AWS account",
    r"bridge tail --log-group": "needs an AWS account",
    r"^git worktree add": "is about an earlier commit",
    r"samconfig\.local\.toml": "is about a file that only `make deploy` makes",
    r"--direct-url https://api\.openai\.com": "needs a provider's key",
    r"…\s+#": "is abridged: the output that it names has the whole",
    r"\bclaude( |$)": "is run by `make test-clients`",
    r"\baider\b": "is run by `make test-clients`",
    r"^make (setup|check|test)\b": "is what runs this test",
    r"^make format\b": "changes the sources",
    r"pre-commit install$|pre-commit install\s": "changes the clone's hooks",
    r"^make soak\b": "takes minutes; tests/bench/test_soak_quick.py runs a short one",
}

# Settings that a page supposes to be there, by a pattern of the command.
SUPPOSED = {
    r"bridge doctor$": {"UPSTREAM_OPENAI_BASE_URL": "http://127.0.0.1:9100", "STATE_TABLE": "toolbridge"},
    r"handler\.wiring:bootstrap": {"STATE_TABLE": "toolbridge"},
    r"bridge bench --model demo\b": {"BRIDGE_URL": "http://127.0.0.1:8787"},  # its own default
}

# Python of pages whose libraries are not in .venv; the tests of clients run them.
NOT_INSTALLED = {"AnthropicModel(": "pydantic-ai", "ChatAnthropic(": "langchain-anthropic"}

# Commands of the AWS CLI that are not operations of a service, and their options.
CLI_ONLY = {("cloudformation", "deploy"): {"--stack-name", "--template-file", "--parameter-overrides"}}
CLI_GLOBAL = {"--region", "--profile", "--query", "--output"}

SHELL_PAGES = [path for path in PAGES if any(block.language in SHELL for block in blocks(path))]
ALL_BLOCKS = [block for path in PAGES for block in blocks(path)]
ALL_COMMANDS = [command.text for block in ALL_BLOCKS if block.language in SHELL for command in commands(block)]
CHECKED = sorted({inner(text) for text in ALL_COMMANDS} | {text for path in PAGES for text in spoken_commands(path)})


@pytest.fixture
def replace(upstream: ScriptedUpstream) -> dict[str, str]:
    """What stands on the pages, and what it is here."""
    upstream.script = []
    dynamodb = str(free_port())
    return {
        "https://….lambda-url.….on.aws": "http://127.0.0.1:8787",
        "https://….lambda-url.eu-west-1.on.aws": "http://127.0.0.1:8787",
        "https://bridge.example.com": "http://127.0.0.1:8787",
        "BRIDGE_TOKEN=…": "BRIDGE_TOKEN=any",
        "http://127.0.0.1:9100": upstream.url,
        "http://127.0.0.1:8000": f"http://127.0.0.1:{dynamodb}",
        "-port 8000": f"-port {dynamodb}",
        '--port "$PORT"': f"--port {free_port()}",
        "--requests 50": "--requests 4",
    }


@contextmanager
def reader_of(folder: Path, replace: dict[str, str], aws: dict[str, str]) -> Iterator[Reader]:
    """A reader beside a bridge that `make run` started, with a table for the pages that suppose one."""
    functions = {"LAMBDA_TASK_ROOT": str(ROOT / "src"), "LAMBDA_RUNTIME_DIR": str(ROOT / "src")}
    with reading(folder, replace, TOKEN="any", **aws, **functions) as reader:
        start = next(block for block in blocks(ROOT / "README.md") if "make run" in block.text)
        reader.run(start, commands(start), {})
        subprocess.run(
            [ROOT / ".venv/bin/bridge", "table", "create", "--table", "toolbridge"],
            cwd=folder, env=aws, check=True, capture_output=True, timeout=60,
        )  # fmt: skip
        yield reader


def supposed(typed: list[Command]) -> dict[str, str]:
    found: dict[str, str] = {}
    for pattern, settings in SUPPOSED.items():
        if any(re.search(pattern, command.text) for command in typed):
            found |= settings
    return found


def is_as_shown(shown: str, printed: str) -> bool:
    """Whether a page shows what is printed: `…` is anything, an id is any id, spaces do not count."""
    text = re.escape(re.sub(r"\s+", "", shown)).replace("…", ".*")
    pattern = re.sub(r"(msg_|toolu_)\w+", r"\1\\w+", text)
    return not pattern or re.fullmatch(pattern, re.sub(r"\s+", "", printed)) is not None


@pytest.mark.parametrize("page", SHELL_PAGES, ids=name_of)
def test_the_commands_of_a_page_run(
    page: Path, tmp_path: Path, replace: dict[str, str], aws_environment: dict[str, str]
) -> None:
    with reader_of(tmp_path, replace, aws_environment) as reader:
        run_page(page, reader)


def run_page(page: Path, reader: Reader) -> None:
    for block in (block for block in blocks(page) if block.language in SHELL):
        typed = typed_of(block, NOT_RUN)
        for command, printed in zip(typed, reader.run(block, typed, supposed(typed)), strict=False):
            reader.learn(command.shown, printed)
            assert is_as_shown(reader.meant(command.shown), printed), f"{block} prints\n{printed}"


def test_what_is_not_run_stands_on_a_page() -> None:
    assert [why for why in NOT_RUN if not any(re.search(why, inner(text)) for text in ALL_COMMANDS)] == []
    assert [text for text in SUPPOSED if not any(re.search(text, command) for command in ALL_COMMANDS)] == []
    assert [start for start in NOT_INSTALLED if not any(start in block.text for block in ALL_BLOCKS)] == []


@pytest.mark.parametrize("text", CHECKED)
def test_a_command_exists_with_its_options(text: str) -> None:
    typed = [word.replace("…", "X") for word in words(text)]
    match typed:
        case ["make", *rest]:
            assert_make(rest)
        case ["aws", service, operation, *rest]:
            assert_aws(service, operation, options(rest))
        case ["sam" | ".tools/sam/bin/sam", *rest]:
            assert_in_help([ROOT / ".tools/sam/bin/sam"], rest)
        case ["bridge" | ".venv/bin/bridge", *rest]:
            assert_in_help([ROOT / ".venv/bin/bridge"], rest)


WRONG = [
    "make deplyo",
    "make run PROT=1",
    "aws lambda update-alias --function-name F --name live --version 7",
    "aws lambda update-alias --function-name F",
    "aws lambda change-alias --name live",
    "aws cloudformation deploy --template docs/examples/live-alias.yaml",
    ".tools/sam/bin/sam logs --stack toolbridge",
    ".venv/bin/bridge tabel create",
    ".venv/bin/bridge route gpt-5 --klient anthropic",
]


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_command_is_found(text: str) -> None:
    with pytest.raises(AssertionError):
        test_a_command_exists_with_its_options(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("$ echo one\ntwo\n", "prints"),
        ('$ echo \'{"id":"msg_1"}\'\n{…,"id":"msg_2"}\n', "prints"),
        ("$ .venv/bin/bridge rout gpt-5\n", "ended with 2"),
        ("$ curl -s http://127.0.0.1:8787/v1/nothing\n", "ended with 22"),
    ],
)
def test_a_page_that_is_wrong_is_found(text: str, found: str, tmp_path: Path, bridge_url: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"```console\n{text}```\n", "utf-8")
    folder = tmp_path / "checkout"
    folder.mkdir()
    with reading(folder, {"http://127.0.0.1:8787": bridge_url}) as reader, pytest.raises(AssertionError, match=found):
        run_page(page, reader)


def options(arguments: list[str]) -> set[str]:
    return {word for word in arguments if word.startswith("--")}


def assert_make(arguments: list[str]) -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    if arguments[0] == "-C":
        arguments = arguments[2:]
    for word in arguments:
        name, is_variable, _ = word.partition("=")
        wanted = rf"\$[({{]{name}[)}}]" if is_variable else rf"^{re.escape(name)}:"
        assert re.search(wanted, makefile, flags=re.MULTILINE), f"make knows no {word}"


def assert_in_help(tool: list[Path], arguments: list[str]) -> None:
    """Each subcommand is one that the tool takes, and its help names the options."""
    path: list[str] = []
    for word in arguments:
        if word.startswith("-") or "--help" not in help_of((*map(str, tool), *path, word)):
            break
        path.append(word)
    text = help_of((*map(str, tool), *path))
    assert [option for option in options(arguments) if not re.search(rf"{option}(?![\w-])", text)] == []
    assert path, f"{tool[0].name} knows no {arguments[:1]}"


@cache
def help_of(command: tuple[str, ...]) -> str:
    run = subprocess.run([*command, "--help"], capture_output=True, text=True, timeout=60, check=False)
    return run.stdout if run.returncode == 0 else ""


def assert_aws(service: str, operation: str, given: set[str]) -> None:
    given = given - CLI_GLOBAL
    if (service, operation) in CLI_ONLY:
        assert given <= CLI_ONLY[service, operation]
        return
    model = botocore.session.get_session().get_service_model(service)
    known = {xform_name(name, "-"): name for name in model.operation_names}
    assert operation in known, f"{service} has no {operation}"
    shape = model.operation_model(known[operation]).input_shape
    assert shape is not None
    takes = {f"--{xform_name(name, '-')}" for name in shape.members}
    needs = {f"--{xform_name(name, '-')}" for name in shape.required_members}
    assert needs <= given <= takes


PARSERS: dict[str, Callable[[str], object]] = {
    "json": json.loads,
    "toml": tomllib.loads,
    "yaml": yaml.compose,
    "python": lambda text: compile(text, "page", "exec"),
}


@pytest.mark.parametrize("block", [block for block in ALL_BLOCKS if block.language not in SHELL], ids=str)
def test_other_blocks_are_what_they_say(block: Block) -> None:
    if block.language:
        assert PARSERS[block.language](block.text) is not None


@pytest.mark.parametrize("block", [block for block in ALL_BLOCKS if block.language == "python"], ids=str)
def test_python_on_a_page_runs(block: Block, tmp_path: Path) -> None:
    if any(start in block.text for start in NOT_INSTALLED):
        assert block.page == "docs/clients.md", "tests/clients runs what this page shows"
        return
    with reading(tmp_path, {}) as reader:
        start = next(block for block in blocks(ROOT / "README.md") if "make run" in block.text)
        reader.run(start, commands(start), {})
        names: dict[str, Any] = {"anthropic": anthropic, "openai": openai, "pytest": pytest}
        text = reader.meant(block.text)
        if text.startswith("@"):
            exec(text, names)
        else:
            assert_answers(opened(eval(text, names)))


def assert_answers(client: anthropic.Anthropic | openai.OpenAI) -> None:
    if isinstance(client, anthropic.Anthropic):
        message = client.messages.create(model="demo", max_tokens=100, messages=[{"role": "user", "content": "Hello"}])
        assert message.stop_reason == "end_turn"
    else:
        answer = client.chat.completions.create(model="demo", messages=[{"role": "user", "content": "Hello"}])
        assert answer.choices[0].finish_reason == "stop"
