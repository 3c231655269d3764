"""Test engines that fail and recover, and a book that is indexed while the server runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from mcp import Client
from mcp_types import CallToolResult

from recto.book.sources.tree import MarkdownTree
from recto.embedders.cohere import PACES, CohereEmbedder
from recto.indexing.indexer import IndexJob, index_book
from recto.search.retriever import Retriever
from recto.server.mcp_server import build_server
from recto.server.mcp_tools import LazyRetriever
from recto.settings import ServerOptions
from recto.stores.qdrant.connection import Connection
from recto.stores.qdrant.store import ServerStore
from tests.conftest import COHERE_KEY, QDRANT_KEY
from tests.doubles.cohere import CohereDouble
from tests.doubles.qdrant import QdrantDouble
from tests.doubles.server import drop, status
from tests.server.mcp.client import connected, failure

ASKED = {"query": "knead the dough"}


@pytest.fixture
def cloud(cohere: CohereDouble, qdrant: QdrantDouble, home: Path, told: list[str]) -> Iterator[Retriever]:
    embedder = CohereEmbedder(COHERE_KEY, "embed-english-v3.0", cohere.url, PACES["off"], told.append)
    store = ServerStore(Connection(qdrant.url, QDRANT_KEY, told.append), home, ServerOptions(), None)
    with Retriever(embedder, store, "garden") as retriever:
        yield retriever


def index(retriever: Retriever, book: Path, home: Path) -> None:
    index_book(
        IndexJob(MarkdownTree(book), retriever.embedder), retriever.store, "garden", journal=home / "journal"
    )


def clean(text: str) -> str:
    """Return a text after checking that it has no keys."""
    assert COHERE_KEY not in text
    assert QDRANT_KEY not in text
    return text


def test_engines_fail_and_recover(
    cloud: Retriever,
    cohere: CohereDouble,
    qdrant: QdrantDouble,
    home: Path,
    small_book: Path,
    told: list[str],
) -> None:
    index(cloud, small_book, home)

    async def ask(client: Client) -> None:
        def title(result: CallToolResult) -> str:
            assert not result.is_error, result
            return str(result.structured_content["results"][0]["title"])

        assert title(await client.call_tool("search_book", ASKED)) == "Bread"
        qdrant.always(status(503))
        assert "Connection error" in clean(failure(await client.call_tool("search_book", ASKED)))
        assert "Connection error" in clean(failure(await client.call_tool("list_modules", {})))
        qdrant.always(None)
        assert title(await client.call_tool("search_book", ASKED)) == "Bread"
        cohere.always(drop())
        assert "Embedding error" in clean(failure(await client.call_tool("search_book", ASKED)))
        cohere.always(status(401, {"message": f"invalid api token {COHERE_KEY}"}))
        assert "COHERE_API_KEY" in clean(failure(await client.call_tool("search_book", ASKED)))
        cohere.always(None)
        assert title(await client.call_tool("search_book", ASKED)) == "Bread"
        assert (
            title(
                await client.call_tool("related_chunks", {"selection": "Knead the dough until it is smooth."})
            )
            != "Bread"
        )

    connected(build_server(LazyRetriever(cloud, cloud.open, told.append)), ask)


def test_an_engine_is_down_at_the_start(
    cloud: Retriever, qdrant: QdrantDouble, home: Path, small_book: Path, told: list[str]
) -> None:
    qdrant.always(status(503))

    async def ask(client: Client) -> None:
        assert "Connection error" in clean(failure(await client.call_tool("search_book", ASKED)))
        qdrant.always(None)
        assert "Collection 'garden' does not exist" in clean(
            failure(await client.call_tool("search_book", ASKED))
        )
        index(cloud, small_book, home)
        found = await client.call_tool("search_book", ASKED)
        assert found.structured_content["outcome"] == "found"

    connected(build_server(LazyRetriever(cloud, cloud.open, told.append)), ask)
    assert any(line.startswith("[WARNING] Connection error") for line in told)
    clean("".join(told))
