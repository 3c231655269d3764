import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from bench.chunk_quality import BookQuestion
from bench.peers import table
from bench.peers.dataset import Book, read_book
from bench.peers.environments import here
from bench.peers.figures import Figure, Results, Spread, ratio, spread
from bench.peers.goals import goals
from bench.peers.listing import SELF, load
from bench.peers.process import RunnerError, RunnerProcess, cold
from bench.peers.running import Bench
from bench.peers.workloads import indexing, querying, starting
from bench.vectors import Vectors
from recto.book.sources.tree import open_book
from recto.embedders.onnx import LocalEmbedder
from recto.protocols import Embedder

LISTING = load()
SYSTEMS = {system.name: system for system in LISTING.systems}
HERE = ("recto", "bare", "numpy")  # what runs in the interpreter of the tests
QUESTIONS = (
    BookQuestion("When are beans sown?", ("module-1-garden/02-seeds.md",)),
    BookQuestion("How is dough made?", ("module-2-kitchen/01-bread.md",)),
)


@pytest.fixture(scope="module")
def vectors(embedder: Embedder, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vectors]:
    assert isinstance(embedder, LocalEmbedder)
    with Vectors(embedder, tmp_path_factory.mktemp("vectors")) as vectors:
        yield vectors


def test_a_long_text_is_shortened_to_what_the_model_reads(vectors: Vectors) -> None:
    for word in ("word ", "日本", "é", "antidisestablishmentarianism", "😀 "):
        shown = vectors.shortened(word * 600)
        assert (word * 600).startswith(shown)
        assert vectors.max_tokens - 16 < vectors.count(shown) <= vectors.max_tokens
    assert vectors.shortened("A few words.") == "A few words."


@pytest.fixture(scope="module")
def book(house: Path, vectors: Vectors) -> Book:
    return read_book(open_book(house / "book"), QUESTIONS, vectors, 2)


@pytest.fixture
def bench(book: Book, vectors: Vectors, tmp_path: Path) -> Bench:
    systems = tuple(SYSTEMS[name] for name in HERE)
    environments, cache = dict.fromkeys(HERE, here()), tmp_path / "cache"
    return Bench(systems, environments, book, vectors, tmp_path, cache, Results({}), rounds=2, threads=1)


def test_what_a_runner_cannot_do_is_told_and_it_goes_on(tmp_path: Path) -> None:
    with RunnerProcess(SYSTEMS["numpy"], here(), tmp_path) as runner:
        with pytest.raises(RunnerError, match="no loader"):
            runner.ask("split", file="x.md")
        assert runner.ask("load")["wall"] >= 0


def test_a_fresh_process_gives_the_same_answer(book: Book, bench: Bench) -> None:
    bench.systems, bench.rounds = bench.systems[:1], 1
    starting.run(bench, len(book.inputs))
    answer = bench.results.get(starting.cold_work(len(book.inputs)), SELF)
    (expected,) = [one.chunk.id for one in book.inputs if "Beans are sown after" in one.chunk.text]
    assert answer is not None
    assert answer.more["found"][0] == expected
    imports = bench.results.of(starting.IMPORT).values()
    assert all(len(figure.values) == len(figure.cpu) == 1 for figure in imports)
    with pytest.raises(RunnerError):
        cold(SYSTEMS["numpy"], here(), bench.scratch, ["nowhere", "home", "1", "5", "?"])


def test_searches_are_measured_and_shown(book: Book, bench: Bench) -> None:
    size = len(book.inputs)
    querying.run(bench, size, model=True)
    querying.run(bench, size, model=False)
    for filtered in (False, True):
        for model in (False, True):
            figures = bench.results.of(querying.query_work(size, model=model, filtered=filtered))
            assert not any(figure.why for figure in figures.values()), {n: f.why for n, f in figures.items()}
            assert [figures[name].more["agreement"] for name in HERE] == [1, 1, 1]
        whole = bench.results.of(querying.query_work(size, model=True, filtered=filtered))[SELF].values
        rest = bench.results.of(querying.rest_work(size, filtered=filtered))[SELF].values
        assert all(part < all_of_it for part, all_of_it in zip(rest, whole, strict=True))
    shown = table.markdown(bench.results, bench.systems)
    assert f"### Query, {size} chunks, vectors given, filtered" in shown
    assert "Recto / bare calls of model and engine" in shown


def test_everything_that_is_installed_has_an_exact_version() -> None:
    pinned = {pin.partition("==")[0] for pin in LISTING.pins}
    assert all(re.fullmatch(r"[a-z0-9._-]+==[0-9][\w.+]*", pin) for pin in LISTING.pins)
    for system in (*LISTING.systems, *LISTING.hybrid):
        assert find_spec(f"bench.peers.runners.{system.runner}"), system.name
        installed = {*system.needs, *system.alone, *system.versions, *LISTING.model}
        assert installed - pinned <= {".", "recto"}, system.name


def test_ratios_say_how_many_times_better_and_are_taken_within_a_round() -> None:
    mine, theirs = Figure("w", "recto", "ms", (1.0, 2.0, 4.0)), Figure("w", "other", "ms", (3.0, 6.0, 12.0))
    assert ratio(mine, theirs) == Spread(3.0, 3.0, 3.0)
    fast = Figure("w", "recto", "chunks/s", (30.0,), better="more")
    slow = Figure("w", "other", "chunks/s", (10.0,), better="more")
    assert ratio(fast, slow) == Spread(3.0, 3.0, 3.0)
    assert ratio(mine, Figure("w", "other", "ms", why="cannot")) is None
    negative = Figure("w", "recto", "ms", (-0.1, 1.0, 2.0))
    assert ratio(negative, Figure("w", "other", "ms", (4.0, 4.0, 4.0))) == Spread(4.0, 2.0, 1000.0)
    assert spread([3.0, 1.0, 2.0]) == Spread(2.0, 1.0, 3.0)


def made_up() -> Results:
    results = Results({"machine": "a machine", "versions": {"recto": "recto 1", "chroma": "chromadb 2"}})
    cold_query = starting.cold_work(1000)
    lead = {"mean": 0.1, "low": 0.02, "high": 0.18, "count": 9}
    for figure in (
        Figure(cold_query, "recto", "ms", (400.0, 500.0), (300.0, 300.0)),
        Figure(cold_query, "chroma", "ms", (2400.0, 2500.0), (2000.0, 2000.0)),
        Figure(cold_query, "txtai", "ms", why="it | broke\nhere"),
        Figure(indexing.work_of(100), "recto", "chunks/s", (9.0,), (100.0,), "more"),
        Figure(indexing.work_of(100), "chroma", "chunks/s", (10.0,), (90.0,), "more"),
        Figure("book, page MRR", "recto", "", (0.8,), better="more"),
        Figure("book, page MRR", "chroma", "", (0.7,), better="more", more={"lead": lead}),
    ):
        results.add(figure)
    return results


def test_a_goal_that_is_missed_is_shown_as_missed() -> None:
    found = {goal.text: goal for goal in goals(made_up(), LISTING.systems)}
    fast = found["Cold query: times as fast as the best peer"]
    assert (fast.met, fast.against, fast.reached.middle) == (True, "chroma", 5.5)
    slow = found["Index, 100 chunks, embedding included: times as fast as the best peer"]
    assert (slow.met, slow.reached.middle) == (False, 0.9)
    assert found["book, page MRR: Recto minus the other system"].reached == Spread(0.1, 0.02, 0.18)
    shown = table.goal_table(list(found.values()), {"chroma": "Chroma"})
    assert "| Chroma | ≥ 5 | 5.5 (5–6) | 6.67 | yes |" in shown
    assert "| Chroma | ≥ 1 | 0.9 | 0.9 | **no** |" in shown
