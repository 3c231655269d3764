"""A book that changes: only what is new is embedded, what is gone leaves, what cannot be read stays as it was. On every store."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from recto.book.sources.tree import MarkdownTree
from recto.embedders.granite.embedder import granite_embedder
from recto.errors import InvalidArgument
from recto.indexing.indexer import IndexJob, IndexReport, index_book, plan_book
from recto.indexing.planner import PageState, Plan
from recto.protocols import Embedder, Store
from recto.search.retriever import Retriever
from recto.types import Chunk, EmbedderFingerprint, Failure, Fingerprint, IndexInfo, Page, Vector
from tests.conformance.test_stores import made
from tests.counting import Counting

NAME = "garden"


@pytest.fixture(params=["edge", "server"])
def store(request: pytest.FixtureRequest, home: Path) -> Iterator[Store]:
    with made(request.param, home) as store:
        yield store


@pytest.fixture
def counting(embedder: Embedder) -> Counting:
    return Counting(embedder)


class Book(MarkdownTree):
    """A tree some of whose pages cannot be read today."""

    def __init__(self, path: Path, *unreadable: str) -> None:
        super().__init__(path, "garden-book")
        self._unreadable = [Failure(name, "it is away today") for name in unreadable]

    def pages(self) -> Iterator[Page]:
        for page in super().pages():
            if not any(failure.covers(page.path) for failure in self._unreadable):
                yield page
        self.failed.extend(self._unreadable)


class Desk:
    """A book, an embedder that counts, a store."""

    def __init__(self, root: Path, counting: Counting, store: Store, journal: Path) -> None:
        self.root, self.counting, self.store, self.journal = root, counting, store, journal

    def index(self, *unreadable: str, modules: tuple[str, ...] = (), rebuild: bool = False) -> IndexReport:
        self.counting.embedded.clear()
        work = IndexJob(Book(self.root, *unreadable), self.counting, modules=modules, rebuild=rebuild)
        return index_book(work, self.store, NAME, journal=self.journal)

    def plan(self, *unreadable: str, modules: tuple[str, ...] = ()) -> Plan:
        return plan_book(
            IndexJob(Book(self.root, *unreadable), self.counting, modules=modules),
            self.store,
            NAME,
            journal=self.journal,
        )

    def chunks(self) -> dict[str, Chunk]:
        return {chunk.id: chunk for chunk in self.store.open(NAME).scroll()}

    def vectors(self) -> dict[str, Vector]:
        return self.store.open(NAME).vectors(list(self.chunks()))

    def write(self, name: str, text: str) -> None:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        (self.root / name).write_text(text, "utf-8")


@pytest.fixture
def desk(small_book: Path, counting: Counting, store: Store, home: Path) -> Desk:
    return Desk(small_book, counting, store, home / "journal")


def made_of(info: IndexInfo) -> Fingerprint:
    assert info.fingerprint is not None
    return info.fingerprint


def states(plan: Plan) -> dict[str, PageState]:
    return {page.path: page.state for page in plan.pages}


def assert_as_if_new(desk: Desk, embedder: Embedder, tmp_path: Path) -> None:
    """The index is what a first run on the same book would have made, vectors included."""
    with made("edge", tmp_path / "fresh") as fresh:
        index_book(IndexJob(Book(desk.root), embedder), fresh, NAME, journal=tmp_path / "fresh" / "journal")
        index = fresh.open(NAME)
        expected = {chunk.id: chunk for chunk in index.scroll()}
        assert desk.chunks() == expected
        found, wanted = desk.vectors(), index.vectors(list(expected))
    for id, vector in wanted.items():
        assert found[id] == pytest.approx(vector, abs=2e-6)


def test_nothing_changed_nothing_embedded_nothing_published(desk: Desk) -> None:
    first = desk.index()
    assert (first.published, first.plan.texts, len(desk.counting.embedded)) == (True, 4, 4)
    before = desk.chunks()
    second = desk.index()
    assert (second.published, second.info.generation, desk.counting.embedded) == (
        False,
        first.info.generation,
        [],
    )
    assert set(states(second.plan).values()) == {PageState.UNCHANGED}
    assert desk.chunks() == before


def test_only_changed_chunks_of_an_edited_page_are_embedded(
    desk: Desk, embedder: Embedder, tmp_path: Path
) -> None:
    long = "\n\n".join(
        f"## Part {number}\n\n" + f"Sentence {number} tells of beans, peas and lentils. " * 20
        for number in range(6)
    )
    desk.write("module-1-garden/03-long.md", f"# Long\n\n{long}\n")
    desk.index()
    desk.write("module-1-garden/03-long.md", f"# Long\n\n{long.replace('Sentence 3', 'Paragraph 3')}\n")
    report = desk.index()
    assert states(report.plan)["module-1-garden/03-long.md"] is PageState.CHANGED
    assert report.plan.count(PageState.UNCHANGED) == 4
    assert 0 < len(desk.counting.embedded) < 3
    assert all("Paragraph 3" in text for text in desk.counting.embedded)
    assert_as_if_new(desk, embedder, tmp_path)


def test_text_that_only_moves_is_not_embedded_again(desk: Desk, embedder: Embedder, tmp_path: Path) -> None:
    parts = [
        f"## Part {number}\n\n" + f"Sentence {number} tells of beans, peas and lentils. " * 20
        for number in range(5)
    ]
    desk.write("module-1-garden/03-long.md", "# Long\n\n" + "\n\n".join(parts))
    desk.index()
    desk.write("module-1-garden/03-long.md", "# Long\n\n" + "\n\n".join(parts[1:] + parts[:1]))
    (desk.root / "module-2-kitchen/01-bread.md").rename(desk.root / "module-2-kitchen/09-loaf.md")
    report = desk.index()
    assert desk.counting.embedded == []
    assert states(report.plan)["module-2-kitchen/01-bread.md"] is PageState.GONE
    assert states(report.plan)["module-2-kitchen/09-loaf.md"] is PageState.NEW
    assert_as_if_new(desk, embedder, tmp_path)


def test_modules_have_titles_in_reading_order(desk: Desk) -> None:
    modules = (("garden", "Garden"), ("kitchen", "Kitchen"), ("intro", "Introduction"))
    assert made_of(desk.index().info).modules == modules
    assert made_of(desk.store.open(NAME).info).modules == modules
    assert {(chunk.module_name, chunk.module_title) for chunk in desk.chunks().values()} == set(modules)
    report = desk.index(
        "module-1-garden/01-soil.md", modules=("kitchen",)
    )  # a page cannot be read, modules are not asked for
    assert (report.published, made_of(report.info).modules) == (False, modules)


def test_a_new_page_does_not_change_those_behind_it(desk: Desk) -> None:
    desk.index()
    desk.write("module-1-garden/00-fences.md", "# Fences\n\nA fence keeps rabbits out.\n")
    report = desk.index()
    assert [page.state for page in report.plan.pages] == [PageState.NEW, *[PageState.UNCHANGED] * 4]
    assert [page.position for page in report.plan.pages] == [1, 2, 3, 4, 5]
    assert len(desk.counting.embedded) == 1


def test_a_new_title_of_a_module_is_stored_without_embedding(desk: Desk) -> None:
    desk.index()
    desk.write("module-2-kitchen/index.md", "# Cooking at home\n")
    report = desk.index()
    assert dict(made_of(report.info).modules)["kitchen"] == "Cooking at home"
    assert {chunk.module_title for chunk in desk.chunks().values() if chunk.module_name == "kitchen"} == {
        "Cooking at home"
    }
    assert desk.counting.embedded == []


def test_unresolved_includes_are_kept_with_the_index(desk: Desk) -> None:
    desk.write("welcome.md", "# Welcome\n\nWords.\n\n{! gone.md !}\n")
    report = desk.index()
    assert made_of(report.info).unresolved_includes == 1
    assert report.plan.notes == ("1 included file could not be resolved: welcome.md: gone.md (missing).",)
    desk.write("gone.md", "Found again.\n")
    assert made_of(desk.index().info).unresolved_includes == 0
    assert made_of(desk.store.open(NAME).info).unresolved_includes == 0


def test_deleted_pages_leave(desk: Desk, embedder: Embedder, tmp_path: Path) -> None:
    desk.index()
    (desk.root / "welcome.md").unlink()
    report = desk.index()
    assert states(report.plan)["welcome.md"] is PageState.GONE
    assert {chunk.source for chunk in desk.chunks().values()}.isdisjoint({"welcome.md"})
    assert_as_if_new(desk, embedder, tmp_path)


def test_a_page_that_fails_keeps_its_old_version(desk: Desk) -> None:
    desk.index()
    desk.write("module-1-garden/02-seeds.md", "# Seeds\n\nNobody can read this yet.\n")
    desk.write("welcome.md", "# Welcome\n\nHello again.\n")
    report = desk.index("module-1-garden/02-seeds.md", "module-2-kitchen/")
    assert [failure.path for failure in report.plan.failed] == [
        "module-1-garden/02-seeds.md",
        "module-2-kitchen/",
    ]
    assert states(report.plan) == {
        "welcome.md": PageState.CHANGED,
        "module-1-garden/01-soil.md": PageState.UNCHANGED,
        "module-1-garden/02-seeds.md": PageState.KEPT,
        "module-2-kitchen/01-bread.md": PageState.KEPT,
    }
    texts = {chunk.source: chunk.text for chunk in desk.chunks().values()}
    assert "last frost" in texts["module-1-garden/02-seeds.md"]
    assert "Hello again" in texts["welcome.md"]
    again = desk.index()
    assert states(again.plan)["module-1-garden/02-seeds.md"] is PageState.CHANGED
    assert len(desk.counting.embedded) == 1


def test_one_module_at_a_time(desk: Desk) -> None:
    desk.index(modules=("module-1-garden",))
    assert {chunk.module_name for chunk in desk.chunks().values()} == {"garden"}
    desk.write("module-1-garden/02-seeds.md", "# Seeds\n\nChanged, and not asked for.\n")
    desk.index(modules=("kitchen", "intro"))
    texts = {chunk.source: chunk.text for chunk in desk.chunks().values()}
    assert set(texts) == {
        "welcome.md",
        "module-1-garden/01-soil.md",
        "module-1-garden/02-seeds.md",
        "module-2-kitchen/01-bread.md",
    }
    assert "last frost" in texts["module-1-garden/02-seeds.md"]
    with pytest.raises(InvalidArgument, match="no page of module 'kitchn'") as caught:
        desk.index(modules=("kitchn",))
    assert "Did you mean 'kitchen'" in caught.value.hint


def test_rebuild_embeds_everything_again(desk: Desk, embedder: Embedder, tmp_path: Path) -> None:
    first = desk.index()
    report = desk.index(rebuild=True)
    assert (report.published, len(desk.counting.embedded)) == (True, 4)
    assert report.info.generation != first.info.generation
    assert_as_if_new(desk, embedder, tmp_path)


def test_another_models_index_is_not_reused(desk: Desk, embedder: Embedder) -> None:
    desk.index()

    class Other(Counting):
        @property
        def fingerprint(self) -> EmbedderFingerprint:
            return replace(super().fingerprint, revision="another")

    desk.counting = Other(embedder)
    report = desk.index("welcome.md")
    assert (report.published, len(desk.counting.embedded)) == (True, 3)
    assert any("another model" in note for note in report.plan.notes)
    assert "welcome.md" not in {chunk.source for chunk in desk.chunks().values()}


def test_another_precision_embeds_and_publishes_only_what_changed(desk: Desk, shared_home: Path) -> None:
    first = desk.index()
    before = desk.vectors()
    desk.counting = Counting(granite_embedder(shared_home, 2, "int8"))
    second = desk.index()
    assert (second.published, second.info.generation, desk.counting.embedded) == (
        False,
        first.info.generation,
        [],
    )
    kept = desk.index("welcome.md")
    assert (kept.published, states(kept.plan)["welcome.md"], desk.counting.embedded) == (
        False,
        PageState.KEPT,
        [],
    )
    desk.write("welcome.md", "# Welcome\n\nThis page says something else now.\n")
    third = desk.index()
    assert (third.published, len(desk.counting.embedded)) == (True, 1)
    changed = {id for id, chunk in desk.chunks().items() if chunk.source == "welcome.md"}
    assert {id for id, vector in desk.vectors().items() if vector != before.get(id)} == changed
    hits = Retriever(desk.counting, desk.store, NAME).search("How is dough kneaded?").hits
    assert hits[0].chunk.source.startswith("module-2-kitchen")


def test_a_plan_tells_and_writes_nothing(desk: Desk, home: Path) -> None:
    plan = desk.plan()
    assert (plan.count(PageState.NEW), plan.chunks, plan.texts, plan.reused) == (4, 4, 4, 0)
    assert plan.tokens > 20
    desk.index()
    desk.write("welcome.md", "# Welcome\n\nHello again.\n")
    (desk.root / "module-2-kitchen/01-bread.md").unlink()
    files = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    plan = desk.plan()
    assert {page.path: page.state.value for page in plan.pages} == {
        "module-1-garden/01-soil.md": "unchanged",
        "module-1-garden/02-seeds.md": "unchanged",
        "welcome.md": "changed",
        "module-2-kitchen/01-bread.md": "gone",
    }
    assert (plan.chunks, plan.texts, plan.reused) == (3, 1, 2)
    assert {path: path.read_bytes() for path in home.rglob("*") if path.is_file()} == files
    assert desk.index().plan.texts == 1


def test_pages_without_text_are_noted(desk: Desk) -> None:
    desk.write("pictures.md", "![](one.png)\n\n<img src='two.png'/>\n")
    desk.write("nothing.md", "---\ntitle: Nothing\n---\n")
    report = desk.index()
    assert "nothing.md has no text." in report.plan.notes
    assert states(report.plan)["nothing.md"] is PageState.NEW
    assert report.plan.modules()["intro"][0] == 3


def test_any_series_of_edits_ends_as_if_the_book_were_new(
    desk: Desk, embedder: Embedder, tmp_path: Path
) -> None:
    """Twelve rounds of edits, each round with some pages unreadable, then all readable: no chunk is lost, stale or wrong."""
    numbers = random.Random(7)
    names = [f"module-{number % 3 + 1}-part{number % 3}/page{number}.md" for number in range(8)]
    for _ in range(12):
        for name in numbers.sample(names, 3):
            if numbers.random() < 0.3:
                (desk.root / name).unlink(missing_ok=True)
            else:
                words = " ".join(numbers.choices(["bean", "soil", "oven", "salt", "rain", "knife"], k=6))
                desk.write(
                    name,
                    f"# {words}\n\n"
                    + "\n\n".join(f"## {words} {part}\n\n{words} {part}." * 3 for part in range(3)),
                )
        desk.index(*numbers.sample(names, 2))
    desk.index()
    assert_as_if_new(desk, embedder, tmp_path)
