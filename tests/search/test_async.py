"""Many searches at once, in threads and coroutines: the same hits, errors, deadlines, and bounded memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from recto import TextbookRetriever
from recto.book.sources.tree import MarkdownTree
from recto.embedders import cohere as cohere_module
from recto.embedders.cohere import PACES, CohereEmbedder
from recto.errors import EmbeddingError, Unreachable
from recto.indexing.indexer import IndexJob, index_book
from recto.search.retriever import Retriever
from recto.settings import ServerOptions, Settings
from recto.stores.qdrant import ServerStore
from recto.stores.qdrant.connection import ServerConnection
from recto.types.search import NO_FILTERS, Filters, Outcome, SearchResponse
from tests.conftest import COHERE_KEY, QDRANT_KEY
from tests.doubles.cohere import CohereDouble
from tests.doubles.qdrant import QdrantDouble
from tests.doubles.server import delay, hang, status


@pytest.fixture
def retriever(
    cohere: CohereDouble, qdrant: QdrantDouble, home: Path, small_book: Path
) -> Iterator[Retriever]:
    embedder = CohereEmbedder(COHERE_KEY, "embed-english-v3.0", cohere.url, PACES["off"], print)
    store = ServerStore(ServerConnection(qdrant.url, QDRANT_KEY, print), home, ServerOptions(), None)
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
    cohere.always(delay(2))

    async def all_at_once() -> int:
        answers = await asyncio.gather(*(retriever.asearch("knead the dough") for _ in range(20)))
        await retriever.aclose()
        return sum(answer.hits[0].chunk.title == "Bread" for answer in answers)

    assert asyncio.run(all_at_once()) == 20
    arrived = [request.at for request in cohere.requests]
    together = sum(moment < arrived[0] + 2 for moment in arrived)
    assert together > 12, "more requests were open at once than a thread pool would send"


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


TOPICS = ["nodes", "topics", "friction", "walking", "twins", "commands", "costmaps", "Jetson"]
QUESTIONS = [f"What does the book say about {topic} and {other}?" for topic in TOPICS for other in TOPICS[:2]]


@pytest.fixture
def shared(sample_home: Path) -> Iterator[TextbookRetriever]:
    settings = Settings("local", "edge", sample_home, threads=1, precision="fp32")
    with TextbookRetriever(settings=settings) as retriever:
        yield retriever


async def ask_all(shared: TextbookRetriever, times: int) -> list[list[object]]:
    results = await asyncio.gather(*(shared.asearch(question) for question in QUESTIONS * times))
    return [list(result) for result in results]


def test_threads_and_coroutines_share_a_retriever(shared: TextbookRetriever) -> None:
    alone: list[list[object]] = [list(shared.search(question)) for question in QUESTIONS]
    with ThreadPoolExecutor(32) as threads:
        together = list(threads.map(lambda question: list(shared.search(question)), QUESTIONS * 2))
    assert together == alone * 2
    assert asyncio.run(ask_all(shared, 4)) == alone * 4


@pytest.mark.slow
def test_async_searches_do_not_leak(shared: TextbookRetriever) -> None:
    asyncio.run(ask_all(shared, 16))
    before = psutil.Process().memory_info().rss
    asyncio.run(ask_all(shared, 16))
    assert psutil.Process().memory_info().rss - before < 64 << 20
