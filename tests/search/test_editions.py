"""Test books with several versions and locales: what a search finds, in Python and in the static client."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from recto.book.sources.options import SiteOptions
from recto.book.sources.tree import open_book
from recto.evaluation.coverage import cover
from recto.evaluation.doctor import editions
from recto.evaluation.doctor.environment import DoctorContext
from recto.evaluation.explain import Verdict, explain
from recto.evaluation.runs import Options, run_suite
from recto.evaluation.suites import Expectation, Suite
from recto.search.pages import read_outline
from recto.search.retriever import Retriever
from recto.server.static_export import export_static
from recto.stores.edge import EdgeStore
from recto.testing.parts import HashEmbedder
from recto.types.search import Filters, Outcome, SearchResponse
from tests.book.files import write
from tests.library import write_index
from tests.server.test_static_export import ask

CONFIG = """
module.exports = {
  url: 'https://x.org', baseUrl: '/',
  i18n: {defaultLocale: 'en', locales: ['en', 'de', 'pt-BR']},
  presets: [['classic', {docs: {}}]],
  plugins: [['@docusaurus/plugin-content-docs', {id: 'team', path: 'team', routeBasePath: 'team'}]],
};
"""
WATER = "# Water\n\nThe garden has a pump and a hose. All of it is what you need for the {} pump.\n"
WASSER = "# Wasser\n\nDer Garten hat eine Pumpe und einen Schlauch, und das ist die pump der Anlage.\n"
AGUA = "# Água\n\nO jardim tem uma bomba e uma mangueira, e isto é a pump que você usa para a água.\n"
GERMAN, PORTUGUESE = (f"i18n/{one}/docusaurus-plugin-content-docs" for one in ("de", "pt-BR"))
FILES = {
    "docusaurus.config.js": CONFIG,
    "versions.json": json.dumps(["2.0", "1.0"]),
    "docs/water.md": WATER.format("next"),
    "docs/tools.md": "# Tools\n\nThe pump is new in the next version.\n",
    "versioned_docs/version-2.0/water.md": WATER.format("second"),
    "versioned_docs/version-2.0/tools.md": "# Tools\n\nYou need the tools of the pump.\n",
    "versioned_docs/version-1.0/water.md": WATER.format("first"),
    "team/people.md": "# People\n\nWho repairs the pump of the garden?\n",
    f"{GERMAN}/version-2.0/water.md": WASSER,
    f"{GERMAN}/version-1.0/water.md": WASSER.replace("Wasser", "Altes Wasser"),
    f"{PORTUGUESE}/version-2.0/water.md": AGUA,
}
TEAM, WATER_2, TOOLS_2 = "/team/people", "/docs/water", "/docs/tools"
WATER_1, DE_2, DE_1, PT = "/docs/1.0/water", "/de/docs/water", "/de/docs/1.0/water", "/pt-BR/docs/water"
NEXT = {"/docs/next/water", "/docs/next/tools"}
CURRENT = {TEAM, WATER_2, TOOLS_2, DE_2, PT}
SEARCHES = [
    ({}, CURRENT),
    ({"version": "2.0"}, CURRENT),
    ({"version": "1.0"}, {TEAM, WATER_1, DE_1}),
    ({"version": "all"}, {*CURRENT, *NEXT, WATER_1, DE_1}),
    ({"version": "9.9"}, set()),
    ({"lang": "de"}, {TEAM, TOOLS_2, DE_2}),
    ({"lang": "pt"}, {TEAM, TOOLS_2, PT}),
    ({"lang": "en", "version": "1.0"}, {TEAM, WATER_1}),
    ({"lang": "ja"}, set()),
    ({"prefer": "1.0,de-AT"}, {TEAM, DE_1}),
    ({"prefer": "2.0,en"}, {TEAM, WATER_2, TOOLS_2}),
    ({"prefer": "pt_br"}, {TEAM, TOOLS_2, PT}),
    ({"prefer": "9.9, ja"}, CURRENT),
    ({"prefer": "1.0,de", "version": "current", "lang": "en"}, {TEAM, *NEXT}),
]


def indexed(folder: Path, options: SiteOptions, files: Mapping[str, str] = FILES) -> Retriever:
    """Index a book in a folder, or index it again with other files."""
    source, embedder = open_book(write(folder / "garden", dict(files)), options), HashEmbedder()
    write_index(source, embedder, folder / "home", "garden")
    return Retriever(embedder, EdgeStore(folder / "home"), "garden")


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Retriever:
    return indexed(tmp_path_factory.mktemp("editions"), SiteOptions(version="all", locale="all"))


def search(book: Retriever, options: dict[str, str], mode: Any = "hybrid") -> SearchResponse:
    given: Any = options
    return book.search("pump", top_k=50, mode=mode, **given)


def addresses(response: SearchResponse) -> set[str]:
    return {hit.chunk.page_url.removeprefix("https://x.org") for hit in response.hits}


@pytest.mark.parametrize(("options", "expected"), SEARCHES)
def test_version_and_language(book: Retriever, options: dict[str, str], expected: set[str]) -> None:
    for mode in ("hybrid", "dense", "lexical"):
        assert addresses(search(book, options, mode)) == expected, mode


def test_static_client_finds_the_same(book: Retriever, tmp_path: Path) -> None:
    export_static(book.open(), tmp_path / "recto")
    asked = [{**options, "top_k": 50} for options, _ in SEARCHES]
    requests = [[kind, "pump", options] for kind in ("search", "related") for options in asked]
    answers = ask(tmp_path / "recto", requests)
    for (kind, _, options), (_, expected), found in zip(requests, SEARCHES * 2, answers, strict=True):
        urls = {hit["page_url"].removeprefix("https://x.org") for hit in found["results"]}
        assert urls == expected if kind == "search" else urls <= expected, options


def test_response_names_the_other_versions_unless_one_was_chosen(book: Retriever) -> None:
    (note,) = search(book, {}).warnings
    assert note == "Only version 2.0 was searched. The book also has: current, 1.0."
    for options in ({"version": "1.0"}, {"version": "all"}, {"prefer": "1.0"}):
        assert search(book, options).warnings == ()


def test_page_of_any_version_can_be_searched_by_its_url(book: Retriever) -> None:
    response = book.search("pump", filters=Filters(page_url=f"https://x.org{WATER_1}"))
    assert addresses(response) == {WATER_1}
    assert response.warnings == ()


def test_questions_of_a_suite_have_their_version_and_language(book: Retriever) -> None:
    """A path means the page of this version and language, and so does its address."""
    old, german, current = Filters(versions=("1.0",)), Filters(language="de"), Filters()
    both = Filters(language="de", versions=("1.0",))
    all_filters = (old, german, both, current)
    paths = (Expectation("pump", pages=("water.md",), filters=filters) for filters in all_filters)
    address = Expectation("pump", pages=(f"https://x.org{WATER_1}",), filters=old, id="address")
    run = run_suite(book, Suite("garden", (*paths, address)), Options(10))
    assert (len(run.answers), run.unmeasured) == (5, ())
    assert all(answer.rank for answer in run.answers)


def test_unknown_version_is_explained(book: Retriever) -> None:
    response = search(book, {"version": "9.9"})
    assert response.outcome is Outcome.FILTERED_OUT
    assert response.message == "The book has no version '9.9'. Versions: 2.0, current, 1.0."
    expected = explain(book, "pump", expect=f"https://x.org{WATER_1}").expected
    assert expected is not None
    assert expected.verdict is Verdict.FILTERED_OUT
    assert "version '1.0'" in expected.message


def test_lists_and_checks_use_the_current_version(book: Retriever) -> None:
    pages = {page.url.removeprefix("https://x.org") for page in read_outline(book.open()).pages}
    assert pages == CURRENT
    covered = {one.section.first.page_url.removeprefix("https://x.org") for one in cover(book).sections}
    assert covered == CURRENT


def test_doctor_shows_versions_and_locales(book: Retriever, tmp_path: Path) -> None:
    found = editions(DoctorContext({}, tmp_path, "garden"), book.open())
    assert [one.message for one in found] == [
        "Versions of the book: 2.0 (searched by default), current, 1.0",
        "Locales of the book: en, de, pt-BR",
    ]


def test_translation_of_a_page_changes_who_sees_the_original(tmp_path: Path) -> None:
    book = indexed(tmp_path, SiteOptions(locale="all"))
    assert addresses(search(book, {"lang": "de"})) == {TEAM, TOOLS_2, DE_2}
    german = {f"{GERMAN}/version-2.0/tools.md": "# Werkzeug\n\nDas ist die pump, und der Rest ist da.\n"}
    book = indexed(tmp_path, SiteOptions(locale="all"), german)
    assert addresses(search(book, {"lang": "de"})) == {TEAM, "/de/docs/tools", DE_2}
    assert search(book, {}).warnings == ()  # there is one version


def test_book_with_one_version_has_no_default_filter(tmp_path: Path) -> None:
    book = indexed(tmp_path, SiteOptions())
    made = book.open().info.fingerprint
    assert made is not None
    assert (made.versions, made.locales) == ((), ())
    response = search(book, {"prefer": "1.0,de"})
    assert (addresses(response), response.filters) == ({TEAM, WATER_2, TOOLS_2}, Filters())
    assert addresses(search(book, {"version": "2.0"})) == {WATER_2, TOOLS_2}
    assert search(book, {"version": "1.0"}).message == "The book has no version '1.0'."
