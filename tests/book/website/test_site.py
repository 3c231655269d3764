"""A book on a website: which pages are found, their paths, and the cache."""

from __future__ import annotations

import gzip
import subprocess
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

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


@pytest.fixture
def site() -> Iterator[SiteDouble]:
    with SiteDouble() as double:
        yield double


@pytest.fixture
def book(site: SiteDouble) -> SiteDouble:
    """Four pages that a sitemap names."""
    site.put("/docs/intro", page("Welcome", "Read on.", "/docs/module-1-bees/hives"))
    site.put("/docs/module-1-bees/hives", page("Hives", "A hive is a box. " * 100))
    site.put("/docs/module-1-bees/honey", page("Honey"))
    site.put("/docs/module-2-wax/candles", page("Candles"))
    names = ("intro", "module-1-bees/hives", "module-1-bees/honey", "module-2-wax/candles")
    site.put("/sitemap.xml", sitemap(*(f"{site.url}/docs/{name}" for name in names)))
    return site


def source(
    site: SiteDouble, path: str = "/docs/", cache: Path | None = None, options: CrawlOptions = OPTIONS
) -> WebsiteSource:
    return WebsiteSource(site.url + path, cache, options)


def begun(source: WebsiteSource) -> Generator[Page, None, None]:
    """Return the pages of a run as a generator that can be closed."""
    yield from source.pages()


def paths(pages: list[Page]) -> list[str]:
    return [one.path for one in pages]


def test_pages_of_a_sitemap_are_read_once(book: SiteDouble) -> None:
    crawl = source(book)
    assert (crawl.book, crawl.location) == (f"{book.url.removeprefix('http://')}/docs", f"{book.url}/docs/")
    pages = list(crawl.pages())
    assert paths(pages) == ["intro", "module-1-bees/hives", "module-1-bees/honey", "module-2-wax/candles"]
    hives = pages[1]
    assert (hives.url, hives.format) == (f"{book.url}/docs/module-1-bees/hives", "html")
    assert (hives.module, hives.module_keys) == ("bees", ("bees", "module-1-bees"))
    assert pages[0].module == "intro"
    assert (hives.module_title, pages[0].module_title) == ("Bees", "Introduction")
    assert parse_html(hives.text, title=hives.title).title == "Hives"
    assert not crawl.failed
    assert all(count == 1 for path, count in book.asked.items() if path.startswith("/docs/module"))
    assert {request.headers["user-agent"].partition("/")[0] for request in book.requests} == {"recto"}


def test_whole_site_has_the_same_modules(book: SiteDouble) -> None:
    pages = {one.path: one.module for one in source(book, "/").pages()}
    assert pages == {
        "docs/intro": "intro",
        "docs/module-1-bees/hives": "bees",
        "docs/module-1-bees/honey": "bees",
    } | {"docs/module-2-wax/candles": "wax"}


def test_sitemap_index_of_robots_txt(book: SiteDouble) -> None:
    book.drop("/sitemap.xml")
    book.put("/robots.txt", f"User-agent: *\nAllow: /\nSitemap: {book.url}/maps/index.xml\n")
    book.put(
        "/maps/index.xml",
        sitemap_index(
            f"{book.url}/maps/a.xml.gz", f"{book.url}/maps/index.xml", "http://elsewhere.example/map.xml"
        ),
    )
    packed = gzip.compress(sitemap(f"{book.url}/docs/module-1-bees/honey", f"{book.url}/other/page").encode())
    book.put("/maps/a.xml.gz", packed, kind="application/gzip")
    assert paths(list(source(book).pages())) == ["module-1-bees/honey"]
    assert book.asked["/maps/index.xml"] == 1
    assert book.asked["/other/page"] == 0


def test_without_a_sitemap_links_below_the_url_are_followed(site: SiteDouble) -> None:
    links = ["one.html", "/book/./two/#part", "/outside", "http://elsewhere.example/book/x", "cover.png"]
    site.put("/book/", page("Start", "x", *links))
    links = ["../book/two/", "/book/", "mailto:a@b.c", "javascript:void(0)", "?page=2"]
    site.put("/book/one.html", page("One", "x", *links))
    site.put("/book/two/", page("Two", "x", "/book/two/index.html", "/book/three"))
    site.put("/book/three", page("Three"))
    crawl = source(site, "/book/")
    assert paths(list(crawl.pages())) == ["index", "one", "two", "three"]
    assert site.asked["/outside"] == site.asked["/book/cover.png"] == site.asked["/book/two/index.html"] == 0
    assert "Left out: 1 links with a query." in crawl.notes


def test_sitemap_of_another_host_is_noted_and_links_are_followed(site: SiteDouble) -> None:
    site.put("/", page("Start", "x", "/one"))
    site.put("/one", page("One"))
    site.put("/sitemap.xml", sitemap("https://your-site.example.com/one"))
    crawl = source(site, "/")
    assert paths(list(crawl.pages())) == ["index", "one"]
    assert any("none below" in note for note in crawl.notes)


def test_partial_sitemap_is_completed_by_links(site: SiteDouble) -> None:
    site.put("/", page("Start", "x", "/en/latest/one", "/en/latest/two"))
    for path in ("/en/latest/", "/en/latest/one", "/en/latest/two"):
        site.put(path, page(path))
    site.put("/sitemap.xml", sitemap(f"{site.url}/en/latest/"))
    assert paths(list(source(site, "/").pages())) == ["index", "en/latest", "en/latest/one", "en/latest/two"]


def test_listings_blog_and_noindex_pages_are_skipped_and_counted(site: SiteDouble) -> None:
    paths_of_site = [
        "/docs/tags",
        "/docs/tags/sweet",
        "/search",
        "/blog/2021/hello",
        "/hidden",
        "/quiet",
        "/git/tags",
    ]
    site.put("/", page("Start", "x", *paths_of_site))
    for path in paths_of_site:
        site.put(path, page(path))
    site.put("/hidden", page("Hidden", head='<meta name="robots" content="noindex, follow">'))
    site.put("/quiet", page("Quiet"), headers={"X-Robots-Tag": "noindex"})
    crawl = source(site, "/")
    assert paths(list(crawl.pages())) == ["index", "git/tags"]
    assert crawl.notes == [
        "Left out: 3 lists of other pages (tags, search, indexes).",
        "Left out: 1 pages of the blog.",
        "Left out: 2 pages that ask not to be indexed (noindex).",
    ]


def test_page_with_several_urls_is_read_once(site: SiteDouble) -> None:
    own = f'<link rel="canonical" href="{site.url}/one">'
    site.put("/", page("Start", "x", "/one", "/uno", "/old", "/wrong"))
    site.put("/one", page("One", head=own))
    site.put("/uno", page("One", head=own))
    site.put("/old", page("Moved", head='<meta http-equiv="refresh" content="0; url=/new">'))
    site.put("/new", page("New", head='<link rel="canonical" href="https://elsewhere.example/new">'))
    site.put("/wrong", page("Wrong", head=f'<link rel="canonical" href="{site.url}/">'))
    crawl = source(site, "/")
    pages = list(crawl.pages())
    assert paths(pages) == ["index", "one", "wrong", "new"]
    assert pages[3].url == f"{site.url}/new"
    assert "Left out: 2 duplicate URLs of pages." in crawl.notes


def test_robots_txt_is_obeyed(book: SiteDouble) -> None:
    book.put(
        "/robots.txt",
        "User-agent: *\nDisallow: /\n\nUser-agent: Recto\nDisallow: /docs/module-1*\nAllow: /docs/module-1-bees/honey$\n",
    )
    crawl = source(book)
    assert paths(list(crawl.pages())) == ["intro", "module-1-bees/honey", "module-2-wax/candles"]
    assert book.asked["/docs/module-1-bees/hives"] == 0
    assert "Left out: 1 pages that robots.txt disallows." in crawl.notes


def test_robots_txt_that_disallows_everything_is_an_error(book: SiteDouble) -> None:
    book.put("/robots.txt", "User-agent: *\nDisallow: /\n")
    with pytest.raises(InvalidArgument, match=r"robots\.txt"):
        list(source(book).pages())
    assert set(book.asked) == {"/robots.txt"}


def test_unreachable_robots_txt_is_an_error(book: SiteDouble) -> None:
    book.always(status(503), path="/robots.txt")
    with pytest.raises(Unreachable, match=r"robots\.txt"):
        list(source(book).pages())
    assert not any(request.path.startswith("/docs") for request in book.requests)


def test_crawl_delay_is_kept_up_to_a_limit(book: SiteDouble, waits: list[float]) -> None:
    book.put("/robots.txt", "User-agent: *\nCrawl-delay: 3600\n")
    list(WebsiteSource(f"{book.url}/docs/", None, OPTIONS, sleep=waits.append).pages())
    assert len(waits) >= 4
    assert all(9 < wait <= OPTIONS.max_delay for wait in waits)


def test_unchanged_pages_are_not_sent_again(book: SiteDouble, tmp_path: Path) -> None:
    first = list(source(book, cache=tmp_path).pages())
    book.put("/docs/module-1-bees/honey", page("Honey", "New words."))
    second = list(source(book, cache=tmp_path).pages())
    assert book.unchanged["/docs/module-1-bees/hives"] == 1
    assert book.unchanged["/docs/module-1-bees/honey"] == 0
    changed = [
        before.path for before, after in zip(first, second, strict=True) if before.revision != after.revision
    ]
    assert changed == ["module-1-bees/honey"]


def test_damaged_cache_is_ignored(book: SiteDouble, tmp_path: Path) -> None:
    first = list(source(book, cache=tmp_path).pages())
    for number, file in enumerate(sorted(tmp_path.iterdir())):
        file.write_text(("", "{", "[]", '{"format": 1, "url": 3}', file.read_text()[:-40] + '"}')[number % 5])
    assert list(source(book, cache=tmp_path).pages()) == first


def test_without_a_cache_nothing_is_written(
    book: SiteDouble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    list(source(book).pages())
    assert not list(tmp_path.iterdir())


def test_interrupted_run_is_resumed(book: SiteDouble, tmp_path: Path) -> None:
    run = begun(source(book, cache=tmp_path))
    assert next(run).path == "intro"
    assert next(run).path == "module-1-bees/hives"
    run.close()
    assert len(list(source(book, cache=tmp_path).pages())) == 4
    assert book.asked["/docs/module-1-bees/hives"] == 1
    assert book.asked["/docs/module-1-bees/honey"] == 1
    list(source(book, cache=tmp_path).pages())
    assert book.asked["/docs/module-1-bees/hives"] == 2, "a finished run is not resumed"


def test_old_interrupted_run_starts_again(book: SiteDouble, tmp_path: Path) -> None:
    now = [1_000_000.0]

    def clock() -> float:
        return now[0]

    run = begun(WebsiteSource(f"{book.url}/docs/", tmp_path, OPTIONS, clock=clock))
    assert [next(run).path, next(run).path] == ["intro", "module-1-bees/hives"]
    run.close()
    now[0] += 3601
    list(WebsiteSource(f"{book.url}/docs/", tmp_path, OPTIONS, clock=clock).pages())
    assert book.asked["/docs/module-1-bees/hives"] == 2


def test_missing_page_is_not_a_failure(book: SiteDouble, tmp_path: Path) -> None:
    list(source(book, cache=tmp_path).pages())
    book.drop("/docs/module-1-bees/honey")
    crawl = source(book, cache=tmp_path)
    assert "module-1-bees/honey" not in paths(list(crawl.pages()))
    assert not crawl.failed
    assert "Left out: 1 pages that no longer exist." in crawl.notes


def test_links_of_a_failing_page_come_from_the_cache(site: SiteDouble, tmp_path: Path) -> None:
    site.put("/", page("Start", "x", "/part"))
    site.put("/part", page("Part", "x", "/part/one"))
    site.put("/part/one", page("One"))
    list(source(site, "/", tmp_path).pages())
    site.always(status(403), path="/part")
    crawl = source(site, "/", tmp_path)
    assert paths(list(crawl.pages())) == ["index", "part/one"]
    assert [failure.path for failure in crawl.failed] == ["part"]


def test_failing_sitemap_is_replaced_by_its_last_version(book: SiteDouble, tmp_path: Path) -> None:
    list(source(book, cache=tmp_path).pages())
    book.always(status(500), path="/sitemap.xml")
    crawl = source(book, cache=tmp_path)
    assert len(list(crawl.pages())) == 4
    assert any("last version" in note for note in crawl.notes)


def test_number_of_pages_is_limited(site: SiteDouble) -> None:
    for number in range(50):
        site.put(f"/p{number}", page(f"P{number}", "x", f"/p{number + 1}", f"/p{number + 2}"))
    crawl = WebsiteSource(f"{site.url}/p0", None, OPTIONS)
    assert paths(list(crawl.pages())) == ["index"], "what is not below the address is not its book"
    site.put("/", page("Start", "x", "/p0"))
    options = CrawlOptions(delay=0, allow_private=True, max_pages=7)
    crawl = source(site, "/", options=options)
    assert len(list(crawl.pages())) == 7
    assert any("limit is 7 pages" in note for note in crawl.notes)


def test_progress_is_reported(book: SiteDouble, told: list[str]) -> None:
    crawl = WebsiteSource(f"{book.url}/docs/", None, OPTIONS, told.append)
    seen: list[tuple[int, int]] = []
    crawl.progress = lambda done, known: seen.append((done, known))
    pages = list(crawl.pages())
    assert len(pages) == 4
    assert seen[-1][0] == seen[-1][1]
    assert len(told) == 1


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://x.example/",
        "http://user:secret@x.example/",
        "docs",
        "http://",
        "http://[::1",
    ],
)
def test_invalid_urls_are_refused(url: str) -> None:
    with pytest.raises(InvalidArgument):
        WebsiteSource(url, None)


def test_url_without_pages_is_an_error(site: SiteDouble) -> None:
    with pytest.raises(InvalidArgument, match="no page"):
        list(source(site, "/").pages())


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
