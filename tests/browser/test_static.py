"""Test the widget on a site without a service: files on a plain server, below a path, with a strict policy."""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Iterator
from html import escape
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from playwright.sync_api import Browser, Route, expect

from recto.server.static_export import export_static
from recto.stores.edge import EdgeStore
from tests.browser.site import Site
from tests.browser.test_widget import QUESTION, SAMPLE, Reader
from tests.browser.webui import problems
from tests.running import ROOT

BUDGET = 300_000  # bytes
LATER = re.compile(r"/model/|/vectors-|/(model|semantic)\.js")
OFF_TOPIC = "how do I bake bread"
NOT_COVERED = "The book does not seem to cover this."
WORDS_ONLY = "The search by meaning is not available."
POLICY = "default-src 'self'; require-trusted-types-for 'script'; trusted-types 'none'"
PAGE = "/book/docs/module-1-ros2/01-ros2-fundamentals/"


class StaticSite(Site):
    """The files of a directory, which are not compressed."""

    def __init__(self, directory: Path) -> None:
        super().__init__()
        self.directory = directory

    @property
    def recto(self) -> str:
        return f"{self.origin}/book/recto"

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        file = self.directory / unquote(urlsplit(request.path).path).strip("/")
        file = file / "index.html" if file.is_dir() else file
        content = file.read_bytes() if file.is_file() else b""
        request.send_response(200 if file.is_file() else 404)
        request.send_header("Content-Type", mimetypes.guess_type(file.name)[0] or "application/octet-stream")
        request.send_header("Content-Length", str(len(content)))
        request.send_header("Content-Security-Policy", POLICY)
        request.end_headers()
        request.wfile.write(content)


def write_site(books: Path, collection: str, directory: Path) -> None:
    """Write each page of a book as HTML below /book/, and the static search to /book/recto/."""
    index = EdgeStore(books).open(collection)
    export_static(index, directory / "book" / "recto")
    pages: dict[str, str] = {}
    for one in sorted(index.scroll(), key=lambda one: one.chunk_index):
        section = f'<section id="{escape(one.anchor)}"><h2>{escape(one.headings[-1])}</h2><p>{escape(one.text)}</p></section>'
        pages[one.page_url] = pages.get(one.page_url, "") + section
    for url, sections in pages.items():
        path = directory / "book" / url.removeprefix("local://docs/") / "index.html"
        path.parent.mkdir(parents=True, exist_ok=True)
        script = '<script type="module" src="/book/recto/widget.js" data-rewrite="local://docs/ /book/">'
        head = f'<head><meta charset="utf-8"><title>Book</title>{script}</script></head>'
        path.write_text(f'<!doctype html><html lang="en">{head}<body><main>{sections}</main></body></html>')


@pytest.fixture(scope="module")
def site(books: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StaticSite]:
    directory = tmp_path_factory.mktemp("static-site")
    write_site(books, SAMPLE, directory)
    with StaticSite(directory) as site:
        yield site


@pytest.fixture
def reader(browser: Browser, site: StaticSite) -> Iterator[Reader]:
    with Reader(browser, site) as reader:
        yield reader


def test_search_and_open_a_hit_with_the_keyboard(reader: Reader) -> None:
    page = reader.read("/book/docs/intro/")
    reader.type("kinematcs")
    expect(reader.dialog).to_contain_text("Searched for “kinematics” instead of “kinematcs”.")
    reader.input.fill("zzzz qqqq")
    expect(reader.dialog).to_contain_text(NOT_COVERED)  # as with a service
    reader.input.fill(QUESTION)
    expect(reader.options.first).to_contain_text("How do ROS 2 nodes communicate?")
    assert "node" in reader.options.first.locator("mark").first.inner_text().lower()
    expect(reader.dialog.get_by_role("status")).to_have_text(re.compile(r"\d+ passages on \d+ pages"))
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{PAGE.rstrip('/')}*")
    assert page.evaluate("location.hash") == "#how-nodes-communicate"
    expect(page.locator("#how-nodes-communicate").first).to_be_in_viewport()


@pytest.mark.parametrize("markdown", [False, True])
def test_pages_as_markdown_are_offered_only_if_there_are_files(
    reader: Reader, site: StaticSite, markdown: bool
) -> None:
    file = site.directory / "book" / "actions.html"
    address = "data-markdown='{path}.md'" if markdown else ""
    script = f"<script type=module src=/book/recto/widget.js data-page-actions {address}></script>"
    file.write_text(f"<!doctype html><html lang=en><title>Book</title>{script}<main><h1>Book</h1></main>")
    actions = reader.read("/book/actions.html").locator("recto-page-actions")
    actions.locator("summary").click()
    expect(actions.get_by_role("listitem").first).to_have_text(
        "View as Markdown" if markdown else "Open in ChatGPT"
    )
    expect(actions.get_by_role("button", name="Copy page")).to_have_count(int(markdown))


@pytest.mark.parametrize(
    "query", [QUESTION, "qos", "Which sensors does a humanoid robot need for navigation in a house?"]
)
def test_the_first_answer_needs_little(reader: Reader, query: str) -> None:
    """All that the browser receives for the search: loader, widget, metadata, words and chunks, not compressed."""
    session = reader.context.new_cdp_session(reader.page)
    session.send("Network.enable")
    received: list[int] = []
    later: set[str] = set()  # what is loaded after the first answer

    def on_request(event: dict[str, Any]) -> None:
        if LATER.search(event["request"]["url"]):
            later.add(event["requestId"])

    def on_finished(event: dict[str, Any]) -> None:
        if event["requestId"] not in later:
            received.append(event["encodedDataLength"])

    session.on("Network.requestWillBeSent", on_request)
    session.on("Network.loadingFinished", on_finished)
    reader.page.goto(f"{reader.origin}{PAGE}", wait_until="networkidle")
    received[:] = []
    loader = reader.page.evaluate("performance.getEntriesByName(document.scripts[0].src)[0].transferSize")
    reader.page.keyboard.press("Control+k")
    reader.input.fill(query)
    expect(reader.options.first).to_be_visible()
    reader.settle()
    assert 60_000 < sum(received) + loader < BUDGET


@pytest.mark.parametrize(
    ("query", "title"),
    [
        ("¿Cómo se comunican los nodos entre sí?", "How do ROS 2 nodes communicate?"),
        ("ROS 2 کے نوڈز آپس میں کیسے بات کرتے ہیں؟", "How do ROS 2 nodes communicate?"),
    ],
    ids=["Spanish", "Urdu"],
)
def test_questions_in_other_languages(reader: Reader, query: str, title: str) -> None:
    """The English book is found by its meaning."""
    reader.read(PAGE)
    reader.type(query)
    expect(reader.options.first).to_contain_text(title, ignore_case=True)
    expect(reader.dialog).not_to_contain_text(NOT_COVERED)


def test_hostile_content_is_text(browser: Browser, books: Path, tmp_path: Path) -> None:
    write_site(books, "hostile", tmp_path)
    page_path = next((tmp_path / "book" / "docs").rglob("index.html")).parent.relative_to(tmp_path)
    with StaticSite(tmp_path) as site, Reader(browser, site) as reader:
        page = reader.read(f"/{page_path}/")
        for query in ("poison", "poisoned links", "code that must stay code"):
            page.keyboard.press("Control+k")
            reader.input.fill(query)
            expect(reader.options.first).to_be_visible()
            reader.settle()
            forbidden = "script, img, iframe, style, form:not(.ask), base, link, meta"
            assert page.locator("recto-widget").locator(forbidden).count() == 0
            for link in reader.dialog.get_by_role("option").all():
                assert re.match(r"http://127\.0\.0\.1|$", link.get_attribute("href") or "")
            page.keyboard.press("Escape")
        assert page.evaluate("window.ran") is None


def test_the_code_of_the_guide(reader: Reader, site: StaticSite) -> None:
    guide = (ROOT / "docs" / "how-to" / "widget.md").read_text("utf-8")
    (code,) = re.findall(r"^```js\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL)
    reader.page.goto(f"{site.origin}{PAGE}")
    code = code.replace("/recto/", "/book/recto/")
    found = reader.page.evaluate(f"async () => {{ {code} return better; }}")
    assert [hit["module"] for hit in found["results"]] == ["ros2"] * 3
    assert found["mode"] == "hybrid"


def test_results_by_meaning_replace_those_by_words(reader: Reader) -> None:
    """Under a policy without workers, WebAssembly and Trusted Types."""
    page = reader.read(PAGE)
    of_the_site = problems(page)
    page.keyboard.press("Control+k")
    reader.input.fill(OFF_TOPIC)
    expect(reader.dialog).to_contain_text(NOT_COVERED)
    expect(reader.options.first).to_be_visible()
    assert [problem for problem in problems(page) if problem not in of_the_site] == []
    expect(reader.dialog.locator(".note")).to_be_hidden()


def test_meaning_needs_no_network_after_the_first_search(reader: Reader) -> None:
    """The query is not typed letter by letter: its beginnings may need other files each time."""
    page = reader.read(PAGE)
    page.keyboard.press("Control+k")
    reader.input.fill(OFF_TOPIC)
    expect(reader.dialog).to_contain_text(NOT_COVERED)
    loaded = -1
    while loaded != (loaded := page.evaluate("performance.getEntriesByType('resource').length")):
        page.wait_for_timeout(1000)  # until nothing is being loaded any more
    page.route(re.compile(r"/(data|model)/"), lambda route: route.abort("internetdisconnected"))
    page.reload(wait_until="networkidle")
    page.keyboard.press("Control+k")
    reader.input.fill(OFF_TOPIC)
    expect(reader.dialog).to_contain_text(NOT_COVERED)
    reader.wrong = [one for one in reader.wrong if "ERR_INTERNET_DISCONNECTED" not in one]


def test_results_do_not_change_under_the_cursor(reader: Reader) -> None:
    """A reader who has moved to a result keeps the list; progress is shown below it."""
    page = reader.read(PAGE)
    held: list[Route] = []
    page.route("**/body.bin", lambda route: held.append(route))  # noqa: PLW0108 (append itself has no signature)
    reader.type(OFF_TOPIC + " or use a robot")
    expect(reader.options.first).to_be_visible()
    page.keyboard.press("ArrowDown")
    selected = reader.options.nth(1)
    expect(selected).to_have_attribute("aria-selected", "true")
    before = reader.options.all_inner_texts()
    while not held:  # the test's time limit ends this
        page.wait_for_timeout(50)
    held[0].continue_()
    expect(reader.dialog.locator(".note")).to_be_hidden()
    page.wait_for_timeout(2000)
    assert reader.options.all_inner_texts() == before
    expect(selected).to_have_attribute("aria-selected", "true")


def test_words_are_searched_for_without_the_model(reader: Reader) -> None:
    """Node tests all kinds of missing and damaged files."""
    page = reader.read(PAGE)
    page.route("**/body.bin", lambda route: route.abort("connectionreset"))
    reader.type(QUESTION)
    expect(reader.options.first).to_contain_text("How do ROS 2 nodes communicate?")
    expect(reader.dialog).to_contain_text(WORDS_ONLY)
    page.keyboard.press("Escape")
    reader.type("qos")
    expect(reader.options.first).to_be_visible()
    expect(reader.dialog).not_to_contain_text(WORDS_ONLY)
    (warning,) = (one for one in reader.wrong if "meaning" in one)
    assert warning.startswith("warning: Recto: the search by meaning is not available.")
    reader.wrong.clear()


def test_the_page_stays_responsive(reader: Reader) -> None:
    """The model gives the page its turn again and again."""
    page = reader.read(PAGE)
    reader.type(OFF_TOPIC)
    expect(reader.dialog).to_contain_text(NOT_COVERED)
    page.evaluate(
        "() => { const pause = scheduler.yield.bind(scheduler); window.pauses = 0;"
        " scheduler.yield = () => { window.pauses += 1; return pause(); }; }"
    )
    reader.input.fill("which controller keeps a walking robot from falling over when it is pushed")
    reader.settle()
    page.wait_for_function("window.pauses >= 3")


def test_related_passages_are_found_by_meaning(reader: Reader) -> None:
    """The panel lists passages with the same words at once, and replaces them when the model is loaded."""
    page = reader.read(PAGE)
    held: list[Route] = []
    page.route("**/body.bin", lambda route: held.append(route))  # noqa: PLW0108 (append itself has no signature)
    reader.select()
    page.locator("recto-widget button.related").click()
    expect(reader.panel.get_by_role("listitem").first).to_be_visible()
    page.locator("recto-widget aside li").first.evaluate("element => { element.id = 'by-words'; }")
    page.mouse.move(0, 0)
    held[0].continue_()
    expect(page.locator("recto-widget #by-words")).to_have_count(0)
    expect(reader.panel.get_by_role("listitem").first).to_be_visible()
