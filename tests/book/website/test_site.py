"""A book on a website: which pages are found, their paths, and the cache."""

from __future__ import annotations

import gzip
import subprocess
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from recto.book.parsing.html import parse_html
from recto.book.sources import SourceOptions, open_source
from recto.book.sources.website import CrawlOptions
from recto.book.sources.website.crawl import WebsiteSource
from recto.errors import ConfigurationError, InvalidArgument, Unreachable
from recto.types.book import Page
from tests.doubles.server import status
from tests.doubles.site import SiteDouble, page, sitemap, sitemap_index

OPTIONS = CrawlOptions(delay=0, timeout=5, tries=2, backoff=0.01, max_wait=0.5, allow_private=True)
NAMES = ["intro", "module-1-bees/hives", "module-1-bees/honey", "module-2-wax/candles"]
HIVES, HONEY = "/docs/module-1-bees/hives", "/docs/module-1-bees/honey"


@pytest.fixture
def site() -> Iterator[SiteDouble]:
    with SiteDouble() as double:
        yield double


@pytest.fixture
def book(site: SiteDouble) -> SiteDouble:
    """Four pages that a sitemap names."""
    link(site, {f"/docs/{name}": "" for name in NAMES})
    site.put(HIVES, page("Hives", "A hive is a box. " * 100))
    site.put("/sitemap.xml", sitemap(*(f"{site.url}/docs/{name}" for name in NAMES)))
    return site


def link(site: SiteDouble, links: dict[str, str]) -> None:
    """Publish pages with links to others."""
    for path, targets in links.items():
        site.put(path, page(path, "x", *targets.split()))


def source(site: SiteDouble, path: str = "/docs/", cache: Path | None = None, **more: Any) -> WebsiteSource:
    return WebsiteSource(site.url + path, cache, more.pop("options", OPTIONS), **more)


def paths(source: WebsiteSource) -> list[str]:
    return [one.path for one in source.pages()]


def interrupted(source: WebsiteSource) -> None:
    """Begin a run, and end it after the second page."""

    def begin() -> Generator[Page, None, None]:
        yield from source.pages()

    run = begin()
    assert [next(run).path, next(run).path] == NAMES[:2]
    run.close()


def test_pages_of_a_sitemap_are_read_once(book: SiteDouble) -> None:
    crawl = source(book)
    assert (crawl.book, crawl.location) == (f"{book.url.removeprefix('http://')}/docs", f"{book.url}/docs/")
    pages = list(crawl.pages())
    assert [one.path for one in pages] == NAMES
    hives = pages[1]
    assert (hives.url, hives.format) == (book.url + HIVES, "html")
    assert (hives.module, hives.module_keys) == ("bees", ("bees", "module-1-bees"))
    assert (hives.module_title, pages[0].module_title) == ("Bees", "Introduction")
    assert parse_html(hives.text, title=hives.title).title == "Hives"
    assert not crawl.failed
    assert all(count == 1 for path, count in book.asked.items() if path.startswith("/docs/module"))
    assert {request.headers["user-agent"].partition("/")[0] for request in book.requests} == {"recto"}
    whole = {one.path: one.module for one in source(book, "/").pages()}
    assert whole == {f"docs/{one.path}": one.module for one in pages}, "the same modules"


def test_pages_of_a_preview_have_their_published_urls(book: SiteDouble) -> None:
    published = "https://book.example/lights"
    book.put("/sitemap.xml", sitemap(f"{published}/{NAMES[0]}", f"{published}/{NAMES[1]}?a=b"))
    preview = open_source(
        f"{book.url}/docs/", SourceOptions(site_url=published, delay=0, allow_private=True), None, print
    )
    urls = [f"{published}/{NAMES[0]}", f"{published}/{NAMES[1]}?a=b"]
    assert [one.url for one in preview.pages()] == urls
    whole = list(source(book, "/docs", published=f"{published}/").pages())
    assert [one.url for one in whole] == urls
    assert dict(preview.info.options)["site_url"] == published


def test_sitemap_index_of_robots_txt(book: SiteDouble) -> None:
    book.drop("/sitemap.xml")
    book.put("/robots.txt", f"User-agent: *\nAllow: /\nSitemap: {book.url}/maps/index.xml\n")
    maps = (f"{book.url}/maps/a.xml.gz", f"{book.url}/maps/index.xml", "http://elsewhere.example/map.xml")
    book.put("/maps/index.xml", sitemap_index(*maps))
    packed = gzip.compress(sitemap(book.url + HONEY, f"{book.url}/other/page").encode())
    book.put("/maps/a.xml.gz", packed, kind="application/gzip")
    assert paths(source(book)) == ["module-1-bees/honey"]
    assert (book.asked["/maps/index.xml"], book.asked["/other/page"]) == (1, 0)


def test_without_a_sitemap_links_below_the_url_are_followed(site: SiteDouble) -> None:
    links = {
        "/book/": "one.html /book/./two/#part /outside http://elsewhere.example/book/x cover.png",
        "/book/one.html": "../book/two/ /book/ mailto:a@b.c javascript:void(0) ?page=2",
        "/book/two/": "/book/two/index.html /book/three",
        "/book/three": "",
    }
    link(site, links)
    crawl = source(site, "/book/")
    assert paths(crawl) == ["index", "one", "two", "three"]
    assert {path for path in site.asked if not path.endswith((".txt", ".xml"))} == set(links)
    assert "Left out: 1 links with a query." in crawl.notes


@pytest.mark.parametrize(
    ("host", "note"), [("https://example.com", "none below"), ("", "does not list all pages")]
)
def test_links_complete_a_sitemap_that_lacks_pages(site: SiteDouble, host: str, note: str) -> None:
    link(site, {"/": "/en/one /en/two", "/en/": "", "/en/one": "", "/en/two": ""})
    site.put("/sitemap.xml", sitemap(f"{host or site.url}/en/"))
    crawl = source(site, "/")
    assert paths(crawl) == ["index", *(["en"] if not host else []), "en/one", "en/two"]
    assert any(note in one for one in crawl.notes)


def test_listings_blog_and_noindex_pages_are_skipped_and_counted(site: SiteDouble) -> None:
    links = "/docs/tags /docs/tags/sweet /search /blog/2021/hello /hidden /quiet /git/tags"
    link(site, {"/": links, **dict.fromkeys(links.split(), "")})
    site.put("/hidden", page("Hidden", head='<meta name="robots" content="noindex, follow">'))
    site.put("/quiet", page("Quiet"), headers={"X-Robots-Tag": "noindex"})
    crawl = source(site, "/")
    assert paths(crawl) == ["index", "git/tags"]
    assert crawl.notes == [
        "Left out: 3 lists of other pages (tags, search, indexes).",
        "Left out: 1 pages of the blog.",
        "Left out: 2 pages that ask not to be indexed (noindex).",
    ]


def test_page_with_several_urls_is_read_once(site: SiteDouble) -> None:
    link(site, {"/": "/one /uno /old /wrong"})
    for path in ("/one", "/uno"):
        site.put(path, page("One", head=f'<link rel="canonical" href="{site.url}/one">'))
    site.put("/old", page("Moved", head='<meta http-equiv="refresh" content="0; url=/new">'))
    site.put("/new", page("New", head='<link rel="canonical" href="https://elsewhere.example/new">'))
    site.put("/wrong", page("Wrong", head=f'<link rel="canonical" href="{site.url}/">'))
    crawl = source(site, "/")
    pages = list(crawl.pages())
    assert [one.path for one in pages] == ["index", "one", "wrong", "new"]
    assert pages[3].url == f"{site.url}/new"
    assert "Left out: 2 duplicate URLs of pages." in crawl.notes


def test_robots_txt_is_obeyed(book: SiteDouble) -> None:
    rules = f"User-agent: Recto\nDisallow: /docs/module-1*\nAllow: {HONEY}$\n"
    book.put("/robots.txt", f"User-agent: *\nDisallow: /\n\n{rules}")
    crawl = source(book)
    assert paths(crawl) == [name for name in NAMES if name != "module-1-bees/hives"]
    assert book.asked[HIVES] == 0
    assert "Left out: 1 pages that robots.txt disallows." in crawl.notes


def test_robots_txt_that_disallows_everything_or_is_unreachable_is_an_error(book: SiteDouble) -> None:
    book.put("/robots.txt", "User-agent: *\nDisallow: /\n")
    with pytest.raises(InvalidArgument, match=r"robots\.txt"):
        paths(source(book))
    book.always(status(503), path="/robots.txt")
    with pytest.raises(Unreachable, match=r"robots\.txt"):
        paths(source(book))
    assert set(book.asked) == {"/robots.txt"}


def test_crawl_delay_is_kept_up_to_a_limit(book: SiteDouble, waits: list[float]) -> None:
    book.put("/robots.txt", "User-agent: *\nCrawl-delay: 3600\n")
    paths(source(book, sleep=waits.append))
    assert len(waits) >= 4
    assert all(9 < wait <= OPTIONS.max_delay for wait in waits)


def test_unchanged_pages_are_not_sent_again(book: SiteDouble, tmp_path: Path) -> None:
    first = {one.path: one.revision for one in source(book, cache=tmp_path).pages()}
    book.put(HONEY, page("Honey", "New words."))
    second = {one.path: one.revision for one in source(book, cache=tmp_path).pages()}
    assert (book.unchanged[HIVES], book.unchanged[HONEY]) == (1, 0)
    assert [path for path in NAMES if first[path] != second[path]] == ["module-1-bees/honey"]


def test_damaged_cache_is_ignored(book: SiteDouble, tmp_path: Path) -> None:
    first = list(source(book, cache=tmp_path).pages())
    for number, file in enumerate(sorted(tmp_path.iterdir())):
        file.write_text(("", "{", "[]", '{"format": 1, "url": 3}', file.read_text()[:-40] + '"}')[number % 5])
    assert list(source(book, cache=tmp_path).pages()) == first


def test_no_cache_no_files(book: SiteDouble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    paths(source(book))
    assert not list(tmp_path.iterdir())


def test_interrupted_run_is_resumed(book: SiteDouble, tmp_path: Path) -> None:
    interrupted(source(book, cache=tmp_path))
    assert paths(source(book, cache=tmp_path)) == NAMES
    assert (book.asked[HIVES], book.asked[HONEY]) == (1, 1)
    paths(source(book, cache=tmp_path))
    assert book.asked[HIVES] == 2, "a finished run is not resumed"
    interrupted(source(book, cache=tmp_path, clock=lambda: 1_000_000.0))
    paths(source(book, cache=tmp_path, clock=lambda: 1_003_601.0))
    assert book.asked[HIVES] == 4, "nor is an old one"


def test_missing_page_is_not_a_failure(book: SiteDouble, tmp_path: Path) -> None:
    paths(source(book, cache=tmp_path))
    book.drop(HONEY)
    crawl = source(book, cache=tmp_path)
    assert "module-1-bees/honey" not in paths(crawl)
    assert not crawl.failed
    assert "Left out: 1 pages that no longer exist." in crawl.notes


def test_links_of_a_failing_page_come_from_the_cache(site: SiteDouble, tmp_path: Path) -> None:
    link(site, {"/": "/part", "/part": "/part/one", "/part/one": ""})
    paths(source(site, "/", tmp_path))
    site.always(status(403), path="/part")
    crawl = source(site, "/", tmp_path)
    assert paths(crawl) == ["index", "part/one"]
    assert [failure.path for failure in crawl.failed] == ["part"]


def test_failing_sitemap_is_replaced_by_its_last_version(book: SiteDouble, tmp_path: Path) -> None:
    paths(source(book, cache=tmp_path))
    book.always(status(500), path="/sitemap.xml")
    crawl = source(book, cache=tmp_path)
    assert paths(crawl) == NAMES
    assert any("last version" in note for note in crawl.notes)


def test_number_of_pages_is_limited(site: SiteDouble) -> None:
    link(site, {"/": "/p0", **{f"/p{number}": f"/p{number + 1} /p{number + 2}" for number in range(10)}})
    assert paths(source(site, "/p0")) == ["index"], "what is not below the address is not its book"
    crawl = source(site, "/", options=CrawlOptions(delay=0, allow_private=True, max_pages=7))
    assert len(paths(crawl)) == 7
    assert any("limit is 7 pages" in note for note in crawl.notes)


def test_progress_is_reported(book: SiteDouble, told: list[str]) -> None:
    crawl = WebsiteSource(f"{book.url}/docs/", None, OPTIONS, told.append)
    seen: list[tuple[int, int]] = []
    crawl.progress = lambda done, known: seen.append((done, known))
    assert paths(crawl) == NAMES
    assert seen[-1][0] == seen[-1][1]
    assert len(told) == 1


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "ftp://x.y/", "http://u:p@x.y/", "docs", "http://", "http://[::1"]
)
def test_invalid_urls_are_refused(url: str) -> None:
    with pytest.raises(InvalidArgument):
        WebsiteSource(url, None)


def test_url_without_pages_is_an_error(site: SiteDouble) -> None:
    with pytest.raises(InvalidArgument, match="no page"):
        paths(source(site, "/"))


def test_heavy_packages_are_imported_late() -> None:
    code = "import sys, recto.book.parsing.html, recto.book.sources.website; print({'httpcore', 'protego', 'selectolax'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_missing_extra_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("httpcore", "protego", "selectolax", "selectolax.lexbor"):
        monkeypatch.setitem(sys.modules, name, None)
    for name in ("crawl", "discovery", "fetch"):
        monkeypatch.delitem(sys.modules, f"recto.book.sources.website.{name}", raising=False)
    with pytest.raises(ConfigurationError, match="`crawl`"):
        open_source("https://book.example/", SourceOptions(), None, print)
    with pytest.raises(ConfigurationError, match="`crawl`"):
        parse_html("<p>x</p>")


def test_pages_have_the_language_that_they_state(site: SiteDouble) -> None:
    site.put("/docs/intro", page("Welcome").replace("<html>", '<html lang="pt-BR">', 1))
    (read,) = source(site, "/docs/intro").pages()
    assert read.locale == "pt"
