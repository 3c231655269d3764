"""Retrieval in three functions: embed a query, search the collection, format the results.

    from retrieval import embed_query, format_results, search_qdrant

    query = "What is ROS 2?"
    print(format_results(query, search_qdrant(embed_query(query), top_k=5), top_k=5))

They use the configured profile: Cohere and Qdrant, or the embedded engine with its local model. Connections
stay open between calls and close when the program ends. You can call the functions from many threads.
"""

from __future__ import annotations

import atexit
from typing import Any

from recto.contracts import TEST_COLLECTION, retrieval_test
from recto.contracts.retrieval_test import (
    MAX_TOP_K,
    Backend,
    CohereAPIError,
    Metadata,
    QdrantAPIError,
    SearchResult,
)
from recto.settings import COHERE_MODEL as MODEL
from recto.types.request import DEFAULT_TOP_K

__all__ = [
    "MAX_TOP_K",
    "MODEL",
    "CohereAPIError",
    "Metadata",
    "QdrantAPIError",
    "SearchResult",
    "close",
    "embed_query",
    "format_results",
    "search_qdrant",
]

_backend = Backend()
atexit.register(_backend.close)


def embed_query(query_text: str) -> list[float]:
    """Generate the embedding vector of a query of 1 to 2000 characters.

    The vector has 1024 numbers with Cohere's embed-english-v3.0, and 384 with the local model. A call to
    Cohere takes at most 10 seconds, retries included.

    Raises:
        ValueError: If the query is None, empty or too long.
        CohereAPIError: If it could not be embedded.

    """
    return _backend.embed(query_text)


def search_qdrant(
    query_embedding: list[float], top_k: int = DEFAULT_TOP_K, collection_name: str = TEST_COLLECTION
) -> list[SearchResult]:
    """Return the `top_k` chunks most similar to a vector from `embed_query`, best first.

    COLLECTION_NAME replaces the default collection. Each of up to three attempts has a timeout of 5 seconds.

    Raises:
        ValueError: If top_k is not between 1 and 50, or the vector does not fit the collection.
        QdrantAPIError: If the collection is missing, empty, made with another model, or cannot be reached.

    """
    return _backend.search(query_embedding, top_k, collection_name)


def format_results(query: str, results: list[SearchResult], top_k: int) -> dict[str, Any]:
    """Return results as a dict that serialises to JSON; the same input always gives the same output.

    Raises:
        ValueError: If the query or top_k is invalid.
        QdrantAPIError: If the results are not in order, or incomplete.

    """
    return retrieval_test.format_results(query, results, top_k)


def close() -> None:
    """Close the connections and the model; the next call opens them again."""
    _backend.close()
