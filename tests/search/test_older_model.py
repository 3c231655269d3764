"""An index of the older built-in model: it embeds the queries, and a hint says how to use the current one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from recto.contracts.retrieval_test import Backend, QdrantAPIError, ask
from recto.embedders.granite.embedder import FINGERPRINT, GRANITE
from recto.errors import FingerprintMismatch
from recto.evaluation.calibration import calibrate
from recto.evaluation.gaps import LoggedQueries, LoggedQuery, find_gaps
from recto.protocols import Embedder
from recto.search.retriever import Retriever
from recto.server.http.batching import BatchingEmbedder
from recto.settings import load_settings
from recto.stores.edge import EdgeStore
from recto.types.search import SearchResponse
from tests.conftest import SHARED
from tests.library import write_index
from tests.running import recto
from tests.shared_embedder import Counting, shared_embedder

NAME = "older"
QUERY = "How do I make bread rise?"


def granite_embedder() -> Embedder:
    return shared_embedder(SHARED, 1, "fp32", "granite")


@pytest.fixture
def older(small_book: Path, home: Path) -> EdgeStore:
    """A store with an index that the older model made."""
    write_index(small_book, granite_embedder(), home, NAME)
    return EdgeStore(home)


def scores(response: SearchResponse) -> list[float]:
    return [hit.score for hit in response.hits]


def test_the_model_of_the_index_embeds_queries(older: EdgeStore, embedder: Embedder) -> None:
    expected = Retriever(granite_embedder(), older, NAME).search(QUERY)
    for mine in (embedder, BatchingEmbedder(embedder)):
        retriever = Retriever(mine, older, NAME)
        found = retriever.search(QUERY)
        assert scores(found) == pytest.approx(scores(expected))
        (hint,) = found.warnings
        assert hint.startswith(f"{GRANITE.fingerprint.model} made this index and embeds its queries.")
        assert FINGERPRINT.model in hint
        assert retriever.search(QUERY).warnings == (), "only once"
    with pytest.raises(FingerprintMismatch, match="but queries are embedded with"):
        Retriever(Counting(embedder), older, NAME).search(QUERY)


def test_batches_of_the_other_model_are_shared(embedder: Embedder) -> None:
    for_index = BatchingEmbedder(embedder).abilities.for_index
    assert for_index is not None
    assert for_index(GRANITE.fingerprint) is for_index(GRANITE.fingerprint)
    unknown = GRANITE.fingerprint.__class__("unknown", "1", 384)
    assert for_index(unknown) is None


def test_the_older_model_searches_new_indexes_too(small_book: Path, home: Path, embedder: Embedder) -> None:
    write_index(small_book, embedder, home, NAME)
    store = EdgeStore(home)
    found, expected = (Retriever(each, store, NAME).search(QUERY) for each in (granite_embedder(), embedder))
    assert scores(found) == pytest.approx(scores(expected))


def test_the_command_line(older: EdgeStore, small_book: Path, home: Path) -> None:
    search = recto(home, "search", QUERY, "--collection", NAME)
    assert search.returncode == 0
    assert "Bread" in search.stdout
    assert "made this index and embeds its queries" in search.stderr
    doctor = recto(home, "doctor", "--collection", NAME)
    assert "made this index and embeds its queries" in doctor.stdout
    again = recto(home, "index", str(small_book), "--collection", NAME)
    assert again.returncode == 0, again.stderr
    search = recto(home, "search", QUERY, "--collection", NAME)
    assert (search.returncode, search.stderr) == (0, "")
    kept = recto(home, "index", str(small_book), "--collection", "kept", RECTO_MODEL="granite")
    assert kept.returncode == 0, kept.stderr
    assert GRANITE.fingerprint.model in recto(home, "collections", "--json").stdout
    mistyped = recto(home, "search", QUERY, RECTO_MODEL="granit").stderr
    assert "RECTO_MODEL=granit is not a model" in mistyped
    assert "recto-en-1 or granite" in mistyped


def test_tools_embed_queries_with_the_model_of_the_index(older: EdgeStore, embedder: Embedder) -> None:
    granite = Retriever(granite_embedder(), older, NAME)
    mine = Retriever(embedder, older, NAME)
    asked = LoggedQueries({QUERY: LoggedQuery(Counter([QUERY]))})
    for result in (
        lambda retriever: find_gaps(retriever, asked),
        lambda retriever: calibrate(retriever.query_embedder, retriever.open()).to_dict(),
        lambda retriever: retriever.context(QUERY).text,
    ):
        assert result(mine) == result(granite)


def test_document_004_with_the_older_model(older: EdgeStore, home: Path) -> None:
    with Backend(load_settings({"RECTO_HOME": str(home), "RECTO_PRECISION": "fp32"})) as backend:
        hits = ask(backend, QUERY, 1, NAME).hits
        (expected,) = Retriever(granite_embedder(), older, NAME).search(QUERY, top_k=1, mode="dense").hits
        assert [hit.score for hit in hits] == pytest.approx([expected.score])
        with pytest.raises(QdrantAPIError, match="was indexed with .* but embed_query embeds with"):
            backend.search(backend.embed(QUERY), 1, NAME)
