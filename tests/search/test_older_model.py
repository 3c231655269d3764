"""An index of version 0.3, whose model gives English texts nearly the same vectors: searched, with a hint."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from recto.contracts.retrieval_test import Backend, QdrantAPIError, ask
from recto.embedders.granite.embedder import FINGERPRINT, OLDER
from recto.errors import FingerprintMismatch
from recto.evaluation.calibration import calibrate
from recto.evaluation.gaps import LoggedQueries, LoggedQuery, find_gaps
from recto.protocols import Embedder, embedder_abilities
from recto.search.retriever import Retriever
from recto.server.http.batching import BatchingEmbedder
from recto.settings import load_settings
from recto.stores.edge import EdgeStore
from recto.types.index import EmbedderFingerprint
from tests.library import write_index
from tests.running import recto
from tests.shared_embedder import Counting, ForwardingEmbedder

NAME = "older"
QUERY = "How do I make bread rise?"
HINT = f"{OLDER.model} made this index. {FINGERPRINT.model} can search it in English"


class OlderEmbedder(ForwardingEmbedder):
    """Writes indexes that name the model of version 0.3."""

    @property
    def fingerprint(self) -> EmbedderFingerprint:
        return OLDER


@pytest.fixture
def older(small_book: Path, home: Path, embedder: Embedder) -> EdgeStore:
    """A store with an index of the older model."""
    write_index(small_book, OlderEmbedder(embedder), home, NAME)
    return EdgeStore(home)


def test_the_current_model_embeds_the_queries(older: EdgeStore, embedder: Embedder) -> None:
    expected = Retriever(OlderEmbedder(embedder), older, NAME).search(QUERY)
    for mine in (embedder, BatchingEmbedder(embedder)):
        retriever = Retriever(mine, older, NAME)
        found = retriever.search(QUERY)
        assert found.hits[0].chunk.title == "Bread"
        assert [hit.score for hit in found.hits] == pytest.approx([hit.score for hit in expected.hits])
        (hint,) = found.warnings
        assert hint.startswith(HINT)
        assert "recto index" in hint
        assert retriever.search(QUERY).warnings == (), "only once"
    with pytest.raises(FingerprintMismatch, match="but queries are embedded with"):
        Retriever(Counting(embedder), older, NAME).search(QUERY)


def test_questions_in_other_languages_have_a_warning(older: EdgeStore, embedder: Embedder) -> None:
    retriever = Retriever(embedder, older, NAME)
    assert embedder_abilities(retriever.query_embedder).languages == ("en",)
    assert "another language ('es')" in retriever.search("¿Cómo hago que el pan suba?").warnings[-1]


def test_batches_of_both_indexes_are_shared(embedder: Embedder) -> None:
    for_index = BatchingEmbedder(embedder).abilities.for_index
    assert for_index is not None
    assert for_index(OLDER) is for_index(OLDER)
    assert for_index(EmbedderFingerprint("unknown", "1", 384)) is None
    assert for_index(EmbedderFingerprint("recto-en-1", "another", 384)) is None


def test_the_command_line(older: EdgeStore, small_book: Path, home: Path) -> None:
    search = recto(home, "search", QUERY, "--collection", NAME)
    assert search.returncode == 0
    assert "Bread" in search.stdout
    assert HINT in search.stderr
    doctor = recto(home, "doctor", "--collection", NAME)
    assert HINT in doctor.stdout
    again = recto(home, "index", str(small_book), "--collection", NAME)
    assert again.returncode == 0, again.stderr
    search = recto(home, "search", QUERY, "--collection", NAME)
    assert (search.returncode, search.stderr) == (0, "")
    mistyped = recto(home, "search", QUERY, RECTO_MODEL="recto-en-1").stderr
    assert "RECTO_MODEL=recto-en-1 is not a model" in mistyped
    assert "Use the built-in model (recto-1)" in mistyped


def test_tools_work_with_the_index(older: EdgeStore, embedder: Embedder) -> None:
    same = Retriever(OlderEmbedder(embedder), older, NAME)
    mine = Retriever(embedder, older, NAME)
    asked = LoggedQueries({QUERY: LoggedQuery(Counter([QUERY]))})
    for result in (
        lambda retriever: find_gaps(retriever, asked),
        lambda retriever: calibrate(retriever.query_embedder, retriever.open()).to_dict(),
        lambda retriever: retriever.search(QUERY, mode="dense").hits,
    ):
        assert result(mine) == result(same)
    assert mine.context(QUERY).text


def test_document_004_with_the_index(older: EdgeStore, home: Path, embedder: Embedder) -> None:
    with Backend(load_settings({"RECTO_HOME": str(home), "RECTO_PRECISION": "fp32"})) as backend:
        hits = ask(backend, QUERY, 1, NAME).hits
        (expected,) = (
            Retriever(OlderEmbedder(embedder), older, NAME).search(QUERY, top_k=1, mode="dense").hits
        )
        assert [hit.score for hit in hits] == pytest.approx([expected.score])
        with pytest.raises(QdrantAPIError, match="was indexed with .* but embed_query embeds with"):
            backend.search(backend.embed(QUERY), 1, NAME)
