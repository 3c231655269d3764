"""Binding: every place of a suite is looked up, and one that is gone is told, never scored."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recto._util.markdown import heading_key
from recto.evaluation.binding import Bound, bind, find_passages
from recto.evaluation.measures import Measure
from recto.evaluation.suites import Expectation, Suite
from recto.protocols import Index
from recto.stores.edge import EdgeStore
from recto.testing.parts import chunk, publish
from recto.types.search import Chunk


@pytest.fixture
def index(tmp_path: Path) -> Index:
    """Two pages of two modules; the first page has three sections, one of them with two anchors."""
    legs = chunk(1, page="guide/a", text="It has two legs and")
    chunks = [
        replace(chunk(0, page="guide/a", text="The robot walks."), anchor=""),
        replace(legs, anchor="legs", anchors=("legs", "parts")),
        replace(chunk(2, page="guide/a", text="two arms. They swing."), anchor="arms"),
        chunk(0, module="vla", directory="module-4-vla", page="b", text="Words become motion."),
    ]
    store = EdgeStore(tmp_path)
    publish(store, "book", chunks)
    return store.open("book")


def bound(index: Index, expectation: Expectation) -> Bound:
    (question,) = bind(Suite("s", (expectation,)), index)
    return question


def test_every_spelling_of_a_page_is_found(index: Index) -> None:
    urls = ("local://docs/docs/guide/a", "LOCAL://DOCS/docs/guide/a.mdx#arms")
    for page in ("guide/a", "guide/a.md", "guide/a/", "guide/a#legs", "guide/a#parts", *urls):
        question = bound(index, Expectation("q", pages=(page,)))
        assert (question.measured, question.missing) == (True, ()), page


@pytest.mark.parametrize(
    ("expectation", "near"),
    [
        (Expectation("q", pages=("guide/aa",)), "guide/a"),
        (Expectation("q", pages=("old/b",)), "b"),
        (Expectation("q", pages=("guide/a#leg",)), "guide/a#legs"),
        (Expectation("q", modules=("ros",)), "ros2"),
        (Expectation("q", modules=("rsо2",), pages=("guide/a",)), "ros2"),
        (Expectation("q", passages=("It has three legs",)), ""),
        (Expectation("q", pages=("zzz",)), ""),
    ],
)
def test_a_place_that_is_gone_is_unmeasured(index: Index, expectation: Expectation, near: str) -> None:
    question = bound(index, expectation)
    (missing,) = question.missing
    assert not question.measured
    assert missing.near.removeprefix("local://docs/docs/") == near
    assert missing.target in str(missing)


def test_places_that_exist_measure_a_question(index: Index) -> None:
    question = bound(index, Expectation("q", pages=("gone", "guide/a")))
    assert question.measured
    assert [missing.target for missing in question.missing] == ["gone"]
    assert [target.name for target in question.targets] == ["guide/a"]
    nothing = bound(index, Expectation("q", nothing=True))
    assert nothing.measured
    assert nothing.judge([]).ideal == ()


def test_the_finest_place_counts_and_the_module_by_itself(index: Index) -> None:
    chunks = {found.text: found for found in index.scroll()}
    question = bound(index, Expectation("q", modules=("module-1-ros2",), pages=("guide/a#arms",)))
    judged = question.judge([chunks["It has two legs and"], chunks["two arms. They swing."]])
    assert (judged.gains, judged.ideal, judged.module) == ((0, 1), (1,), True)
    assert question.judge([chunks["Words become motion."]]).module is False
    assert question.judge([]).module is False


def test_a_second_chunk_of_a_place_gains_nothing_but_takes_its_rank(index: Index) -> None:
    chunks = sorted(index.scroll(), key=lambda one: one.chunk_index)
    first, second, third = (one for one in chunks if one.title == "GUIDE/A")
    other = next(one for one in chunks if one.title == "B")
    question = bound(index, Expectation("q", pages=("guide/a", "b")))
    judged = question.judge([first, second, third, other])
    assert judged.gains == (1, 0, 0, 1)
    assert Measure("Precision", 4).of(judged) == 0.5
    assert Measure("Recall", 3).of(judged) == 0.5


def test_a_place_named_twice_counts_once(index: Index, garden: Index) -> None:
    question = bound(index, Expectation("q", pages=("guide/a", "guide/a.md", "guide/a#legs")))
    assert [target.name for target in question.targets] == ["guide/a"]
    question = bound(index, Expectation("q", modules=("ros2", "module-1-ros2")))
    assert len(question.targets) == 1
    question = bound(garden, on("garden/seeds > Under glass", "garden/seeds.md > under `glass`"))
    assert [target.heading for target in question.targets] == ["under glass"]
    question = bound(garden, on("garden/seeds > Under glass", "garden/seeds"))
    assert [target.heading for target in question.targets] == [""], "not beside its whole page"


@pytest.mark.parametrize(
    ("passage", "found"),
    [
        ("The  robot\nwalks.", {0}),
        ("two legs and two arms.", {1, 2}),
        ("and two", {1, 2}),
        ("It has two legs and two arms. They swing.", {1, 2}),
        ("It has two legs and\n\ntwo arms. They", {1, 2}),
        ("two", {1, 2}),
        ("walks. It has", {0, 1}),
        ("walks. Words", set()),
        ("swing. Words become motion", set()),
    ],
)
def test_passages_are_found_across_chunks(index: Index, passage: str, found: set[int]) -> None:
    question = bound(index, Expectation("q", passages=(passage,)))
    ids = {id for target in question.targets for id in target.chunks}
    assert {one.chunk_index for one in index.scroll() if one.id in ids and one.title == "GUIDE/A"} == found
    assert question.measured == bool(found)


def find(passage: str, chunks: list[Chunk]) -> frozenset[str]:
    parts = [(one.chunk_index, one.id, "".join(one.text.split())) for one in chunks]
    return find_passages([passage], [parts])[passage]


@given(st.integers(0, 10_000))
def test_any_passage_of_a_page_is_found_in_all_of_its_chunks(seed: int) -> None:
    numbers = random.Random(seed)
    words = ["".join(numbers.choices("ab", k=numbers.randint(1, 6))) for _ in range(60)]
    cuts = sorted(numbers.sample(range(1, 60), 3))
    pieces = [words[start:end] for start, end in zip([0, *cuts], [*cuts, 60], strict=True)]
    chunks = [chunk(number, text=" ".join(piece)) for number, piece in enumerate(pieces)]
    start = numbers.randrange(60)
    end = numbers.randint(start + 1, 60)
    touched = {
        chunks[number].id
        for number, piece in enumerate(pieces)
        for place in [sum(map(len, pieces[:number]))]
        if place < end and place + len(piece) > start
    }
    numbers.shuffle(chunks)
    assert touched <= find(" ".join(words[start:end]), chunks)


def test_overlapping_chunks_hold_a_passage_together_but_not_across_a_missing_chunk() -> None:
    assert not find("two three", [chunk(0, text="one two"), chunk(2, text="three four")])
    words = [str(number) for number in range(1000, 1013)]
    chunks = [chunk(0, text=" ".join(words[:8])), chunk(1, text=" ".join(words[6:]))]
    assert find(" ".join(words[2:12]), chunks) == {one.id for one in chunks}


@pytest.fixture
def garden(tmp_path: Path) -> Index:
    """Two pages; on the first, a section with a subsection."""
    below = ("Seeds", "Sowing Phaseolus", "Under glass")
    store = EdgeStore(tmp_path / "home")
    chunks = [
        replace(chunk(0, page="garden/seeds"), headings=("Seeds",), anchor=""),
        replace(chunk(1, page="garden/seeds"), headings=("Seeds", "Sowing Phaseolus"), anchor="beans"),
        replace(chunk(2, page="garden/seeds"), headings=below, anchor="glass"),
        replace(chunk(0, page="garden/soil"), headings=("Soil",), anchor=""),
    ]
    publish(store, "book", chunks)
    return store.open("book")


def on(*pages: str) -> Expectation:
    return Expectation("q", pages=pages)


def test_a_heading_stands_for_its_section_and_what_is_below(garden: Index) -> None:
    expectation = Expectation("q", pages=("garden/seeds.md > Sowing `Phaseolus` {#beans}", "garden/soil.mdx"))
    question = bound(garden, expectation)
    assert not question.missing
    chunks = sorted(garden.scroll(), key=lambda each: (each.source, each.chunk_index))
    section, soil = question.targets
    assert [section.holds(each) for each in chunks] == [False, True, True, False]
    assert [soil.holds(each) for each in chunks] == [False, False, False, True]


def test_a_heading_that_is_not_there_is_unmeasured(garden: Index) -> None:
    (missing,) = bound(garden, on("garden/seeds.md > Sowing Phaselus")).missing
    assert missing.near == "garden/seeds.md > Sowing Phaseolus"
    assert not bound(garden, on("garden/soil.mdx > Sowing Phaseolus")).measured


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


def test_a_renamed_heading_is_matched_by_content_before_the_nearest_name(tmp_path: Path) -> None:
    sections = {
        "Watering": "Give seedlings little water each morning.",
        "Sowing seeds": "Put beans two centimetres deep into warm soil.",
        "Show": "Visitors come in June.",
    }
    chunks = [
        replace(chunk(number, page="garden", text=text), headings=("Garden", heading), anchor=heading.lower())
        for number, (heading, text) in enumerate(sections.items())
    ]
    store = EdgeStore(tmp_path)
    publish(store, "book", chunks)
    asked = Expectation("How deep do beans go into the soil?", pages=("garden > Shower",))
    (missing,) = bound(store.open("book"), asked).missing
    assert missing.near == "garden > Sowing seeds"
    by_name = Expectation("Anything else?", pages=("garden > Shower",))
    (missing,) = bound(store.open("book"), by_name).missing
    assert missing.near == "garden > Show"
