"""Index a changing book on every store: new text is embedded, deleted pages leave, unreadable ones stay."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recto.book.sources.tree import MarkdownTree, open_book
from recto.embedders.granite.embedder import built_in_embedder
from recto.errors import CollectionMissing, FingerprintMismatch, InvalidArgument
from recto.indexing import collection_for
from recto.indexing.indexer import IndexJob, IndexReport, index_book, plan_book
from recto.indexing.planner import PageState, Plan
from recto.protocols import Embedder, Index, Store
from recto.search.pages import read_outline
from recto.search.retriever import Retriever
from recto.settings import ServerOptions
from recto.stores.edge import EdgeStore
from recto.stores.qdrant import ServerStore
from recto.stores.qdrant.connection import ServerConnection
from recto.testing import HashEmbedder
from recto.types.book import BookInfo, Failure, Page
from recto.types.index import Calibration, EmbedderFingerprint, Fingerprint, IndexInfo
from recto.types.search import Chunk, Vector
from tests.book.files import write, write_pages
from tests.conftest import QDRANT_KEY
from tests.doubles.qdrant import QdrantDouble
from tests.library import write_library
from tests.shared_embedder import Counting

NAME = "garden"


@pytest.fixture(params=["edge", "server"])
def store(request: pytest.FixtureRequest, home: Path, qdrant: QdrantDouble) -> Iterator[Store]:
    if request.param == "edge":
        yield EdgeStore(home)
    else:
        store = ServerStore(
            ServerConnection(qdrant.url, QDRANT_KEY, lambda _: None), home, ServerOptions(), None
        )
        yield store
        store.close()


class Book(MarkdownTree):
    """A tree with some unreadable pages."""

    def __init__(self, path: Path, *unreadable: str) -> None:
        super().__init__(path, "garden-book")
        self._unreadable = [Failure(name, "it cannot be read today") for name in unreadable]

    def pages(self) -> Iterator[Page]:
        for page in super().pages():
            if not any(failure.covers(page.path) for failure in self._unreadable):
                yield page
        self.failed.extend(self._unreadable)


class Indexed:
    """A book with a counting embedder and a store."""

    def __init__(self, root: Path, store: Store, journal: Path) -> None:
        self.root, self.store, self.journal = root, store, journal
        self.counting = Counting(HashEmbedder())

    def job(self, *unreadable: str, title: str = "", **options: Any) -> IndexJob:
        self.counting.embedded.clear()
        book = Book(self.root, *unreadable)
        book.info = BookInfo(title)
        return IndexJob(book, self.counting, **options)

    def index(self, *unreadable: str, **options: Any) -> IndexReport:
        return index_book(self.job(*unreadable, **options), self.store, NAME, journal=self.journal)

    def chunks(self) -> dict[str, Chunk]:
        return {chunk.id: chunk for chunk in self.store.open(NAME).scroll()}

    def texts(self) -> dict[str, str]:
        return {chunk.source: chunk.text for chunk in self.chunks().values()}

    def vectors(self) -> dict[str, Vector]:
        return self.store.open(NAME).vectors(list(self.chunks()))

    def write(self, name: str, text: str) -> None:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text, "utf-8")


@pytest.fixture
def indexed(small_book: Path, store: Store, home: Path) -> Indexed:
    return Indexed(small_book, store, home / "journal")


def fingerprint_of(info: IndexInfo) -> Fingerprint:
    assert info.fingerprint is not None
    return info.fingerprint


def states(plan: Plan) -> dict[str, PageState]:
    return {page.path: page.state for page in plan.pages}


def assert_same_as_new(indexed: Indexed, tmp_path: Path) -> None:
    """Compare the index and its vectors with those of a first run on the same book."""
    fresh = EdgeStore(tmp_path / "fresh")
    index_book(indexed.job(), fresh, NAME, journal=tmp_path / "fresh" / "journal")
    index = fresh.open(NAME)
    expected = {chunk.id: chunk for chunk in index.scroll()}
    assert indexed.chunks() == expected
    actual, expected_vectors = indexed.vectors(), index.vectors(list(expected))
    for id, vector in expected_vectors.items():
        assert actual[id] == pytest.approx(vector, abs=2e-6)


@pytest.mark.parametrize(
    ("book", "name"), [("Mein Büch", "mein-buech"), ("Café Español", "cafe-espanol"), ("日本", "book")]
)
def test_names_of_collections_keep_letters(book: str, name: str, tmp_path: Path) -> None:
    source = open_book(write_library(tmp_path / book))
    assert collection_for(source, EdgeStore(tmp_path / "home")) == name


def test_a_missing_collection_has_the_nearest_name(house_retriever: Retriever) -> None:
    with pytest.raises(CollectionMissing) as caught:
        house_retriever.store.open("hause")
    assert caught.value.hint.startswith("Did you mean 'house'? ")


def test_an_unchanged_book_is_not_published_again(indexed: Indexed) -> None:
    first = indexed.index()
    assert (first.published, first.plan.texts, len(indexed.counting.embedded)) == (True, 4, 4)
    before = indexed.chunks()
    second = indexed.index()
    assert (second.published, second.info.generation) == (False, first.info.generation)
    assert indexed.counting.embedded == []
    assert set(states(second.plan).values()) == {PageState.UNCHANGED}
    assert indexed.chunks() == before


def test_the_noise_floor_is_measured_again_if_more_than_a_tenth_is_new(indexed: Indexed) -> None:
    measured: list[int] = []

    def calibrate(_embedder: Embedder, index: Index) -> Calibration:
        measured.append(index.info.chunks)
        return Calibration(len(measured) / 10, 0.9, 20, 20)

    def noise_floor_with_new(*pages: int) -> float | None:
        for number in pages:
            indexed.write(
                f"more/{number}.md", f"# Page {number}\n\nText {number}, edition {len(measured)}{pages}.\n"
            )
        report = indexed.index(calibrate=calibrate)
        assert report.published
        return report.info.noise_floor

    assert noise_floor_with_new(*range(6)) == 0.1
    assert measured == [10]
    assert noise_floor_with_new(0) == 0.1, "one chunk of ten is new"
    assert noise_floor_with_new(0, 1) == 0.2, "two of ten are new"


PARTS = [f"## Part {number}\n\n" + f"Sentence {number} tells of beans. " * 20 for number in range(5)]
LONG = "module-1-garden/03-long.md"


def test_only_changed_chunks_of_an_edited_page_are_embedded(indexed: Indexed, tmp_path: Path) -> None:
    text = "# Long\n\n" + "\n\n".join(PARTS)
    indexed.write(LONG, text)
    indexed.index()
    indexed.write(LONG, text.replace("Sentence 3", "Paragraph 3"))
    report = indexed.index()
    assert states(report.plan)[LONG] is PageState.CHANGED
    assert report.plan.count(PageState.UNCHANGED) == 4
    assert 0 < len(indexed.counting.embedded) < 3
    assert all("Paragraph 3" in text for text in indexed.counting.embedded)
    assert_same_as_new(indexed, tmp_path)


def test_moved_text_is_not_embedded_again(indexed: Indexed, tmp_path: Path) -> None:
    indexed.write(LONG, "# Long\n\n" + "\n\n".join(PARTS))
    indexed.index()
    indexed.write(LONG, "# Long\n\n" + "\n\n".join(PARTS[1:] + PARTS[:1]))
    (indexed.root / "module-2-kitchen/01-bread.md").rename(indexed.root / "module-2-kitchen/09-loaf.md")
    report = indexed.index()
    assert indexed.counting.embedded == []
    assert states(report.plan)["module-2-kitchen/01-bread.md"] is PageState.GONE
    assert states(report.plan)["module-2-kitchen/09-loaf.md"] is PageState.NEW
    assert_same_as_new(indexed, tmp_path)


def test_modules_have_titles_in_reading_order(indexed: Indexed) -> None:
    modules = (("garden", "Garden"), ("kitchen", "Kitchen"), ("intro", "Introduction"))
    assert fingerprint_of(indexed.index().info).modules == modules
    assert fingerprint_of(indexed.store.open(NAME).info).modules == modules
    assert {(chunk.module, chunk.module_title) for chunk in indexed.chunks().values()} == set(modules)
    report = indexed.index("module-1-garden/01-soil.md", modules=("kitchen",))  # an unreadable page
    assert (report.published, fingerprint_of(report.info).modules) == (False, modules)
    indexed.write("module-2-kitchen/index.md", "# Cooking at home\n")
    titles = dict(fingerprint_of(indexed.index().info).modules)
    assert titles["kitchen"] == "Cooking at home"
    assert all(chunk.module_title == titles[chunk.module] for chunk in indexed.chunks().values())
    assert indexed.counting.embedded == []


def test_pages_are_listed_in_the_order_of_the_navigation(indexed: Indexed, tmp_path: Path) -> None:
    site = write_pages(tmp_path / "site", "docs/a.md", "docs/b.md", "docs/c.md")
    for nav in (["c.md", "a.md", "b.md"], ["b.md", "a.md", "c.md"]):
        write(site, {"mkdocs.yml": f"site_name: Site\nnav: {nav}\n"})
        job = IndexJob(open_book(site), indexed.counting)
        index_book(job, indexed.store, "site", journal=tmp_path / "journal")
        outline = read_outline(indexed.store.open("site"))
        assert [page.source for page in outline.pages] == nav
    assert fingerprint_of(indexed.index().info).order == (), "the order of the paths"


def test_a_new_page_does_not_change_later_pages(indexed: Indexed) -> None:
    indexed.index()
    indexed.write("module-1-garden/00-fences.md", "# Fences\n\nA fence keeps rabbits out.\n")
    report = indexed.index()
    assert [page.state for page in report.plan.pages] == [PageState.NEW, *[PageState.UNCHANGED] * 4]
    assert [page.position for page in report.plan.pages] == [1, 2, 3, 4, 5]
    assert len(indexed.counting.embedded) == 1


def test_unresolved_includes_are_stored(indexed: Indexed) -> None:
    indexed.write("welcome.md", "# Welcome\n\nWords.\n\n{! gone.md !}\n")
    report = indexed.index()
    assert fingerprint_of(report.info).unresolved_includes == 1
    assert report.plan.notes == ("1 included file could not be resolved: welcome.md: gone.md (missing).",)
    indexed.write("gone.md", "Found again.\n")
    assert fingerprint_of(indexed.index().info).unresolved_includes == 0
    assert fingerprint_of(indexed.store.open(NAME).info).unresolved_includes == 0


def test_a_page_that_fails_keeps_its_old_version(indexed: Indexed) -> None:
    indexed.index()
    indexed.write("module-1-garden/02-seeds.md", "# Seeds\n\nNobody can read this yet.\n")
    indexed.write("welcome.md", "# Welcome\n\nHello again.\n")
    unreadable = ["module-1-garden/02-seeds.md", "module-2-kitchen/"]
    report = indexed.index(*unreadable)
    assert [failure.path for failure in report.plan.failed] == unreadable
    assert states(report.plan) == {
        "welcome.md": PageState.CHANGED,
        "module-1-garden/01-soil.md": PageState.UNCHANGED,
        "module-1-garden/02-seeds.md": PageState.KEPT,
        "module-2-kitchen/01-bread.md": PageState.KEPT,
    }
    assert "last frost" in indexed.texts()["module-1-garden/02-seeds.md"]
    assert "Hello again" in indexed.texts()["welcome.md"]
    again = indexed.index()
    assert states(again.plan)["module-1-garden/02-seeds.md"] is PageState.CHANGED
    assert len(indexed.counting.embedded) == 1


def test_index_one_module(indexed: Indexed) -> None:
    indexed.index(modules=("module-1-garden",))
    assert {chunk.module for chunk in indexed.chunks().values()} == {"garden"}
    indexed.write("module-1-garden/02-seeds.md", "# Seeds\n\nChanged, and not asked for.\n")
    indexed.index(modules=("kitchen", "intro"))
    assert len(indexed.texts()) == 4
    assert "last frost" in indexed.texts()["module-1-garden/02-seeds.md"]
    with pytest.raises(InvalidArgument, match="no page of module 'kitchn'") as caught:
        indexed.index(modules=("kitchn",))
    assert "Did you mean 'kitchen'" in caught.value.hint


def test_rebuild_embeds_everything_again(indexed: Indexed) -> None:
    first = indexed.index()
    report = indexed.index(rebuild=True)
    assert (report.published, len(indexed.counting.embedded)) == (True, 4)
    assert report.info.generation != first.info.generation


class OtherModel(Counting):
    @property
    def fingerprint(self) -> EmbedderFingerprint:
        return replace(super().fingerprint, revision="another")


def test_vectors_of_another_model_are_not_reused(indexed: Indexed) -> None:
    indexed.index()
    indexed.counting = OtherModel(HashEmbedder())
    with pytest.raises(FingerprintMismatch, match="was indexed with") as caught:
        Retriever(indexed.counting, indexed.store, NAME).search("dough")
    assert f"recto index {indexed.root.resolve()} --collection garden" in caught.value.hint
    report = indexed.index("welcome.md")
    assert (report.published, len(indexed.counting.embedded)) == (True, 3)
    assert any("another model" in note for note in report.plan.notes)
    assert "welcome.md" not in indexed.texts()


def test_another_precision_embeds_changes(indexed: Indexed, embedder: Embedder, shared_home: Path) -> None:
    indexed.counting = Counting(embedder)
    first = indexed.index()
    before = indexed.vectors()
    indexed.counting = Counting(built_in_embedder(shared_home, 1, "int8"))
    for unreadable, state in (((), PageState.UNCHANGED), (("welcome.md",), PageState.KEPT)):
        report = indexed.index(*unreadable)
        assert (report.published, report.info.generation) == (False, first.info.generation)
        assert (states(report.plan)["welcome.md"], indexed.counting.embedded) == (state, [])
    indexed.write("welcome.md", "# Welcome\n\nThis page says something else now.\n")
    assert indexed.index().published
    assert len(indexed.counting.embedded) == 1
    changed = {id for id, chunk in indexed.chunks().items() if chunk.source == "welcome.md"}
    for id, vector in indexed.vectors().items():
        assert (vector != pytest.approx(before[id], abs=1e-6)) == (id in changed)
    hits = Retriever(indexed.counting, indexed.store, NAME).search("How is dough kneaded?").hits
    assert hits[0].chunk.source.startswith("module-2-kitchen")


def test_a_plan_writes_nothing(indexed: Indexed, home: Path) -> None:
    plan = plan_book(indexed.job(), indexed.store, NAME, journal=indexed.journal)
    assert (plan.count(PageState.NEW), plan.chunks, plan.texts, plan.reused) == (4, 4, 4, 0)
    assert plan.tokens > 20
    indexed.index()
    indexed.write("welcome.md", "# Welcome\n\nHello again.\n")
    (indexed.root / "module-2-kitchen/01-bread.md").unlink()
    files = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    plan = plan_book(indexed.job(), indexed.store, NAME, journal=indexed.journal)
    assert states(plan) == {
        "module-1-garden/01-soil.md": PageState.UNCHANGED,
        "module-1-garden/02-seeds.md": PageState.UNCHANGED,
        "welcome.md": PageState.CHANGED,
        "module-2-kitchen/01-bread.md": PageState.GONE,
    }
    assert (plan.chunks, plan.texts, plan.reused) == (3, 1, 2)
    assert {path: path.read_bytes() for path in home.rglob("*") if path.is_file()} == files
    assert indexed.index().plan.texts == 1


@pytest.mark.slow
def test_random_edits_give_the_same_index_as_a_new_run(indexed: Indexed, tmp_path: Path) -> None:
    """After six rounds of edits with unreadable pages, no chunk is lost, stale or wrong."""
    numbers = random.Random(7)
    names = [f"module-{number % 3 + 1}-part{number % 3}/page{number}.md" for number in range(8)]
    for _ in range(6):
        for name in numbers.sample(names, 3):
            if numbers.random() < 0.3:
                (indexed.root / name).unlink(missing_ok=True)
            else:
                words = " ".join(numbers.choices(["bean", "soil", "oven", "salt", "rain", "knife"], k=6))
                parts = (f"## {words} {part}\n\n{words} {part}." * 3 for part in range(3))
                indexed.write(name, f"# {words}\n\n" + "\n\n".join(parts))
        indexed.index(*numbers.sample(names, 2))
    indexed.index()
    assert_same_as_new(indexed, tmp_path)


def test_a_new_title_is_published_without_embedding(indexed: Indexed) -> None:
    runs = [indexed.index(title=one) for one in ("Houses", "  Houses and \n gardens  ", "Houses and gardens")]
    assert [run.published for run in runs] == [True, True, False]
    assert runs[1].plan.texts == 0
    fingerprint = fingerprint_of(indexed.store.open(NAME).info)
    assert (fingerprint.title, fingerprint.logo) == ("Houses and gardens", "")
    older = {name: value for name, value in fingerprint.to_dict().items() if name not in ("title", "logo")}
    assert Fingerprint.from_dict(older) == replace(fingerprint, title="")
    assert "logo" not in fingerprint.summary()


def test_a_book_without_text_is_an_error(indexed: Indexed, tmp_path: Path) -> None:
    indexed.index()
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "blank.md").write_text("---\ntitle: Blank\n---\n\n")
    indexed.root = empty
    with pytest.raises(InvalidArgument, match="no text"):
        indexed.index()
    assert indexed.store.open(NAME).count() == 4
