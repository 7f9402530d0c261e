"""The page at /: static, strict, without data of its own; and in a real browser where there is one."""

from __future__ import annotations

import re
import shutil
from base64 import b64encode
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

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
    """Chromium, driven by Playwright: `pip install playwright` and the system's chromium."""
    playwright = pytest.importorskip("playwright.sync_api")
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no Chromium on this machine")
    with playwright.sync_playwright() as driver:
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
