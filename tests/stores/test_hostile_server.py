"""Test a Qdrant address that belongs to an attacker: every answer is an error, in bounded time and memory."""

from __future__ import annotations

import gzip
import json
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from recto.errors import RectoError
from recto.settings import ServerOptions
from recto.stores.qdrant.connection import Connection
from recto.stores.qdrant.store import ServerStore
from recto.types.index import IndexQuery

BOMB = gzip.compress(bytes(600 << 20), 1)
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


@contextmanager
def qdrant(answer: Callable[[BaseHTTPRequestHandler], bytes | None], encoding: str = "") -> Iterator[str]:
    """Answer every request with the bytes that a function returns, or has sent itself; yield the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            with suppress(OSError):  # the client has had enough
                body = answer(self)
                if body is None:
                    return
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                if encoding:
                    self.send_header("Content-Encoding", encoding)
                self.end_headers()
                self.wfile.write(body)

        do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


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
    with qdrant(lambda _: body) as url, pytest.raises(RectoError) as caught:
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
    def answer(request: BaseHTTPRequestHandler) -> bytes:
        result: object = INFO
        if request.path.endswith("/query/batch"):
            result = [{"points": [point]}]
        elif request.path.endswith("/scroll"):
            result = {"points": [{"id": point["id"], "payload": point["payload"]}]}
        elif request.path.endswith("/aliases"):
            result = {"aliases": []}
        elif request.path.endswith("/collections"):
            result = {"collections": [{"name": "books"}]}
        return json.dumps({"result": result, "status": "ok", "time": 0.1}).encode()

    with qdrant(answer) as url, suppress(RectoError):
        use(url, tmp_path)


def test_an_answer_that_expands(tmp_path: Path) -> None:
    tracemalloc.start()
    try:
        with qdrant(lambda _: BOMB, "gzip") as url, pytest.raises(RectoError):
            use(url, tmp_path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 400 << 20


def test_an_answer_that_drips(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def drip(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.end_headers()
        for _ in range(600):
            request.wfile.write(b" ")
            request.wfile.flush()
            time.sleep(0.05)

    monkeypatch.setattr("recto.stores.qdrant.connection._READ_SECONDS", 1.0)
    began = time.monotonic()
    with qdrant(drip) as url, pytest.raises(RectoError, match="did not answer in time"):
        use(url, tmp_path)
    assert time.monotonic() - began < 20
