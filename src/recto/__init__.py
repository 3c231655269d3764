"""Recto finds the right page of a textbook and proves that it does."""

from __future__ import annotations

__version__ = "0.1.0"

TYPE_CHECKING = False  # type checkers take it for typing's, whose import would cost more than all of this
if TYPE_CHECKING:
    from typing import Any

    from recto.contracts.textbook import RetrievalResult, TextbookRetriever
    from recto.errors import RectoError
    from recto.search.retriever import Retriever
    from recto.types import Chunk, Filters, Hit, Outcome, SearchResponse

__all__ = [
    "Chunk",
    "Filters",
    "Hit",
    "Outcome",
    "RectoError",
    "RetrievalResult",
    "Retriever",
    "SearchResponse",
    "TextbookRetriever",
    "__version__",
]

_HOMES = {
    "RectoError": "recto.errors",
    "RetrievalResult": "recto.contracts.textbook",
    "Retriever": "recto.search.retriever",
    "TextbookRetriever": "recto.contracts.textbook",
}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used, so that importing the package costs nothing."""
    if name not in __all__:
        raise AttributeError(f"module 'recto' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES.get(name, "recto.types")), name)
