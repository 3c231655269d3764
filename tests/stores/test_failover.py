"""Several addresses in QDRANT_URL: reads and writes go on while a node is dead, hangs or lags behind."""

from __future__ import annotations

import asyncio
import math
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from unittest.mock import Mock

import pytest
from qdrant_client.models import Distance, VectorParams

from recto.errors import CollectionMissing, InvalidArgument, Unreachable
from recto.settings import ServerOptions
from recto.stores.qdrant import ServerStore
from recto.stores.qdrant import connection as module
from recto.stores.qdrant.collections import Generations
from recto.stores.qdrant.connection import ServerConnection
from recto.testing.parts import EMBEDDER, chunk, fingerprint, publish, publish_lexical, vector
from recto.testing.stores import nearest
from recto.types.index import IndexQuery
from tests.doubles.qdrant import QdrantDouble
from tests.doubles.server import refused_url, status

StoreAt = Callable[..., ServerStore]


@pytest.fixture
def dead() -> str:
    """An address where nothing listens."""
    return refused_url()


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An address that accepts connections and never answers."""
    monkeypatch.setattr(module, "_READ_FAILOVER_SECONDS", 2.0)
    monkeypatch.setattr(module, "_WRITE_FAILOVER_SECONDS", 2.0)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
def double() -> Iterator[QdrantDouble]:
    with QdrantDouble() as double:
        yield double


@pytest.fixture
def store_at(home: Path, told: list[str]) -> Iterator[StoreAt]:
    """Open stores at some addresses."""
    with ExitStack() as opened:

        def open_at(*urls: str, home: Path = home) -> ServerStore:
            connection = ServerConnection(",".join(urls), "", told.append, lambda _: None)
            return opened.enter_context(closing(ServerStore(connection, home, ServerOptions(), None)))

        yield open_at


@pytest.fixture
def store(store_at: StoreAt, double: QdrantDouble) -> ServerStore:
    return store_at(double.url)


@pytest.mark.parametrize("broken", ["dead", "hanging"])
def test_another_node_answers_at_once(
    broken: str, double: QdrantDouble, store_at: StoreAt, told: list[str], request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(broken)
    store = store_at(url, double.url)
    publish(store, "books", [chunk(number) for number in range(5)])
    assert nearest(store.open("books"), vector(3), 1)[0].chunk.chunk_index == 3
    assert asyncio.run(awaited(store)) == 3
    assert not [message for message in told if "waiting" in message], "no pause before another node is tried"


async def awaited(store: ServerStore) -> int:
    index = store.open("books")
    (candidates,) = await index.acandidates([IndexQuery(vector(3))], 1)
    (nearest_chunk,) = (await index.achunks(candidates.dense)).values()
    await store.aclose()
    return nearest_chunk.chunk_index


def test_a_failed_node_is_avoided_for_a_while(
    dead: str, double: QdrantDouble, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = double.url.replace("127.0.0.1", "localhost")
    connection = ServerConnection(f"{dead},{double.url},{other}", "", told.append)
    connection.write(lambda client: client.get_collections())
    for seconds, expected in ((30.0, other), (-1.0, dead)):
        monkeypatch.setattr(module, "_AVOID_SECONDS", seconds)
        double.script(status(500))
        connection.write(lambda client: client.get_collections())
        assert any(message.endswith(f"(500): trying {expected}") for message in told)
    connection.close()


def test_a_node_that_lags_behind_does_not_hide_a_collection(double: QdrantDouble, store_at: StoreAt) -> None:
    publish(store_at(double.url), "books", [chunk(1)])
    with QdrantDouble() as behind:
        store = store_at(behind.url, double.url)
        assert store.open("books").count() == 1
        with pytest.raises(CollectionMissing):
            store.open("other")


def test_all_nodes_are_dead(dead: str, store_at: StoreAt) -> None:
    both = dead, dead.replace("127.0.0.1", "localhost")
    with pytest.raises(Unreachable, match="Cannot connect") as caught:
        store_at(*both).open("books")
    assert all(url in caught.value.hint for url in both)


def test_a_rate_limit_is_not_a_failed_node(double: QdrantDouble) -> None:
    assert len(ServerConnection(f"{double.url},{double.url}/", "", print).nodes) == 1, (
        "an address counts once"
    )
    other = double.url.replace("127.0.0.1", "localhost")
    connection = ServerConnection(f"{double.url},{other}", "", print)
    double.script(status(429, headers={"Retry-After": "0"}))
    connection.read(lambda client: client.get_collections())
    assert all(node.failed_at == -math.inf for node in connection.nodes)
    connection.close()


def test_problems_name_a_node_that_is_silent(dead: str, double: QdrantDouble, store_at: StoreAt) -> None:
    store = store_at(double.url, dead)
    publish(store, "books", [chunk(1)])
    (problem,) = store.problems("books")
    assert (problem.kind, problem.serious) == ("node", False)
    assert dead in problem.message
    assert "QDRANT_URL" in problem.repair
    assert store.redundancy("books").startswith("Replication 1: every shard is on one node.")


def test_every_client_uses_the_same_port() -> None:
    """Without a port, the SDK uses 6333, and the HTTP client of a node would use 80."""
    connection = ServerConnection("http://localhost,https://a.example.org:443/prefix", "", print)
    urls = [node.url for node in connection.nodes]
    assert urls == ["http://localhost:6333", "https://a.example.org:443/prefix"]


def test_a_failure_after_publishing_is_a_warning(store: ServerStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Old generations could not be deleted: the new one is published all the same."""
    publish(store, "books", [chunk(1)])
    monkeypatch.setattr(Generations, "prune", Mock(side_effect=Unreachable("Qdrant is gone")))
    info = publish(store, "books", [chunk(1), chunk(2)])
    assert "Old generations were not deleted" in info.warnings[0]
    assert store.open("books").count() == 2


def test_names_with_two_hyphens(store: ServerStore) -> None:
    """A generation is recognised by its suffix; other collections with similar names are left alone."""
    params = VectorParams(size=4, distance=Distance.COSINE)
    store.client.create_collection("my--archive", vectors_config=params)
    for _ in range(3):
        publish(store, "my", [chunk(1)])
        publish(store, "my--book", [chunk(2)])
    assert store.collections() == ("my", "my--archive", "my--book")
    assert [len(store.generations(name)) for name in ("my", "my--book")] == [2, 2]
    with pytest.raises(InvalidArgument, match="internal name"):
        store.build("my--0123456789abcde", EMBEDDER)
    store.delete("my")
    assert store.collections() == ("my--archive", "my--book")


def test_a_run_that_waited_comes_last(store: ServerStore, double: QdrantDouble, store_at: StoreAt) -> None:
    publish(store, "books", [chunk(1)])
    waiting = store_at(double.url).build("books", EMBEDDER, rebuild=True)
    store.set_aliases(["library"], "books")
    second = publish(store, "books", [chunk(2)])
    with waiting as build:
        build.add([chunk(3)], [vector(3)])
        build.publish(fingerprint())
    assert store.aliases() == {"library": "books"}
    assert second.generation in [one.name for one in store.generations("books")], "the one before is kept"
    assert nearest(store.open("library"), vector(3), 1)[0].chunk.chunk_index == 3


def test_drafts_of_other_machines_are_left_alone(
    store: ServerStore, double: QdrantDouble, store_at: StoreAt, tmp_path: Path
) -> None:
    elsewhere = store_at(double.url, home=tmp_path / "other")
    publish(store, "books", [chunk(1)])
    with elsewhere.build("books", EMBEDDER, rebuild=True) as draft:
        publish(store, "books", [chunk(2)])
        draft.add([chunk(3)], [vector(3)])
        draft.publish(fingerprint())
    assert store.collections() == ("books",)


def test_what_a_rollback_went_back_from_is_deleted(store: ServerStore) -> None:
    first = publish_lexical(store, "books", [chunk(1)])
    second = publish_lexical(store, "books", [chunk(2)])
    store.rollback("books")
    publish_lexical(store, "books", [chunk(1), chunk(3)], rebuild=False)
    names = [one.name for one in store.generations("books")]
    assert (first.generation in names, second.generation in names) == (True, False)
    with pytest.raises(CollectionMissing, match="no earlier generation"):
        store.rollback("books")
