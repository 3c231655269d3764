"""Selected text: the query for it, the chunks that are excluded, and the quality compared with a plain search."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recto.search.retriever import Retriever
from recto.search.selection import build_selection_query, exclude_and_diversify
from recto.stores.edge import EdgeStore
from recto.testing import HashEmbedder
from recto.types.search import Chunk, Filters, Hit, Outcome
from tests.library import write_index

PAGE = "local://docs/docs/module-1-ros2/04-dds-and-qos"


def words(text: str) -> int:
    return len(text.split())


def hit(score: float, text: str, page: str = "p", heading: str = "") -> Hit:
    headings = (page, heading or text[:20])
    chunk = Chunk(f"{page}/{text}", text, page, page, "m", ("m",), headings, "", 0, 1, 1, 1, "", page)
    return Hit(score, chunk)


def test_related_beats_a_plain_search(retriever: Retriever) -> None:
    """More of the expected sections are found, and earlier, on more pages, and never the selection itself."""
    chunks = sorted(retriever.open().scroll(), key=lambda chunk: (chunk.source, chunk.chunk_index))
    cases = json.loads(Path(__file__).with_name("selections.json").read_text("utf-8"))["cases"]
    assert len(cases) > 30

    def section(place: str) -> list[Chunk]:
        path, _, anchor = place.partition("#")
        found = [
            chunk
            for chunk in chunks
            if Path(chunk.source).with_suffix("").as_posix().endswith(path)
            and anchor in (chunk.anchor, *chunk.anchors)
        ]
        assert found, place
        return found

    sums: list[list[float]] = [[0, 0, 0], [0, 0, 0]]
    for case in cases:
        selection, question = section(case["selection"])[0].text.split("\n\n")[0], case.get("question")
        expected = [{chunk.id for chunk in section(place)} for place in case["expect"]]
        query = "\n\n".join(filter(None, (question, selection)))[:2000]
        plain, related = retriever.search(query).hits, retriever.related(selection, question).hits
        assert not any(selection in hit.chunk.text for hit in related), case["selection"]
        for total, hits in zip(sums, (plain, related), strict=True):
            ids = [hit.chunk.id for hit in hits]
            ranks = [min((ids.index(id) + 1 for id in places & {*ids}), default=0) for places in expected]
            found = list(filter(None, ranks))
            measures = (
                len(found) / len(ranks),
                1 / min(found, default=1e9),
                len({h.chunk.page_url for h in hits}),
            )
            total[:] = [before + value for before, value in zip(total, measures, strict=True)]
    assert all(after > before for before, after in zip(*sums, strict=True)), sums


class TestSelectionQuery:
    @pytest.mark.parametrize(
        ("selection", "question", "limit", "text"),
        [
            ("  Two words. ", None, 10, "Two words."),
            ("Two words.", "Why?", 10, "Why?\n\nTwo words."),
            ("One two three. Four five six! Seven eight nine.", None, 7, "One two three. Four five six!"),
            # The question counts toward the limit.
            ("One two three. Four five six.", "Why is it so?", 8, "Why is it so?\n\nOne two three."),
            # A sentence that is too long ends after a word.
            ("one two three four", None, 2, "one two"),
        ],
    )
    def test_whole_sentences_are_used(
        self, selection: str, question: str | None, limit: int, text: str
    ) -> None:
        query = build_selection_query(selection, question, limit, words)
        assert query.text == text
        assert text.endswith(query.selection.text)
        assert query.selection.given == len(selection.strip())

    @given(st.text(min_size=1, max_size=400).filter(str.strip), st.integers(3, 40))
    @settings(max_examples=50)
    def test_the_query_is_a_prefix_that_fits(self, selection: str, limit: int) -> None:
        for count in (words, len):  # `len`: text without spaces is cut where it fits
            query = build_selection_query(selection, None, limit, count)
            selected = query.selection
            assert count(query.text) <= limit
            assert selection.strip().startswith(selected.text)
            assert selected.cut == (selected.text != selection.strip())


class TestExcludeAndDiversify:
    SELECTION = "the quick brown fox jumps over the lazy dog"

    def test_chunks_that_overlap_the_selection_are_excluded(self) -> None:
        hits = [
            hit(0.9, f"Before. {self.SELECTION}. Behind."),
            hit(0.8, "the quick brown fox jumps over the lazy cat"),
            hit(0.7, "jumps over the lazy dog"),
            hit(0.6, "A lazy dog and a quick fox are other things."),
        ]
        assert exclude_and_diversify(hits, self.SELECTION, 3) == (hits[3:], 3)
        assert exclude_and_diversify(hits, "fox", 4)[1] == 0, "a single term excludes nothing"
        selection = " ".join(f"word{number}" for number in range(200))
        edge = " ".join((*selection.split()[175:], *(f"other{number}" for number in range(100))))
        assert exclude_and_diversify([hit(0.9, edge)], selection, 3) == ([], 1)

    def test_at_most_half_of_the_hits_are_from_one_page(self) -> None:
        one = [hit(0.9 - number / 100, f"passage number {number} of one page", "one") for number in range(8)]
        others = [hit(0.5, "a passage of another page", "two"), hit(0.4, "one more elsewhere", "three")]
        for hits, pages in (([*one, *others], "one one one two three"), (one, "one one one one one")):
            chosen, _ = exclude_and_diversify(hits, self.SELECTION, 5)
            assert [each.chunk.page_url for each in chosen] == pages.split()

    def test_copies_and_other_parts_of_a_section_are_left_out(self) -> None:
        hits = [
            hit(0.9, "first half of it", "one", "S"),
            hit(0.8, "second half of it", "one", "S"),
            hit(0.7, "a warning that every page of the book repeats word for word", "two"),
            hit(0.6, "a warning that every page of the book repeats word for word", "three"),
        ]
        chosen, excluded = exclude_and_diversify(hits, self.SELECTION, 2)
        assert ([one.score for one in chosen], excluded) == ([0.9, 0.7], 0)


class TestRelated:
    def test_the_response_reports_what_was_cut_and_excluded(self, retriever: Retriever) -> None:
        page = retriever.page(PAGE)
        response = retriever.related(page.markdown())
        assert response.selection is not None
        assert response.selection.left_out > 0
        lengths = f"first {len(response.selection.text)} of {response.selection.given} characters"
        assert lengths in response.warnings[-1]
        assert all(hit.chunk.text not in page.markdown() for hit in response.hits)

    def test_other_chunks_of_the_same_page_are_allowed(self, retriever: Retriever) -> None:
        selection = retriever.page(PAGE).section("qos-profiles")[0].text
        here = retriever.related(selection, "In Python?")
        assert any(hit.chunk.page_url == PAGE for hit in here.hits)
        there = asyncio.run(retriever.arelated(selection, "In Python?"))
        assert (here.hits, here.selection, here.query) == (there.hits, there.selection, there.query)

    def test_filters_apply(self, retriever: Retriever) -> None:
        found = retriever.related("Friction of the feet on the ground.", filters=Filters(modules=("isaac",)))
        assert {hit.chunk.module for hit in found.hits} == {"isaac"}
        nothing = retriever.related("Friction of the feet on the ground.", filters=Filters(modules=("isac",)))
        assert nothing.outcome is Outcome.FILTERED_OUT
        assert "isaac" in nothing.message

    def test_the_message_says_if_only_the_selection_was_found(self, tmp_path: Path) -> None:
        text = "This is the only sentence of a very short book."
        (tmp_path / "only.md").write_text(f"# Only\n\n{text}\n")
        write_index(tmp_path, HashEmbedder(), tmp_path / "home", "only")
        response = Retriever(HashEmbedder(), EdgeStore(tmp_path / "home"), "only").related(text)
        assert (response.hits, response.outcome) == ((), Outcome.NO_MATCH)
        assert response.message == "Only the selected text itself was found."


class TestPages:
    def test_markdown_has_the_chunks_in_order_with_headings(self, retriever: Retriever) -> None:
        page = retriever.page(f"{PAGE}.md#compatibility")
        assert (page.url, page.title, page.module) == (PAGE, "DDS and Quality of Service", "ros2")
        assert [chunk.chunk_index for chunk in page.chunks] == list(range(page.chunks[0].total_chunks))
        headings = [line for line in page.markdown().split("\n") if line.startswith("#")]
        assert headings[0] == "# DDS and Quality of Service"
        assert headings.index("## What is DDS in ROS 2?") < headings.index("## QoS compatibility rules")
        section = page.markdown("compatibility")
        assert "## QoS compatibility rules" in section
        assert "## QoS policies one by one" not in section

    def test_every_page_has_each_of_its_headings_once(self, retriever: Retriever) -> None:
        for url in retriever.pages():
            page = retriever.page(url)
            lines = page.markdown().split("\n")
            headings = [line.lstrip("#").strip() for line in lines if line.startswith("#")]
            for chunk in page.chunks:
                assert headings.count(chunk.headings[-1]) == 1, (url, chunk.headings)


@pytest.mark.parametrize("text", ["a. " * 100_000, "a " * 150_000, "a" * 300_000])
def test_cutting_a_long_selection_needs_little_memory(text: str) -> None:
    tracemalloc.start()
    try:
        query = build_selection_query(text, None, 32_000, len)
        assert len(query.text) == pytest.approx(32_000, abs=3)
        assert tracemalloc.get_traced_memory()[1] < 25_000_000
    finally:
        tracemalloc.stop()
