"""The conformance suite of stores, run on each of them."""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from recto.errors import CollectionMissing, ConfigurationError, EmbeddingError, StoreBusy
from recto.protocols import AsyncIndex, AsyncStore, Index, Store
from recto.search.analyzer import ANALYZER
from recto.search.lexical import Lexicon, LexiconBuilder, analyze_query
from recto.settings import ServerOptions
from recto.stores.edge.store import EdgeStore
from recto.stores.points import candidate_limits
from recto.stores.qdrant.connection import Connection
from recto.stores.qdrant.store import ServerStore
from recto.types import Calibration, Candidates, Chunk, Filters, IndexQuery, SparseVector, Vector
from tests.doubles.qdrant import QdrantDouble
from tests.making import DIM, EMBEDDER, chunk, fingerprint, publish, publish_lexical, vector

REAL_SERVER = os.environ.get("RECTO_TEST_QDRANT_URL", "")
KINDS = [
    "edge",
    "server",
    pytest.param(
        "real server", marks=pytest.mark.skipif(not REAL_SERVER, reason="RECTO_TEST_QDRANT_URL is not set")
    ),
]


@contextmanager
def open_store(kind: str, home: Path) -> Iterator[Store]:
    """Open an empty store: embedded, on an HTTP double of a server, or on a real server."""
    if kind == "edge":
        yield EdgeStore(home)
    elif kind == "server":
        with QdrantDouble(api_key="key") as double:
            store = ServerStore(Connection(double.url, "key", lambda _: None), home, ServerOptions(), None)
            yield store
            store.close()
    else:
        connection = Connection(REAL_SERVER, os.environ.get("RECTO_TEST_QDRANT_API_KEY", ""), lambda _: None)
        for entry in connection.client.get_collections().collections:
            if entry.name.startswith(("books--", "library--", "shelf--", "others--")):
                connection.client.delete_collection(entry.name)
        yield ServerStore(connection, home, ServerOptions(), None)
        connection.close()


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with open_store(request.param, tmp_path / "home") as store:
        yield store


def test_a_new_store_is_empty(store: Store) -> None:
    assert store.collections() == ()
    assert dict(store.aliases()) == {}
    with pytest.raises(CollectionMissing) as caught:
        store.open("books")
    assert "recto index" in caught.value.hint


def test_published_chunks_are_found(store: Store) -> None:
    chunks = [chunk(number) for number in range(10)]
    info = publish(store, "books", chunks)
    index = store.open("books")
    assert index.info == info
    assert (info.collection, info.chunks, info.fingerprint) == ("books", 10, fingerprint())
    assert store.collections() == ("books",)
    assert index.count() == 10
    assert sorted(index.scroll(batch=3), key=lambda found: found.chunk_index) == chunks
    for number in range(10):
        best = index.query(vector(number), 1)[0]
        assert best.chunk == chunks[number]
        assert best.score == best.dense == pytest.approx(1, abs=1e-5)


def test_hits_are_ordered_and_limited(store: Store) -> None:
    publish(store, "books", [chunk(number) for number in range(30)])
    index = store.open("books")
    hits = index.query(vector(99), 7)
    assert len(hits) == 7
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert len(index.query(vector(99), 100)) == 30


def test_ties_are_ordered_by_page_and_position(store: Store) -> None:
    chunks = [chunk(number, page=page) for page in "ba" for number in (2, 0, 1)]
    with store.build("books", EMBEDDER, rebuild=True) as build:
        build.add(chunks, [vector(1)] * len(chunks))
        build.publish(fingerprint())
    hits = store.open("books").query(vector(1), 10)
    assert [(hit.chunk.page_url[-1], hit.chunk.chunk_index) for hit in hits] == [
        (page, number) for page in "ab" for number in (0, 1, 2)
    ]


def test_min_score(store: Store) -> None:
    publish(store, "books", [chunk(number) for number in range(20)])
    index = store.open("books")
    everything = index.query(vector(50), 20)
    least = everything[5].score - 1e-6
    assert [hit.chunk.id for hit in index.query(vector(50), 20, min_score=least)] == [
        hit.chunk.id for hit in everything[:6]
    ]


def test_a_batch_returns_the_same_as_single_queries(store: Store) -> None:
    publish(store, "books", [chunk(number, page="ab"[number % 2]) for number in range(30)])
    index = store.open("books")
    vectors = [vector(100 + number) for number in range(9)]
    only = Filters(page_url="local://docs/docs/a")
    assert index.query_batch(vectors, 4, only) == [index.query(one, 4, only) for one in vectors]
    assert index.query_batch([], 4) == []


PLACES = [
    ("ros2", "module-1-ros2"),
    ("simulation", "module-2-simulation"),
    ("intro", "intro"),
    ("ros2", "week-9-ros2"),
]


@pytest.fixture(scope="module", params=KINDS)
def filled_store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store with four directories of three modules and three pages in each."""
    chunks = [
        chunk(number, module=module, directory=directory, page=f"{directory}/{number % 3}")
        for module, directory in PLACES
        for number in range(12)
    ]
    with open_store(request.param, tmp_path_factory.mktemp("mixed")) as store:
        publish(store, "books", chunks)
        yield store


NAMES = st.sampled_from(
    [
        "ros2",
        "ROS2",
        "module-1-ros2",
        "week-9-ros2",
        "simulation",
        "intro",
        "module-9-ros2",
        "vla",
        "",
        "*",
        "ros",
    ]
)
URLS = st.sampled_from(
    [
        None,
        "local://docs/docs/module-1-ros2/1",
        "LOCAL://docs/docs/module-1-ros2/1/",
        "local://docs/docs/intro/2.md",
        "nowhere",
    ]
)


@given(names=st.lists(NAMES, max_size=3), url=URLS, seed=st.integers(0, 10_000), limit=st.integers(1, 60))
@hypothesis_settings(max_examples=150)
def test_filters_exclude_all_that_does_not_match(
    filled_store: Store, names: list[str], url: str | None, seed: int, limit: int
) -> None:
    index = filled_store.open("books")
    filters = Filters(tuple(names), url)
    wanted = [
        found
        for found in index.scroll()
        if (not names or {name.lower() for name in names} & set(found.module_keys))
        and (url is None or found.page_url == url.lower().rstrip("/").removesuffix(".md"))
    ]
    hits = index.query(vector(seed), limit, filters)
    assert index.count(filters) == len(wanted)
    assert len(hits) == min(limit, len(wanted))
    assert {hit.chunk.id for hit in hits} <= {found.id for found in wanted}
    assert {found.id for found in index.scroll(filters)} == {found.id for found in wanted}


def test_facets(filled_store: Store) -> None:
    index = filled_store.open("books")
    assert index.modules() == {"intro": 12, "ros2": 24, "simulation": 12}
    assert sum(index.pages().values()) == 48
    assert index.pages()["local://docs/docs/intro/2"] == 4


def test_vectors_are_returned(store: Store) -> None:
    chunks = [chunk(number) for number in range(3)]
    publish(store, "books", chunks)
    found = store.open("books").vectors([chunks[1].id, chunk(99).id])
    assert list(found) == [chunks[1].id]
    assert found[chunks[1].id] == pytest.approx(vector(1), abs=1e-6)


def test_a_new_index_replaces_the_old_one(store: Store) -> None:
    publish(store, "books", [chunk(number) for number in range(5)])
    before = store.open("books")
    assert store.open("books") is before
    publish(store, "books", [chunk(number, page="new") for number in range(3)])
    after = store.open("books")
    assert after is not before
    assert {found.page_title for found in after.scroll()} == {"NEW"}
    assert before.count() == 5, "a reader that holds the old index keeps it"


def test_unpublished_chunks_are_not_visible(store: Store) -> None:
    publish(store, "books", [chunk(1)])
    with pytest.raises(KeyError), store.build("books", EMBEDDER, rebuild=True) as build:
        build.add([chunk(2)], [vector(2)])
        raise KeyError("something else went wrong")
    assert store.open("books").count() == 1
    publish(store, "books", [chunk(3), chunk(4)])
    assert store.open("books").count() == 2


@pytest.mark.parametrize("bad", [[1.0] * (DIM - 1), [math.nan] * DIM, [math.inf] + [0.0] * (DIM - 1)])
def test_a_batch_with_an_invalid_vector_is_rejected(store: Store, bad: list[float]) -> None:
    publish(store, "books", [chunk(1)])
    with pytest.raises(EmbeddingError), store.build("books", EMBEDDER, rebuild=True) as build:
        build.add([chunk(2), chunk(3)], [vector(2), bad])
    assert store.open("books").count() == 1


def test_one_writer_at_a_time(store: Store) -> None:
    publish(store, "books", [chunk(1)])
    with store.build("books", EMBEDDER, rebuild=True) as build:
        build.add([chunk(2)], [vector(2)])
        with (
            pytest.raises(StoreBusy, match="process") as caught,
            store.build("books", EMBEDDER, rebuild=True),
        ):
            pass
        assert caught.value.hint
        with store.build("others", EMBEDDER, rebuild=True) as other:
            other.add([chunk(5)], [vector(5)])
            other.publish(fingerprint())
        build.publish(fingerprint())
    assert store.open("books").count() == 1
    assert store.collections() == ("books", "others")


def test_aliases_refer_to_a_collection(store: Store) -> None:
    publish(store, "books", [chunk(1)])
    store.set_aliases(["library", "shelf"], "books")
    assert dict(store.aliases()) == {"library": "books", "shelf": "books"}
    assert store.open("library").info.collection == "books"
    assert store.collections() == ("books",)


def test_an_alias_follows_a_new_index(store: Store) -> None:
    publish(store, "books", [chunk(1)])
    store.set_aliases(["library"], "books")
    assert store.open("library").count() == 1
    publish(store, "books", [chunk(1), chunk(2)])
    assert store.open("library").count() == 2


def test_a_collection_keeps_its_own_name(store: Store) -> None:
    publish(store, "books", [chunk(1)])
    publish(store, "library", [chunk(1), chunk(2)])
    store.set_aliases(["library", "shelf"], "books")
    assert store.open("library").count() == 2
    publish(store, "shelf", [chunk(number) for number in range(3)])
    assert store.open("shelf").count() == 3
    assert dict(store.aliases()) == {}


def test_any_text_is_stored_as_written(store: Store) -> None:
    texts = [
        "naïve café",
        "机器人",
        "🤖 emoji",
        "مرحبا",
        "a\tb\n\n  c",
        "x" * 50_000,
        '{"json": ["[x]"]}',
        "\x1b[31mred",
    ]
    publish(store, "books", [chunk(number, text=text) for number, text in enumerate(texts)])
    assert sorted(found.text for found in store.open("books").scroll()) == sorted(texts)


WORDS = [
    chunk(number, text="soil and water" + " compost" * (number % 3 == 0), page="ab"[number % 2])
    for number in range(60)
]
"""Sixty chunks on two pages; every third has the word "compost", and is nearest to its own dense vector."""
PAGE_A = Filters(page_url="local://docs/docs/a")


def terms(index: Index, text: str) -> SparseVector:
    """Analyse a query with the vocabulary that an index has."""
    return analyze_query(text, Lexicon(index.lexicon())).vector


def by_chunk(index: Index, scores: Mapping[Hashable, float]) -> dict[int, float]:
    """Return scores by the numbers of the chunks."""
    chunks = index.chunks(scores)
    assert chunks.keys() == scores.keys()
    return {chunks[id].chunk_index: score for id, score in scores.items()}


def cosine(left: Vector, right: Vector) -> float:
    return sum(one * other for one, other in zip(left, right, strict=True))


def bm25(index: Index, found: Chunk, text: str) -> float:
    """Compute the lexical score of a chunk without an engine."""
    (stored,) = LexiconBuilder().vectors([found])
    weights, lexicon, query = (
        dict(zip(stored.indices, stored.values, strict=True)),
        Lexicon(index.lexicon()),
        terms(index, text),
    )
    idf = lexicon.idf(sum(lexicon.forms(text).values()))
    return sum(
        weight * weights.get(term, 0.0) * idf
        for term, weight in zip(query.indices, query.values, strict=True)
    )


def test_the_vocabulary_is_stored(store: Store) -> None:
    info = publish_lexical(store, "books", WORDS)
    index = store.open("books")
    assert index.info == info
    expected = LexiconBuilder()
    expected.vectors(WORDS)
    assert index.lexicon() == expected.to_bytes()
    store.save_calibration(index.info, Calibration(0.5, 0.9, 10, 10))
    assert store.open("books").lexicon() == expected.to_bytes(), "a calibration keeps it"
    assert store.open("books").info.calibration == Calibration(0.5, 0.9, 10, 10)
    publish_lexical(store, "books", WORDS[:3], book="other")
    assert Lexicon(store.open("books").lexicon()).chunks == 3


def test_candidates_have_both_scores(store: Store) -> None:
    publish_lexical(store, "books", WORDS)
    index = store.open("books")
    query = vector(1000)
    (found,) = index.candidates([IndexQuery(query, terms(index, "compost"))], 5)
    lexical, dense = by_chunk(index, found.lexical), by_chunk(index, found.dense)
    assert lexical == pytest.approx(
        {one.chunk_index: bm25(index, one, "compost") for one in WORDS[::3]}, rel=1e-5
    )
    cosines = {number: cosine(vector(number), query) for number in range(60)}
    nearest = sorted(cosines, key=lambda number: -cosines[number])[: candidate_limits(5, hybrid=True).dense]
    assert dense == pytest.approx({number: cosines[number] for number in {*nearest, *lexical}}, abs=1e-5)


def test_candidates_of_dense_or_lexical_queries(store: Store) -> None:
    publish_lexical(store, "books", WORDS)
    index = store.open("books")
    (lexical,) = index.candidates([IndexQuery(lexical=terms(index, "compost"))], 100)
    assert (lexical.dense, set(by_chunk(index, lexical.lexical))) == ({}, set(range(0, 60, 3)))
    (limited,) = index.candidates([IndexQuery(lexical=terms(index, "compost"))], 7)
    assert len(limited.lexical) == 7
    (dense,) = index.candidates([IndexQuery(vector(1000))], 7)
    expected = {hit.chunk.chunk_index: hit.score for hit in index.query(vector(1000), 7)}
    assert by_chunk(index, dense.dense) == pytest.approx(expected, abs=1e-5)
    assert dense.lexical == {}
    nothing = SparseVector((), ())
    assert index.candidates([IndexQuery(lexical=nothing)], 7) == [Candidates()]
    (only_dense,) = index.candidates([IndexQuery(vector(1000), nothing)], 7)
    assert only_dense.lexical == {}
    assert len(only_dense.dense) == candidate_limits(7, hybrid=True).dense


def test_filters_apply_to_all_candidates(store: Store) -> None:
    publish_lexical(store, "books", WORDS)
    index = store.open("books")
    (found,) = index.candidates([IndexQuery(vector(1000), terms(index, "compost"))], 5, PAGE_A)
    assert set(by_chunk(index, found.lexical)) == set(range(0, 60, 6))
    assert {number % 2 for number in by_chunk(index, found.dense)} == {0}
    assert index.candidates(
        [IndexQuery(vector(1), terms(index, "compost"))], 5, Filters(page_url="nowhere")
    ) == [Candidates()]


def test_candidates_of_a_batch(store: Store) -> None:
    publish_lexical(store, "books", WORDS)
    index = store.open("books")
    queries = [
        IndexQuery(vector(1), terms(index, "compost")),
        IndexQuery(vector(2)),
        IndexQuery(lexical=terms(index, "water")),
        IndexQuery(vector(3), SparseVector((), ())),
    ]
    together = index.candidates(queries, 5, PAGE_A)
    for query, found in zip(queries, together, strict=True):
        (alone,) = index.candidates([query], 5, PAGE_A)
        assert by_chunk(index, found.dense) == pytest.approx(by_chunk(index, alone.dense))
        assert sorted(found.lexical.values()) == pytest.approx(sorted(alone.lexical.values()))
    assert index.candidates([], 5) == []
    chunks = index.chunks(id for candidates in together for id in candidates.dense)
    assert all(one == WORDS[one.chunk_index] for one in chunks.values())


def test_async_candidates_are_the_same(store: Store) -> None:
    publish_lexical(store, "books", WORDS)
    index = store.open("books")
    if not isinstance(index, AsyncIndex):
        pytest.skip("this index has no async methods")
    queries = [
        IndexQuery(vector(1), terms(index, "compost")),
        IndexQuery(vector(2)),
        IndexQuery(lexical=terms(index, "compost")),
    ]

    async def ask() -> tuple[list[Candidates], dict[Hashable, Chunk]]:
        found = await index.acandidates(queries, 100, PAGE_A)
        chunks = await index.achunks(id for one in found for id in (*one.dense, *one.lexical))
        if isinstance(store, AsyncStore):
            await store.aclose()
        return found, chunks

    found, chunks = asyncio.run(ask())
    for one, other in zip(found, index.candidates(queries, 100, PAGE_A), strict=True):
        assert by_chunk(index, one.dense) == pytest.approx(by_chunk(index, other.dense), abs=1e-5)
        assert by_chunk(index, one.lexical) == pytest.approx(by_chunk(index, other.lexical), rel=1e-5)
    assert chunks == index.chunks(id for one in found for id in (*one.dense, *one.lexical))
    assert {one.chunk_index for one in chunks.values()} == set(range(0, 60, 2))


def test_an_index_without_lexical_vectors(store: Store) -> None:
    publish(store, "books", [chunk(number) for number in range(5)])
    index = store.open("books")
    assert index.lexicon() == b""
    with pytest.raises(ConfigurationError, match="has no lexical vectors") as caught:
        index.candidates([IndexQuery(vector(1), SparseVector((1,), (1.0,)))], 5)
    assert "recto index" in caught.value.hint
    (found,) = index.candidates([IndexQuery(vector(1))], 5)
    assert max(by_chunk(index, found.dense).items(), key=lambda item: item[1])[0] == 1


@pytest.mark.parametrize("rebuild", [True, False])
def test_kept_and_deleted_chunks_score_as_in_a_new_index(store: Store, rebuild: bool) -> None:
    """The scores are those of an index that never had the deleted chunks."""
    publish_lexical(store, "books", WORDS)
    current = store.open("books")
    lexicon = LexiconBuilder()
    kept, changed = WORDS[:20], [replace(WORDS[20], text="only sand")]
    with store.build("books", EMBEDDER, analyzer=ANALYZER, rebuild=rebuild) as build:
        build.keep(kept, current, lexicon.vectors(kept))
        build.add(changed, [vector(20)], lexicon.vectors(changed))
        build.publish(replace(fingerprint("second"), analyzer=ANALYZER), lexicon.to_bytes())
    index = store.open("books")
    (found,) = index.candidates([IndexQuery(vector(3), terms(index, "compost"))], 100)
    expected = {one.chunk_index: bm25(index, one, "compost") for one in kept[::3]}
    assert by_chunk(index, found.lexical) == pytest.approx(expected, rel=1e-5)
    assert by_chunk(index, found.dense) == pytest.approx(
        {number: cosine(vector(number), vector(3)) for number in range(21)}, abs=1e-5
    )
    (sand,) = index.candidates([IndexQuery(lexical=terms(index, "sand"))], 5)
    assert set(by_chunk(index, sand.lexical)) == {20}
