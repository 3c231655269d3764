"""Async searches with Cohere and a Qdrant server: concurrent, with the same hits, errors and deadlines."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from recto.book.sources.tree import MarkdownTree
from recto.embedders import cohere as cohere_module
from recto.embedders.cohere import PACES, CohereEmbedder
from recto.errors import EmbeddingError, Unreachable
from recto.indexing.indexer import IndexJob, index_book
from recto.search.retriever import Retriever
from recto.settings import ServerOptions
from recto.stores.qdrant.connection import Connection
from recto.stores.qdrant.store import ServerStore
from recto.types.search import NO_FILTERS, Filters, Outcome, SearchResponse
from tests.doubles.cohere import CohereDouble
from tests.doubles.qdrant import QdrantDouble
from tests.doubles.server import delay, hang, status


@pytest.fixture
def cohere() -> Iterator[CohereDouble]:
    with CohereDouble(api_key="key") as double:
        yield double


@pytest.fixture
def qdrant() -> Iterator[QdrantDouble]:
    with QdrantDouble() as double:
        yield double


@pytest.fixture
def retriever(
    cohere: CohereDouble, qdrant: QdrantDouble, home: Path, small_book: Path
) -> Iterator[Retriever]:
    embedder = CohereEmbedder("key", "embed-english-v3.0", cohere.url, PACES["off"], print)
    store = ServerStore(Connection(qdrant.url, "", print), home, ServerOptions(), None)
    index_book(IndexJob(MarkdownTree(small_book), embedder), store, "garden", journal=home / "journal")
    yield Retriever(embedder, store, "garden")
    embedder.close()
    store.close()


def ask(retriever: Retriever, question: str, filters: Filters = NO_FILTERS) -> SearchResponse:
    """Search in a new event loop, and close its connections."""

    async def search() -> SearchResponse:
        try:
            return await retriever.asearch(question, filters=filters)
        finally:
            await retriever.aclose()

    return asyncio.run(search())


def test_async_searches_return_the_same_hits(retriever: Retriever) -> None:
    for question in ("knead the dough", "compost and soil"):
        one, other = ask(retriever, question), retriever.search(question)
        assert [hit.chunk for hit in one.hits] == [hit.chunk for hit in other.hits]
    only = ask(retriever, "soil", Filters(modules=("garden",)))
    assert {hit.chunk.module for hit in only.hits} == {"garden"}
    nothing = ask(retriever, "soil", Filters(modules=("gardn",)))
    assert nothing.outcome is Outcome.FILTERED_OUT
    assert "garden" in nothing.message


def test_async_searches_run_concurrently(retriever: Retriever, cohere: CohereDouble) -> None:
    retriever.search("soil")
    cohere.requests.clear()
    cohere.always(delay(3))

    async def all_at_once() -> int:
        answers = await asyncio.gather(*(retriever.asearch("knead the dough") for _ in range(40)))
        await retriever.aclose()
        return sum(answer.hits[0].chunk.title == "Bread" for answer in answers)

    assert asyncio.run(all_at_once()) == 40
    arrived = [request.at for request in cohere.requests]
    together = sum(moment < arrived[0] + 3 for moment in arrived)
    assert together > 12, (
        "more requests were open before the first was answered than a thread pool would send"
    )


def test_errors_and_deadlines(
    retriever: Retriever, cohere: CohereDouble, qdrant: QdrantDouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    retriever.search("soil")
    cohere.always(status(500))
    with pytest.raises(EmbeddingError, match="not available"):
        ask(retriever, "soil")
    monkeypatch.setattr(cohere_module, "_QUERY_SECONDS", 0.5)
    cohere.always(hang(20))
    with pytest.raises(EmbeddingError, match="did not answer in time"):
        ask(retriever, "soil")
    cohere.always(None)
    monkeypatch.undo()
    before = len(qdrant.requests)
    qdrant.always(status(503), path="*/points/query/batch")
    with pytest.raises(Unreachable, match="not available"):
        ask(retriever, "soil")
    assert len(qdrant.requests) - before == 3
    qdrant.always(None)
    assert ask(retriever, "soil").hits, "the next call works again"
