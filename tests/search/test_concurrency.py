"""Concurrent searches on one retriever: the same hits as one after the other, and bounded memory."""

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
from recto.indexing.indexer import IndexJob, index_book
from recto.search.retriever import Retriever
from recto.settings import ServerOptions, Settings
from recto.stores.qdrant import connection as connection_module
from recto.stores.qdrant.connection import Connection
from recto.stores.qdrant.store import ServerStore
from tests.conftest import COHERE_KEY, QDRANT_KEY
from tests.doubles.cohere import CohereDouble
from tests.doubles.qdrant import QdrantDouble

TOPICS = (
    "nodes",
    "topics",
    "friction",
    "walking",
    "a digital twin",
    "voice commands",
    "costmaps",
    "the Jetson",
)
QUESTIONS = [f"What does the book say about {topic} and {other}?" for topic in TOPICS for other in TOPICS[:4]]


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
    assert asyncio.run(ask_all(shared, 8)) == alone * 8


@pytest.mark.slow
def test_async_searches_do_not_leak(shared: TextbookRetriever) -> None:
    asyncio.run(ask_all(shared, 8))
    before = psutil.Process().memory_info().rss
    asyncio.run(ask_all(shared, 8))
    assert psutil.Process().memory_info().rss - before < 64 << 20


@pytest.mark.slow
def test_256_async_searches_on_services(
    cohere: CohereDouble,
    qdrant: QdrantDouble,
    home: Path,
    small_book: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cohere_module, "_QUERY_SECONDS", 120.0)  # the doubles may be slow on a busy machine
    monkeypatch.setattr(connection_module, "_READ_SECONDS", 60)
    embedder = CohereEmbedder(COHERE_KEY, "embed-english-v3.0", cohere.url, PACES["off"], print)
    store = ServerStore(Connection(qdrant.url, QDRANT_KEY, print), home, ServerOptions(), None)
    index_book(IndexJob(MarkdownTree(small_book), embedder), store, "garden", journal=home / "journal")
    shared = Retriever(embedder, store, "garden")
    questions = ["When are beans sown?", "What do worms do?", "How is dough kneaded?", "What feeds the soil?"]

    async def ask() -> list[str]:
        try:
            found = await asyncio.gather(*(shared.asearch(questions[number % 4], 2) for number in range(256)))
            return [response.hits[0].chunk.title for response in found]
        finally:
            await shared.aclose()

    try:
        alone = [shared.search(question, 2).hits[0].chunk.title for question in questions]
        assert asyncio.run(ask()) == alone * 64
    finally:
        shared.close()
