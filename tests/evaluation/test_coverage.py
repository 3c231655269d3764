"""Coverage: sections that are reached, unreachable, duplicated, or outranked by another module."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from recto.errors import StorageError
from recto.evaluation import report
from recto.evaluation.calibration import calibrate, heading_question
from recto.evaluation.coverage import WITHIN, CoverageReport, cover, sections_of
from recto.protocols import Embedder
from recto.search.markdown import first_sentence
from recto.search.retriever import Retriever
from recto.stores.edge import EdgeStore
from recto.testing.parts import chunk
from tests.breaking import Passages, publish_broken, with_opposite_vectors
from tests.library import write_index, write_library
from tests.running import recto


def test_headings_without_text_count_and_are_found_through_their_subsections() -> None:
    path, anchors = ("T", "Empty", "Full"), ("full", "empty")
    below = replace(chunk(0, text="Text."), headings=path, anchor="full", anchors=anchors)
    empty, full = sections_of([below])
    assert (empty.headings, empty.url, empty.has_text) == (("T", "Empty"), f"{below.page_url}#empty", False)
    assert (full.headings, full.anchor, full.has_text) == (("T", "Empty", "Full"), "full", True)
    assert empty.holds(below)
    own = replace(below, headings=("T", "Empty"), anchor="empty", chunk_index=0)
    assert sections_of([own, replace(below, chunk_index=1)])[0].has_text


def test_holes_are_found(house_copy: Path, embedder: Embedder) -> None:
    publish_broken(house_copy, with_opposite_vectors("slugs", "brakes"))
    seen: list[tuple[int, int]] = []
    broken = Retriever(embedder, EdgeStore(house_copy), "broken")
    found = cover(broken, lambda *done: seen.append(done))
    assert seen[-1] == (len(found.sections), len(found.sections))
    assert {reached.section.anchor for reached in found.unreachable} == {"slugs", "brakes"}
    for reached in found.unreachable:
        assert (reached.heading_rank, reached.sentence_rank) == (None, None)
    assert found.share == pytest.approx(1 - 2 / len(found.sections))


def test_copies_are_found(tmp_path: Path, embedder: Embedder) -> None:
    book = write_library(tmp_path / "book")
    soil = (book / "module-1-garden" / "01-soil.md").read_text("utf-8")
    again = book / "module-3-workshop" / "05-soil-again.md"
    again.write_text(soil.replace("all year", "the whole year"), "utf-8")
    write_index(book, embedder, tmp_path, "house", calibrate=calibrate)
    found = cover(Retriever(embedder, EdgeStore(tmp_path), "house"))
    assert {
        (reached.section.first.page_url.rpartition("/")[2], reached.section.anchor)
        for reached in found.duplicates
    } == {(page, anchor) for page in ("01-soil", "05-soil-again") for anchor in ("", "compost", "mulch")}
    mulch = next(reached for reached in found.duplicates if reached.section.url.endswith("01-soil#mulch"))
    assert mulch.copies == ("local://docs/docs/module-3-workshop/05-soil-again#mulch",)


def test_other_text_with_the_same_vector_is_no_copy(house_copy: Path, embedder: Embedder) -> None:
    def with_one_vector(passages: Passages) -> Passages:
        vectors = {chunk.anchor: vector for chunk, vector in passages}
        return [
            (chunk, vectors["brakes"] if chunk.anchor == "slugs" else vector) for chunk, vector in passages
        ]

    publish_broken(house_copy, with_one_vector)
    assert cover(Retriever(embedder, EdgeStore(house_copy), "broken")).duplicates == []


def test_shadows_are_found(house_copy: Path, embedder: Embedder) -> None:
    """Where another module's passage stands nearer to both questions, it casts a shadow."""

    def shadowed(passages: Passages) -> Passages:
        (mulch,) = [number for number, (one, _) in enumerate(passages) if one.anchor == "mulch"]
        (lamps,) = [number for number, (one, _) in enumerate(passages) if one.anchor == "lamps"]
        target, near = passages[mulch], passages[lamps]
        turned = [0.6 * one + 0.4 * other for one, other in zip(target[1], near[1], strict=True)]
        changed = list(passages)
        changed[mulch], changed[lamps] = (target[0], turned), (near[0], target[1])
        return changed

    publish_broken(house_copy, shadowed)
    shadowed_sections = cover(Retriever(embedder, EdgeStore(house_copy), "broken")).shadowed
    (mulch,) = [reached for reached in shadowed_sections if reached.section.anchor == "mulch"]
    assert mulch.shadowed_by == "workshop"
    assert mulch.heading_rank is not None
    assert mulch.heading_rank <= WITHIN
    # The command lists what is not found; mulch is found, though never first.
    arguments = ("coverage", "--collection", "broken")
    brief, verbose = (recto(house_copy, *arguments, *more).stdout for more in ((), ("--verbose",)))
    assert "#mulch (" not in brief
    assert re.search(r"Shadowed: \d+; --verbose lists them", brief)
    assert re.search(r"#mulch \(.*\): outranked by module 'workshop'", verbose)


def test_a_section_is_asked_for_by_its_first_passage() -> None:
    texts = {number: f"Part {number} of it is a whole sentence." for number in (2, 0, 1)}
    parts = [replace(chunk(n, text=texts[n]), headings=("A", "B"), anchor="b") for n in texts]
    (section,) = sections_of(parts)
    assert section.first.chunk_index == 0
    assert section.queries == ("A > B", "Part 0 of it is a whole sentence.")
    assert all(section.holds(part) for part in parts)
    assert not section.holds(replace(parts[0], page_url="local://docs/docs/other"))
    assert heading_question(replace(chunk(0), headings=())) == "A", "without headings, by its page"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("A node is a process. It has a name.", "A node is a process."),
        ("```bash\nls -l\n```\n\nThe list of files is long. Very long.", "The list of files is long."),
        (
            "## Heading\n\n- *Links* like [this one](http://x.org) are read. More.",
            "Heading Links like this one are read.",
        ),
        ("| a | b |\n|---|---|\n| 1 | 2 |", "| a | b | |---|---| | 1 | 2 |"),
        ("Yes. No. This one is long enough to be asked for.", "This one is long enough to be asked for."),
        ("word " * 100, ("word " * 60).strip()),
        ("字" * 500, "字" * 300),
        ("", ""),
    ],
)
def test_first_sentences(text: str, sentence: str) -> None:
    assert first_sentence(text) == sentence


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 99}', '{"format": 1}', "\0"])
def test_a_damaged_report_is_as_if_it_were_missing(house_retriever: Retriever, home: Path, text: str) -> None:
    path = home / "reports" / "house" / "suite.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert report.read_report(home, house_retriever.open().info, "suite") is None


def test_a_home_that_cannot_be_written_is_told(house_retriever: Retriever, home: Path) -> None:
    home.mkdir()
    (home / "reports").write_text("a file where a directory should be")
    with pytest.raises(StorageError, match="cannot be written"):
        report.keep_coverage(home, house_retriever.open().info, CoverageReport("house", (), {}))
