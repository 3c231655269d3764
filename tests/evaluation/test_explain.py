"""Why a place came or did not: every answer is told from the others."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from pathlib import Path
from typing import Any

import pytest

from recto.errors import FingerprintMismatch, InvalidQuery
from recto.evaluation.explain import Expected, Verdict, explain
from recto.protocols import Embedder
from recto.search.analyzer import ANALYZER
from recto.search.lexical import LexiconBuilder
from recto.search.retriever import Retriever
from recto.stores.edge import EdgeStore
from recto.testing.parts import HashEmbedder, chunk, fingerprint, publish
from recto.types.search import MODES, Chunk, Filters, Mode, Vector

URL = "local://docs/docs/module-1-garden/01-soil"
COMPOST, LAMPS = "module-1-garden/01-soil#compost", "module-3-workshop/04-electricity#lamps"


def expected(retriever: Retriever, query: str, **more: Any) -> Expected:
    found = explain(retriever, query, **more).expected
    assert found is not None
    return found


def test_hits_margins_and_near_misses(house_retriever: Retriever) -> None:
    found = explain(house_retriever, "How is compost made?", top_k=3)
    response = house_retriever.search("How is compost made?", top_k=8)
    ranked = [one.hit.chunk.id for one in (*found.shown, *found.near_misses)]
    assert ranked == [hit.chunk.id for hit in response.hits]
    assert [ranked.rank for ranked in found.near_misses] == [4, 5, 6, 7, 8]
    assert found.shown[0].lead == pytest.approx(response.hits[0].score - response.hits[1].score)
    assert found.response.noise_floor == response.noise_floor
    assert list(found.timings_ms) == ["open", "load the model", "embed", "search"]
    assert found.found
    assert found.expected is None


@pytest.mark.parametrize(
    "page",
    [
        URL,
        f"{URL}/",
        "module-1-garden/01-soil",
        "module-1-garden/01-soil.md",
        "/docs/module-1-garden/01-soil/",
    ],
)
def test_an_expected_place_that_comes(house_retriever: Retriever, page: str) -> None:
    found = explain(house_retriever, "How is compost made?", expect=f"{page}#compost")
    assert found.found
    assert found.expected is not None
    assert (found.expected.verdict, found.expected.message) == (Verdict.FOUND, "It is at rank 1.")
    assert found.expected.hit is not None
    assert found.expected.hit.score == pytest.approx(found.shown[0].hit.score, abs=1e-5)


def publish_with_a_late_candidate(home: Path, query: str, embedder: HashEmbedder) -> Chunk:
    """Publish chunks of which the best one is a candidate only if `top_k` is more than 3; return it.

    It is the 28th of the dense and of the lexical ranking, and has the best hybrid score.
    """
    asked = embedder.embed_query(query)
    free = asked.index(0.0)

    def similar(cosine: float) -> Vector:
        vector = [cosine * number for number in asked]
        vector[free] = sqrt(1 - cosine**2)
        return vector

    dense = [(chunk(number, text="Bread"), similar(0.9 - number / 1e3)) for number in range(27)]
    best = chunk(27, text=f"{query} bread bread"), similar(0.87)
    lexical = [(chunk(number, text=query), similar(number / 1e3)) for number in range(28, 55)]
    chunks, vectors = zip(*dense, best, *lexical, strict=True)
    lexicon, made = LexiconBuilder(), embedder.fingerprint
    with EdgeStore(home).build("late", made, analyzer=ANALYZER, rebuild=True) as build:
        build.add(chunks, vectors, lexicon.vectors(chunks))
        build.publish(replace(fingerprint(embedder=made), analyzer=ANALYZER), lexicon.to_bytes())
    return best[0]


@pytest.mark.parametrize("top_k", [1, 3, 4, 10])
def test_ranks_are_those_of_the_search(tmp_path: Path, top_k: int) -> None:
    """A search with a larger limit has other candidates, which do not change the ranks of the results."""
    query, embedder = "compost heap", HashEmbedder()
    best = publish_with_a_late_candidate(tmp_path, query, embedder)
    retriever = Retriever(embedder, EdgeStore(tmp_path), "late")
    response = retriever.search(query, top_k=top_k)
    found = explain(retriever, query, top_k=top_k, passage=best.text)
    assert tuple(ranked.hit for ranked in found.shown) == response.hits
    assert [ranked.rank for ranked in (*found.shown, *found.near_misses)] == list(range(1, top_k + 6))
    assert (response.hits[0].chunk == best) == (top_k > 3)
    assert found.expected is not None
    assert found.expected.hit is not None
    assert found.expected.hit.chunk == best
    if top_k > 3:
        assert found.expected.rank == 1
    else:
        assert found.near_misses[0].hit.chunk == best
        assert found.expected.rank == top_k + 1
        message = f"It is not among the candidates for the first {top_k}: use a larger top k."
        assert found.expected.message == message


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_is_explained_by_both_rankings(house_retriever: Retriever, mode: Mode) -> None:
    query = "compost heap of leaves"
    found = explain(house_retriever, query, top_k=3, expect="module-1-garden/01-soil#compost", mode=mode)
    assert found.response.mode == mode
    assert [ranked.hit for ranked in found.shown] == list(
        house_retriever.search(query, top_k=3, mode=mode).hits
    )
    assert found.words == ("compost", "heap", "leaves")
    assert found.shown[0].words == found.words
    assert found.expected is not None
    assert found.expected.words == found.words
    positions = (found.expected.dense, found.expected.lexical)
    for ranking, position in zip(MODES[1:], positions, strict=True):
        first = house_retriever.search(query, top_k=1, mode=ranking).hits[0]
        assert position is not None
        assert position[0] == 1
        assert position[1] == pytest.approx(first.score, abs=1e-4)


def test_a_chunk_without_a_word_of_the_query_has_no_lexical_rank(house_retriever: Retriever) -> None:
    lamps = expected(house_retriever, "kitchen leaves", expect=LAMPS, mode="lexical")
    assert (lamps.verdict, lamps.rank) == (Verdict.TOO_LOW, None)
    assert lamps.message == "It contains none of the query's words."
    assert lamps.lexical == (None, None)
    assert lamps.dense is not None
    assert lamps.dense[0] is not None


def test_an_expected_place_that_is_too_low(house_retriever: Retriever) -> None:
    everything = house_retriever.search("How is compost made?", top_k=100).hits
    rank = next(rank for rank, hit in enumerate(everything, 1) if hit.chunk.anchor == "lamps")
    lamps = expected(house_retriever, "How is compost made?", top_k=2, expect=LAMPS)
    assert (lamps.verdict, lamps.rank) == (Verdict.TOO_LOW, rank)
    assert lamps.lacks == pytest.approx(everything[1].score - everything[rank - 1].score, abs=1e-4)
    assert [hit.chunk.id for hit in lamps.lost_to] == [hit.chunk.id for hit in everything[:2]]
    assert "is below the noise floor" in lamps.message


@pytest.mark.parametrize(
    ("page", "verdict", "near"),
    [
        ("module-1-garden/01-sol", Verdict.NO_PAGE, "module-1-garden/01-soil.md"),
        ("01-soil", Verdict.NO_PAGE, URL),
        ("local://docs/docs/module-1-garden/01-soyl", Verdict.NO_PAGE, URL),
        ("module-1-garden/01-soil#compst", Verdict.NO_ANCHOR, "module-1-garden/01-soil#compost"),
        ("zzz", Verdict.NO_PAGE, ""),
    ],
)
def test_pages_that_are_not_there(house_retriever: Retriever, page: str, verdict: Verdict, near: str) -> None:
    missing = expected(house_retriever, "compost", expect=page)
    assert missing.verdict is verdict
    assert missing.near.removesuffix(".md") == near.removesuffix(".md")


@pytest.mark.parametrize(
    ("filters", "verdict", "message"),
    [
        (Filters(("kitchen",)), Verdict.FILTERED_OUT, "Its module 'garden' is excluded by --module kitchen."),
        (Filters(page_url="local://docs/docs/welcome"), Verdict.FILTERED_OUT, "is excluded by --url"),
        (Filters(("garden",)), Verdict.FOUND, "It is at rank 1."),
    ],
)
def test_filters(house_retriever: Retriever, filters: Filters, verdict: Verdict, message: str) -> None:
    compost = expected(house_retriever, "How is compost made?", filters=filters, expect=COMPOST)
    assert compost.verdict is verdict
    assert message in compost.message
    assert compost.rank == 1, "with a filter, the rank that it would have without"


def test_passages(house_retriever: Retriever) -> None:
    there = expected(house_retriever, "flat tyre", passage="find the hole in a  bowl of WATER")
    assert there.verdict is Verdict.FOUND
    assert there.hit is not None
    assert there.hit.chunk.anchor == "flat-tyres"
    other = expected(house_retriever, "flat tyre", passage="look for the leak of the tube under water")
    assert other.verdict is Verdict.NO_PASSAGE
    assert other.near == "local://docs/docs/module-3-workshop/02-bicycles#flat-tyres"
    elsewhere = expected(house_retriever, "flat tyre", expect="welcome", passage="find the hole")
    assert elsewhere.verdict is Verdict.NO_PASSAGE
    assert "local://docs/docs/welcome" in elsewhere.message


def test_deep_ranks_are_searched_for(house_retriever: Retriever, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = expected(house_retriever, "How is compost made?", expect=LAMPS)
    monkeypatch.setattr("recto.evaluation.explain._FIRST_LIMIT", 1)
    assert expected(house_retriever, "How is compost made?", expect=LAMPS).rank == whole.rank


def test_what_cannot_be_explained(house_retriever: Retriever, embedder: Embedder, tmp_path: Path) -> None:
    publish(EdgeStore(tmp_path), "books", [chunk(0)])
    with pytest.raises(FingerprintMismatch, match="indexed with test-model"):
        explain(Retriever(embedder, EdgeStore(tmp_path), "books"), "compost")
    with pytest.raises(InvalidQuery):
        explain(house_retriever, " ")
