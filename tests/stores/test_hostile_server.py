"""Test a Qdrant address that belongs to an attacker: every answer is an error, in bounded time and memory."""

from __future__ import annotations

import gzip
import json
import time
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest

from recto.errors import RectoError
from recto.settings import ServerOptions
from recto.stores.qdrant.connection import Connection
from recto.stores.qdrant.store import ServerStore
from recto.types.index import IndexQuery
from tests.doubles.hostile import HostileRequest, drip, hostile_service, sends

INFO = {
    "status": "green",
    "optimizer_status": "ok",
    "segments_count": 1,
    "points_count": 3,
    "config": {
        "params": {"vectors": {"size": 3, "distance": "Cosine"}},
        "hnsw_config": {"m": 16, "ef_construct": 100, "full_scan_threshold": 10000},
        "optimizer_config": {
            "deleted_threshold": 0.2,
            "vacuum_min_vector_number": 1000,
            "flush_interval_sec": 5,
        },
        "wal_config": {"wal_capacity_mb": 32, "wal_segments_ahead": 0},
    },
    "payload_schema": {},
}


def use(url: str, home: Path) -> None:
    """Open a collection and search it."""
    connection = Connection(url, "", lambda _: None, sleep=lambda _: None)
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
        result: object = INFO
        if request.path.endswith("/query/batch"):
            result = [{"points": [point]}]
        elif request.path.endswith("/scroll"):
            result = {"points": [{"id": point["id"], "payload": point["payload"]}]}
        elif request.path.endswith("/aliases"):
            result = {"aliases": []}
        elif request.path.endswith("/collections"):
            result = {"collections": [{"name": "books"}]}
        sends(json.dumps({"result": result, "status": "ok", "time": 0.1}).encode())(request)

    with hostile_service(respond) as url, suppress(RectoError):
        use(url, tmp_path)


def test_an_answer_that_expands(tmp_path: Path) -> None:
    body = gzip.compress(bytes(600 << 20), 1)
    tracemalloc.start()
    try:
        with hostile_service(sends(body, "gzip")) as url, pytest.raises(RectoError):
            use(url, tmp_path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 400 << 20


def test_an_answer_that_drips(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recto.stores.qdrant.connection._READ_SECONDS", 1.0)
    began = time.monotonic()
    with hostile_service(drip) as url, pytest.raises(RectoError, match="did not answer in time"):
        use(url, tmp_path)
    assert time.monotonic() - began < 20
