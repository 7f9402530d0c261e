"""web_fetch against a real https server, and against everything that would lead it elsewhere."""

from __future__ import annotations

import asyncio
import gzip
from base64 import b64encode
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest
from https_site import loopback_too, resolves_here, serving_https

from bridge.canonical.content import Base64Source, Document, Text
from bridge.canonical.request import Request, ServerTool, Tool
from bridge.toolloop.toolbox import Toolbox
from bridge.toolloop.urls import AllowList, UrlRefusedError
from bridge.toolloop.web_fetch import FetchError, WebFetch, fetch_tool

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.server import BaseHTTPRequestHandler

    from https_site import Site

    from bridge.toolloop.tools import ToolOutput

pytestmark = pytest.mark.req("C7")


@pytest.fixture(scope="module")
def _served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with serving_https(tmp_path_factory.mktemp("certificates")) as site:
        yield site


@pytest.fixture
def site(_served: Site) -> Site:
    _served.replies.clear()
    _served.seen.clear()
    _served.asked_for.clear()
    return _served


def fetcher(site: Site, allow: str = "", **settings: object) -> WebFetch:
    allowed = AllowList.parse(allow or f"site.test:{site.port} *.site.test:{site.port} other.test:{site.port}")
    given = {"allows": loopback_too, "resolve": resolves_here, "context": site.trusting, **settings}
    return WebFetch(allowed, **given)  # type: ignore[arg-type]


def fetched(site: Site, url: str, **settings: object) -> Document:
    return asyncio.run(fetcher(site, **settings).fetch(url)).document  # type: ignore[arg-type]


def refused(site: Site, url: str, allow: str = "", **settings: object) -> FetchError:
    with pytest.raises(FetchError) as caught:
        asyncio.run(fetcher(site, allow, **settings).fetch(url))
    return caught.value


def test_a_page_becomes_text_with_its_title(site: Site) -> None:
    body = (
        "<html><head><title>Ti &amp; tle</title><style>p{}</style></head><body><h1>Head</h1><script>evil()</script>"
        "<p>Some <b>bold</b> text, <a href='/next'>next</a>.</p><ul><li>one<li>two</ul></body></html>"
    )
    url = site.page("/page", body)
    assert fetched(site, url) == Document(
        (Text("# Head\n\nSome **bold** text, [next](/next).\n\n- one\n- two"),), "Ti & tle", f"Source: {url}"
    )


def test_host_and_certificate_are_those_of_the_name_though_the_address_is_called(site: Site) -> None:
    fetched(site, site.page("/", "x", "text/plain"))
    assert site.seen[0].headers["host"] == f"site.test:{site.port}"
    assert site.asked_for == ["site.test"]
    assert site.seen[0].headers["accept-encoding"] == "identity"
    assert not {"cookie", "authorization", "referer"} & site.seen[0].headers.keys()


@pytest.mark.parametrize(
    ("content_type", "body", "text"),
    [
        ("text/plain", "plain", "plain"),
        ("text/plain; charset=iso-8859-1", "é".encode("latin-1"), "é"),
        ("text/plain; charset=nonsense", "é".encode(), "é"),
        ("application/json", '{"a": 1}', '{"a": 1}'),
        ("application/ld+json", "{}", "{}"),
        ("image/svg+xml", "<svg/>", "<svg/>"),
        ("text/html", "<p>é", "é"),
        ("text/html", '<meta charset="iso-8859-1"><p>é'.encode("latin-1"), "é"),
        ("text/html", "<div>" * 3000 + "deep", "deep"),
    ],
    ids=["plain", "latin", "unknown-charset", "json", "ld-json", "svg", "html-utf8", "html-meta", "deep"],
)
def test_texts_are_given_as_text(site: Site, content_type: str, body: str | bytes, text: str) -> None:
    assert fetched(site, site.page("/t", body, content_type)).source == (Text(text),)


def test_a_pdf_is_given_as_it_is(site: Site) -> None:
    document = fetched(site, site.page("/p", b"%PDF-1.7 x", "application/pdf"))
    assert document.source == Base64Source("application/pdf", b64encode(b"%PDF-1.7 x").decode())


@pytest.mark.parametrize("content_type", ["image/png", "application/octet-stream", "application/zip", ""])
def test_other_types_are_refused(site: Site, content_type: str) -> None:
    assert refused(site, site.page("/x", b"x", content_type)).code == "unsupported_content_type"


@pytest.mark.parametrize("status", [201, 204, 304, 401, 404, 429, 500])
def test_only_an_answer_that_is_one_is_read(site: Site, status: int) -> None:
    error = refused(site, site.page("/x", b"", "text/plain", status))
    assert (error.code, str(error)) == ("url_not_accessible", f"the host answered with HTTP {status}")


def test_a_body_that_is_too_large_is_refused_before_it_is_read(site: Site) -> None:
    assert refused(site, site.page("/x", b"x" * 2000, "text/plain"), max_bytes=1000).code == "content_too_large"


def test_a_body_that_hides_its_size_is_refused_when_it_grows_too_large(site: Site) -> None:
    written = 0

    def endless(handler: BaseHTTPRequestHandler) -> None:
        nonlocal written
        handler.send_response(200)
        handler.send_header("content-type", "text/plain")
        handler.end_headers()
        handler.close_connection = True
        with suppress(OSError):
            while written < 50_000_000:
                written += handler.wfile.write(b"x" * 10_000)

    site.replies["/x"] = endless
    assert refused(site, site.url("/x"), max_bytes=100_000).code == "content_too_large"
    assert written < 50_000_000


def test_what_was_compressed_without_being_asked_is_not_unfolded(site: Site) -> None:
    site.replies["/x"] = (200, {"content-type": "text/plain", "content-encoding": "gzip"}, gzip.compress(b"0" * 10**6))
    assert refused(site, site.url("/x"), max_bytes=10_000).code == "unsupported_content_type"


def test_a_host_that_says_nothing_is_left_in_time(site: Site) -> None:
    def silent(handler: BaseHTTPRequestHandler) -> None:
        handler.rfile.read(1)

    site.replies["/x"] = silent
    assert str(refused(site, site.url("/x"), seconds=0.2)) == "nothing came within 0.2 seconds"


def test_redirects_are_followed_within_the_rules(site: Site) -> None:
    site.page("/end", "arrived", "text/plain")
    site.redirect("/two", "end", 307)
    url = site.redirect("/one", site.url("/two", "other.test"), 301)
    document = fetched(site, url)
    assert document.source == (Text("arrived"),)
    assert document.context == f"Source: {site.url('/end', 'other.test')}"
    assert site.asked_for == ["site.test", "other.test", "other.test"]


def test_cookies_are_not_carried_from_one_host_to_the_next(site: Site) -> None:
    site.page("/end", "x", "text/plain")
    site.replies["/c"] = (302, {"location": "/end", "set-cookie": "a=b; Path=/"}, b"")
    fetched(site, site.url("/c"))
    assert "cookie" not in site.seen[1].headers


def test_there_is_an_end_to_redirects(site: Site) -> None:
    site.redirect("/loop", "/loop")
    assert str(refused(site, site.url("/loop"))) == "more than 5 redirects"
    assert len(site.seen) == 6


@pytest.mark.parametrize(
    ("location", "code"),
    [
        ("http://site.test:{port}/secret", "url_not_allowed"),
        ("https://evil.test:{port}/secret", "url_not_allowed"),
        ("https://127.0.0.1:{port}/secret", "url_not_allowed"),
        ("//[::1]:{port}/secret", "url_not_allowed"),
        ("https://169.254.169.254/latest/meta-data", "url_not_allowed"),
        ("https://site.test@evil.test:{port}/", "url_not_allowed"),
        ("https://u:p@site.test:{port}/secret", "url_not_allowed"),
        ("https://site.test:1/secret", "url_not_allowed"),
        ("file:///etc/passwd", "invalid_tool_input"),
        ("javascript:alert(1)", "url_not_accessible"),
        ("", "url_not_accessible"),
    ],
)
def test_a_redirect_is_checked_like_any_url(site: Site, location: str, code: str) -> None:
    url = site.redirect("/go", location.format(port=site.port))
    assert refused(site, url).code == code
    assert [seen.path for seen in site.seen] == ["/go"]


def test_a_redirect_to_a_name_that_leads_inside_is_refused(site: Site) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"] if host == "site.test" else ["10.0.0.1"]

    url = site.redirect("/go", site.url("/secret", "other.test"))
    assert refused(site, url, resolve=resolve).code == "url_not_allowed"


INSIDE = [
    "127.0.0.1",
    "10.0.0.1",
    "192.168.1.1",
    "172.16.5.5",
    "169.254.169.254",
    "100.64.0.1",
    "100.100.100.200",
    "0.0.0.0",
    "224.0.0.1",
    "255.255.255.255",
    "240.0.0.1",
    "::1",
    "::",
    "fe80::1%eth0",
    "fd00:ec2::254",
    "ff02::1",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "2002:7f00:1::",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
]


@pytest.mark.parametrize("address", INSIDE)
def test_a_name_that_leads_inside_is_refused(site: Site, address: str) -> None:
    """With the rules that hold in operation, not those of the other tests."""
    from bridge.upstream.addresses import is_public

    async def resolve(host: str, port: int) -> list[str]:
        return [address]

    error = refused(site, site.url("/"), resolve=resolve, allows=is_public)
    assert (error.code, str(error)) == ("url_not_allowed", "the host's name leads to an address that is not public")
    assert (site.seen, site.asked_for) == ([], [])


def test_a_name_in_another_script_is_resolved_as_it_was_checked(site: Site) -> None:
    asked = []

    async def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["10.0.0.1"]

    refused(site, site.url("/", "bücher.test"), "xn--bcher-kva.test:*", resolve=resolve)
    assert asked == ["xn--bcher-kva.test"]


def test_one_inner_address_among_public_ones_is_enough_to_refuse(site: Site) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1", "10.0.0.1"]

    assert refused(site, site.url("/"), resolve=resolve).code == "url_not_allowed"
    assert site.asked_for == []


def test_a_name_that_changes_between_check_and_call_gains_nothing(site: Site) -> None:
    site.page("/", "inside", "text/plain")
    answers = iter([["127.0.0.2"], ["127.0.0.1"], ["127.0.0.1"]])
    asked = []

    async def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return next(answers)

    error = refused(site, site.url("/"), resolve=resolve, allows=lambda address: str(address) == "127.0.0.2")
    assert error.code == "url_not_accessible"
    assert asked == ["site.test"]
    assert (site.seen, site.asked_for) == ([], [])


def test_an_address_that_does_not_answer_is_followed_by_the_next(site: Site) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.3", "127.0.0.1"]

    url = site.page("/", "x", "text/plain")
    assert fetched(site, url, resolve=resolve, allows=lambda _: True).source == (Text("x"),)


def test_a_certificate_of_another_name_is_not_accepted(site: Site) -> None:
    assert refused(site, site.url("/", "wrong.test"), "*:*").code == "url_not_accessible"
    assert site.seen == []


def test_a_certificate_that_nobody_vouches_for_is_not_accepted(site: Site) -> None:
    assert refused(site, site.page("/", "x", "text/plain"), context=None).code == "url_not_accessible"
    assert site.seen == []


def test_a_name_that_does_not_exist_is_said_to_be_out_of_reach(site: Site) -> None:
    async def resolve(host: str, port: int) -> list[str]:
        raise OSError("no such name")

    assert refused(site, site.url("/"), resolve=resolve).code == "url_not_accessible"


TRICKS = [
    "https://2130706433/",
    "https://0x7f000001/",
    "https://0x7f.0.0.1/",
    "https://0177.0.0.1/",
    "https://127.1/",
    "https://127.0.0.1/",
    "https://127.0.0.1.:443/",
    "https://[::]/",
    "https://[::1]/",
    "https://[::ffff:127.0.0.1]/",
    "https://[fe80::1%25eth0]/",
    "https://１２７.0.0.1/",
    "https://①②⑦.0.0.1/",
    "https://localhost/",
    "https://localhost./",
    "https://metadata/",
    "https://site.test./",
    "https://site.test../",
    "https://.site.test/",
    "https://site..test/",
    "https://site.test:0/",
    "https://site.test:80/",
    "https://site.test:8443/",
    "https://site.test:99999/",
    "https://site.test:x/",
    "http://site.test/",
    "ftp://site.test/",
    "file:///etc/passwd",
    "gopher://site.test/",
    "data:text/plain,x",
    "//site.test/",
    "site.test/",
    "https:site.test",
    "https:///site.test",
    "https://",
    "",
    "https://user@site.test/",
    "https://user:pass@site.test/",
    "https://@site.test/",
    "https://site.test@evil.example/",
    "https://evil.example\\@site.test/",
    "https://site.test\\.evil.example/",
    "https://site.test\n.evil.example/",
    "https://site.test /",
    " https://site.test/",
    "https://site.test\x00.evil.example/",
    "https://site.test%00.evil.example/",
    "https://site%2etest/",
    "https://site.test%2eevil.example/",
    "https://evil.example#site.test",
    "https://evil.example?.site.test",
    "https://evilsite.test/",
    "https://site.test.evil.example/",
    "https://sub.sub.evil.example/",
    "https://site.test/" + "a" * 3000,
]


@pytest.mark.parametrize("url", TRICKS)
def test_a_url_that_is_not_plainly_of_an_allowed_host_is_refused(url: str) -> None:
    with pytest.raises(UrlRefusedError):
        AllowList.parse("site.test, *.site.test").check(url)


@pytest.mark.parametrize("url", [url for url in TRICKS[:18] if "site" not in url])
def test_no_glob_lets_an_address_or_a_bare_name_pass(url: str) -> None:
    with pytest.raises(UrlRefusedError):
        AllowList.parse("*:*").check(url)


@pytest.mark.parametrize(
    ("url", "checked"),
    [
        ("https://site.test", "https://site.test"),
        ("HTTPS://SITE.Test/A?b#frag", "https://site.test/A?b"),
        ("https://site.test:443/", "https://site.test/"),
        ("https://a.b.site.test/", "https://a.b.site.test/"),
        ("https://site.test/@user", "https://site.test/@user"),
        ("https://site。test/", "https://site.test/"),
    ],
)
def test_urls_of_allowed_hosts_pass(url: str, checked: str) -> None:
    assert str(AllowList.parse("Site.test., *.site.test").check(url)) == checked


def test_without_an_allowlist_nothing_is_fetched() -> None:
    empty = AllowList.parse("")
    assert not empty
    with pytest.raises(UrlRefusedError):
        empty.check("https://site.test/")


async def _yes() -> bool:
    return True


def run_tool(site: Site, url: object, admit: object = _yes, **options: object) -> ToolOutput:
    declared = ServerTool("web_fetch_20250910", "web_fetch", options)  # type: ignore[arg-type]
    tool = fetch_tool(declared, fetcher(site), admit)  # type: ignore[arg-type]
    return asyncio.run(tool.run({"url": url} if url is not None else {}))  # type: ignore[dict-item]


@pytest.mark.req("C5.4")
def test_the_tool_gives_the_document_and_where_it_is_from(site: Site) -> None:
    url = site.page("/p", "text", "text/plain")
    output = run_tool(site, url)
    assert output.content == (Document((Text("text"),), None, f"Source: {url}"),)
    assert output.shown["url"] == url
    assert not output.is_error


@pytest.mark.req("FR5.1")
@pytest.mark.parametrize("url", [None, "", 7, "nonsense"])
def test_the_tool_refuses_what_is_no_url(site: Site, url: object) -> None:
    output = run_tool(site, url)
    assert output.is_error
    assert output.shown == {"error_code": "invalid_tool_input"}


@pytest.mark.parametrize(
    ("options", "allowed"),
    [
        ({"allowed_domains": ["site.test"]}, True),
        ({"allowed_domains": ["SITE.test/p"]}, True),
        ({"allowed_domains": ["site.test/other"]}, False),
        ({"allowed_domains": ["test"]}, True),
        ({"allowed_domains": ["ite.test"]}, False),
        ({"allowed_domains": []}, False),
        ({"blocked_domains": ["site.test"]}, False),
        ({"blocked_domains": ["other.test"]}, True),
    ],
)
def test_the_request_may_narrow_the_hosts_further(site: Site, options: dict[str, object], allowed: bool) -> None:
    output = run_tool(site, site.page("/p", "text", "text/plain"), **options)
    assert output.is_error is not allowed
    assert len(site.seen) == allowed


def test_a_redirect_does_not_lead_around_the_domains_of_the_request(site: Site) -> None:
    url = site.redirect("/go", site.url("/p", "other.test"))
    assert run_tool(site, url, allowed_domains=["site.test"]).shown == {"error_code": "url_not_allowed"}
    assert len(site.seen) == 1


def test_a_principal_that_fetches_too_much_is_told_so(site: Site) -> None:
    async def no() -> bool:
        return False

    assert run_tool(site, site.url("/"), no).shown == {"error_code": "too_many_requests"}
    assert site.seen == []


def test_the_number_of_uses_is_bounded(site: Site) -> None:
    url = site.page("/p", "text", "text/plain")
    tool = fetch_tool(ServerTool("web_fetch_20250910", "web_fetch", {"max_uses": 1}), fetcher(site))

    async def twice() -> list[ToolOutput]:
        return [await tool.run({"url": url}), await tool.run({"url": url})]

    first, second = asyncio.run(twice())
    assert not first.is_error
    assert second.shown == {"error_code": "max_uses_exceeded"}


def test_the_text_is_cut_to_the_tokens_that_the_request_wants(site: Site) -> None:
    output = run_tool(site, site.page("/p", "0123456789", "text/plain"), max_content_tokens=2)
    (document,) = output.content
    assert isinstance(document, Document)
    assert document.source == (Text("01234567\n[cut after 8 of 10 characters: max_content_tokens]"),)


@pytest.mark.req("C5.4")
def test_the_declaration_of_the_client_becomes_a_function_and_what_is_not_followed_is_reported(site: Site) -> None:
    other = Tool("other", {"type": "object"})
    declared = ServerTool("web_fetch_20260209", "web_fetch", {"max_uses": 3, "citations": {"enabled": True}})
    request = Request("m", (), 10, tools=(declared, other))
    box = Toolbox(request).with_fetch(fetcher(site), _yes)
    names = [(tool.name, type(tool)) for tool in box.request.tools]
    assert names == [("web_fetch", Tool), ("other", Tool)]
    assert box.request.unread == ("web_fetch_20260209.citations",)
    assert list(box.tools) == ["web_fetch"]
