"""Responses of a hostile embedding service: too large, too slow, or not what they should be."""

from __future__ import annotations

import gzip
import json
import threading
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from recto.embedders.cohere import PACES, CohereEmbedder
from recto.embedders.openai import OpenAIEmbedder, open_openai
from recto.errors import RectoError
from recto.settings import load_settings
from tests.doubles.hostile import HostileRequest, drip, hostile_service, sends

Make = Callable[[str, Path], OpenAIEmbedder | CohereEmbedder]
_LARGE = 200 << 20  # bytes of a decompressed response


def openai(url: str, home: Path) -> OpenAIEmbedder:
    values = {"RECTO_EMBEDDER": "openai", "RECTO_OPENAI_URL": f"{url}/v1", "RECTO_MODEL": "m"}
    return open_openai(load_settings({**values, "RECTO_HOME": str(home)}, home), lambda _: None)


def cohere(url: str, _: Path) -> CohereEmbedder:
    return CohereEmbedder("key", "embed-english-v3.0", url, PACES["off"], lambda _: None)


@pytest.fixture(scope="module")
def bodies() -> list[tuple[bytes, str]]:
    """Small responses that decompress to large ones, in many members and in one; one that is cut; a large one."""
    bomb = gzip.compress(b'{"data": [{"embedding": [') + gzip.compress(b"0," * (1 << 20)) * (_LARGE >> 21)
    one_member, cut = gzip.compress(bytes(_LARGE), 1), gzip.compress(b'{"data": []}')[:-8]
    return [(bomb, "gzip"), (one_member, "gzip"), (cut, "gzip"), (b"[" * (64 << 20), ""), (bomb, "br")]


@pytest.mark.parametrize("make", [openai, cohere])
def test_a_response_that_expands(tmp_path: Path, make: Make, bodies: list[tuple[bytes, str]]) -> None:
    tracemalloc.start()
    try:
        for body, encoding in bodies:
            with hostile_service(sends(body, encoding)) as url, pytest.raises(RectoError) as caught:
                make(url, tmp_path).embed_queries(["soil"])
            assert caught.value.hint
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 150 << 20


@pytest.mark.parametrize(
    "data",
    [
        '[{"index": [0], "embedding": [1.0, 0.0]}]',
        '[{"index": true, "embedding": [1.0, 0.0]}]',
        '[{"index": 0, "embedding": [' + "9" * 400 + ", 0.0]}]",
        '[{"index": 0, "embedding": [1e999, 0.0]}]',
        '[{"index": 0, "embedding": {"a": 1}}]',
        "[" * 500_000,
        '[{"index": 0, "embedding": "AAAA"}]',
    ],
)
def test_answers_that_are_not_vectors(tmp_path: Path, data: str) -> None:
    for body in (f'{{"data": {data}}}', data):
        with hostile_service(sends(body.encode())) as url, pytest.raises(RectoError) as caught:
            openai(url, tmp_path).embed_queries(["soil"])
        assert caught.value.hint


@pytest.mark.parametrize(
    "rows", [f"[[{'9' * 400}]]", "[" * 99_999, '{"a": 1}', '[["a"]]', "[[1e999]]", "[[]]"]
)
def test_cohere_answers_that_are_not_vectors(tmp_path: Path, rows: str) -> None:
    body = f'{{"id": "a", "response_type": "embeddings_by_type", "embeddings": {{"float": {rows}}}}}'
    with hostile_service(sends(body.encode())) as url, pytest.raises(RectoError) as caught:
        cohere(url, tmp_path).embed_queries(["soil"])
    assert caught.value.hint


@pytest.mark.parametrize("make", [openai, cohere])
def test_a_response_that_drips_ends(tmp_path: Path, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()

    def respond(request: HostileRequest) -> None:
        try:
            drip(request)
        except OSError:
            ended.set()

    monkeypatch.setattr("recto.embedders.cohere._QUERY_SECONDS", 1.0)
    monkeypatch.setattr(CohereEmbedder, "document_seconds", 2.0)
    monkeypatch.setattr("recto.embedders.openai._PROBE_SECONDS", 1.0)
    with hostile_service(respond) as url:
        began = time.monotonic()
        with pytest.raises(RectoError):
            make(url, tmp_path).embed_queries(["soil"])
        assert time.monotonic() - began < 20
        assert ended.wait(20), "the client closes the connection"


def test_good_answers_arrive_compressed(tmp_path: Path) -> None:
    def respond(request: HostileRequest) -> None:
        count = len(json.loads(request.body)["input"])
        vectors = [{"index": n, "embedding": [0.6, 0.8]} for n in range(count)]
        sends(gzip.compress(json.dumps({"data": vectors}).encode()), "gzip")(request)

    with hostile_service(respond) as url:
        assert openai(url, tmp_path).embed_queries(["soil", "seeds"]) == [pytest.approx([0.6, 0.8])] * 2
