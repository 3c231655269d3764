"""Recto finds the right page of a textbook and proves that it does."""

from __future__ import annotations

__version__ = "0.2.0"

TYPE_CHECKING = (
    False  # type checkers treat it as typing's; importing typing would cost more than all of this module
)
if TYPE_CHECKING:
    from typing import Any

    from recto.api import SourceOptions, aconnect, aevaluate, aindex, connect, evaluate, index
    from recto.contracts.textbook import RetrievalResult, TextbookRetriever
    from recto.errors import (
        CollectionEmpty,
        CollectionMissing,
        ConfigurationError,
        EmbeddingError,
        ErrorKind,
        FingerprintMismatch,
        IndexDamaged,
        InvalidArgument,
        InvalidQuery,
        PageMissing,
        RectoError,
        StorageError,
        StoreBusy,
        Unreachable,
    )
    from recto.evaluation.runs import Run
    from recto.evaluation.suites import Suite, load_suite
    from recto.indexing.indexer import IndexProgress, IndexReport
    from recto.indexing.planner import Plan
    from recto.protocols import (
        AsyncEmbedder,
        AsyncIndex,
        AsyncStore,
        Build,
        Embedder,
        Index,
        Metered,
        Preparable,
        Rollback,
        Source,
        Store,
    )
    from recto.search.pages import BookPage
    from recto.search.retriever import Retriever
    from recto.settings import Settings, load_settings
    from recto.types import (
        Calibration,
        Chunk,
        EmbedderFingerprint,
        Filters,
        Fingerprint,
        Hit,
        IndexInfo,
        Mode,
        Module,
        Outcome,
        Page,
        PageGroup,
        SearchResponse,
        Selection,
        Timings,
        Vector,
    )

_MODULES = {
    "recto.api": ("SourceOptions", "aconnect", "aevaluate", "aindex", "connect", "evaluate", "index"),
    "recto.contracts.textbook": ("RetrievalResult", "TextbookRetriever"),
    "recto.errors": (
        "CollectionEmpty",
        "CollectionMissing",
        "ConfigurationError",
        "EmbeddingError",
        "ErrorKind",
        "FingerprintMismatch",
        "IndexDamaged",
        "InvalidArgument",
        "InvalidQuery",
        "PageMissing",
        "RectoError",
        "StorageError",
        "StoreBusy",
        "Unreachable",
    ),
    "recto.evaluation.runs": ("Run",),
    "recto.evaluation.suites": ("Suite", "load_suite"),
    "recto.indexing.indexer": ("IndexProgress", "IndexReport"),
    "recto.indexing.planner": ("Plan",),
    "recto.protocols": (
        "AsyncEmbedder",
        "AsyncIndex",
        "AsyncStore",
        "Build",
        "Embedder",
        "Index",
        "Metered",
        "Preparable",
        "Rollback",
        "Source",
        "Store",
    ),
    "recto.search.pages": ("BookPage",),
    "recto.search.retriever": ("Retriever",),
    "recto.settings": ("Settings", "load_settings"),
    "recto.types": (
        "Calibration",
        "Chunk",
        "EmbedderFingerprint",
        "Filters",
        "Fingerprint",
        "Hit",
        "IndexInfo",
        "Mode",
        "Module",
        "Outcome",
        "Page",
        "PageGroup",
        "SearchResponse",
        "Selection",
        "Timings",
        "Vector",
    ),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "AsyncEmbedder",
    "AsyncIndex",
    "AsyncStore",
    "BookPage",
    "Build",
    "Calibration",
    "Chunk",
    "CollectionEmpty",
    "CollectionMissing",
    "ConfigurationError",
    "Embedder",
    "EmbedderFingerprint",
    "EmbeddingError",
    "ErrorKind",
    "Filters",
    "Fingerprint",
    "FingerprintMismatch",
    "Hit",
    "Index",
    "IndexDamaged",
    "IndexInfo",
    "IndexProgress",
    "IndexReport",
    "InvalidArgument",
    "InvalidQuery",
    "Metered",
    "Mode",
    "Module",
    "Outcome",
    "Page",
    "PageGroup",
    "PageMissing",
    "Plan",
    "Preparable",
    "RectoError",
    "RetrievalResult",
    "Retriever",
    "Rollback",
    "Run",
    "SearchResponse",
    "Selection",
    "Settings",
    "Source",
    "SourceOptions",
    "StorageError",
    "Store",
    "StoreBusy",
    "Suite",
    "TextbookRetriever",
    "Timings",
    "Unreachable",
    "Vector",
    "__version__",
    "aconnect",
    "aevaluate",
    "aindex",
    "connect",
    "evaluate",
    "index",
    "load_settings",
    "load_suite",
]


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used, so that importing the package is fast."""
    if name not in _HOMES:
        raise AttributeError(f"module 'recto' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
