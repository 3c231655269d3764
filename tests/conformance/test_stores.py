"""Run the conformance suite on every built-in store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from recto._util import cosine
from recto.errors import CollectionMissing, ConfigurationError, StoreBusy
from recto.protocols import Store
from recto.settings import ServerOptions
from recto.stores import candidate_limit
from recto.stores.edge import EdgeStore
from recto.stores.qdrant import ServerStore
from recto.stores.qdrant.connection import ServerConnection
from recto.testing import StoreConformance
from recto.testing.parts import EMBEDDER, chunk, publish, publish_lexical, vector
from recto.testing.stores import PAGE_A, WORDS, bm25, by_number, terms
from recto.types.index import IndexQuery, SparseVector
from tests.conftest import QDRANT_KEY
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

    def test_exact_candidates(self, store: Store) -> None:
        few = WORDS[: 3 * candidate_limit(4)]  # fewer with "compost" than a query of five takes
        publish_lexical(store, "books", few)
        index, asked = store.open("books"), vector(1000)
        (candidates,) = index.candidates([IndexQuery(asked, terms(index, "compost"))], 5)
        lexical, dense = by_number(index, candidates.lexical), by_number(index, candidates.dense)
        expected = {one.chunk_index: bm25(index, one, "compost") for one in few[::3]}
        assert lexical == pytest.approx(expected, rel=1e-5)
        cosines = {one.chunk_index: cosine(vector(one.chunk_index), asked) for one in few}
        ranked = sorted(cosines, key=lambda number: -cosines[number])
        both = {*ranked[: candidate_limit(5)], *lexical}
        assert dense == pytest.approx({number: cosines[number] for number in both}, abs=1e-5)
        one_part = [IndexQuery(lexical=terms(index, "compost")), IndexQuery(asked)]
        limited, only_dense = index.candidates([*one_part], 7)
        assert len(limited.lexical) == 7
        assert set(by_number(index, only_dense.dense)) == set(ranked[:7])
        (without_words,) = index.candidates([IndexQuery(asked, SparseVector((), ()))], 7)
        assert len(without_words.dense) == candidate_limit(7)
        (on_page,) = index.candidates([IndexQuery(asked, terms(index, "compost"))], 5, PAGE_A)
        assert set(by_number(index, on_page.lexical)) == {number for number in lexical if number % 2 == 0}
        assert {number % 2 for number in by_number(index, on_page.dense)} == {0}


@contextmanager
def opened(store: Store) -> Iterator[Store]:
    yield store
    store.close()


def on_server(url: str, key: str, home: Path) -> ServerStore:
    return ServerStore(ServerConnection(url, key, lambda _: None), home, ServerOptions(), None)


class TestEdgeStore(BuiltInStore):
    @pytest.fixture
    def store(self, home: Path) -> Iterator[Store]:
        with opened(EdgeStore(home)) as store:
            yield store

    @pytest.fixture
    def other_store(self, home: Path) -> Iterator[Store]:
        with opened(EdgeStore(home)) as store:
            yield store


class TestServerStore(BuiltInStore):
    """On a double that speaks real HTTP."""

    filters_to_check = 40

    @pytest.fixture
    def store(self, qdrant: QdrantDouble, home: Path) -> Iterator[Store]:
        with opened(on_server(qdrant.url, QDRANT_KEY, home)) as store:
            yield store

    @pytest.fixture
    def other_store(self, qdrant: QdrantDouble, home: Path) -> Iterator[Store]:
        with opened(on_server(qdrant.url, QDRANT_KEY, home)) as store:
            yield store
