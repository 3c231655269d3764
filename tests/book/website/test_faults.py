"""Faults of a website: each is reported, costs bounded time and bytes, and the rest is read."""

from __future__ import annotations

import gzip
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from recto.book.sources.website import CrawlOptions, discovery, fetch
from recto.book.sources.website.crawl import WebsiteSource
from recto.errors import InvalidArgument, Unreachable
from tests.doubles import site as web
from tests.doubles.server import drop, hang, reset, slow_drip, status
from tests.doubles.site import SiteDouble, page

WAITS: dict[str, Any] = {"delay": 0, "timeout": 1.5, "backoff": 0.01, "max_wait": 0.5}
OPTIONS = CrawlOptions(tries=2, max_bytes=1 << 20, allow_private=True, **WAITS)
LIMIT = 60.0
"""Seconds; far more than any of these needs, and far less than waiting for a fault."""


@pytest.fixture
def site() -> Iterator[SiteDouble]:
    """Three pages; `/bad` gets the faults."""
    with SiteDouble() as double:
        double.put("/", page("Start", "x", "/bad", "/good"))
        double.put("/bad", page("Bad", "Long enough to drip for a while. " * 20))
        double.put("/good", page("Good"))
        yield double


def read(site: SiteDouble, options: CrawlOptions = OPTIONS) -> tuple[list[str], dict[str, str], list[str]]:
    """Return the paths that were read, the failures and the notes."""
    began = time.monotonic()
    source = WebsiteSource(f"{site.url}/", None, options)
    pages = [one.path for one in source.pages()]
    assert time.monotonic() - began < LIMIT
    return pages, {failure.path: failure.reason for failure in source.failed}, source.notes


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (slow_drip(pause=0.05, seconds=30), "within 1.5 seconds"),
        (web.dripping_header(), "within 1.5 seconds"),
        (hang(), "within 1.5 seconds"),
        (drop(), "connection failed"),
        (reset(), "connection failed"),
        (status(429, headers={"Retry-After": "3600"}), "429"),
        (web.endless(), "larger than 1 MiB"),
        (status(200, b"x" * (2 << 20), content_type=web.HTML), "larger than 1 MiB"),
        (status(200, web.gzip_bomb(), {"Content-Encoding": "gzip"}, web.HTML), "larger than 1 MiB"),
        (status(200, b"\x1f\x8bno gzip", {"Content-Encoding": "gzip"}, web.HTML), "decompressed"),
        (status(200, gzip.compress(b"<p>x" * 999)[:-9], {"Content-Encoding": "gzip"}, web.HTML), "truncated"),
        (status(200, b"x", {"Content-Encoding": "br"}, web.HTML), "compressed as br"),
        (status(200, b"\xfa\xfb\xfc" * 500, content_type="text/html; charset=utf-8"), "not valid utf-8"),
        (status(403), "403"),
        (status(302, b"", {"Location": "file:///etc/passwd"}), "file:///etc/passwd"),
        (status(302, b"", {"Location": "http://user:secret@127.0.0.1/"}), "not followed"),
        (status(302, b"", {"Location": "/bad"}), "too many redirects"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_fault_is_reported_and_the_rest_is_read(site: SiteDouble, fault: object, reason: str) -> None:
    site.always(fault, path="/bad")  # type: ignore[arg-type]
    pages, failures, _ = read(site)
    assert pages == ["index", "good"]
    assert list(failures) == ["bad"]
    assert reason in failures["bad"]
    assert site.sent < 16 << 20
    assert sum(request.path == "/bad" for request in site.requests) <= 6


def test_transient_faults_are_retried(site: SiteDouble) -> None:
    site.script(status(500), path="/bad")
    site.script(reset(), path="/good")
    pages, failures, _ = read(site)
    assert pages == ["index", "bad", "good"]
    assert not failures


def test_retry_after_is_respected(site: SiteDouble, waits: list[float]) -> None:
    site.script(status(429, headers={"Retry-After": "40"}), path="/bad")
    source = WebsiteSource(f"{site.url}/", None, replace(OPTIONS, max_wait=60), sleep=waits.append)
    assert [one.path for one in source.pages()] == ["index", "bad", "good"]
    assert waits == [40.0]


def test_redirects_to_another_host_are_not_followed(site: SiteDouble) -> None:
    with SiteDouble() as other:
        other.put("/", page("Secret"))
        site.redirect("/bad", other.url)
        pages, failures, notes = read(site)
        assert pages == ["index", "good"]
        assert not failures
        assert "Left out: 1 pages that redirect to another website or out of the book." in notes
        assert not other.requests


def test_first_page_on_another_host_is_an_error(site: SiteDouble) -> None:
    site.redirect("/", "http://elsewhere.example/book/")
    with pytest.raises(InvalidArgument, match="elsewhere") as raised:
        read(site)
    assert "http://elsewhere.example/book/" in raised.value.hint


def test_few_invalid_bytes_are_noted(site: SiteDouble) -> None:
    site.put("/bad", page("Bad", "Good words. " * 100).encode().replace(b"Good", b"G\xf6\xf6d", 1))
    pages, failures, notes = read(site)
    assert pages == ["index", "bad", "good"]
    assert not failures
    assert "bad: 2 characters could not be decoded." in notes


def test_other_encodings_are_read(site: SiteDouble) -> None:
    site.put("/bad", page("Käse", head="<meta charset=iso-8859-1>").encode("latin-1"), kind="text/html")
    site.put("/good", page("Чай").encode("koi8-r"), kind="text/html; charset=KOI8-R")
    source = WebsiteSource(f"{site.url}/", None, OPTIONS)
    assert [one.title.partition(" ")[0] for one in source.pages()] == ["Start", "Käse", "Чай"]


@pytest.mark.parametrize("kind", ["application/pdf", "image/png", "application/json"])
def test_other_content_types_are_not_read(site: SiteDouble, kind: str) -> None:
    site.always(web.endless(kind), path="/bad")
    pages, failures, _ = read(site)
    assert pages == ["index", "good"]
    assert not failures
    assert site.sent < 16 << 20


def test_crawl_gives_up_when_the_website_stops_answering(site: SiteDouble) -> None:
    names = [f"p{number:02}" for number in range(20)]
    site.put("/", page("Start"))
    site.put("/sitemap.xml", web.sitemap(*(f"{site.url}/{name}" for name in names)))
    site.always(status(502), path="/p*")
    pages, failures, _ = read(site)
    assert pages == ["index"]
    assert sorted(failures) == [*names]
    assert "stopped responding" in failures["p19"]
    assert sum(request.path.startswith("/p") for request in site.requests) == 8 * OPTIONS.tries


@pytest.mark.parametrize(
    ("body", "note"),
    [
        (web.ENTITY_BOMB, "does not list all pages"),
        (web.FILE_ENTITY, "none below"),
        (web.gzip_bomb(), "larger than 16 MiB"),
        ("<urlset><url><loc>" + "<a>" * 100_000, "cut off"),
    ],
    ids=["entities", "external entity", "packed", "nested"],
)
def test_hostile_sitemap_is_noted(site: SiteDouble, body: str | bytes, note: str) -> None:
    site.put("/sitemap.xml", body)
    pages, failures, notes = read(site)
    assert pages == ["index", "bad", "good"]
    assert not failures
    assert any(note in one for one in notes)


def test_sitemap_addresses_are_limited(site: SiteDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "_MOST_ADDRESSES", 500)
    site.put("/sitemap.xml", web.sitemap(*(f"{site.url}/n{number}" for number in range(600))))
    pages, _, notes = read(site, replace(OPTIONS, max_pages=3))
    assert pages == ["index"]
    assert any("first 500 URLs" in note for note in notes)
    assert any("limit is 3 pages" in note for note in notes)


def test_nested_sitemaps_are_limited(site: SiteDouble) -> None:
    site.put("/sitemap.xml", web.sitemap_index(*(f"{site.url}/map{number}.xml" for number in range(100))))
    for number in range(100):
        below = web.sitemap_index(f"{site.url}/sitemap.xml", f"{site.url}/deep{number}.xml")
        site.put(f"/map{number}.xml", below)
        site.put(f"/deep{number}.xml", web.sitemap_index(f"{site.url}/deeper{number}.xml"))
    pages, _, notes = read(site)
    assert pages == ["index", "bad", "good"]
    assert sum(request.path.endswith(".xml") for request in site.requests) <= 51
    assert any("Only the first 50 sitemaps" in note for note in notes)


def at_host(site: SiteDouble, hosts: dict[str, list[str]]) -> WebsiteSource:
    """Return the site as the book of the first host, with a resolver that knows these addresses."""
    url = f"http://{next(iter(hosts))}:{site.url.rpartition(':')[2]}/"
    return WebsiteSource(url, None, CrawlOptions(delay=0, tries=1), resolve=lambda host, _: hosts[host])


@pytest.mark.parametrize("addresses", ["127.0.0.1", "8.8.8.8 10.0.0.1", "::ffff:10.0.0.1", "169.254.169.254"])
def test_private_address_is_refused(site: SiteDouble, addresses: str) -> None:
    named = at_host(site, {"book.example": addresses.split()})
    for source in (named, WebsiteSource(f"{site.url}/", None, CrawlOptions(delay=0))):
        with pytest.raises(Unreachable, match="not a public address"):
            list(source.pages())
    assert not site.requests


@pytest.mark.parametrize("path", ["/robots.txt", "/sitemap.xml"])
def test_redirect_to_a_private_host(site: SiteDouble, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The website itself counts as public here; the redirect is refused when its address is known."""
    monkeypatch.setattr(fetch, "is_public", lambda address: address == "127.0.0.1")
    source = at_host(site, {"book.example": ["127.0.0.1"], "internal.example": ["127.0.0.2"]})
    refused = r"internal\.example is at 127\.0\.0\.2, which is not a public"
    with SiteDouble() as other:
        site.redirect(path, f"http://internal.example:{other.url.rpartition(':')[2]}{path}")
        if path == "/robots.txt":
            with pytest.raises(Unreachable, match=refused):
                list(source.pages())
        else:
            assert [one.path for one in source.pages()] == ["index", "bad", "good"]
            assert any("internal.example" in note for note in source.notes)
        assert not other.requests


@pytest.mark.parametrize("path", ["/robots.txt", "/sitemap.xml"])
def test_allowed_private_website_cannot_redirect_to_another(site: SiteDouble, path: str) -> None:
    with SiteDouble() as other:
        other.put(path, "")
        site.redirect(path, f"{other.url}{path}")
        if path == "/robots.txt":
            with pytest.raises(Unreachable, match="not a public address") as raised:
                read(site)
            assert "Redirects to other private hosts" in raised.value.hint
        else:
            assert read(site)[0] == ["index", "bad", "good"]
        assert not other.requests


def test_robots_txt_can_be_redirected_on_its_own_website(site: SiteDouble) -> None:
    site.redirect("/robots.txt", "/files/robots.txt")
    site.put("/files/robots.txt", "User-agent: *\nDisallow: /bad\n")
    assert read(site)[0] == ["index", "good"]


def test_endless_robots_txt_is_refused(site: SiteDouble) -> None:
    site.always(web.endless("text/plain"), path="/robots.txt")
    with pytest.raises(Unreachable, match="larger than"):
        read(site)
    assert site.sent < 16 << 20


def test_robots_txt_with_too_many_wildcards_is_refused(site: SiteDouble) -> None:
    rules = "".join(f"Disallow: /*{number}b\n" for number in range(20_000))
    site.put("/robots.txt", f"User-agent: *\n{rules}")
    with pytest.raises(Unreachable, match="wildcards"):
        read(site)
    assert set(site.asked) == {"/robots.txt"}
