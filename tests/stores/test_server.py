"""The server store over real sockets: faults, payload indexes, collections of others, hostile servers."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from qdrant_client import QdrantClient, models

from recto.errors import (
    CollectionEmpty,
    CollectionMissing,
    ConfigurationError,
    FingerprintMismatch,
    IndexDamaged,
    RectoError,
    Unreachable,
)
from recto.indexing.promotion import promote
from recto.protocols import Embedder
from recto.search.analyzer import ANALYZER
from recto.search.lexical import Lexicon, LexiconBuilder, analyze_query
from recto.search.retriever import Retriever, query_embedder
from recto.settings import ServerOptions
from recto.stores.edge import EdgeStore
from recto.stores.qdrant import ServerStore
from recto.stores.qdrant import build as build_module
from recto.stores.qdrant import collections as collections_module
from recto.stores.qdrant import connection as connection_module
from recto.stores.qdrant import index as index_module
from recto.stores.qdrant.connection import ServerConnection
from recto.stores.qdrant.index import ServerIndex
from recto.testing.parts import EMBEDDER, chunk, fingerprint, publish, publish_lexical, vector
from recto.testing.stores import nearest
from recto.types.index import IndexQuery, SparseVector
from recto.types.search import Filters
from tests.conftest import QDRANT_KEY
from tests.doubles.hostile import HostileRequest, hostile_service, sends
from tests.doubles.qdrant import QdrantDouble
from tests.doubles.server import Fault, drop, hang, reset, rubbish, slow_drip, status


@pytest.fixture
def store(qdrant: QdrantDouble, home: Path, waits: list[float], told: list[str]) -> Iterator[ServerStore]:
    connection = ServerConnection(qdrant.url, QDRANT_KEY, told.append, waits.append)
    created = ServerStore(connection, home, ServerOptions(), None)
    yield created
    created.close()


@pytest.fixture
def other_client(qdrant: QdrantDouble) -> Iterator[QdrantClient]:
    """The client of another pipeline."""
    with pytest.warns(UserWarning, match="insecure"):
        client = QdrantClient(url=qdrant.url, api_key=QDRANT_KEY, check_compatibility=False)
    yield client
    client.close()


def create_foreign(
    client: QdrantClient, name: str, payloads: list[dict[str, Any]], *, dim: int = 8, **more: Any
) -> None:
    config = more.pop("vectors_config", models.VectorParams(size=dim, distance=models.Distance.COSINE))
    client.create_collection(name, vectors_config=config, **more)
    points = [
        models.PointStruct(id=number, vector=vector(number, dim), payload=payload)
        for number, payload in enumerate(payloads)
    ]
    if points:
        client.upsert(name, points, wait=True)


PAYLOADS = [
    {"content": f"Passage {number}", "url": f"https://x.org/docs/{module}/page-{number % 3}/", "title": "T"}
    for number, module in enumerate(["module-1-ros2", "module-3-isaac"] * 10)
]
NO_KEY = b"Must provide an API key"
READ_ONLY = {"status": {"error": "Forbidden: Write access is required"}}
MISSING = {"status": {"error": "Not found: Collection `books` doesn't exist!"}}
FAULTS = [
    (status(401, NO_KEY, content_type="text/plain"), ConfigurationError, "refuses the key", 1),
    (status(403, READ_ONLY), ConfigurationError, "does not allow this: Forbidden", 1),
    (status(404, MISSING), CollectionMissing, "does not exist", 1),
    (status(429), Unreachable, "rate limit", 3),
    (status(429, headers={"Retry-After": "2"}), Unreachable, "rate limit", 3),
    (status(429, headers={"Retry-After": "120"}), Unreachable, "rate limit", 1),
    (status(500), Unreachable, r"not available \(500\)", 3),
    (status(503, b"<html>gateway</html>"), Unreachable, r"not available \(503\)", 3),
    (drop(), Unreachable, "Cannot connect to Qdrant at", 3),
    (reset(), Unreachable, "Qdrant", 3),
    (rubbish(), Unreachable, "cannot be understood", 3),
    (rubbish({}), Unreachable, "cannot be understood", 3),
]


@pytest.mark.parametrize(("fault", "kind", "words", "calls"), FAULTS)
def test_failed_reads_are_retried_and_reported(
    qdrant: QdrantDouble, store: ServerStore, fault: Fault, kind: type[RectoError], words: str, calls: int
) -> None:
    qdrant.always(fault, path="/collections/books")
    with pytest.raises(kind, match=words) as caught:
        store.open("books")
    asked = [request for request in qdrant.requests if request.path == "/collections/books"]
    assert len(asked) == calls
    assert caught.value.hint
    assert QDRANT_KEY not in str(caught.value) + caught.value.hint


def test_transient_errors_are_retried(qdrant: QdrantDouble, store: ServerStore, waits: list[float]) -> None:
    publish(store, "books", [chunk(1)])
    index = store.open("books")
    qdrant.script(status(500), drop())
    assert len(nearest(index, vector(1), 5)) == 1
    assert waits == [0.2, 0.4]


@pytest.mark.parametrize("fault", [hang(30), slow_drip(0.05, 30)])
def test_the_deadline_holds(
    qdrant: QdrantDouble, store: ServerStore, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    monkeypatch.setattr(connection_module, "_READ_SECONDS", 1)
    qdrant.always(fault)
    began = time.monotonic()
    with pytest.raises(Unreachable, match="did not answer in time"):
        store.open("books")
    assert time.monotonic() - began < 20


def test_keys_are_not_sent_over_plain_http(told: list[str]) -> None:
    for url in ("http://qdrant.example.org:6333", "https://a.example.org,http://b.example.org"):
        with pytest.raises(ConfigurationError, match="over plain http"):
            ServerConnection(url, QDRANT_KEY, told.append)
    ServerConnection("http://127.0.0.1:6333", QDRANT_KEY, told.append)
    assert "WARNING" in told[0]
    assert QDRANT_KEY not in told[0]
    ServerConnection("http://qdrant.example.org:6333", "", told.append)
    assert len(told) == 1


def test_points_are_written_in_small_requests_after_payload_indexes(
    qdrant: QdrantDouble, store: ServerStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_module, "_BATCH_BYTES", 100_000)
    publish(store, "books", [chunk(number, text="x" * 3_000) for number in range(60)])
    writes = [request for request in qdrant.requests if request.method == "PUT"]
    kinds = [request.path.split("/")[-1] for request in writes]
    first = kinds.index("points")
    assert "index" in kinds[:first]
    assert set(kinds[first:]) == {"points"}
    assert len(writes[first:]) > 1
    assert all(request.size < 200_000 and request.query["wait"] == "true" for request in writes[first:])
    assert store.open("books").count() == 60


def test_updates_in_place_add_before_they_delete(qdrant: QdrantDouble, store: ServerStore) -> None:
    publish(store, "books", [chunk(number) for number in range(4)])
    physical = store.open("books").info.generation
    qdrant.requests.clear()
    with store.build("books", EMBEDDER) as build:
        build.add([chunk(number, text="new") for number in (2, 3, 4)], [vector(2), vector(3), vector(4)])
        info = build.publish(fingerprint("second"))
    assert info.generation == physical
    index = store.open("books")
    assert sorted(result.chunk_index for result in index.scroll()) == [2, 3, 4]
    assert index.info.fingerprint == fingerprint("second")
    paths = [request.path.split("/")[-1] for request in qdrant.requests]
    assert paths.index("points") < paths.index("delete")


def test_foreign_collections_are_not_written_to(store: ServerStore, other_client: QdrantClient) -> None:
    create_foreign(other_client, "theirs", PAYLOADS)
    with pytest.raises(ConfigurationError, match="was not made by Recto"):
        store.build("theirs", EMBEDDER)


def test_a_server_without_metadata(tmp_path: Path) -> None:
    with QdrantDouble(metadata_supported=False) as double:
        store = ServerStore(ServerConnection(double.url, "", print), tmp_path, ServerOptions(), None)
        publish(store, "books", [chunk(number) for number in range(3)])
        index = store.open("books")
        assert (index.info.fingerprint, index.info.dim) == (None, EMBEDDER.dim)
        assert nearest(index, vector(1), 1)[0].chunk == chunk(1)
        assert len(nearest(index, vector(1), 5, Filters(modules=("ros2",)))) == 3
        store.close()


def test_collections_are_checked_when_they_are_opened(
    store: ServerStore, other_client: QdrantClient, embedder: Embedder
) -> None:
    with pytest.raises(CollectionMissing, match="'nothing' does not exist at"):
        store.open("nothing")
    create_foreign(other_client, "empty", [], dim=384)
    with pytest.raises(CollectionEmpty, match="is empty"):
        Retriever(embedder, store, "empty").search("x")
    create_foreign(other_client, "narrow", PAYLOADS, dim=8)
    with pytest.raises(FingerprintMismatch, match="vectors of dimension 8"):
        Retriever(embedder, store, "narrow").search("x")
    dots = models.VectorParams(size=384, distance=models.Distance.DOT)
    create_foreign(other_client, "dots", [], vectors_config=dots)
    with pytest.raises(ConfigurationError, match="uses Dot distance"):
        store.open("dots")
    publish(store, "other-model", [chunk(1)])
    with pytest.raises(FingerprintMismatch, match="was indexed with test-model"):
        query_embedder(store.open("other-model"), embedder)


def test_filters_without_a_payload_index(store: ServerStore, other_client: QdrantClient) -> None:
    """In strict mode, the store filters on the client and warns, until `prepare` creates the indexes."""
    payloads = [{**one, "module": "ros2" if number % 2 else "isaac"} for number, one in enumerate(PAYLOADS)]
    create_foreign(other_client, "theirs", payloads)
    filters = Filters(modules=("ros2",))
    for warnings in (1, 0):
        index = store.open("theirs")
        assert {hit.chunk.module for hit in nearest(index, vector(3), 5, filters)} == {"ros2"}
        assert index.count(filters) == len(list(index.scroll(filters))) == 10
        assert ["recto prepare theirs" in one for one in index.info.warnings] == [True] * warnings
        assert store.prepare("theirs") == (("module", "url") if warnings else ())


def test_modules_are_derived_from_urls(store: ServerStore, other_client: QdrantClient) -> None:
    create_foreign(other_client, "theirs", PAYLOADS)
    index = store.open("theirs")
    assert index.modules() == {"isaac": 10, "ros2": 10}
    hits = nearest(index, vector(3), 5, Filters(modules=("module-1-ros2",)))
    assert len(hits) == 5
    assert {hit.chunk.module for hit in hits} == {"ros2"}
    assert index.info.warnings


def test_named_vectors_and_copies(store: ServerStore, other_client: QdrantClient) -> None:
    other_client.create_collection(
        "named", vectors_config={"dense": models.VectorParams(size=8, distance=models.Distance.COSINE)}
    )
    points = [
        models.PointStruct(id=number, vector={"dense": vector(number % 5)}, payload=PAYLOADS[number % 5])
        for number in range(15)
    ]
    other_client.upsert("named", points, wait=True)
    index = store.open("named")
    texts = [hit.chunk.text for hit in nearest(index, vector(2), 5)]
    assert (len(set(texts)), texts[0]) == (5, "Passage 2"), "copies with other ids are dropped"


def test_server_options_are_sent(qdrant: QdrantDouble, home: Path) -> None:
    disk: dict[str, Any] = {"on_disk_vectors": True, "on_disk_payload": True}
    options = ServerOptions(3, 2, 1, quantization="int8", tenant=True, **disk)
    store = ServerStore(ServerConnection(qdrant.url, QDRANT_KEY, print), home, options, None)
    publish(store, "books", [chunk(1)])
    writes = [request for request in qdrant.requests if request.method == "PUT"]
    (body,) = [request.body for request in writes if request.path.count("/") == 2]
    assert (body["shard_number"], body["replication_factor"], body["write_consistency_factor"]) == (3, 2, 1)
    assert (body["vectors"]["on_disk"], body["on_disk_payload"]) == (True, True)
    assert body["quantization_config"]["scalar"]["type"] == "int8"
    indexes = [one.body for one in writes if one.path.endswith("/index")]
    schemas = {body["field_name"]: body["field_schema"] for body in indexes}
    assert schemas["book"]["is_tenant"]
    store.close()


GARDEN = [chunk(number, text="soil" if number % 2 else "compost") for number in range(60)]


def lexical_query(index: ServerIndex, text: str = "compost") -> SparseVector:
    return analyze_query(text, Lexicon(index.lexicon())).vector


def test_another_model_or_analyzer_gets_a_new_collection(store: ServerStore) -> None:
    publish_lexical(store, "books", GARDEN)
    first = store.open("books").info.generation
    other = replace(EMBEDDER, revision="r2")
    with store.build("models", EMBEDDER) as build:
        before = build.publish(fingerprint()).generation
    with store.build("models", other) as build:
        assert build.publish(fingerprint(embedder=other)).generation != before
    assert publish_lexical(store, "books", GARDEN[:9], rebuild=False).generation == first
    old = publish(store, "old", [chunk(1)])
    assert publish_lexical(store, "old", GARDEN, rebuild=False).generation != old.generation
    with store.build("books", EMBEDDER, analyzer="other-1") as build:
        build.keep(GARDEN[:9], store.open("books"), [SparseVector((7,), (1.0,))] * 9)
        assert build.publish(fingerprint()).generation != first


def test_a_too_large_vocabulary_is_reported(store: ServerStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collections_module, "MAX_LEXICON", 10)
    info = publish_lexical(store, "books", GARDEN)
    assert "too large" in info.warnings[0]
    index = store.open("books")
    assert index.info == info
    assert index.lexicon() == b""
    monkeypatch.undo()
    publish_lexical(store, "books", GARDEN, rebuild=False, book="other")
    assert store.open("books").info.warnings == ()
    assert Lexicon(store.open("books").lexicon()).chunks == 60


@pytest.mark.parametrize(
    ("metadata", "words"), [(None, "lost its vocabulary"), ("rubbish!", "is damaged"), ("AAAA", "is damaged")]
)
def test_a_damaged_vocabulary_is_reported(
    store: ServerStore, other_client: QdrantClient, metadata: str | None, words: str
) -> None:
    physical = publish_lexical(store, "books", GARDEN).generation
    other_client.update_collection(physical, metadata={collections_module.LEXICON_KEY: metadata})
    index = store.open("books")
    assert index.lexicon() == b""
    assert words in index.info.warnings[0]
    assert "recto index" in index.info.warnings[0]


def test_a_collection_that_lost_its_lexical_vectors(qdrant: QdrantDouble, store: ServerStore) -> None:
    physical = publish_lexical(store, "books", GARDEN).generation
    del qdrant.collections[physical].config["params"]["sparse_vectors"]  # type: ignore[union-attr]
    index = store.open("books")
    assert "lost its lexical vectors" in index.info.warnings[0]
    assert index.lexicon() == b""
    with pytest.raises(ConfigurationError, match="has no lexical vectors"):
        index.candidates([IndexQuery(vector(1), SparseVector((1,), (1.0,)))], 5)
    assert publish_lexical(store, "books", GARDEN, rebuild=False).generation != physical
    assert store.open("books").info.warnings == ()


def test_candidates_without_a_payload_index(store: ServerStore, other_client: QdrantClient) -> None:
    chunks = [chunk(number, text="compost", module="ros2" if number % 2 else "isaac") for number in range(40)]
    physical = publish_lexical(store, "books", chunks).generation
    index = store.open("books")
    queries = [IndexQuery(vector(1001), lexical_query(index)), IndexQuery(lexical=lexical_query(index))]
    filters = Filters(modules=("ros2",))
    expected = [one.lexical.keys() for one in index.candidates(queries, 50, filters)]
    other_client.delete_payload_index(physical, "module_keys")

    async def ask() -> list[Any]:
        result = await index.acandidates(queries, 50, filters)
        await store.aclose()
        return result

    for result in (asyncio.run(ask()), index.candidates(queries, 50, filters)):
        assert [one.lexical.keys() for one in result] == expected
        assert {index.chunks([id])[id].module for id in result[0].dense} == {"ros2"}
    assert "recto prepare books" in index.info.warnings[0]


def test_promotion_refuses_other_lexical_scores(tmp_path: Path, store: ServerStore) -> None:
    lexicon = LexiconBuilder()
    vectors = lexicon.vectors(GARDEN)
    vectors[0] = vectors[0]._replace(values=tuple(3 * value for value in vectors[0].values))
    local = EdgeStore(tmp_path / "local")
    with local.build("books", EMBEDDER, analyzer=ANALYZER) as build:
        build.add(GARDEN, [vector(one.chunk_index) for one in GARDEN], vectors)
        build.publish(replace(fingerprint(), analyzer=ANALYZER), lexicon.to_bytes())
    with pytest.raises(IndexDamaged, match="returns other results in (lexical|hybrid) mode"):
        promote(local.open("books"), store, "books")
    publish_lexical(local, "books", GARDEN)
    assert promote(local.open("books"), store, "books").compared


@pytest.mark.parametrize(
    ("limits", "exact_below", "exact", "ef"),
    [
        ({}, 6 * 8, True, None),
        ({}, 5 * 8, None, 512),
        ({"search_allow_exact": False}, 6 * 8, None, 512),
        ({"search_max_hnsw_ef": 64}, 0, None, 64),
    ],
    ids=["small", "large", "no exact searches", "a small ef"],
)
def test_small_collections_are_searched_exactly_if_the_server_allows_it(
    store: ServerStore,
    qdrant: QdrantDouble,
    other_client: QdrantClient,
    monkeypatch: pytest.MonkeyPatch,
    limits: dict[str, Any],
    exact_below: int,
    exact: bool | None,
    ef: int | None,
) -> None:
    monkeypatch.setattr(index_module, "_EXACT_BELOW", exact_below)
    physical = publish(store, "books", [chunk(number) for number in range(5)]).generation
    strict = models.StrictModeConfig(enabled=True, **limits)
    other_client.update_collection(physical, strict_mode_config=strict)
    index = store.open("books")
    (awaited,) = asyncio.run(index.acandidates([IndexQuery(vector(1))], 3))
    assert list(index.chunks(awaited.dense).values()) == [hit.chunk for hit in nearest(index, vector(1), 3)]
    bodies = [request.body for request in qdrant.requests if request.path.endswith("/query/batch")]
    params = [one["params"] for body in bodies for one in body["searches"]]
    assert [(one.get("exact"), one.get("hnsw_ef")) for one in params] == [(exact, ef)] * 2
    assert ["may miss chunks" in warning for warning in index.info.warnings] == [True] * bool(limits)


# An address that belongs to an attacker: every answer is an error, in bounded time and memory.
HNSW = {"m": 16, "ef_construct": 100, "full_scan_threshold": 10000}
OPTIMIZER = {"deleted_threshold": 0.2, "vacuum_min_vector_number": 1000, "flush_interval_sec": 5}
INFO = {
    "status": "green",
    "optimizer_status": "ok",
    "segments_count": 1,
    "points_count": 3,
    "config": {
        "params": {"vectors": {"size": 3, "distance": "Cosine"}},
        "hnsw_config": HNSW,
        "optimizer_config": OPTIMIZER,
        "wal_config": {"wal_capacity_mb": 32, "wal_segments_ahead": 0},
    },
    "payload_schema": {},
}


def use(url: str, home: Path) -> None:
    """Open a collection and search it."""
    connection = ServerConnection(url, "", lambda _: None, sleep=lambda _: None)
    store = ServerStore(connection, home, ServerOptions(), None)
    index = store.open("books")
    for one in index.chunks(index.candidates([IndexQuery([1.0, 0.0, 0.0])], 5)[0].dense).values():
        json.dumps(one.to_dict())


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[" * 500_000,
        b'{"result": ' + b"9" * 5000 + b"}",
        b'{"result": {"points": [{"id": [], "score": "x", "payload": 7}]}}',
        b'{"result": {"status": {"a": [1]}, "points_count": -5, "config": null}}',
        b"<html>\xff\xfe</html>",
    ],
)
def test_answers_that_make_no_sense(body: bytes, tmp_path: Path) -> None:
    with hostile_service(sends(body)) as url, pytest.raises(RectoError) as caught:
        use(url, tmp_path)
    assert caught.value.hint


@pytest.mark.parametrize(
    "point",
    [
        {"id": 1, "score": 1e308, "payload": {"text": ["a"] * 5, "url": {"x": 1}, "headings": 7}},
        {"id": 1, "score": 0.5, "payload": {"text": "\ud800\x1b[31m", "page_url": "javascript:alert(1)"}},
        {"id": 1, "score": 0.5, "payload": {"metadata": {"metadata": {"text": "x"}}}},
        {"id": "00000000-0000-0000-0000-000000000000", "score": -7.0, "payload": None},
    ],
)
def test_points_of_any_shape_are_read_or_refused(point: dict[str, object], tmp_path: Path) -> None:
    def respond(request: HostileRequest) -> None:
        results: dict[str, object] = {
            "batch": [{"points": [point]}],
            "scroll": {"points": [{"id": point["id"], "payload": point["payload"]}]},
            "aliases": {"aliases": []},
            "collections": {"collections": [{"name": "books"}]},
        }
        result = results.get(request.path.rpartition("/")[2], INFO)
        sends(json.dumps({"result": result, "status": "ok", "time": 0.1}).encode())(request)

    with hostile_service(respond) as url, suppress(RectoError):
        use(url, tmp_path)


def test_an_answer_that_expands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recto.stores.qdrant.connection._LARGEST_RESPONSE", 4 << 20)
    body = gzip.compress(bytes(64 << 20), 1)
    tracemalloc.start()
    try:
        with hostile_service(sends(body, "gzip")) as url, pytest.raises(RectoError):
            use(url, tmp_path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 24 << 20
