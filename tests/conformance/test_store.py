"""What every store must do, run on each of them."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from recto.errors import CollectionMissing, EmbeddingError, StoreBusy
from recto.protocols import Store
from recto.settings import ServerOptions
from recto.stores.edge.store import EdgeStore
from recto.stores.server.connection import Connection
from recto.stores.server.store import ServerStore
from recto.types import Filters
from tests.doubles.qdrant import QdrantDouble
from tests.making import DIM, EMBEDDER, chunk, fingerprint, publish, vector

REAL_SERVER = os.environ.get("RECTO_TEST_QDRANT_URL", "")
KINDS = [
    "edge",
    "server",
    pytest.param("real server", marks=pytest.mark.skipif(not REAL_SERVER, reason="RECTO_TEST_QDRANT_URL names none")),
]


@contextmanager
def made(kind: str, home: Path) -> Iterator[Store]:
    """Make an empty store of a kind: embedded, on a double that speaks real HTTP, or on a real server."""
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
    with made(request.param, tmp_path / "home") as store:
        yield store


def test_nothing_is_there_at_first(store: Store) -> None:
    assert store.collections() == ()
    assert dict(store.aliases()) == {}
    with pytest.raises(CollectionMissing) as caught:
        store.open("books")
    assert "recto index" in caught.value.hint


def test_what_is_published_is_found(store: Store) -> None:
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
        assert best.score == pytest.approx(1, abs=1e-5)


def test_hits_are_ordered_and_limited(store: Store) -> None:
    publish(store, "books", [chunk(number) for number in range(30)])
    index = store.open("books")
    hits = index.query(vector(99), 7)
    assert len(hits) == 7
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert len(index.query(vector(99), 100)) == 30


def test_ties_are_ordered_by_page_and_place(store: Store) -> None:
    chunks = [chunk(number, page=page) for page in "ba" for number in (2, 0, 1)]
    with store.build("books", EMBEDDER, rebuild=True) as build:
        build.add(chunks, [vector(1)] * len(chunks))
        build.publish(fingerprint())
    hits = store.open("books").query(vector(1), 10)
    assert [(hit.chunk.page_url[-1], hit.chunk.chunk_index) for hit in hits] == [(page, number) for page in "ab" for number in (0, 1, 2)]


def test_a_score_can_be_asked_for(store: Store) -> None:
    publish(store, "books", [chunk(number) for number in range(20)])
    index = store.open("books")
    everything = index.query(vector(50), 20)
    least = everything[5].score - 1e-6
    assert [hit.chunk.id for hit in index.query(vector(50), 20, min_score=least)] == [hit.chunk.id for hit in everything[:6]]


def test_batches_answer_as_single_queries_do(store: Store) -> None:
    publish(store, "books", [chunk(number, page="ab"[number % 2]) for number in range(30)])
    index = store.open("books")
    vectors = [vector(100 + number) for number in range(9)]
    only = Filters(page_url="local://docs/docs/a")
    assert index.query_batch(vectors, 4, only) == [index.query(one, 4, only) for one in vectors]
    assert index.query_batch([], 4) == []


PLACES = [("ros2", "module-1-ros2"), ("simulation", "module-2-simulation"), ("intro", "intro"), ("ros2", "week-9-ros2")]


@pytest.fixture(scope="module", params=KINDS)
def mixed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store with four directories of three modules and three pages in each."""
    chunks = [
        chunk(number, module=module, directory=directory, page=f"{directory}/{number % 3}")
        for module, directory in PLACES
        for number in range(12)
    ]
    with made(request.param, tmp_path_factory.mktemp("mixed")) as store:
        publish(store, "books", chunks)
        yield store


NAMES = st.sampled_from(["ros2", "ROS2", "module-1-ros2", "week-9-ros2", "simulation", "intro", "module-9-ros2", "vla", "", "*", "ros"])
URLS = st.sampled_from(
    [None, "local://docs/docs/module-1-ros2/1", "LOCAL://docs/docs/module-1-ros2/1/", "local://docs/docs/intro/2.md", "nowhere"]
)


@given(names=st.lists(NAMES, max_size=3), url=URLS, seed=st.integers(0, 10_000), limit=st.integers(1, 60))
@hypothesis_settings(max_examples=150)
def test_filters_exclude_all_that_does_not_match(mixed: Store, names: list[str], url: str | None, seed: int, limit: int) -> None:
    index = mixed.open("books")
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


def test_facets(mixed: Store) -> None:
    index = mixed.open("books")
    assert index.modules() == {"intro": 12, "ros2": 24, "simulation": 12}
    assert sum(index.pages().values()) == 48
    assert index.pages()["local://docs/docs/intro/2"] == 4


def test_vectors_come_back(store: Store) -> None:
    chunks = [chunk(number) for number in range(3)]
    publish(store, "books", chunks)
    found = store.open("books").vectors([chunks[1].id, chunk(99).id])
    assert list(found) == [chunks[1].id]
    assert found[chunks[1].id] == pytest.approx(vector(1), abs=1e-6)


def test_a_new_index_replaces_the_old_one_whole(store: Store) -> None:
    publish(store, "books", [chunk(number) for number in range(5)])
    before = store.open("books")
    assert store.open("books") is before
    publish(store, "books", [chunk(number, page="new") for number in range(3)])
    after = store.open("books")
    assert after is not before
    assert {found.page_title for found in after.scroll()} == {"NEW"}
    assert before.count() == 5, "a reader that holds the old index keeps it"


def test_what_is_not_published_is_never_seen(store: Store) -> None:
    publish(store, "books", [chunk(1)])
    with pytest.raises(KeyError), store.build("books", EMBEDDER, rebuild=True) as build:
        build.add([chunk(2)], [vector(2)])
        raise KeyError("something else went wrong")
    assert store.open("books").count() == 1
    publish(store, "books", [chunk(3), chunk(4)])
    assert store.open("books").count() == 2


@pytest.mark.parametrize("bad", [[1.0] * (DIM - 1), [math.nan] * DIM, [math.inf] + [0.0] * (DIM - 1)])
def test_vectors_that_cannot_be_searched_are_refused_whole(store: Store, bad: list[float]) -> None:
    publish(store, "books", [chunk(1)])
    with pytest.raises(EmbeddingError), store.build("books", EMBEDDER, rebuild=True) as build:
        build.add([chunk(2), chunk(3)], [vector(2), bad])
    assert store.open("books").count() == 1


def test_one_writer_at_a_time(store: Store) -> None:
    publish(store, "books", [chunk(1)])
    with store.build("books", EMBEDDER, rebuild=True) as build:
        build.add([chunk(2)], [vector(2)])
        with pytest.raises(StoreBusy, match="process") as caught, store.build("books", EMBEDDER, rebuild=True):
            pass
        assert caught.value.hint
        with store.build("others", EMBEDDER, rebuild=True) as other:
            other.add([chunk(5)], [vector(5)])
            other.publish(fingerprint())
        build.publish(fingerprint())
    assert store.open("books").count() == 1
    assert store.collections() == ("books", "others")


def test_aliases_lead_to_a_collection(store: Store) -> None:
    publish(store, "books", [chunk(1)])
    store.point(["library", "shelf"], "books")
    assert dict(store.aliases()) == {"library": "books", "shelf": "books"}
    assert store.open("library").info.collection == "books"
    assert store.collections() == ("books",)


def test_an_alias_follows_a_new_index(store: Store) -> None:
    publish(store, "books", [chunk(1)])
    store.point(["library"], "books")
    assert store.open("library").count() == 1
    publish(store, "books", [chunk(1), chunk(2)])
    assert store.open("library").count() == 2


def test_a_collection_keeps_its_own_name(store: Store) -> None:
    publish(store, "books", [chunk(1)])
    publish(store, "library", [chunk(1), chunk(2)])
    store.point(["library", "shelf"], "books")
    assert store.open("library").count() == 2
    publish(store, "shelf", [chunk(number) for number in range(3)])
    assert store.open("shelf").count() == 3
    assert dict(store.aliases()) == {}


def test_text_of_any_kind_comes_back_as_written(store: Store) -> None:
    texts = ["naïve café", "机器人", "🤖 emoji", "مرحبا", "a\tb\n\n  c", "x" * 50_000, '{"json": ["[x]"]}', "\x1b[31mred"]
    publish(store, "books", [chunk(number, text=text) for number, text in enumerate(texts)])
    assert sorted(found.text for found in store.open("books").scroll()) == sorted(texts)
