"""A cluster of three nodes that are killed, restarted and stopped, under searches and while a book is indexed."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from recto.api import open_store
from recto.errors import RectoError
from recto.evaluation.suites import documented_suite
from recto.indexing.promotion import differs
from recto.protocols import Embedder
from recto.search.retriever import Retriever
from recto.settings import SAMPLE_COLLECTION, load_settings
from recto.stores.edge import EdgeStore
from recto.stores.qdrant import ServerStore
from recto.types.search import MODES, Hit, Mode
from tests.live.nodes import START_SECONDS, Cluster, Node
from tests.running import recto, wait_until

QUERIES = int(os.environ.get("RECTO_TEST_QUERIES", "10"))
"""Searches while the nodes are killed in turn; the guide's figure is for 1000."""
NODES = 3 if "RECTO_TEST_QUERIES" in os.environ else 1
"""Nodes to kill; each takes a minute to recover."""
DEADLINE = 20.0  # seconds for one search, failover included
Answers = dict[tuple[str, Mode], list[Hit]]


@pytest.fixture(autouse=True)
def _nodes_run(cluster: Cluster) -> None:
    """A test that failed may have left a node dead."""
    for node in cluster.nodes:
        if not node.is_running:
            node.start()
            node.wait_until_ready()


@pytest.fixture(scope="module")
def variables(cluster: Cluster) -> dict[str, str]:
    parts = {"RECTO_EMBEDDER": "local", "RECTO_STORE": "server", "QDRANT_URL": cluster.url}
    return {**parts, "QDRANT_SHARDS": "3", "QDRANT_REPLICATION": "2"}


@pytest.fixture(scope="module")
def promoted(sample_home: Path, variables: dict[str, str]) -> None:
    """The sample book is on the cluster."""
    done = recto(sample_home, "promote", "--collection", SAMPLE_COLLECTION, **variables)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def expected(sample_home: Path, embedder: Embedder) -> Answers:
    """The results of the embedded index, in every mode."""
    store = EdgeStore(sample_home)
    retriever = Retriever(embedder, store, SAMPLE_COLLECTION)
    queries = [expectation.query for expectation in documented_suite().expectations][:20]
    asked = [(query, mode) for query in queries for mode in MODES]
    answers = {(query, mode): list(retriever.search(query, top_k=5, mode=mode).hits) for query, mode in asked}
    store.close()
    return answers


@contextmanager
def store_on(home: Path, variables: dict[str, str]) -> Iterator[ServerStore]:
    store = open_store(load_settings({**variables, "RECTO_HOME": str(home)}), lambda _: None)
    assert isinstance(store, ServerStore)
    yield store
    store.close()


@dataclass
class Searches:
    """What happened to the searches of a thread."""

    count: int = 0
    wrong: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    slowest: float = 0.0
    stop: threading.Event = field(default_factory=threading.Event)


@contextmanager
def searching(
    home: Path, variables: dict[str, str], embedder: Embedder, expected: Answers
) -> Iterator[Searches]:
    """Search in another thread, and compare every result with that of the embedded index."""
    done = Searches()

    def search() -> None:
        with store_on(home, variables) as store:
            retriever = Retriever(embedder, store, SAMPLE_COLLECTION)
            while not done.stop.is_set():
                for (query, mode), hits in expected.items():
                    began = time.monotonic()
                    try:
                        result = list(retriever.search(query, top_k=5, mode=mode).hits)
                    except RectoError as error:
                        done.lost.append(f"{mode} {query}: {error}")
                    else:
                        if difference := differs(hits, result):
                            done.wrong.append(f"{mode} {query}: {difference}")
                    done.slowest = max(done.slowest, time.monotonic() - began)
                    done.count += 1
                    if done.stop.is_set():
                        return

    thread = threading.Thread(target=search)
    thread.start()
    try:
        yield done
    finally:
        done.stop.set()
        thread.join()


def wait_for(searches: Searches, count: int) -> None:
    """Wait until so many more searches were answered."""
    end = searches.count + count
    wait_until(lambda: searches.count >= end, 60 + 4 * count)


def all_work(store: ServerStore) -> bool:
    try:
        return not any(store.problems(name) for name in store.collections())
    except RectoError:
        return False


@pytest.mark.usefixtures("promoted")
def test_a_cluster_returns_what_an_edge_index_returns(sample_home: Path, variables: dict[str, str]) -> None:
    done = recto(sample_home, "parity", "--collection", SAMPLE_COLLECTION, "--json", **variables)
    assert done.returncode == 0, done.stdout
    compared = json.loads(done.stdout)
    assert (compared["modes"], compared["differences"]) == (["hybrid", "dense", "lexical"], [])


@pytest.mark.usefixtures("promoted")
def test_nodes_are_killed_in_turn(
    cluster: Cluster,
    home: Path,
    variables: dict[str, str],
    embedder: Embedder,
    expected: Answers,
    small_book: Path,
    record_testsuite_property: Callable[[str, object], None],
) -> None:
    """Searches go on, and a book that is indexed meanwhile is complete."""
    indexing = ("index", str(small_book), "--collection", "garden")
    nodes = cluster.nodes[:NODES]
    with store_on(home, variables) as store, searching(home, variables, embedder, expected) as searches:
        for node in nodes:
            wait_for(searches, 3)
            node.kill()
            if node is nodes[0]:
                done = recto(home, *indexing, **variables)
                assert done.returncode == 0, done.stderr
                check_doctor(node, home, variables)
            wait_for(searches, QUERIES // len(nodes))
            node.start()
            node.wait_until_ready()
            wait_until(lambda: all_work(store), START_SECONDS)
    assert recto(home, *indexing, RECTO_STORE="edge", RECTO_EMBEDDER="local").returncode == 0
    for command in (("doctor", "--all"), ("parity",)):
        checked = recto(home, *command, "--collection", "garden", **variables)
        assert checked.returncode == 0, checked.stdout + checked.stderr
    assert recto(home, "delete", "garden", "--yes", **variables).returncode == 0
    assert searches.wrong == []
    assert searches.lost == []
    assert searches.count >= QUERIES
    assert searches.slowest < DEADLINE
    record_testsuite_property("searches", searches.count)
    record_testsuite_property("slowest_s", round(searches.slowest, 2))


@pytest.mark.long  # tests/stores/test_failover.py has nodes that hang, which are doubles
@pytest.mark.usefixtures("promoted")
def test_a_node_hangs(
    cluster: Cluster,
    home: Path,
    variables: dict[str, str],
    embedder: Embedder,
    expected: Answers,
    small_book: Path,
) -> None:
    """It accepts connections and never answers. Here, it is the node that searches use."""
    with store_on(home, variables) as store:
        with searching(home, variables, embedder, expected) as searches:
            store.open(SAMPLE_COLLECTION)
            asked_last = str(store.connection._preferred.url)
            (node,) = (node for node in cluster.nodes if node.url == asked_last)
            with node.hanging():
                done = recto(home, "index", str(small_book), "--collection", "garden", **variables)
                assert done.returncode == 0, done.stderr
                wait_for(searches, 10)
                kinds = {problem.kind for problem in store.problems("garden")}
                assert "node" in kinds, kinds
        wait_until(lambda: all_work(store), START_SECONDS)
        assert store.open("garden").count() > 0
        store.delete("garden")
    assert (searches.wrong, searches.lost) == ([], [])
    assert searches.slowest < DEADLINE


def check_doctor(dead: Node, home: Path, variables: dict[str, str]) -> None:
    """The doctor names the dead node, the peer that others cannot reach, and its replicas."""
    expected = (f"The node at {dead.url} does not answer", "The peer at ", "The replica of shard ")

    def all_named() -> bool:
        done = recto(home, "doctor", "--collection", "garden", "--json", **variables)
        result = [one["message"] for one in json.loads(done.stdout)["findings"] if one["check"] == "cluster"]
        return all(any(message.startswith(one) for message in result) for one in expected)

    wait_until(all_named, 60)
