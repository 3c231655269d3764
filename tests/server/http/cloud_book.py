"""Index a small book with the doubles of Cohere and Qdrant."""

from __future__ import annotations

from pathlib import Path

from recto.book.sources.tree import MarkdownTree
from recto.embedders.cohere import PACES, CohereEmbedder
from recto.indexing.indexer import IndexJob, index_book
from recto.settings import ServerOptions
from recto.stores.qdrant.connection import Connection
from recto.stores.qdrant.store import ServerStore
from tests.conftest import COHERE_KEY, QDRANT_KEY


def index_cloud_book(home: Path, book: Path, cohere_url: str, qdrant_url: str) -> None:
    """Index a book as `garden`."""
    embedder = CohereEmbedder(COHERE_KEY, "embed-english-v3.0", cohere_url, PACES["off"], print)
    store = ServerStore(Connection(qdrant_url, QDRANT_KEY, print), home, ServerOptions(), None)
    index_book(IndexJob(MarkdownTree(book), embedder), store, "garden", journal=home / "journal")
    embedder.close()
    store.close()


def cloud_variables(cohere_url: str, qdrant_url: str) -> dict[str, str]:
    """Return the environment variables of the cloud profile."""
    return {
        "COHERE_API_KEY": COHERE_KEY,
        "COHERE_API_URL": cohere_url,
        "QDRANT_URL": qdrant_url,
        "QDRANT_API_KEY": QDRANT_KEY,
        "COLLECTION_NAME": "garden",
    }
