"""Readers' questions as a suite: JSON Lines that name sections by their headings."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recto.errors import InvalidArgument
from recto.evaluation.binding import BoundSuite, bind, heading_key
from recto.evaluation.suites import Expectation, Suite, load_strict_suite
from recto.protocols import Index
from recto.stores.edge.store import EdgeStore
from recto.testing.values import chunk, publish

QUESTIONS: list[dict[str, Any]] = [
    {
        "id": "garden-1",
        "question": "when do I sow beans?",
        "type": "howto",
        "match": "any",
        "expected": [
            {"page": "garden/seeds.md", "section": "Sowing `Phaseolus` {#beans}"},
            {"page": "garden/soil.mdx", "section": ""},
        ],
        "evidence": ["after the last frost"],
    },
    {
        "id": "garden-2",
        "question": "soil or compost?",
        "type": "compare",
        "match": "all",
        "expected": [{"page": "garden/soil.mdx"}],
    },
    {
        "id": "garden-3",
        "question": "how do I keep bees?",
        "type": "howto",
        "match": "none",
        "expected": [],
        "evidence": [],
    },
]


def write(tmp_path: Path, *questions: dict[str, Any]) -> Path:
    path = tmp_path / "questions.jsonl"
    path.write_text("".join(f"{json.dumps(question)}\n" for question in questions), "utf-8")
    return path


@pytest.fixture
def index(tmp_path: Path) -> Index:
    """Two pages; on the first, a section with a subsection."""
    store = EdgeStore(tmp_path / "home")
    chunks = [
        replace(chunk(0, page="garden/seeds"), headings=("Seeds",), anchor=""),
        replace(chunk(1, page="garden/seeds"), headings=("Seeds", "Sowing Phaseolus"), anchor="beans"),
        replace(
            chunk(2, page="garden/seeds"),
            headings=("Seeds", "Sowing Phaseolus", "Under glass"),
            anchor="glass",
        ),
        replace(chunk(0, page="garden/soil"), headings=("Soil",), anchor=""),
    ]
    publish(store, "book", chunks)
    return store.open("book")


def bound(index: Index, *pages: str, **aliases: str) -> BoundSuite:
    return bind(Suite("s", (Expectation("q", pages=pages),), aliases), index)


def test_a_question_becomes_an_expectation(tmp_path: Path) -> None:
    suite = load_strict_suite(write(tmp_path, *QUESTIONS))
    assert suite.name == "questions"
    assert suite.expectations == (
        Expectation(
            "when do I sow beans?",
            pages=("garden/seeds.md > Sowing `Phaseolus` {#beans}", "garden/soil.mdx"),
            id="garden-1",
            tags=("howto",),
        ),
        Expectation("soil or compost?", pages=("garden/soil.mdx",), id="garden-2", tags=("compare",)),
        Expectation("how do I keep bees?", nothing=True, id="garden-3", tags=("howto",)),
    )


def test_a_line_about_the_whole_suite_may_come_first(tmp_path: Path) -> None:
    suite = load_strict_suite(write(tmp_path, {"name": "garden", "threshold": 0.5}, *QUESTIONS))
    assert (suite.name, suite.threshold, len(suite.expectations)) == ("garden", 0.5, 3)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"match": "some"}, '"match" must be any, all or none'),
        ({"match": "none"}, '"match" is none, but "expected" has 2 pages'),
        ({"expected": []}, '"match" is any, but "expected" has 0 pages'),
        ({"expected": "garden/soil.mdx"}, '"expected" must be a list of pages'),
        ({"expected": [{"section": "Soil"}]}, '"expected" must be a list of pages'),
        ({"expected": [{"page": "a", "section": 3}]}, '"expected" must be a list of pages'),
        ({"expected": [{"page": " "}]}, '"expected" must be a list of pages'),
        ({"question": " "}, "Query cannot be empty"),
        ({"expectd": []}, 'did you mean "expected"'),
    ],
)
def test_a_question_that_cannot_be_understood_is_named_with_its_line(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        load_strict_suite(write(tmp_path, QUESTIONS[2], QUESTIONS[0] | change))
    assert words in caught.value.message
    assert "line 2" in caught.value.message
    assert caught.value.hint


def test_a_heading_stands_for_its_section_and_what_is_below(tmp_path: Path, index: Index) -> None:
    suite = load_strict_suite(write(tmp_path, *QUESTIONS))
    found = bind(suite, index)
    assert not found.unmeasured
    assert not found.partial
    chunks = sorted(index.scroll(), key=lambda each: (each.source, each.chunk_index))
    section, soil = found.questions[0].targets
    assert [section.holds(each) for each in chunks] == [False, True, True, False]
    assert [soil.holds(each) for each in chunks] == [False, False, False, True]


def test_a_heading_that_is_not_there_is_unmeasured(index: Index) -> None:
    found = bound(index, "garden/seeds.md > Sowing Phaselus")
    ((missing,),) = [question.missing for question in found.unmeasured]
    assert missing.near == "garden/seeds.md > Sowing Phaseolus"
    assert bound(index, "garden/soil.mdx > Sowing Phaseolus").unmeasured


def test_a_heading_of_a_renamed_page_is_found(index: Index) -> None:
    assert not bound(index, "old.md > Under *glass*", old="garden/seeds").unmeasured


def test_a_section_counts_once_and_not_beside_its_whole_page(index: Index) -> None:
    assert (
        len(
            bound(index, "garden/seeds > Under glass", "garden/seeds.md > under `glass`").questions[0].targets
        )
        == 1
    )
    assert [
        target.heading
        for target in bound(index, "garden/seeds > Under glass", "garden/seeds").questions[0].targets
    ] == [""]


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("The `cname` option {#cname}", "The cname option"),
        ("Use {: #use }", "use"),
        ("MDX {/* #mdx */}", "MDX"),
        ("Via [`Annotated`][typing.Annotated] **metadata**", "Via Annotated metadata"),
        ("See [the guide](https://example.org/a)", "See the guide"),
        ("`build [siteDir]`", "build [siteDir]"),
        ("snake_case \\_names\\_", "snake_case _names_"),
        ("C#  basics", "C# basics"),
    ],
)
def test_markdown_in_a_heading_does_not_count(written: str, shown: str) -> None:
    assert heading_key(written) == heading_key(shown)


def test_other_headings_stay_apart() -> None:
    assert heading_key("`<Link/>`") != heading_key("Link")
    assert heading_key("C") != heading_key("C#")
