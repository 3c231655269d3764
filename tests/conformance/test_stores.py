"""Run the conformance suite on every built-in store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from recto._util.numbers import cosine
from recto.errors import CollectionMissing, ConfigurationError, StoreBusy
from recto.protocols import Store
from recto.settings import ServerOptions
from recto.stores.edge.store import EdgeStore
from recto.stores.points import candidate_limit
from recto.stores.qdrant.connection import Connection
from recto.stores.qdrant.store import ServerStore
from recto.testing import StoreConformance
from recto.testing.stores import PAGE_A, WORDS, bm25, by_number, nearest, terms
from recto.testing.values import EMBEDDER, chunk, publish, publish_lexical, vector
from recto.types.index import Candidates, IndexQuery, SparseVector
from recto.types.search import Filters
from tests.doubles.qdrant import QdrantDouble


class BuiltInStore(StoreConformance):
    """What the built-in stores promise beyond the suite: the same messages, and exactly the same candidates."""

    def test_errors_say_what_to_do(self, store: Store) -> None:
        with pytest.raises(CollectionMissing) as missing:
            store.open("books")
        assert "recto index" in missing.value.hint
        publish(store, "books", [chunk(number) for number in range(5)])
        with pytest.raises(ConfigurationError, match="has no lexical vectors") as dense_only:
            store.open("books").candidates([IndexQuery(vector(1), SparseVector((1,), (1.0,)))], 5)
        assert "recto index" in dense_only.value.hint
        with (
            store.build("books", EMBEDDER, rebuild=True),
            pytest.raises(StoreBusy, match="process"),
            store.build("books", EMBEDDER, rebuild=True),
        ):
            pass

    def test_exact_candidates_of_both_parts(self, store: Store) -> None:
        few = WORDS[: 3 * candidate_limit(4)]  # fewer with "compost" than a query of five takes
        publish_lexical(store, "books", few)
        index = store.open("books")
        asked = vector(1000)
        (candidates,) = index.candidates([IndexQuery(asked, terms(index, "compost"))], 5)
        lexical, dense = by_number(index, candidates.lexical), by_number(index, candidates.dense)
        assert lexical == pytest.approx(
            {one.chunk_index: bm25(index, one, "compost") for one in few[::3]}, rel=1e-5
        )
        cosines = {one.chunk_index: cosine(vector(one.chunk_index), asked) for one in few}
        nearest = sorted(cosines, key=lambda number: -cosines[number])[: candidate_limit(5)]
        assert dense == pytest.approx({number: cosines[number] for number in {*nearest, *lexical}}, abs=1e-5)

    def test_exact_candidates_of_one_part(self, store: Store) -> None:
        publish_lexical(store, "books", WORDS)
        index = store.open("books")
        (limited,) = index.candidates([IndexQuery(lexical=terms(index, "compost"))], 7)
        assert len(limited.lexical) == 7
        (dense,) = index.candidates([IndexQuery(vector(1000))], 7)
        expected = {hit.chunk.chunk_index: hit.score for hit in nearest(index, vector(1000), 7)}
        assert by_number(index, dense.dense) == pytest.approx(expected, abs=1e-5)
        (only_dense,) = index.candidates([IndexQuery(vector(1000), SparseVector((), ()))], 7)
        assert len(only_dense.dense) == candidate_limit(7)

    def test_exact_candidates_with_a_filter(self, store: Store) -> None:
        publish_lexical(store, "books", WORDS)
        index = store.open("books")
        (candidates,) = index.candidates([IndexQuery(vector(1000), terms(index, "compost"))], 5, PAGE_A)
        assert set(by_number(index, candidates.lexical)) == set(range(0, 60, 6))
        assert {number % 2 for number in by_number(index, candidates.dense)} == {0}
        nowhere = Filters(page_url="nowhere")
        assert index.candidates([IndexQuery(vector(1))], 5, nowhere) == [Candidates()]


@contextmanager
def opened(store: Store) -> Iterator[Store]:
    yield store
    store.close()


def on_server(url: str, key: str, home: Path) -> ServerStore:
    return ServerStore(Connection(url, key, lambda _: None), home, ServerOptions(), None)


class TestEdgeStore(BuiltInStore):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[Store]:
        with opened(EdgeStore(tmp_path / "home")) as store:
            yield store

    @pytest.fixture
    def other_store(self, tmp_path: Path) -> Iterator[Store]:
        with opened(EdgeStore(tmp_path / "home")) as store:
            yield store


class TestServerStore(BuiltInStore):
    """On a double that speaks real HTTP."""

    @pytest.fixture
    def double(self) -> Iterator[QdrantDouble]:
        with QdrantDouble(api_key="key") as double:
            yield double

    @pytest.fixture
    def store(self, double: QdrantDouble, tmp_path: Path) -> Iterator[Store]:
        with opened(on_server(double.url, "key", tmp_path)) as store:
            yield store

    @pytest.fixture
    def other_store(self, double: QdrantDouble, tmp_path: Path) -> Iterator[Store]:
        with opened(on_server(double.url, "key", tmp_path)) as store:
            yield store
