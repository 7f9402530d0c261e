"""The page at /: static, strict, without data of its own; and in a real browser where there is one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from base64 import b64encode
from contextlib import contextmanager
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx2
import pytest
from playwright.sync_api import sync_playwright

import handler.page
from support import running_bridge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from scripted.server import ScriptedUpstream

FILE = Path(handler.page.__file__).with_name("page.html")
TOKENS = "admin:admin-token,laptop:laptop-token"
WANTED, OPEN, INSIDE = (f"body[data-access={state}]" for state in ("wanted", "open", "inside"))
SILENT = "The bridge does not answer. Is it running?"


def policy(answer: httpx2.Response) -> dict[str, str]:
    parts = (part.strip().partition(" ") for part in answer.headers["content-security-policy"].split(";"))
    return {name: value for name, _, value in parts}


@pytest.fixture
def bridge(upstream: ScriptedUpstream, tmp_path: Path) -> Iterator[str]:
    upstream.script = [{"reply": {"chat": {"text": "Hi"}}}]
    environment = {"UPSTREAM_OPENAI_BASE_URL": upstream.url, "OPENAI_API_KEY": "sk-held", "WORKER_TOKEN": TOKENS}
    with running_bridge(tmp_path, **environment) as url:
        yield url


@pytest.mark.req("C8")
def test_it_is_the_same_file_for_everybody_and_needs_no_token(bridge: str) -> None:
    stranger, friend = httpx2.get(bridge), httpx2.get(bridge, headers={"x-api-key": "admin-token"})
    assert (stranger.status_code, stranger.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert stranger.content == friend.content == FILE.read_bytes()


@pytest.mark.req("C8")
def test_nothing_runs_on_it_but_its_own_script_and_style(bridge: str) -> None:
    answer = httpx2.get(bridge)
    rules = policy(answer)
    for element in ("script", "style"):
        (content,) = re.findall(f"<{element}>(.*?)</{element}>", answer.text, re.DOTALL)
        digest = b64encode(sha256(content.encode()).digest()).decode()
        assert rules[f"{element}-src"] == f"'sha256-{digest}'"
    assert (rules["default-src"], rules["connect-src"], rules["frame-ancestors"]) == ("'none'", "'self'", "'none'")
    assert (rules["base-uri"], rules["form-action"]) == ("'none'", "'none'")
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.req("C8")
def test_the_file_takes_nothing_from_elsewhere_and_builds_no_markup() -> None:
    text = FILE.read_text("utf-8")
    hosts = set(re.findall(r"https?://([\w.-]+)", text))
    assert hosts == {"www.w3.org"}, "only the names of XML namespaces"
    forbidden = ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "localStorage", "cookie")
    assert [word for word in forbidden if word in text] == []
    assert re.findall(r"<[^>]+\s(?:on\w+|style)=", text) == []


def test_the_file_names_the_version() -> None:
    assert f'<span id="version">{version("toolbridge")}</span>' in FILE.read_text("utf-8")


def test_head_is_answered_with_or_without_the_page(upstream: ScriptedUpstream, tmp_path: Path, bridge: str) -> None:
    assert httpx2.head(bridge).status_code == 200
    with running_bridge(tmp_path, UPSTREAM_OPENAI_BASE_URL=upstream.url, PAGE="off") as url:
        assert httpx2.head(url).status_code == 200
        answer = httpx2.get(url)
    assert answer.status_code == 404
    assert "PAGE=off" in answer.json()["error"]["message"]


@pytest.fixture(scope="module")
def _chromium() -> Iterator[Any]:
    """The system's Chromium, driven by Playwright."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("no Chromium on this machine")
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def browser(_chromium: Any) -> Iterator[Any]:
    """A browser in which nothing is left of earlier tests."""
    yield _chromium
    for context in _chromium.contexts:
        context.close()


def opened_page(browser: Any, url: str, **context: Any) -> tuple[Any, list[str]]:
    page = browser.new_context(**context).new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append(dialog.message))
    page.goto(url)
    return page, complaints


@pytest.mark.req("LEDGER")
@pytest.mark.parametrize(("scheme", "width"), [("light", 1100), ("dark", 375)])
def test_a_browser_shows_health_usage_and_routes(bridge: str, browser: Any, scheme: str, width: int) -> None:
    hostile = "<img src=x onerror=alert(1)>"
    for model in ("gpt-4.1", hostile):
        ask = {"model": f"openai/{model}", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
        assert httpx2.post(f"{bridge}/v1/messages", json=ask, headers={"x-api-key": "laptop-token"}).status_code == 200
    page, complaints = opened_page(browser, bridge, color_scheme=scheme, viewport={"width": width, "height": 800})
    page.wait_for_selector(f"{WANTED} #token:focus")
    complaints.clear()  # the browser's own line about the 401
    page.keyboard.type("admin-token")
    page.keyboard.press("Enter")
    page.wait_for_selector("#usage-rows tr")
    page.wait_for_selector("#route-rows tr")
    assert page.inner_text("#health").startswith("It answers")
    assert {cell.inner_text() for cell in page.query_selector_all("#usage-rows td.name")} == {
        "openai/gpt-4.1",
        f"openai/{hostile}",
    }
    assert page.query_selector_all("#usage-rows svg rect.input")
    assert re.fullmatch(
        r"2 requests of everybody, \d+ tokens, (at least|less than|about) .* USD\.", page.inner_text("#usage-state")
    )
    assert page.input_value("#token") == "", "the token is not left in the field"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    for cell in page.query_selector_all("#usage-rows td"):
        box = cell.bounding_box()
        assert 0 <= box["x"] <= box["x"] + box["width"] <= width, "in sight without scrolling sideways"
    assert bridge in page.inner_text("#snippets")
    assert "admin-token" not in page.content()
    assert complaints == []
    page.click("#forget")
    page.wait_for_selector(WANTED)
    assert page.evaluate("sessionStorage.length") == 0
    assert page.query_selector_all("#usage-rows tr") == []


def test_a_bridge_without_tokens_on_this_machine_lets_the_page_in(bridge_url: str, browser: Any) -> None:
    page, complaints = opened_page(browser, bridge_url)
    page.wait_for_selector(OPEN)
    assert page.is_hidden("#token")
    page.fill("#model", "openai/gpt-x")
    page.press("#model", "Enter")
    page.wait_for_selector("#route-rows td:text-is('gpt-x')")
    assert "translated from Anthropic Messages" in page.inner_text("#route-rows")
    assert complaints == []


def test_before_a_token_is_typed_nothing_is_wrong(bridge: str, browser: Any) -> None:
    page, _ = opened_page(browser, bridge)
    page.wait_for_selector(WANTED)
    assert (page.inner_text("#access-state"), page.get_attribute("#access-state", "class")) == (
        "The bridge wants its token.",
        "quiet",
    )
    assert page.is_hidden("#usage-title")


@pytest.mark.parametrize("token", ["a-wrong-token", "admin:admin-token"])
def test_a_wrong_token_is_not_kept_and_the_page_says_what_to_type(bridge: str, browser: Any, token: str) -> None:
    page, _ = opened_page(browser, bridge)
    page.wait_for_selector(WANTED)
    page.fill("#token", token)
    with page.expect_response("**/v1/route*") as asked:
        page.press("#token", "Enter")
    assert (asked.value.status, asked.value.request.headers["x-worker-token"]) == (401, token)
    page.wait_for_selector("#access-state.bad")
    assert page.inner_text("#access-state").startswith("That token was refused.")
    assert "the part after the colon" in page.inner_text("#access-state")
    assert page.evaluate("sessionStorage.length") == 0
    page.keyboard.type("admin-token")
    page.keyboard.press("Enter")
    page.wait_for_selector(INSIDE)


def test_what_cannot_be_a_token_is_not_sent(bridge: str, browser: Any) -> None:
    page, _ = opened_page(browser, bridge)
    page.wait_for_selector(WANTED)
    page.fill("#token", "ключ")
    page.press("#token", "Enter")
    page.wait_for_selector("#access-state:has-text('characters that no token has')")
    assert page.inner_text("#health-state") == "It answers"


# --- health -------------------------------------------------------------------------------------


def test_a_bridge_that_stopped_is_said_to_be_silent_by_the_next_call(
    upstream: ScriptedUpstream, tmp_path: Path, browser: Any
) -> None:
    with running_bridge(tmp_path, UPSTREAM_OPENAI_BASE_URL=upstream.url) as url:
        page, _ = opened_page(browser, url)
        page.wait_for_selector("#route-rows tr")
        page.wait_for_selector("#health-state.good")
        assert re.fullmatch(r"It answers in \d+ ms", page.inner_text("#health"))
    page.click("#route button")
    page.wait_for_selector("#health-state.bad")
    assert page.inner_text("#health-state") == page.inner_text("#route-state") == SILENT
    assert page.query_selector_all("#route-rows tr") == []
    assert page.is_visible("#stale")


def test_without_a_touch_the_page_notices_that_the_bridge_is_silent_and_that_it_is_back(
    bridge_url: str, browser: Any
) -> None:
    page, _ = opened_page(browser, bridge_url)
    page.wait_for_selector("#route-rows tr")
    page.wait_for_selector("#health-state.good")
    page.context.set_offline(True)
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    page.wait_for_selector("#health-state.bad")
    page.context.set_offline(False)
    with page.expect_response("**/v1/usage*"):
        page.wait_for_selector("#health-state.good", timeout=15_000)
    assert page.is_hidden("#stale")


# --- usage --------------------------------------------------------------------------------------


def test_usage_follows_its_choices_at_once(bridge: str, browser: Any) -> None:
    ask = {"model": "openai/gpt-4.1", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    assert httpx2.post(f"{bridge}/v1/messages", json=ask, headers={"x-api-key": "laptop-token"}).status_code == 200
    page, _ = entered_page(browser, bridge, "admin-token")
    page.wait_for_selector("#usage-rows td:text-is('openai/gpt-4.1')")
    with page.expect_response("**/v1/usage*") as asked:
        page.select_option("#group", "principal")
    assert len(set(re.findall(r"\d{4}-\d\d-\d\d", asked.value.url))) == 2, "a week, as the API has it"
    page.wait_for_selector("#usage-rows td:text-is('laptop')")
    with page.expect_response("**/v1/usage*") as asked:
        page.select_option("#days", "1")
    assert len(set(re.findall(r"\d{4}-\d\d-\d\d", asked.value.url))) == 1


COSTS: dict[tuple[float, bool], tuple[str, str]] = {
    (0.0, True): ("0", "0 USD"),
    (0.0, False): ("no price", "no price is known"),
    (0.0004, True): ("< 0.01", "less than 0.01 USD"),
    (0.0004, False): ("≥ 0.0004", "at least 0.0004 USD"),
    (1234.5, True): ("1,234.50", "about 1,234.50 USD"),
    (1234.5, False): ("≥ 1,234.50", "at least 1,234.50 USD"),
}


def test_costs_are_shown_as_people_write_them(bridge_url: str, browser: Any) -> None:
    page, _ = opened_page(browser, bridge_url)
    page.wait_for_selector("#usage-state:not(:empty)")
    shown, report = {}, dict[str, Any]()
    page.route("**/v1/usage*", lambda route: route.fulfill(json=report))
    for cost, priced in COSTS:
        names = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
        sums = {"requests": 1, "cost_usd": cost, "priced": priced} | dict.fromkeys(names, 1)
        row = sums | {"day": "2026-11-18", "principal": "local", "provider": "openai", "model": "gpt-x"}
        report |= {"principal": "local", "rows": [row], "total": sums}
        page.select_option("#days", "1" if page.input_value("#days") == "7" else "7")
        page.wait_for_selector(f"#usage-state:has-text('{COSTS[cost, priced][1]}')")
        total = page.inner_text("#usage-state").removeprefix("1 request without a key, 4 tokens, ").removesuffix(".")
        shown[cost, priced] = (page.inner_text("#usage-rows td.cost"), total)
    assert shown == COSTS


def test_forgetting_a_key_shows_again_what_is_there_without_one(
    bridge_url: str, upstream: ScriptedUpstream, browser: Any
) -> None:
    upstream.script = [{"reply": {"chat": {"text": "Hi"}}}]
    ask = {"model": "openai/gpt-x", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi"}]}
    assert httpx2.post(f"{bridge_url}/v1/messages", json=ask).status_code == 200
    page, complaints = opened_page(browser, bridge_url)
    page.wait_for_selector("#usage-state:has-text('without a key')")
    look_with(page, "never-used")
    page.wait_for_selector("#usage-state:has-text('Nothing was used on these days with this key.')")
    page.click("#forget")
    page.wait_for_selector("#usage-rows tr")
    assert "without a key" in page.inner_text("#usage-state")
    assert complaints == []


def look_with(page: Any, key: str) -> None:
    page.wait_for_selector(OPEN)
    page.click("#look")
    page.fill("#token", key)
    page.press("#token", "Enter")
    page.wait_for_selector(INSIDE)


# --- examples -----------------------------------------------------------------------------------


def snippets(page: Any) -> str:
    return str(page.evaluate("Array.from(document.querySelectorAll('#snippets pre'), one => one.textContent).join()"))


def test_snippets_need_no_token_where_the_bridge_needs_none(bridge_url: str, bridge: str, browser: Any) -> None:
    page, _ = opened_page(browser, bridge_url)
    page.wait_for_selector("#snippets-note:has-text('any word')")
    assert "$BRIDGE_TOKEN" not in snippets(page)
    page, _ = opened_page(browser, bridge)
    page.wait_for_selector("#snippets-note:has-text('export BRIDGE_TOKEN')")
    assert "$BRIDGE_TOKEN" in snippets(page)


def test_snippets_ask_for_the_model_that_was_asked_for_unless_a_shell_would_run_it(
    bridge_url: str, browser: Any
) -> None:
    page, _ = opened_page(browser, bridge_url)
    page.wait_for_selector("#models option", state="attached")
    for name in ("openai/gpt-x", "openai/$(reboot)"):
        page.fill("#model", name)
        page.press("#model", "Enter")
        page.wait_for_selector(f"#route-rows td:text-is({name.removeprefix('openai/')!r})")
        assert "--model openai/gpt-x" in snippets(page)
        assert "reboot" not in snippets(page)


@pytest.mark.parametrize(
    ("listed", "rules", "example"),
    [
        (["text-embedding-9", "llama3:8b"], "{}", "openai/llama3:8b"),
        (["llama3:8b", "claude-sonnet-9"], "{}", "claude-sonnet-9"),
        (["llama3:8b"], '{"claude-*": "openai/llama3:8b"}', "claude-sonnet-5-5"),
        ([], "{}", "claude-sonnet-5-5"),
    ],
    ids=["one that talks", "one of Claude's names first", "a name that a rule maps", "none is listed"],
)
def test_the_example_is_a_model_that_the_bridge_has(
    upstream: ScriptedUpstream, tmp_path: Path, browser: Any, listed: list[str], rules: str, example: str
) -> None:
    models = {"object": "list", "data": [{"id": name, "created": 9 - at} for at, name in enumerate(listed)]}
    upstream.script = [{"when": {"path": "*/models"}, "reply": {"json": models}}]
    with running_bridge(tmp_path, UPSTREAM_OPENAI_BASE_URL=upstream.url, MODEL_MAP=rules) as url:
        page, complaints = opened_page(browser, url)
        wait_until(lambda: page.locator("#models option").count() == len(listed))
        page.wait_for_selector(f"#snippets pre:has-text('{example}')", state="attached")
        assert page.input_value("#model") == example
    assert complaints == []


def wait_until(met: Callable[[], bool]) -> None:
    """Ask from outside: what is polled inside the page is evaluated there, which its policy forbids."""
    for _ in range(400):
        if met():
            return
        time.sleep(0.05)
    assert met()


@contextmanager
def demo_bridge(folder: Path) -> Iterator[str]:
    """`bridge serve` with nothing configured."""
    command = [str(Path(sys.executable).with_name("bridge")), "serve", "--port", "0"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    try:
        lines = (re.search(r"http://127\.0\.0\.1:\d+", line) for line in process.stdout)
        yield next(found.group() for found in lines if found)
    finally:
        process.terminate()
        process.communicate(timeout=20)


def test_where_the_demo_model_answers_the_page_says_so(tmp_path: Path, bridge_url: str, browser: Any) -> None:
    with demo_bridge(tmp_path) as url:
        page, complaints = opened_page(browser, url)
        page.wait_for_selector("#demo")
        wait_until(lambda: page.input_value("#model") == "demo")
        assert complaints == []
    page, _ = opened_page(browser, bridge_url)
    page.wait_for_selector("#route-rows tr")
    assert page.is_hidden("#demo")


# --- conversations ------------------------------------------------------------------------------

HOSTILE_TOOL = "<img src=x onerror=alert(1)>"
LONG_ID = "second:2@" + "x" * 119
ROW = "#talks-rows tr"


@pytest.fixture
def talking_bridge(upstream: ScriptedUpstream, tmp_path: Path) -> Iterator[str]:
    """A bridge in which laptop has two conversations, and another principal one."""
    calls = [{"name": name, "arguments": {"city": "a-secret-city"}} for name in ("look", "look", HOSTILE_TOOL)]
    upstream.script = [{"reply": {"chat": {"tool_calls": calls}}}]
    environment = {"UPSTREAM_OPENAI_BASE_URL": upstream.url, "OPENAI_API_KEY": "sk-held", "WORKER_TOKEN": TOKENS}
    with running_bridge(tmp_path, **environment) as url:
        for token, name in (("laptop-token", "first"), ("admin-token", "not-yours"), ("laptop-token", LONG_ID)):
            talk(url, name, {"x-api-key": token})
        yield url


def talk(url: str, name: str, headers: dict[str, str]) -> None:
    tool = {"name": "look", "input_schema": {"type": "object"}}
    messages = [{"role": "user", "content": "Look!"}]
    body = {"model": "openai/gpt-x", "max_tokens": 9, "messages": messages, "tools": [tool]}
    answer = httpx2.post(f"{url}/v1/messages", json=body, headers=headers | {"x-conversation-id": name})
    assert answer.status_code == 200, answer.text


def entered_page(browser: Any, url: str, token: str, **context: Any) -> tuple[Any, list[str]]:
    page, complaints = opened_page(browser, url, **context)
    page.wait_for_selector(WANTED)
    complaints.clear()  # the browser's own line about the 401
    page.fill("#token", token)
    page.press("#token", "Enter")
    page.wait_for_selector(INSIDE)
    return page, complaints


def shown_ids(page: Any) -> list[str]:
    return [cell.inner_text() for cell in page.query_selector_all(f"{ROW} td:first-child")]


@pytest.mark.req("NFR5")
@pytest.mark.parametrize(("scheme", "width"), [("light", 1100), ("dark", 375)])
def test_a_browser_lists_ones_own_conversations(talking_bridge: str, browser: Any, scheme: str, width: int) -> None:
    viewport = {"width": width, "height": 800}
    page, complaints = entered_page(browser, talking_bridge, "laptop-token", color_scheme=scheme, viewport=viewport)
    page.wait_for_selector(ROW)
    assert shown_ids(page) == [LONG_ID, "first"]
    tools, calls = (page.inner_text(f"{ROW}:first-child td:nth-child({column})") for column in (2, 3))
    assert (tools, calls) == (f"look × 2, {HOSTILE_TOOL}", "3")
    assert "a-secret-city" not in page.content()
    assert page.inner_text(f"{ROW} td:nth-child(5)") in {"in 37 min", "in 38 min"}
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    button = page.query_selector(f"{ROW} button").bounding_box()
    assert 0 <= button["x"] <= button["x"] + button["width"] <= width, "in reach without scrolling sideways"
    assert complaints == []
    page.click("#forget")
    page.wait_for_selector(WANTED)
    assert shown_ids(page) == []


@pytest.mark.req("FR6.3")
def test_a_conversation_is_terminated_by_keyboard_after_a_question(talking_bridge: str, browser: Any) -> None:
    page, complaints = entered_page(browser, talking_bridge, "laptop-token")
    page.wait_for_selector(ROW)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(f"{request.method} {request.url.removeprefix(talking_bridge)}"))
    page.focus(f"{ROW}:first-child button")
    page.keyboard.press("Enter")
    page.wait_for_selector("#ending[open]")
    assert page.inner_text("#ending-name") == LONG_ID
    page.keyboard.press("Escape")
    page.wait_for_selector("#ending:not([open])", state="attached")
    page.keyboard.press("Enter")
    page.wait_for_selector("#ending-no:focus")
    page.keyboard.press("Enter")
    page.wait_for_selector("#ending:not([open])", state="attached")
    assert [call for call in asked if "conversations" in call] == [], (
        "whoever backs out or presses Enter twice ends nothing"
    )
    page.keyboard.press("Enter")
    page.wait_for_selector("#ending-no:focus")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("#talks-state.good")
    assert [call for call in asked if "conversations" in call] == [
        f"POST /v1/conversations/{quote(LONG_ID)}/terminate",
        "GET /v1/conversations",
    ]
    assert shown_ids(page) == ["first"]
    assert page.inner_text("#talks-state") == f"Terminated: {LONG_ID}. Its tool calls are forgotten."
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.wait_for_selector("#talks-title:focus")
    assert complaints == []


def test_where_no_conversation_is_alive_the_page_says_so(bridge: str, browser: Any) -> None:
    page, _ = entered_page(browser, bridge, "laptop-token")
    page.wait_for_selector("#talks-state:has-text('None is alive')")
    assert page.is_hidden("#talks-table")


@pytest.mark.parametrize("failing", ["list", "terminate"])
def test_what_fails_with_conversations_is_said_beside_them(talking_bridge: str, browser: Any, failing: str) -> None:
    page, _ = entered_page(browser, talking_bridge, "laptop-token")
    page.wait_for_selector(ROW)
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "the state store is throttled"}}
    path = "**/v1/conversations" if failing == "list" else "**/v1/conversations/*/terminate"
    page.route(path, lambda route: route.fulfill(status=529, json=error))
    if failing == "list":
        page.click("#talks-refresh")
    else:
        page.click(f"{ROW} button")
        page.click("#ending-yes")
    page.wait_for_selector("#talks-state.bad")
    assert "the state store is throttled" in page.inner_text("#talks-state")
    assert shown_ids(page) == ([] if failing == "list" else [LONG_ID, "first"])
    assert page.is_hidden("#ending")
    assert page.inner_text("#health-state") == "It answers", "which an error is, too"


@pytest.mark.req("PRINCIPAL")
def test_a_bridge_without_tokens_shows_what_the_client_with_a_key_did(
    bridge_url: str, upstream: ScriptedUpstream, browser: Any
) -> None:
    upstream.script = [{"reply": {"chat": {"tool_calls": [{"name": "look", "arguments": {}}]}}}]
    talk(bridge_url, "of-this-client", {"x-api-key": "a-key-of-mine"})
    page, complaints = opened_page(browser, bridge_url)
    look_with(page, "a-key-of-mine")
    page.wait_for_selector(ROW)
    assert shown_ids(page) == ["of-this-client"]
    assert complaints == []


@pytest.mark.req("NFR5")
@pytest.mark.parametrize(("width", "few"), [(1100, 20), (375, 8)])
def test_a_page_of_conversations_comes_first_and_the_others_on_demand(
    upstream: ScriptedUpstream, tmp_path: Path, browser: Any, width: int, few: int
) -> None:
    upstream.script = [{"reply": {"chat": {"tool_calls": [{"name": "look", "arguments": {}}]}}}]
    with running_bridge(tmp_path, UPSTREAM_OPENAI_BASE_URL=upstream.url) as url:
        for number in range(22):
            talk(url, f"number-{number}", {})
        page, complaints = opened_page(browser, url, viewport={"width": width, "height": 800})
        page.wait_for_selector(ROW)
        assert len(shown_ids(page)) == few
        heights = [row.bounding_box()["height"] for row in page.query_selector_all(ROW)]
        assert max(heights) < 120, "cards of a phone are small"
        page.focus("#talks-more")
        page.keyboard.press("Enter")
        page.wait_for_selector(f"{ROW}:nth-child({few + 1}) button:focus")
        assert len(shown_ids(page)) == 22
        assert page.is_hidden("#talks-more")
        assert page.inner_text(f"{ROW}:first-child td:nth-child(4)") in {"now", "1 min ago"}
    assert complaints == []
