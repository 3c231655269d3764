"""Test the widget on the pages of a book, which have an origin of their own and a strict security policy."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from recto.search.query_log import read_query_log
from recto.server.http import ServeOptions
from recto.server.http.app import WEB
from recto.server.keys import add_key, revoke_key
from recto.settings import AnswerOptions, QueryLogOptions
from tests.browser.site import Site
from tests.browser.webui import PHONE, WIDE, WebUI
from tests.server.http.service import Service, served

pytestmark = pytest.mark.browser

SAMPLE = "physical-ai-book"
FUNDAMENTALS = "/docs/module-1-ros2/01-ros2-fundamentals"
QUESTION = "how do nodes communicate"


@pytest.fixture(scope="module")
def home(books: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(books, tmp_path_factory.mktemp("widget") / "home"))


def key_name(site: Site) -> str:
    return f"site-{urlsplit(site.origin).port}"


@contextmanager
def published(home: Path, log: Path | None = None, *, answer: Any = None, **options: Any) -> Iterator[Site]:
    """Serve the books, and publish a site with a key for its origin."""
    with Site() as site:
        _, key = add_key(home, key_name(site), "search", [site.origin], (SAMPLE, "hostile"))
        settings = replace(served(home), query_log=QueryLogOptions(log), answer=answer or AnswerOptions())
        serve = ServeOptions(collections=(SAMPLE, "hostile"), has_stored_keys=True, **options)
        with Service(settings, serve) as site.service:
            site.attributes = {"data-key": key, "data-collection": SAMPLE}
            yield site


@pytest.fixture(scope="module")
def _site(home: Path) -> Iterator[Site]:
    with published(home) as site:
        yield site


@pytest.fixture
def site(_site: Site) -> Iterator[Site]:
    """The published sample book; a test may change what its pages contain."""
    before = dict(_site.attributes)
    yield _site
    _site.attributes, _site.body = before, ""
    _site.language, _site.direction = "en", "ltr"


class Reader(WebUI):
    """A browser window with a page of the book."""

    def __init__(self, browser: Browser, site: Site, size: tuple[int, int] = WIDE, **more: Any) -> None:
        super().__init__(browser, int(site.origin.rpartition(":")[2]), size, **more)
        self.allowed.append(site.recto)

    def __enter__(self) -> Self:
        super().__enter__()
        self.dialog, self.panel = (self.page.locator(f"recto-widget {name}") for name in ("dialog", "aside"))
        self.input, self.options = self.dialog.get_by_role("combobox"), self.dialog.get_by_role("option")
        return self

    def read(self, path: str = FUNDAMENTALS) -> Page:
        self.page.goto(self.origin + path, wait_until="networkidle")
        return self.page

    def type(self, query: str) -> None:
        """Open the dialog by its shortcut, type a query, and wait for the final results."""
        self.page.keyboard.press("Control+k")
        expect(self.input).to_be_focused()
        self.input.press_sequentially(query)
        self.settle()

    def settle(self, url: str = ".") -> None:
        expect(self.page).to_have_url(re.compile(url))
        expect(self.page.locator("recto-widget .busy")).to_have_count(0)

    def select(self, selector: str = "main p") -> str:
        """Select the text of an element, and return it."""
        self.page.locator(selector).first.select_text()
        return str(self.page.evaluate("getSelection().toString()"))


@pytest.fixture
def reader(browser: Browser, site: Site) -> Iterator[Reader]:
    with Reader(browser, site) as reader:
        yield reader


def test_the_log_has_what_readers_settle_on_and_open(browser: Browser, home: Path, tmp_path: Path) -> None:
    """None of the searches while the reader types is logged, also if the reader leaves the page at once."""
    with published(home, tmp_path / "log") as site, Reader(browser, site) as reader:
        page = reader.read("/docs/intro")
        reader.type(QUESTION)
        url = page.url
        page.keyboard.press("Enter")
        page.wait_for_url(lambda now: now != url)
        page.wait_for_timeout(500)
        reader.read()
        reader.type("urdf")
        page.wait_for_timeout(1700)  # the reader reads the list
        page.keyboard.press("Escape")
    logged = sorted(("click" in entry, entry["query"]) for entry in read_query_log(tmp_path / "log"))
    assert logged == [(False, QUESTION), (False, "urdf"), (True, QUESTION)]


def test_search_with_the_keyboard_and_land_on_the_passage(reader: Reader) -> None:
    page = reader.read("/docs/intro")
    reader.type(QUESTION)
    first = reader.options.first
    expect(first).to_have_attribute("aria-selected", "true")
    assert reader.input.get_attribute("aria-activedescendant") == first.get_attribute("id")
    page.keyboard.press("ArrowDown")
    expect(reader.options.nth(1)).to_have_attribute("aria-selected", "true")
    page.keyboard.press("ArrowUp")
    expect(first).to_have_attribute("aria-selected", "true")
    expect(reader.dialog.get_by_role("group").first).to_have_accessible_name(re.compile("ROS 2 Fundamentals"))
    expect(first).to_contain_text("How do ROS 2 nodes communicate?")
    assert "node" in first.locator("mark").first.inner_text().lower()
    assert ":~:text=" in (reader.dialog.locator("a[href]").first.get_attribute("href") or ""), "it is marked"
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{FUNDAMENTALS}*")
    assert page.evaluate("location.hash") == "#how-nodes-communicate"
    expect(page.locator("#how-nodes-communicate")).to_be_in_viewport()


def test_open_with_a_click_and_with_an_element_of_the_page(reader: Reader, site: Site) -> None:
    page = reader.read()
    page.locator("recto-widget .open").click()
    expect(reader.input).to_be_focused()
    page.keyboard.press("Escape")
    expect(reader.dialog).to_be_hidden()
    site.body = '<input data-recto-open aria-label="Search">'
    reader.read()
    expect(page.locator("recto-widget .open")).to_have_count(0)
    page.locator("input[data-recto-open]").focus()
    page.keyboard.type("q")
    expect(reader.input).to_have_value("q")
    page.keyboard.press("Escape")
    page.locator("input[data-recto-open]").click()
    expect(reader.input).to_be_focused()


def test_select_text_and_see_what_is_related(reader: Reader) -> None:
    page = reader.read()
    selected = reader.select()
    button = page.locator("recto-widget button.related")
    expect(button).to_be_in_viewport()
    button.click()
    expect(reader.panel.get_by_role("heading")).to_be_focused()
    expect(reader.panel.locator("blockquote")).to_have_text(re.sub(r"\s+", " ", selected))
    expect(reader.panel.get_by_role("listitem").nth(2)).to_be_visible()
    assert page.evaluate("getSelection().toString()") == selected
    before = reader.panel.get_by_role("link").first.inner_text()
    reader.panel.get_by_role("textbox").fill("Which licence does it have?")
    page.keyboard.press("Enter")
    expect(reader.panel.get_by_role("link").first).not_to_have_text(before)
    page.keyboard.press("Escape")
    expect(reader.panel).to_be_hidden()


def test_related_passages_with_the_keyboard_alone(reader: Reader) -> None:
    page = reader.read()
    reader.select()
    page.keyboard.press("Control+k")
    expect(reader.options.first).to_contain_text("Related to the selected text")
    page.keyboard.press("Enter")
    expect(reader.dialog).to_be_hidden()
    expect(reader.panel.get_by_role("link").first).to_be_visible()


@pytest.mark.parametrize("related", ["", "off"])
def test_selections_that_offer_nothing(reader: Reader, site: Site, related: str) -> None:
    """A selection in a field or of one letter, or any selection if the site does not want them."""
    site.attributes["data-related"] = related
    site.body = '<textarea aria-label="Notes">some text in a field</textarea><p id="short">ab</p>'
    page = reader.read()
    page.locator("textarea").select_text()
    reader.select("main p" if related else "#short")
    page.wait_for_timeout(400)
    expect(page.locator("recto-widget button.related:visible")).to_have_count(0)


def test_the_last_letters_decide(reader: Reader) -> None:
    reader.read()
    reader.type("navigation")
    reader.input.fill("quality of service")
    reader.settle()
    expect(reader.options.first).to_contain_text("QoS")
    reader.input.fill("")
    expect(reader.options).to_have_count(0)
    reader.input.fill("the best pizza in Naples")
    expect(reader.dialog.get_by_role("status")).to_contain_text("The book does not seem to cover this.")


def test_recent_searches(reader: Reader) -> None:
    page = reader.read("/docs/intro")
    reader.type(QUESTION)
    with page.expect_navigation():
        page.keyboard.press("Enter")
    page.keyboard.press("Control+k")
    expect(reader.options).to_have_text([QUESTION])
    page.keyboard.press("Enter")
    expect(reader.input).to_have_value(QUESTION)
    expect(reader.options.first).to_contain_text("How do ROS 2 nodes communicate?")
    reader.input.fill("")
    reader.dialog.get_by_role("button", name="Clear").click()
    expect(reader.options).to_have_count(0)


def test_a_revoked_key(browser: Browser, home: Path) -> None:
    with published(home) as site, Reader(browser, site) as reader:
        reader.read()
        revoke_key(home, key_name(site))
        reader.type("robots")
        expect(reader.dialog).to_contain_text("The search is not available on this page.")
        assert any("revoked" in line for line in reader.wrong), "the operator finds the reason in the console"
        reader.wrong.clear()


def test_a_rate_limit_and_its_end(browser: Browser, home: Path) -> None:
    with published(home, rate=6) as site, Reader(browser, site) as reader:  # one search in ten seconds
        reader.read()
        reader.page.keyboard.press("Control+k")
        expect(reader.input).to_be_focused()
        site.service.get("/v1/modules", Authorization=f"Bearer {site.attributes['data-key']}")
        reader.input.fill("sensors")
        told = re.compile(r"Too many searches\. Trying again in \d+ seconds\.")
        expect(reader.dialog).to_contain_text(told)
        expect(reader.options.first).to_be_visible()  # it has tried again by itself
        reader.settle()
        expect(reader.options.first).to_be_visible()  # even if the hybrid search after it was refused


@pytest.mark.parametrize(
    ("status", "text"),
    [(0, "The search cannot be reached."), (503, "not available at the moment"), (500, "The search failed.")],
)
def test_a_service_that_fails(reader: Reader, site: Site, status: int, text: str) -> None:
    page = reader.read()
    page.keyboard.press("Control+k")
    expect(reader.input).to_be_focused()
    failing = True

    def answer(route: Route) -> None:
        if not failing:
            route.continue_()
        elif status:
            headers = {"access-control-allow-origin": site.origin}
            route.fulfill(status=status, json={"error": "no", "status_code": status}, headers=headers)
        else:
            route.abort()

    page.route("**/v1/search", answer)
    reader.input.fill("sensors")
    expect(reader.dialog).to_contain_text(text)
    failing = False
    reader.dialog.get_by_role("button", name="Try again").click()
    expect(reader.options.first).to_be_visible()
    reader.wrong = [line for line in reader.wrong if "net::ERR" not in line]


def test_hostile_content_is_text(reader: Reader, site: Site) -> None:
    site.attributes["data-collection"] = "hostile"
    site.attributes["data-rewrite"] = "local://docs/ javascript:window.ran=1//"
    page = reader.read("/docs/module-1-danger/02-links")
    reader.type("poison heading script")
    assert reader.options.count() > 2
    assert reader.dialog.locator("img, iframe, form, style, link, base, svg:not(.icon)").count() == 0
    assert reader.dialog.locator("a[href]").count() == 0, "a script was made a link"
    reader.options.first.click()
    page.keyboard.press("Escape")
    reader.select()
    page.locator("recto-widget button.related").click()
    expect(reader.panel.get_by_role("listitem").first).to_be_visible()
    assert page.evaluate("window.ran") is None


@pytest.mark.parametrize("size", [WIDE, PHONE])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_theme_and_size_of_the_page(browser: Browser, site: Site, size: tuple[int, int], theme: str) -> None:
    with Reader(browser, site, size) as reader:
        page = reader.read()
        width = page.evaluate("document.documentElement.scrollWidth")
        page.evaluate("theme => { document.documentElement.dataset.theme = theme }", theme)
        reader.type(QUESTION)
        background = reader.dialog.evaluate("element => getComputedStyle(element).backgroundColor")
        red = int(re.findall(r"\d+", background)[0])
        assert (red < 128) == (theme == "dark")
        box = reader.dialog.bounding_box()
        assert box is not None
        assert (box["width"] >= size[0]) == (size == PHONE)
        assert page.evaluate("document.documentElement.scrollWidth") == width


def test_the_sites_colours_texts_and_direction(reader: Reader, site: Site) -> None:
    site.language, site.direction = "ar", "rtl"
    site.attributes["data-strings"] = '{"search": "بحث", "placeholder": "ابحث في الكتاب", "nonsense": "x"}'
    page = reader.read()
    page.evaluate("document.documentElement.style.setProperty('--recto-background', 'rgb(1, 2, 3)')")
    expect(page.locator("recto-widget .open")).to_contain_text("بحث")
    page.keyboard.press("Control+k")
    expect(reader.input).to_have_attribute("placeholder", "ابحث في الكتاب")
    assert reader.dialog.evaluate("one => getComputedStyle(one).direction") == "rtl"
    assert reader.dialog.evaluate("one => getComputedStyle(one).backgroundColor") == "rgb(1, 2, 3)"
    assert reader.wrong == ['warning: Recto: data-strings has no text "nonsense".']
    reader.wrong.clear()


def test_little_is_loaded_until_a_reader_searches(reader: Reader, site: Site) -> None:
    site.body = '<button type="button" data-recto-open>Search</button>'
    page = reader.read()
    loaded = page.evaluate("performance.getEntriesByType('resource').map(({ name }) => name)")
    assert [name for name in loaded if name.startswith(site.recto)] == [f"{site.recto}/widget.js"]
    height = page.evaluate("document.documentElement.scrollHeight")
    reader.type(QUESTION)
    assert page.evaluate("document.documentElement.scrollHeight") == height, "the page does not move"
    assert page.locator("recto-widget").count() == 1


def test_agents_in_the_browser_search_the_book(browser: Browser, site: Site) -> None:
    """Chromium has WebMCP behind a flag; some versions take the input as JSON text."""
    program = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))))
    flags = ["--no-sandbox", "--enable-blink-features=WebMCP"]
    with browser.browser_type.launch(executable_path=program, args=flags) as own:
        page = own.new_page()
        page.goto(site.origin + FUNDAMENTALS, wait_until="networkidle")
        page.wait_for_function("document.modelContext.getTools().then((tools) => tools.length)")
        called = """async (query) => {
            const [tool] = await document.modelContext.getTools();
            const run = (input) => document.modelContext.executeTool(tool, input);
            return [tool.name, await run({ query }).catch(() => run(JSON.stringify({ query })))];
        }"""
        name, found = page.evaluate(called, QUESTION)
        other = page.evaluate(called, "Which clutch does a 1972 motorcycle have?")[1]
    assert name == "search_book"
    first = json.loads(found)["content"][0]["text"]
    assert re.match(r"\S.* > \S.*\n" + re.escape(site.origin), first), "a link to the site"
    assert "nodes" in first
    assert json.loads(other)["content"][0]["text"] == "The book probably does not cover this."


def test_the_widget_is_small() -> None:
    """A page loads the texts of one language at most."""
    names = ("widget.js", "client.js", "dom.js", "highlight.js")
    files = [*(WEB / name for name in names), *(WEB / "widget").glob("*.js")]
    assert len(files) > len(names)
    sizes = {file.name: len(gzip.compress(file.read_bytes(), 9)) for file in files}
    texts = [size for name, size in sizes.items() if name.startswith("strings_")]
    assert sum(sizes.values()) - sum(texts) + max(texts) <= 30 * 1024


def test_version_and_language_of_the_page_are_preferred(reader: Reader, site: Site) -> None:
    """Also after the site has replaced the page without loading another one."""
    site.language, site.body = "de", '<meta name="docsearch:version" content="1.0">'
    page = reader.read()

    def preferred(query: str) -> str:
        with page.expect_request(lambda one: query in (one.post_data or "")) as sent:
            reader.input.fill(query)
        reader.settle()
        return str((sent.value.post_data_json or {})["prefer"])

    page.keyboard.press("Control+k")
    assert preferred("sensors") == "1.0,de"
    page.evaluate("document.querySelector('meta[name=\"docsearch:version\"]').content = '2.0'")
    assert preferred("navigation") == "2.0,de"
    assert preferred("sensors") == "2.0,de"  # not the cached results of another version


def test_script_tag_states_the_version_and_the_language(reader: Reader, site: Site) -> None:
    site.attributes |= {"data-version": "3.1", "data-lang": "pt-BR"}
    page = reader.read()
    reader.select()
    with page.expect_request("**/v1/related") as sent:
        page.locator("recto-widget button.related").click()
    assert (sent.value.post_data_json or {})["prefer"] == "3.1,pt-BR"
