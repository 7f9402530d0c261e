"""The page at /: static, strict, without data of its own; and in a real browser where there is one."""

from __future__ import annotations

import re
import shutil
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx2
import pytest
from playwright.sync_api import sync_playwright

import handler.page
from support import running_bridge

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scripted.server import ScriptedUpstream

FILE = Path(handler.page.__file__).with_name("page.html")
TOKENS = "admin:admin-token,laptop:laptop-token"


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


def test_head_is_answered_with_or_without_the_page(upstream: ScriptedUpstream, tmp_path: Path, bridge: str) -> None:
    assert httpx2.head(bridge).status_code == 200
    with running_bridge(tmp_path, UPSTREAM_OPENAI_BASE_URL=upstream.url, PAGE="off") as url:
        assert httpx2.head(url).status_code == 200
        answer = httpx2.get(url)
    assert answer.status_code == 404
    assert "PAGE=off" in answer.json()["error"]["message"]


@pytest.fixture
def browser() -> Iterator[Any]:
    """The system's Chromium, driven by Playwright."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("no Chromium on this machine")
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield chromium
        chromium.close()


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
    page.wait_for_selector("#access-state.bad")
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
    assert "everybody" in page.inner_text("#usage-total")
    assert page.input_value("#token") == "", "the token is not left in the field"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert bridge in page.inner_text("#snippets")
    assert "admin-token" not in page.content()
    page.click("#forget")
    assert page.evaluate("sessionStorage.length") == 0
    assert page.query_selector_all("#usage-rows tr") == []
    assert complaints == []


def test_a_bridge_without_tokens_on_this_machine_lets_the_page_in(bridge_url: str, browser: Any) -> None:
    page, complaints = opened_page(browser, bridge_url)
    page.wait_for_selector("#access-state.good")
    page.fill("#model", "openai/gpt-x")
    page.press("#model", "Enter")
    page.wait_for_selector("#route-rows td:text-is('gpt-x')")
    assert complaints == []


def test_a_wrong_token_is_not_kept(bridge: str, browser: Any) -> None:
    page, _ = opened_page(browser, bridge)
    page.wait_for_selector("#access-state.bad")
    page.fill("#token", "a-wrong-token")
    with page.expect_response("**/v1/route*") as asked:
        page.press("#token", "Enter")
    assert (asked.value.status, asked.value.request.headers["x-worker-token"]) == (401, "a-wrong-token")
    page.wait_for_selector("#token:focus")
    assert page.evaluate("sessionStorage.length") == 0


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
    page.wait_for_selector("#access-state.bad")
    complaints.clear()  # the browser's own line about the 401
    page.fill("#token", token)
    page.press("#token", "Enter")
    page.wait_for_selector("#access-state.good")
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
    page.click("#forget")
    assert shown_ids(page) == []
    assert complaints == []


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
    assert asked == [], "whoever backs out or presses Enter twice ends nothing"
    page.keyboard.press("Enter")
    page.wait_for_selector("#ending-no:focus")
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    page.wait_for_selector("#talks-state.good")
    assert asked == [f"POST /v1/conversations/{quote(LONG_ID)}/terminate", "GET /v1/conversations"]
    assert shown_ids(page) == ["first"]
    assert page.inner_text("#talks-state") == f"Terminated: {LONG_ID}. Deleted items: 3."
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
        page.click("#talks button")
    else:
        page.click(f"{ROW} button")
        page.click("#ending-yes")
    page.wait_for_selector("#talks-state.bad")
    assert "the state store is throttled" in page.inner_text("#talks-state")
    assert shown_ids(page) == ([] if failing == "list" else [LONG_ID, "first"])
    assert page.is_hidden("#ending")
    assert page.inner_text("#access-state") == "The bridge lets you in."


@pytest.mark.req("PRINCIPAL")
def test_a_bridge_without_tokens_shows_what_the_client_with_a_key_did(
    bridge_url: str, upstream: ScriptedUpstream, browser: Any
) -> None:
    upstream.script = [{"reply": {"chat": {"tool_calls": [{"name": "look", "arguments": {}}]}}}]
    talk(bridge_url, "of-this-client", {"x-api-key": "a-key-of-mine"})
    page, complaints = opened_page(browser, bridge_url)
    page.wait_for_selector("#access-state.good")
    page.fill("#token", "a-key-of-mine")
    page.press("#token", "Enter")
    page.wait_for_selector(ROW)
    assert shown_ids(page) == ["of-this-client"]
    assert complaints == []
