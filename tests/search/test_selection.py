"""Selected text: the query for it, the chunks that are excluded, and the quality compared with a plain search."""

from __future__ import annotations

import asyncio
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import selections
from recto.book.sources.tree import MarkdownTree
from recto.errors import InvalidArgument, InvalidQuery, PageMissing
from recto.indexing.indexer import IndexJob, index_book
from recto.protocols import Embedder
from recto.search.retriever import Retriever
from recto.search.selection import build_selection_query, exclude_and_diversify
from recto.stores.edge.store import EdgeStore
from recto.types.search import Chunk, Filters, Hit, Outcome

PAGE = "local://docs/docs/module-1-ros2/04-dds-and-qos"


def words(text: str) -> int:
    return len(text.split())


def hit(score: float, text: str, page: str = "p", heading: str = "") -> Hit:
    headings = (page, heading or text[:20])
    return Hit(
        score, Chunk(f"{page}/{text}", text, page, page, "m", ("m",), headings, "", 0, 1, 1, 1, "", page)
    )


def test_related_beats_a_plain_search(retriever: Retriever) -> None:
    cases = selections.load_cases(retriever)
    plain = selections.measure(cases, selections.plain(retriever))
    related = selections.measure(cases, selections.related(retriever))
    assert len(cases) > 30
    for part in ("recall", "reciprocal_rank", "pages"):
        assert sum(getattr(score, part) for score in related) > sum(
            getattr(score, part) for score in plain
        ), part
    assert not any(score.repeated for score in related)


class TestSelectionQuery:
    @pytest.mark.parametrize(
        ("selection", "question", "limit", "text", "cut"),
        [
            ("  Two words. ", None, 10, "Two words.", False),
            ("Two words.", "Why?", 10, "Why?\n\nTwo words.", False),
            (
                "One two three. Four five six! Seven eight nine.",
                None,
                7,
                "One two three. Four five six!",
                True,
            ),
            # The question counts toward the limit.
            ("One two three. Four five six.", "Why is it so?", 8, "Why is it so?\n\nOne two three.", True),
            # A sentence that is too long ends after a word.
            ("one two three four", None, 2, "one two", True),
        ],
    )
    def test_whole_sentences_that_fit_are_used(
        self, selection: str, question: str | None, limit: int, text: str, cut: bool
    ) -> None:
        query = build_selection_query(selection, question, limit, words)
        assert (query.text, query.selection.cut) == (text, cut)
        assert text.endswith(query.selection.text)
        assert query.selection.given == len(selection.strip())

    def test_text_without_spaces_is_cut_where_it_fits(self) -> None:
        assert build_selection_query("x" * 50, None, 10, len).text == "x" * 10

    @given(st.text(min_size=1, max_size=400).filter(str.strip), st.integers(3, 40))
    def test_the_query_is_a_prefix_that_fits(self, selection: str, limit: int) -> None:
        query = build_selection_query(selection, None, limit, words)
        selected = query.selection
        assert words(query.text) <= limit
        assert selection.strip().startswith(selected.text)
        assert selected.cut == (selected.text != selection.strip())

    @pytest.mark.parametrize("selection", ["", " \n\t", None, 5])
    def test_an_empty_selection_is_rejected(self, retriever: Retriever, selection: str) -> None:
        with pytest.raises(InvalidQuery, match="Selected text") as caught:
            retriever.related(selection)
        assert caught.value.hint

    @pytest.mark.parametrize("blank", ["", " \n"])
    def test_a_blank_question_is_ignored(self, retriever: Retriever, blank: str) -> None:
        text = "Some text about sensors."
        asked, unasked = retriever.related(text, blank), retriever.related(text)
        assert asked.query == unasked.query == text
        assert asked.hits == unasked.hits

    def test_top_k_is_checked(self, retriever: Retriever) -> None:
        with pytest.raises(InvalidArgument):
            retriever.related("Some text.", top_k=0)


class TestExcludeAndDiversify:
    SELECTION = "the quick brown fox jumps over the lazy dog"

    def test_chunks_that_overlap_the_selection_are_excluded(self) -> None:
        hits = [
            hit(0.9, f"Before. {self.SELECTION}. Behind."),
            hit(0.8, "the quick brown fox jumps over the lazy cat"),
            hit(0.7, "jumps over the lazy dog"),
            hit(0.6, "A lazy dog and a quick fox are other things."),
        ]
        chosen, left_out = exclude_and_diversify(hits, self.SELECTION, 3)
        assert [one.score for one in chosen] == [0.6]
        assert left_out == 3

    def test_chunks_that_overlap_the_edge_of_a_long_selection_are_excluded(self) -> None:
        selection = " ".join(f"word{number}" for number in range(200))
        edge = " ".join((*selection.split()[175:], *(f"other{number}" for number in range(100))))
        assert exclude_and_diversify([hit(0.9, edge)], selection, 3) == ([], 1)

    def test_a_single_term_excludes_nothing(self) -> None:
        hits = [hit(0.9, "A costmap marks what is in the way of the robot.")]
        assert exclude_and_diversify(hits, "costmap", 3) == (hits, 0)

    def test_at_most_half_of_the_hits_are_from_one_page(self) -> None:
        one = [hit(0.9 - number / 100, f"passage number {number} of one page", "one") for number in range(8)]
        others = [hit(0.5, "a passage of another page", "two"), hit(0.4, "one more elsewhere", "three")]
        for hits, pages in (([*one, *others], "one one one two three"), (one, "one one one one one")):
            chosen, _ = exclude_and_diversify(hits, self.SELECTION, 5)
            assert [each.chunk.page_url for each in chosen] == pages.split()

    def test_one_hit_per_section(self) -> None:
        hits = [
            hit(0.9, "first half of it", "one", "S"),
            hit(0.8, "second half of it", "one", "S"),
            hit(0.7, "other things", "two"),
        ]
        assert [one.score for one in exclude_and_diversify(hits, self.SELECTION, 2)[0]] == [0.9, 0.7]

    def test_copies_of_a_chunk_are_dropped(self) -> None:
        text = "a warning that every page of the book repeats word for word"
        chosen, left_out = exclude_and_diversify(
            [hit(0.9, text, "one"), hit(0.8, text, "two")], self.SELECTION, 5
        )
        assert [one.score for one in chosen] == [0.9]
        assert left_out == 0


class TestRelated:
    def test_the_response_reports_what_was_cut_and_excluded(self, retriever: Retriever) -> None:
        page = retriever.page(PAGE)
        response = retriever.related(page.markdown())
        assert response.selection is not None
        assert response.selection.cut
        assert response.selection.left_out > 0
        assert "of its" not in response.warnings[-1]
        lengths = f"first {len(response.selection.text)} of {response.selection.given} characters"
        assert lengths in response.warnings[-1]
        assert all(hit.chunk.text not in page.markdown() for hit in response.hits)

    def test_other_chunks_of_the_same_page_are_allowed(self, retriever: Retriever) -> None:
        selection = retriever.page(PAGE).section("qos-profiles")[0].text
        assert any(hit.chunk.page_url == PAGE for hit in retriever.related(selection).hits)

    def test_filters_apply(self, retriever: Retriever) -> None:
        found = retriever.related("Friction of the feet on the ground.", filters=Filters(modules=("isaac",)))
        assert {hit.chunk.module for hit in found.hits} == {"isaac"}
        nothing = retriever.related("Friction of the feet on the ground.", filters=Filters(modules=("isac",)))
        assert nothing.outcome is Outcome.FILTERED_OUT
        assert "isaac" in nothing.message

    def test_arelated_returns_the_same(self, retriever: Retriever) -> None:
        selection = retriever.page(PAGE).section("qos-profiles")[0].text
        here = retriever.related(selection, "In Python?")
        there = asyncio.run(retriever.arelated(selection, "In Python?"))
        assert (here.hits, here.selection, here.query) == (there.hits, there.selection, there.query)

    def test_the_message_says_if_only_the_selection_was_found(
        self, tmp_path: Path, embedder: Embedder
    ) -> None:
        book, text = tmp_path / "book", "This is the only sentence of a very short book."
        book.mkdir()
        (book / "only.md").write_text(f"# Only\n\n{text}\n")
        store = EdgeStore(tmp_path / "home")
        index_book(IndexJob(MarkdownTree(book), embedder), store, "only", journal=tmp_path / "journal")
        response = Retriever(embedder, store, "only").related(text)
        store.close()
        assert response.hits == ()
        assert response.outcome is Outcome.NO_MATCH
        assert response.message == "Only the selected text itself was found."


class TestPages:
    def test_markdown_has_the_chunks_in_order_with_headings(self, retriever: Retriever) -> None:
        page = retriever.page(f"{PAGE}.md#compatibility")
        assert (page.url, page.title, page.module) == (PAGE, "DDS and Quality of Service", "ros2")
        assert [chunk.chunk_index for chunk in page.chunks] == list(range(page.chunks[0].total_chunks))
        text = page.markdown()
        assert text.startswith("# DDS and Quality of Service\n\n")
        headings = [line for line in text.split("\n") if line.startswith("## ")]
        assert headings.count("## QoS compatibility rules") == 1
        assert headings.index("## What is DDS in ROS 2?") < headings.index("## QoS compatibility rules")

    def test_every_page_has_each_of_its_headings_once(self, retriever: Retriever) -> None:
        for url in retriever.pages():
            lines = retriever.page(url).markdown().split("\n")
            for chunk in retriever.page(url).chunks:
                headings = [line.lstrip("#").strip() for line in lines if line.startswith("#")]
                assert headings.count(chunk.headings[-1]) == 1, (url, chunk.headings)

    def test_a_section_is_part_of_the_page(self, retriever: Retriever) -> None:
        page = retriever.page(PAGE)
        text = page.markdown("compatibility")
        assert "## QoS compatibility rules" in text
        assert "## QoS policies one by one" not in text
        assert len(text) < len(page.markdown()) / 2

    def test_missing_pages_and_sections_suggest_the_nearest(self, retriever: Retriever) -> None:
        with pytest.raises(PageMissing, match=f"no page .* in '{retriever.collection}'") as caught:
            retriever.page(PAGE[:-1])
        assert PAGE in caught.value.hint
        with pytest.raises(PageMissing, match="no section") as caught:
            retriever.page(PAGE).markdown("compatibilty")
        assert "#compatibility" in caught.value.hint
        with pytest.raises(InvalidArgument):
            retriever.page(" ")

    def test_modules_and_pages_are_counted(self, retriever: Retriever) -> None:
        assert {module.name: module.chunks for module in retriever.modules()}["ros2"] > 50
        assert retriever.pages()[PAGE] == len(retriever.page(PAGE).chunks)
        assert sum(retriever.pages().values()) == sum(module.chunks for module in retriever.modules())


@pytest.mark.parametrize("text", ["a. " * 300_000, "a " * 450_000, "a" * 900_000])
def test_cutting_a_long_selection_needs_little_memory(text: str) -> None:
    tracemalloc.start()
    try:
        query = build_selection_query(text, None, 128_000, len)
        assert len(query.text) == pytest.approx(128_000, abs=3)
        assert tracemalloc.get_traced_memory()[1] < 100_000_000
    finally:
        tracemalloc.stop()
