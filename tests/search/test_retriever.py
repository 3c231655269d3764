"""Search the sample book: ranking, filters, empty results, modes, threads and async; and how well it covers a query."""

from __future__ import annotations

import asyncio
import difflib
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock, patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import recto
from recto.errors import CollectionMissing, InvalidQuery
from recto.evaluation.suites import load_suite
from recto.protocols import Embedder
from recto.search.lexical import LexicalQuery
from recto.search.pages import nearest_page
from recto.search.pipeline import best_evidence, rank
from recto.search.response import answerable, coverage, noise_score
from recto.search.retriever import Retriever
from recto.stores.edge import EdgeStore
from recto.types.index import Calibration, Candidates, SparseVector
from recto.types.search import LEXICAL_WEIGHT, MODES, Filters, Mode, Outcome, SearchResponse
from tests.library import write_index

SUITE = Path(recto.__file__).parent / "sample" / "development.json"
QUESTIONS = ["What is ROS 2?", "robot navigation", "digital twin", "How do VLA models work?", "a"]


def without_time(response: SearchResponse) -> SearchResponse:
    return replace(response, timings=None)  # type: ignore[arg-type]


def test_hits_are_ranked(retriever: Retriever) -> None:
    response = retriever.search("What is ROS 2?")
    assert [len(retriever.search("robot", top_k=top_k).hits) for top_k in (1, 100)] == [1, 100]
    scores = [hit.score for hit in response.hits]
    assert scores == sorted(scores, reverse=True)
    assert response.hits[0].chunk.title == "ROS 2 Fundamentals"
    assert {hit.chunk.module for hit in response.hits[:2]} == {"ros2"}
    assert response.outcome is Outcome.FOUND
    assert 0 < response.timings.embed_ms + response.timings.search_ms <= response.timings.total_ms


def test_lists_of_links_count_less_and_sections_take_turns(tmp_path: Path, embedder: Embedder) -> None:
    """A "see also" list has all words of the question; a long section has them in each chunk."""
    parts = "\n\n".join(
        f"The question mark operator returns an error early. {'Then, ' * 90}" for _ in range(4)
    )
    links = (
        "See also:\n\n[the question mark operator][1] and [`From::from`][2]\n\n[1]: other.md\n[2]: other.md\n"
    )
    operator = (
        "The question mark operator returns early if there is an error, and calls `From::from` for it.\n"
    )
    pages = {
        f"other{n}.md": f"# Chapter {n}\n\nThe question mark operator appears again.\n" for n in range(4)
    }
    for name, text in {
        "a.md": f"# A\n\n{links}",
        "b.md": f"# B\n\n{operator}",
        "c.md": f"# C\n\n{parts}",
        **pages,
    }.items():
        (tmp_path / name).write_text(text)
    write_index(tmp_path, embedder, tmp_path / "home", "links")
    found = Retriever(embedder, EdgeStore(tmp_path / "home"), "links")
    hits = found.search("question mark operator and From::from", top_k=20).hits
    titles = [hit.chunk.title for hit in hits]
    assert titles[0] == "B"
    assert titles[:5].count("C") <= 2
    assert len(hits) == len({hit.chunk.id for hit in hits}) == found.open().info.chunks
    dense = [hit.score for hit in found.search("operator", top_k=20, mode="dense").hits]
    assert dense == sorted(dense, reverse=True)
    within = found.search("question mark operator", url=hits[titles.index("C")].chunk.page_url).hits
    assert len(within) >= 3, "without other sections, there is nothing to put first"


def test_results_are_deterministic(retriever: Retriever, sample_home: Path, embedder: Embedder) -> None:
    fresh = Retriever(embedder, EdgeStore(sample_home), "physical-ai-book")
    for question in QUESTIONS:
        first, *others = (without_time(one.search(question)) for one in (retriever, retriever, fresh))
        assert others == [first, first]


@given(st.text(min_size=1, max_size=200))
@settings(max_examples=30)
def test_any_text_is_a_valid_query_or_empty(retriever: Retriever, query: str) -> None:
    try:
        assert len(retriever.search(query).hits) == 5
    except InvalidQuery as error:
        assert not query.strip() or str(error) == "Query cannot be empty"


def test_a_page_filter_excludes_other_pages(retriever: Retriever) -> None:
    url = "local://docs/docs/module-2-simulation/01-gazebo-simulation"
    for spelling in (url, url + "/", url + ".md", url.replace("local://docs", "LOCAL://DOCS")):
        response = retriever.search("sensors", top_k=100, filters=Filters(page_url=spelling))
        assert {hit.chunk.page_url for hit in response.hits} == {url}
        assert len(response.hits) == response.hits[0].chunk.total_chunks
    both = retriever.search("sensors", top_k=5, filters=Filters(("ros2",), url))
    assert both.outcome is Outcome.FILTERED_OUT
    assert "each of them alone" in both.message


def test_empty_results_are_explained(retriever: Retriever, embedder: Embedder, sample_home: Path) -> None:
    unknown = retriever.search("sensors", filters=Filters(modules=("ros",)))
    assert unknown.outcome is Outcome.FILTERED_OUT
    assert "Did you mean 'ros2'?" in unknown.message
    assert "intro, isaac, ros2, simulation, vla" in unknown.message
    page = retriever.search("sensors", filters=Filters(page_url="local://docs/docs/introduction"))
    assert page.outcome is Outcome.FILTERED_OUT
    assert "Did you mean 'local://docs/docs/intro'?" in page.message
    for mode in MODES:
        nothing = retriever.search("sensors", min_score=0.999 if mode == "dense" else 999, mode=mode)
        assert (nothing.outcome, nothing.hits) == (Outcome.NO_MATCH, ())
        assert "999" in nothing.message
    unknown_words = retriever.search("zyxwvut qqqqqqqq", mode="lexical")
    assert unknown_words.outcome is Outcome.NO_MATCH
    assert unknown_words.message == "No chunk contains any word of the query"
    with pytest.raises(CollectionMissing, match="'elsewhere' does not exist"):
        Retriever(embedder, EdgeStore(sample_home), "elsewhere").search("sensors")


def test_hybrid_scores_are_the_weighted_mean_of_both(retriever: Retriever) -> None:
    query = "Jetson Orin"
    hybrid, dense, lexical = (retriever.search(query, top_k=10, mode=mode) for mode in MODES)
    assert (hybrid.mode, dense.mode, lexical.mode) == MODES
    assert all(hit.score == hit.dense and hit.lexical is None for hit in dense.hits)
    assert all(hit.score == hit.lexical and hit.dense is None for hit in lexical.hits)
    for hit in hybrid.hits:
        assert hit.dense is not None
        assert hit.lexical is not None
        expected = (hit.dense + LEXICAL_WEIGHT * hit.lexical) / (1 + LEXICAL_WEIGHT)
        assert hit.score == pytest.approx(expected)
        assert 0 < hit.score < 1
    assert all("orin" in hit.chunk.text.lower() for hit in hybrid.hits[:3])
    similarities = {hit.chunk.id: hit.score for hit in dense.hits}
    shared = [hit for hit in hybrid.hits if hit.chunk.id in similarities]
    assert [hit.dense for hit in shared] == pytest.approx([similarities[hit.chunk.id] for hit in shared])


def test_the_first_hits_do_not_depend_on_top_k(retriever: Retriever) -> None:
    queries = [expectation.query for expectation in load_suite(SUITE).expectations][:30]
    first = [
        [
            [hit.chunk.id for hit in response.hits[:5]]
            for response in retriever.search_batch(queries, top_k=top_k)
        ]
        for top_k in (5, 20, 100)
    ]
    assert first[0] == first[1] == first[2]


def test_hits_are_grouped_by_page(retriever: Retriever) -> None:
    response = retriever.search("How do nodes communicate?", top_k=3, group_by="page")
    assert len(response.groups) == len({group.page_url for group in response.groups}) == 3
    assert response.hits == tuple(hit for group in response.groups for hit in group.hits)
    assert all(hit.chunk.page_url == group.page_url for group in response.groups for hit in group.hits)
    for scores in (
        [group.score for group in response.groups],
        *([hit.score for hit in group.hits] for group in response.groups),
    ):
        assert scores == sorted(scores, reverse=True)
    assert response.groups[0].hits[0] == retriever.search("How do nodes communicate?", top_k=1).hits[0]


@pytest.mark.parametrize("mode", MODES)
def test_filters_batches_and_async_in_every_mode(retriever: Retriever, mode: Mode) -> None:
    queries = ["joint limits of a robot arm", "camera calibration", "What is ROS 2?"]
    alone = [
        retriever.search(query, top_k=7, filters=Filters(modules=("ros2",)), mode=mode) for query in queries
    ]
    assert all(hit.chunk.module == "ros2" for response in alone for hit in response.hits)
    together = retriever.search_batch(queries, top_k=7, filters=Filters(modules=("ros2",)), mode=mode)
    awaited = asyncio.run(
        retriever.asearch_batch(queries, top_k=7, filters=Filters(modules=("ros2",)), mode=mode)
    )
    for one, other, third in zip(alone, together, awaited, strict=True):
        places = [hit.chunk.id for hit in one.hits]
        assert places == [hit.chunk.id for hit in other.hits] == [hit.chunk.id for hit in third.hits]
    assert retriever.related("A node publishes messages on a topic.", mode=mode).mode == mode


def test_answerable_separates_topics_of_the_book_from_others(retriever: Retriever) -> None:
    covered = retriever.search("How does a ROS 2 node publish messages on a topic?").answerable
    other = retriever.search("Which wine goes well with grilled trout and lemon butter?").answerable
    assert (covered or 0) > 0.8
    assert (1 if other is None else other) < 0.2


def test_a_mistyped_page_costs_the_same_in_a_large_book() -> None:
    """A bounded number of pages is compared, so the answer is fast."""
    index = Mock(pages=lambda: {f"local://docs/chapter-{number:06}/intro": 1 for number in range(20_000)})
    compare = difflib.SequenceMatcher.set_seq1
    with patch.object(difflib.SequenceMatcher, "set_seq1", autospec=True, side_effect=compare) as compared:
        assert nearest_page(index, "local://docs/chaptr-012345/intro") is not None
        assert nearest_page(index, "chapter-000007/intro") == "local://docs/chapter-000007/intro"
        assert nearest_page(index, "x" * 100_000) is None
    assert compared.call_count < 1_000


CALIBRATION = Calibration(noise_floor=0.6, auroc=1.0, off_topic=32, in_book=16, spread=0.05)


def query(known: float) -> LexicalQuery:
    return LexicalQuery(SparseVector((), ()), (), known, 0.1)


def test_similar_and_known_queries_are_covered() -> None:
    grades = {"covered": (0.8, 1.0), "unclear": (0.62, 0.95), "not covered": (0.62, 0.3)}
    for grade, (evidence, known) in grades.items():
        assert coverage(answerable(evidence, query(known), CALIBRATION)) == grade
    assert coverage(None) is None


@pytest.mark.parametrize(
    ("cosine", "lexical", "calibration"),
    [(None, query(1), CALIBRATION), (0.7, None, CALIBRATION), (0.7, query(1), None)],
)
def test_coverage_is_unknown_without_a_cosine_a_vocabulary_or_a_calibration(
    cosine: float | None, lexical: LexicalQuery | None, calibration: Calibration | None
) -> None:
    assert answerable(cosine, lexical, calibration) is None


def test_similarities_are_scaled_by_the_spread_of_the_index() -> None:
    wide = CALIBRATION._replace(noise_floor=0.3, spread=0.1)
    assert answerable(0.7, query(0.5), CALIBRATION) == answerable(0.5, query(0.5), wide)


@given(st.floats(-1, 1), st.floats(0, 1), st.floats(0, 0.5), st.floats(0, 0.3))
@settings(max_examples=50)
def test_coverage_grows_with_similarity_and_known_words(
    cosine: float, known: float, more_similar: float, more_known: float
) -> None:
    less = answerable(cosine, query(known), CALIBRATION)
    greater = answerable(cosine + more_similar, query(known + more_known), CALIBRATION)
    assert less is not None
    assert greater is not None
    assert 0 <= less <= greater <= 1


@given(
    st.lists(st.tuples(st.floats(-1, 1), st.floats(0, 1)), min_size=1, max_size=5),
    st.floats(0, 1),
    st.floats(LEXICAL_WEIGHT, 2),
)
@settings(max_examples=50)
def test_the_best_hit_of_a_covered_query_is_above_the_noise_floor(
    scores: list[tuple[float, float]], known: float, weight: float
) -> None:
    """So no query is called covered while all of its hits are called weak; a smaller weight can do that."""
    found, asked = Candidates(), query(known)._replace(weight=weight)
    for number, (cosine, lexical) in enumerate(scores):
        found.dense[number], found.lexical[number] = cosine, lexical
    (_, best), *_ = rank(found, "hybrid", weight)
    floor = noise_score(CALIBRATION.noise_floor, "hybrid", asked)
    assert floor is not None
    if coverage(answerable(best_evidence(found), asked, CALIBRATION)) == "covered":
        assert best > floor
