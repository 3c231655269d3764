"""Gaps: clusters of queries, what the book lacks, and the signals of readers."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from recto.errors import InvalidArgument
from recto.evaluation.gaps import (
    Gaps,
    cluster,
    extended,
    find_gaps,
    names_of,
    questions_from,
    read_asked,
    read_queries,
)
from recto.evaluation.suites import load_suite
from recto.search.retriever import Retriever
from recto.stores.edge import EdgeStore

MISSING = ["submarine reactor", "nuclear submarine reactor", "How does the reactor of a submarine work?"]
COVERED = ["How is jam made?", "when are beans sown", "sharpen a knife", "Sharpen a knife!", "flat tyres"]


def write_log(path: Path, queries: list[str], clicks: dict[str, str], collection: str = "house") -> Path:
    entries: list[dict[str, object]] = [
        {"time": "2026-11-16T10:00:00Z", "query": query, "collection": collection, "via": "search"}
        for query in queries
    ]
    entries += [
        {"time": "2026-11-16T10:00:01Z", "query": query, "collection": collection, "click": url, "rank": 1}
        for query, url in clicks.items()
    ]
    lines = [json.dumps(entry) for entry in ({"format": "recto-queries-1"}, *entries)]
    path.mkdir(exist_ok=True)
    (path / "queries-2026-11-16-00000000.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    return path


def find(retriever: Retriever, path: Path, queries: list[str], clicks: dict[str, str] | None = None) -> Gaps:
    return find_gaps(retriever, read_asked(write_log(path / "log", queries, clicks or {}), ["house"]))


def test_clusters_are_those_of_average_linkage() -> None:
    """Three bundles of directions, in any order, are three groups; equal inputs give equal groups."""
    chance = random.Random(1)
    axes = [[1.0, 0, 0, 0], [0, 1.0, 0, 0], [0, 0, 1.0, 0]]
    bundles = [[value + chance.gauss(0, 0.1) for value in axes[number % 3]] for number in range(30)]
    groups = cluster(bundles, [])
    assert groups == [list(range(first, 30, 3)) for first in range(3)]
    assert cluster(bundles, []) == groups
    assert cluster([[1.0, 0.0]], []) == [[0]]
    assert cluster([[1.0, 0.0], [1.0, 0.0]], []) == [[0, 1]]


def test_what_all_queries_about_a_book_share_does_not_join_them() -> None:
    common = 5.0
    vectors = [[common, 1.0, 0.0], [common, 0.0, 1.0]]
    assert cluster(vectors, []) == [[0, 1]]
    assert cluster(vectors, [[common, 0.0, 0.0]]) == [[0], [1]]


def test_a_missing_subject_is_named_first(house_retriever: Retriever, tmp_path: Path) -> None:
    taxes = ["stock exchange taxes"] * 5
    assert [one.count for one in find(house_retriever, tmp_path, [*MISSING, *taxes, *COVERED]).gaps] == [5, 3]
    found = find(house_retriever, tmp_path, MISSING + COVERED)
    first, *rest = found.gaps
    assert first.count == 3
    assert {query for query, _ in first.queries} == set(MISSING)
    assert set(first.unknown_words) == {"submarine", "reactor", "nuclear"}
    assert first.not_covered == 3
    assert first.unanswered > 0.9
    assert first.no_click is None
    assert len(first.nearest) == 3
    assert rest == []
    assert found.total == 8
    assert found.distinct == 7
    assert found.clusters == find(house_retriever, tmp_path, (MISSING + COVERED)[::-1]).clusters


def test_no_click_and_below_noise_are_different_signals(house_retriever: Retriever, tmp_path: Path) -> None:
    opened = {"How is jam made?": "local://docs/docs/module-2-kitchen/03-jam"}
    queries = [*MISSING, *["How is jam made?"] * 3, *["when are beans sown"] * 3]
    found = find(house_retriever, tmp_path, queries, opened)
    by_label = {one.label: one for one in found.clusters}
    jam, beans = by_label["How is jam made?"], by_label["when are beans sown"]
    assert (jam.no_click, jam.below_noise, jam.clicked) == (2, 0, opened["How is jam made?"])
    assert (beans.no_click, beans.below_noise) == (3, 0)
    assert found.gaps[0].below_noise == 3
    assert found.gaps[0].no_click == 3
    assert [one.label for one in found.unclicked] == ["when are beans sown"]


def test_words_that_the_nearest_section_lacks(house_retriever: Retriever, tmp_path: Path) -> None:
    (only,) = find(house_retriever, tmp_path, ["slugs in the oven"]).clusters
    assert not only.unknown_words
    assert set(only.missing_words) & {"slugs", "oven"}


def test_queries_that_are_not_clustered(house_retriever: Retriever, tmp_path: Path) -> None:
    place = write_log(tmp_path / "log", ["jam"], {})
    house = {"time": "2026-11-16T10:00:00Z", "collection": "house"}
    feedback = house | {"helpful": False}
    entries = (
        house | {"query_hash": "00"},
        house | {"query": "jam", "collection": "other"},
        feedback,
        feedback | {"query": "jam"},
    )
    lines = "\n".join(map(json.dumps, entries))
    (place / "queries-2026-11-16-00000001.jsonl").write_text(f"{lines}\n", "utf-8")
    asked = read_asked(place, ["house"])
    assert [query.forms.total() for query in asked.queries.values()] == [1]
    assert (list(asked.queries), asked.without_text) == (["jam"], 1)
    found = find_gaps(house_retriever, asked)
    assert (found.total, found.without_text) == (1, 1)


def test_all_names_of_a_collection_count(sample_home: Path) -> None:
    names = names_of(EdgeStore(sample_home), "physical-ai-book")
    assert {"physical-ai-book", "humanoid_robotics_book", "recto-sample"} <= names


def test_queries_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "queries.tsv"
    path.write_text("jam\t3\n\nJam?\nbread\n", "utf-8")
    asked = read_queries(path).queries.values()
    assert [(one.text, one.count) for one in asked] == [("jam", 4), ("bread", 1)]
    path.write_text("jam\tmany\n", "utf-8")
    with pytest.raises(InvalidArgument, match="line 1: 'many'"):
        read_queries(path)


def test_questions_from_a_log(house_retriever: Retriever, tmp_path: Path) -> None:
    """Missing subjects come first, the suite's own questions are skipped, and every draft can be measured."""
    opened = {"How is jam made?": "local://docs/docs/module-2-kitchen/03-jam#jars"}
    found = find(house_retriever, tmp_path, [*MISSING, *COVERED, "How is jam made?"], opened)
    entries = questions_from(found, house_retriever.open(), ["When are beans sown?"], 10)
    assert entries[0]["expect"] == {"nothing": True}
    expected = {entry["query"]: entry["expect"] for entry in entries[1:]}
    assert expected["How is jam made?"] == {"page": "module-2-kitchen/03-jam#jars"}
    assert expected["flat tyres"]["page"].startswith("module-3-workshop/02-bicycles")
    assert "when are beans sown" not in expected
    assert all(entry["drafted"] for entry in entries)
    assert len(questions_from(found, house_retriever.open(), [], 2)) == 2


@pytest.mark.parametrize("name", ["suite.json", "suite.jsonl"])
def test_a_suite_is_extended_without_losing_anything(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    entry = {"query": "jam?", "expect": {"page": "a"}, "drafted": True, "note": "Asked 2 times"}
    path.write_text(extended(path, [entry], "house"), "utf-8")
    path.write_text(extended(path, [entry | {"query": "bread?"}], "house"), "utf-8")
    assert [one.query for one in load_suite(path).expectations] == ["jam?", "bread?"]
    assert path.read_text("utf-8").count("Asked 2 times") == 2
