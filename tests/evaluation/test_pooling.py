"""Pooling: sections are judged once and blindly, and their grades are bound to the book."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from recto.book.chunking import ChunkSize
from recto.errors import InvalidArgument
from recto.evaluation.binding import bind
from recto.evaluation.pooling import (
    Pool,
    PooledSearch,
    PooledSection,
    grade_of,
    load_judged_suite,
    pool,
    record,
    restore,
    summarize,
)
from recto.evaluation.suites import load_suite
from recto.protocols import Embedder
from recto.search.retriever import Retriever
from recto.stores.edge import EdgeStore
from recto.types.search import MODES
from tests.library import write_index

LEAVEN = "module-2-kitchen/01-bread#leaven"
BREAD = "module-2-kitchen/01-bread"
QUERIES: list[dict[str, Any]] = [
    {"query": "How do I feed leaven?", "expect": {"module": "kitchen"}, "note": "for people"},
    {"query": "When do I sow beans?", "expect": {"page": "module-1-garden/02-seeds#wrong"}, "drafted": True},
    {"query": "Who won the election?", "expect": {"nothing": True}},
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path, QUERIES)


def write(directory: Path, queries: list[dict[str, Any]]) -> Path:
    path = directory / "suite.json"
    path.write_text(json.dumps({"name": "house", "description": "Ours", "queries": queries}), "utf-8")
    return path


def pooled(path: Path, *retrievers: Retriever, depth: int = 5) -> Pool:
    return pool(load_suite(path), [PooledSearch(one, mode) for one in retrievers for mode in MODES], depth)


def entries(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))["queries"]
    return found


def named(pool: Pool, number: int, name: str) -> PooledSection:
    return next(one for one in pool.questions[number].candidates if one.name == name)


def section(candidate: PooledSection) -> tuple[str, str, tuple[str, ...]]:
    first = candidate.chunks[0]
    return first.source, first.anchor, first.headings


def test_the_sections_of_all_configurations_are_pooled_once(path: Path, house_retriever: Retriever) -> None:
    found = pooled(path, house_retriever)
    first = found.questions[0]
    names = [one.name for one in first.candidates]
    assert LEAVEN in names
    assert len(names) == len(set(names))
    results = [chunk for _, results in found.results for chunk in results[0]]
    assert len(names) < len(results), "three modes find many of the same sections"
    again = pool(load_suite(path), [PooledSearch(house_retriever, mode) for mode in MODES[:0:-1]], 5)
    shared = [one.name for one in again.questions[0].candidates if one.name in names]
    assert shared == [name for name in names if name in shared], "in any order of the configurations"


def test_a_grade_becomes_an_expectation(path: Path, house_retriever: Retriever) -> None:
    found = pooled(path, house_retriever)
    question = found.questions[0]
    candidate = named(found, 0, LEAVEN)
    before = record(path, question, candidate, 2)
    data = json.loads(path.read_text("utf-8"))
    assert (data["format"], data["description"]) == ("recto-suite-2", "Ours")
    expect = {"module": "kitchen", "page": LEAVEN, "grades": {LEAVEN: 2}}
    assert data["queries"][0] == QUERIES[0] | {"expect": expect}
    assert data["queries"][1:] == QUERIES[1:]
    suite = load_suite(path)
    assert grade_of(suite.expectations[0], candidate) == 2
    record(path, question, candidate, 0)
    assert entries(path)[0]["expect"] == {"module": "kitchen", "grades": {LEAVEN: 0}}
    restore(path, question, before)
    assert entries(path) == QUERIES


def test_a_section_without_an_anchor_is_quoted(path: Path, house_retriever: Retriever) -> None:
    found = pooled(path, house_retriever, depth=20)
    quoted = next(one for one in found.questions[0].candidates if one.is_quoted)
    record(path, found.questions[0], named(found, 0, LEAVEN), 1)
    record(path, found.questions[0], quoted, 2)
    expect = entries(path)[0]["expect"]
    assert expect["passage"] == quoted.name
    assert expect["page"] == LEAVEN, "graded pages count beside passages"
    (bound, *_) = bind(load_suite(path), house_retriever.open())
    assert {target.name: target.grade for target in bound.targets} == {quoted.name: 2, LEAVEN: 1}
    record(path, found.questions[0], quoted, 0)
    (bound, *_) = bind(load_suite(path), house_retriever.open())
    assert [target.name for target in bound.rejected] == [quoted.name]
    assert bound.judge(quoted.chunks).places == (quoted.name,)


def test_a_question_without_an_answer(path: Path, house_retriever: Retriever) -> None:
    found = pooled(path, house_retriever)
    question = found.questions[2]
    record(path, question, question.candidates[0], 0)
    name = question.candidates[0].name
    assert entries(path)[2]["expect"] == {"nothing": True, "grades": {name: 0}}
    assert load_suite(path).expectations[2].nothing
    record(path, question, question.candidates[0], 1)
    assert "nothing" not in entries(path)[2]["expect"]
    assert load_suite(path).expectations[2].grades == ((name, 1),)


def test_a_draft_is_judged_before_it_counts(tmp_path: Path, house_retriever: Retriever) -> None:
    beans = "module-1-garden/02-seeds#sowing-beans"
    jars = "module-2-kitchen/03-jam#jars"
    drafted = {"query": "When do I sow beans?", "expect": {"page": [beans, jars]}, "drafted": True}
    path = write(tmp_path, [drafted])
    found = pooled(path, house_retriever, depth=1)
    question = found.questions[0]
    assert jars in [one.name for one in question.candidates], "expected sections are judged, found or not"
    suite = load_suite(path)
    assert {grade_of(suite.expectations[0], one) for one in question.candidates} == {None}
    for one in question.candidates:
        assert entries(path)[0]["drafted"]
        record(path, question, one, 2 if one.name == beans else 0)
    (entry,) = entries(path)
    assert "drafted" not in entry
    assert entry["expect"]["page"] == beans
    assert entry["expect"]["grades"][jars] == 0


def test_what_the_author_expects_is_judged(tmp_path: Path, house_retriever: Retriever) -> None:
    expected: list[Any] = [
        {"page": f"{LEAVEN}"},
        {"page": "module-2-kitchen/01-bread.md > Leaven"},
        {"passage": "flour and water that have fermented"},
    ]
    queries = [{"query": f"How do I feed leaven? {n}", "expect": one} for n, one in enumerate(expected)]
    path = write(tmp_path, queries)
    found = pooled(path, house_retriever)
    suite = load_suite(path)
    for number, expectation in enumerate(suite.expectations):
        graded = {one.name: grade_of(expectation, one) for one in found.questions[number].candidates}
        assert graded.pop(LEAVEN) == 1
        assert set(graded.values()) == {None}
        record(path, found.questions[number], named(found, number, LEAVEN), 2)
        assert load_suite(path).expectations[number].grades[0][1] == 2
        assert sorted(entries(path)[number]["expect"]) == sorted([*expected[number], "grades"])


def test_whole_pages_are_no_judgment_of_a_section(tmp_path: Path, house_retriever: Retriever) -> None:
    path = write(tmp_path, [{"query": "How do I feed leaven?", "expect": {"page": BREAD}}])
    found = pooled(path, house_retriever)
    suite = load_suite(path)
    assert {grade_of(suite.expectations[0], one) for one in found.questions[0].candidates} == {None}
    record(path, found.questions[0], named(found, 0, LEAVEN), 2)
    assert entries(path)[0]["expect"]["page"] == [BREAD, LEAVEN]


def test_changes_of_an_editor_stay(path: Path, house_retriever: Retriever) -> None:
    found = pooled(path, house_retriever)
    changed = [{"query": "New?", "expect": {"module": "garden"}}, QUERIES[0] | {"note": "changed"}]
    write(path.parent, changed)
    record(path, found.questions[0], named(found, 0, LEAVEN), 2)
    assert entries(path)[0] == changed[0]
    assert entries(path)[1]["note"] == "changed"
    with pytest.raises(InvalidArgument, match="does not have the question"):
        record(path, found.questions[2], found.questions[2].candidates[0], 0)


def test_readers_questions_become_entries(tmp_path: Path, house_retriever: Retriever) -> None:
    expected = [{"page": "module-2-kitchen/01-bread.md", "section": "Leaven"}]
    asked = {"id": "q1", "question": "How do I feed leaven?", "evidence": "every evening"}
    path = write(tmp_path, [asked | {"expected": expected}])
    found = pooled(path, house_retriever)
    record(path, found.questions[0], named(found, 0, LEAVEN), 2)
    (entry,) = entries(path)
    place = "module-2-kitchen/01-bread.md > Leaven"
    assert entry["expect"] == {"page": place, "grades": {place: 2}}
    assert (entry["id"], entry["query"], entry["note"]) == ("q1", "How do I feed leaven?", "every evening")


def test_json_lines_have_no_grades(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="grades cannot be added"):
        load_judged_suite(tmp_path / "suite.jsonl")


def test_grades_survive_other_chunks(path: Path, house: Path, embedder: Embedder, tmp_path: Path) -> None:
    book, home = tmp_path / "book", tmp_path / "home"
    shutil.copytree(house / "book" / "module-2-kitchen", book / "module-2-kitchen")
    store = EdgeStore(home)
    for name, size in (("large", ChunkSize()), ("small", ChunkSize(40))):
        write_index(book, embedder, home, name, size=size)
    large, small = (Retriever(embedder, store, name) for name in ("large", "small"))
    assert small.open().info.chunks > large.open().info.chunks, "there are other chunks"
    found = pooled(path, large)
    for number, question in enumerate(found.questions):
        for position, one in enumerate(question.candidates):
            record(path, question, one, (number + position) % 3)
    suite = load_suite(path)
    for index in (large.open(), small.open()):
        assert [question for question in bind(suite, index) if question.missing] == []
    judged = [{section(one) for one in question.candidates} for question in found.questions]
    again, both = pooled(path, small), pooled(path, large, small)
    assert any(len(one.chunks) > 1 for question in again.questions for one in question.candidates)
    for number, expectation in enumerate(suite.expectations):
        for one in again.questions[number].candidates:
            grade = grade_of(expectation, one)
            assert (grade is not None) == (section(one) in judged[number]), one.name
        together = judged[number] | {section(one) for one in again.questions[number].candidates}
        assert sorted(map(section, both.questions[number].candidates)) == sorted(together), "each once"
    assert dict(summarize(found, suite)).keys() == {f"large, {mode}" for mode in MODES}
    assert {values["Judged@5"] for _, values in summarize(found, suite)} == {1.0}


def test_measures_are_those_of_the_grades(path: Path, house_retriever: Retriever) -> None:
    found = pooled(path, house_retriever)
    none = dict(summarize(found, load_suite(path)))
    assert {value for values in none.values() for value in values.values()} == {None}, "nothing is judged"
    record(path, found.questions[0], named(found, 0, LEAVEN), 2)
    summary = dict(summarize(found, load_suite(path)))
    for configuration, results in found.results:
        rank = next(n for n, one in enumerate(results[0]) if one.anchor == "leaven")
        values = summary[configuration.name]
        assert values["Judged@5"] == pytest.approx(1 / len(results[0]))
        assert rank or values["nDCG@5"] == 1.0
