"""Recto finds the right page of a textbook and proves that it does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from recto.errors import RectoError
    from recto.retriever import Retriever
    from recto.types import Chunk, Filters, Hit, Outcome, SearchResponse

__all__ = ["Chunk", "Filters", "Hit", "Outcome", "RectoError", "Retriever", "SearchResponse", "__version__"]

_HOMES = {"RectoError": "recto.errors", "Retriever": "recto.retriever"}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used, so that importing the package costs nothing."""
    if name not in __all__:
        raise AttributeError(f"module 'recto' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES.get(name, "recto.types")), name)
