"""Retrieval in three functions: embed a query, search the collection, format the results.

    from retrieval import embed_query, format_results, search_qdrant

    query = "What is ROS 2?"
    print(format_results(query, search_qdrant(embed_query(query), top_k=5), top_k=5))

They run on what is configured: Cohere and Qdrant, or the embedded engine with its local model. What they open stays open for the next
call and is closed when the program ends; they may be called from many threads.
"""

from __future__ import annotations

import atexit
from typing import Any

from recto.contracts.retrieval_test.contract import (
    DEFAULT_COLLECTION,
    DEFAULT_TOP_K,
    MAX_TOP_K,
    CohereAPIError,
    Metadata,
    QdrantAPIError,
    SearchResult,
    check_response,
    check_results,
    checked_query,
    checked_top_k,
    response_of,
)
from recto.contracts.retrieval_test.service import Backend
from recto.settings import COHERE_MODEL as MODEL

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

    The vector is as long as the model's are: 1024 numbers with Cohere's embed-english-v3.0, 384 with the embedded engine's local model.
    Cohere is given 10 seconds, everything included.

    Raises:
        ValueError: If the query is None, empty or too long.
        CohereAPIError: If it could not be embedded.

    """
    return _backend.embed(query_text)


def search_qdrant(
    query_embedding: list[float], top_k: int = DEFAULT_TOP_K, collection_name: str = DEFAULT_COLLECTION
) -> list[SearchResult]:
    """Return the chunks most similar to a vector from `embed_query`, best first: `top_k` of them, or all if there are fewer.

    COLLECTION_NAME stands in for the default collection. Qdrant is given 5 seconds for each of at most three tries.

    Raises:
        ValueError: If top_k is not between 1 and 50, or the vector does not fit the collection.
        QdrantAPIError: If the search failed: the collection is missing, empty, of another model, or cannot be reached.

    """
    return _backend.search(query_embedding, top_k, collection_name)


def format_results(query: str, results: list[SearchResult], top_k: int) -> dict[str, Any]:
    """Return results as a dict that can be written as JSON; the same input always gives the same output.

    Raises:
        ValueError: If the query or top_k is not what the other functions take.
        QdrantAPIError: If the results are not in order, or not whole.

    """
    text, limit = checked_query(query), checked_top_k(top_k)
    check_results(results, limit)
    response = response_of(text, results, limit)
    check_response(response)
    return response


def close() -> None:
    """Let go of connections and the model; the next call reads the settings and opens them again."""
    _backend.close()
