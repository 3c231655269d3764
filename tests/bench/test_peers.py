"""The comparison with other systems: runners, workloads on a tiny book, ratios, goals and tables."""

from __future__ import annotations

import re
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path

import pytest

from bench.common import insert
from bench.peers import workloads
from bench.peers.book import Book, read_book, write_pieces
from bench.peers.command import END, START, parse
from bench.peers.environments import here
from bench.peers.figures import (
    COLD,
    FILTERED,
    HELP,
    IMPORT,
    INTERPRETER,
    QUERY,
    REST,
    Figure,
    Results,
    Spread,
    goals,
    markdown,
    ratio,
    spread,
)
from bench.peers.listing import SELF, load
from bench.peers.process import RunnerError, RunnerProcess, cold
from bench.peers.runners.system import pieces
from bench.peers.workloads import Bench
from bench.vectors import VectorCache

LISTING = load()
SYSTEMS = {system.name: system for system in LISTING.systems}
HERE = ("recto", "bare")  # what runs in the interpreter of the tests


@pytest.fixture(scope="module")
def book(house: Path, shared_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Book:
    home = tmp_path_factory.mktemp("home")
    (home / "cache").symlink_to(shared_home / "cache")
    return read_book(house / "book", home, 2, 1)


@pytest.fixture
def bench(book: Book, shared_home: Path, tmp_path: Path) -> Bench:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "cache").symlink_to(shared_home / "cache")
    systems = [SYSTEMS[name] for name in HERE]
    environments = dict.fromkeys(HERE, here())
    size = len(book.chunks) + 2
    return Bench(systems, environments, book, tmp_path, tmp_path / "cache", Results({}), 2, size, 1)


def test_copies_fill_up_a_small_book(book: Book, tmp_path: Path) -> None:
    count = len(book.chunks)
    found = list(pieces(write_pieces(book, count + 1, tmp_path)))
    assert len({piece.id for piece in found}) == count + 1
    assert found[-1].text == f"{found[0].text}\n\nCopy 1."
    assert found[0].chunk["text"] == book.chunks[0].text
    assert {**found[0].chunk, "headings": book.chunks[0].headings}.keys() == asdict(book.chunks[0]).keys()


def test_a_runner_reports_what_it_cannot_do_and_goes_on(tmp_path: Path) -> None:
    with RunnerProcess(SYSTEMS["bare"], here(), tmp_path) as runner:
        with pytest.raises(RunnerError, match="no loader"):
            runner.ask("read", docs="x", folder="y")
        assert runner.ask("load")["wall"] >= 0
    with pytest.raises(RunnerError):
        cold(SYSTEMS["bare"], here(), tmp_path, ["nowhere", "home", "1", "5", "?"])


def test_every_workload_is_measured_and_shown(bench: Bench) -> None:
    workloads.install(bench)
    workloads.start(bench)
    workloads.query(bench)
    workloads.index(bench, 4, 1)
    assert not [figure.why for figure in bench.results.figures if figure.why and "install" not in figure.work]
    for work in (IMPORT, COLD, QUERY, FILTERED, REST, workloads.MEMORY, "index, 4 chunks"):
        assert set(bench.results.of(work)) == set(HERE), work
        assert all(figure.values for figure in bench.results.of(work).values()), work
    assert set(bench.results.of(HELP)) == {SELF, INTERPRETER}
    whole, rest = (bench.results.of(work)[SELF].values for work in (QUERY, REST))
    assert all(part < total for part, total in zip(rest, whole, strict=True))
    texts = [goal.text for goal in goals(bench.results, bench.systems)]
    assert texts[0] == "--help: Recto / an interpreter without a program"
    assert "Query, end to end: Recto / bare calls of model and engine" in texts
    assert "| **Recto** |" in markdown(bench.results, bench.systems)


def test_everything_that_is_installed_has_an_exact_version() -> None:
    pinned = {pin.partition("==")[0] for pin in LISTING.pins}
    assert all(re.fullmatch(r"[a-z0-9._-]+==[0-9][\w.+]*", pin) for pin in LISTING.pins)
    for system in (*LISTING.systems, *LISTING.hybrid):
        assert find_spec(f"bench.peers.runners.{system.runner}"), system.name
        installed = {*system.needs, *system.versions, *LISTING.model}
        assert installed - pinned <= {".", "recto-search"}, system.name


def test_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    quick = parse(["--quick", "--only", "start, query", "--peers", "chroma"])
    assert (quick.rounds, quick.embed, quick.only, quick.peers) == (3, [32], ["start", "query"], ["chroma"])
    assert parse([]).embed == [100, 1000]
    assert [system.name for system in LISTING.chosen(["chroma"])] == ["recto", "chroma"]
    with pytest.raises(SystemExit, match="no system nobody"):
        LISTING.chosen(["nobody"])
    for arguments, message in (
        (["--only", "x"], "no workload x"),
        (["--embed", "1,a"], "not a list of numbers"),
    ):
        with pytest.raises(SystemExit):
            parse(arguments)
        assert message in capsys.readouterr().err


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


def test_a_goal_that_is_missed_is_shown_as_missed() -> None:
    results = Results({"machine": "a machine", "versions": {"recto": "recto 1", "chroma": "chromadb 2"}})
    for figure in (
        Figure(COLD, "recto", "ms", (400.0, 500.0), (300.0, 300.0)),
        Figure(COLD, "chroma", "ms", (2400.0, 3000.0), (2000.0, 2000.0)),
        Figure(COLD, "haystack", "ms", why="it | broke\nhere"),
        Figure("index, 100 chunks", "recto", "chunks/s", (9.0,), (100.0,), "more"),
        Figure("index, 100 chunks", "chroma", "chunks/s", (10.0,), (90.0,), "more"),
    ):
        results.figures.append(figure)
    fast, slow = goals(results, LISTING.systems)
    assert (fast.met, fast.against, fast.reached.middle) == (True, "chroma", 6)
    assert (slow.met, slow.reached.middle) == (False, 0.9)
    report = markdown(results, LISTING.systems)
    assert "- machine: a machine\n- Recto: recto 1\n" in report
    assert "| Chroma | ≥ 5.7 | 6 | 6.67 | yes |" in report
    assert "| Chroma | ≥ 1 | 0.9 | 0.9 | **no** |" in report
    assert "| **Recto** | 450 | 9 |\n" in report
    assert "| Chroma | 2700 (6) | **10 (0.9)** |" in report
    assert "- Haystack, in memory, cold query: it / broke here" in report


def test_a_report_replaces_what_is_between_the_markers() -> None:
    assert insert(f"a {START} old {END} b", "new\n", START, END) == f"a {START}\n\nnew\n\n{END} b"
    with pytest.raises(SystemExit, match="no markers"):
        insert("a", "new", START, END)


def test_a_text_is_embedded_once(tmp_path: Path) -> None:
    calls: list[list[str]] = []

    def embed(texts: list[str]) -> list[list[float]]:
        calls.append(list(texts))
        return [[float(len(text)), 0.5] for text in texts]

    cache = VectorCache(tmp_path, "model")
    assert cache.embed(["a", "bbb"], embed, query=False) == [[1, 0.5], [3, 0.5]]  # type: ignore[arg-type]
    assert cache.embed(["bbb", "cc"], embed, query=False) == [[3, 0.5], [2, 0.5]]  # type: ignore[arg-type]
    cache.embed(["a"], embed, query=True)  # type: ignore[arg-type]
    cache.close()
    assert calls == [["bbb", "a"], ["cc"], ["a"]], "the longest first, and a query is not a document"
