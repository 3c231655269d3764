"""Recto finds the right page of a textbook and proves that it does."""

from __future__ import annotations

__version__ = "0.2.0"

# Type checkers treat the name as that of typing, whose import would cost more than all of this module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from recto.api import (
        SourceOptions,
        aconnect,
        aevaluate,
        aindex,
        connect,
        evaluate,
        index,
    )
    from recto.contracts.textbook import (
        RetrievalResult,
        RetrievalResults,
        TextbookRetriever,
    )
    from recto.errors import (
        CollectionEmpty,
        CollectionMissing,
        ConfigurationError,
        EmbeddingError,
        ErrorKind,
        FingerprintMismatch,
        IndexDamaged,
        InvalidArgument,
        InvalidOption,
        InvalidQuery,
        PageMissing,
        RectoError,
        StorageError,
        StoreBusy,
        Unreachable,
    )
    from recto.evaluation.binding import (
        Missing,
    )
    from recto.evaluation.measures import (
        Judged,
        Measure,
    )
    from recto.evaluation.runs import (
        FoundChunk,
        QueryResult,
        Run,
    )
    from recto.evaluation.statistics import (
        ScoreEstimate,
    )
    from recto.evaluation.suites import (
        Expectation,
        Suite,
        load_suite,
    )
    from recto.indexing.indexer import (
        IndexProgress,
        IndexReport,
    )
    from recto.indexing.planner import (
        PagePlan,
        PageState,
        Plan,
    )
    from recto.plugins import (
        Notify,
    )
    from recto.protocols import (
        AsyncEmbedder,
        AsyncIndex,
        AsyncStore,
        Build,
        Embedder,
        Index,
        Metered,
        Preparable,
        Progress,
        Reader,
        Rollback,
        SchemaInfo,
        Source,
        Store,
        Versioned,
    )
    from recto.search.lexical import (
        LexicalQuery,
        QueryWord,
    )
    from recto.search.pages import (
        BookPage,
    )
    from recto.search.retriever import (
        FiltersLike,
        Retriever,
    )
    from recto.settings import (
        ServerOptions,
        Settings,
        load_settings,
    )
    from recto.types import (
        AnchorStyle,
        Block,
        Calibration,
        Candidates,
        Chunk,
        CostEstimate,
        Document,
        EmbedderFingerprint,
        Failure,
        Filters,
        Fingerprint,
        GroupBy,
        Hit,
        IndexInfo,
        IndexQuery,
        Mode,
        Module,
        Outcome,
        Page,
        PageGroup,
        PayloadSchema,
        SearchResponse,
        Section,
        Selection,
        SparseVector,
        Timings,
        Vector,
    )

_MODULES = {
    "recto.api": (
        "SourceOptions",
        "aconnect",
        "aevaluate",
        "aindex",
        "connect",
        "evaluate",
        "index",
    ),
    "recto.contracts.textbook": (
        "RetrievalResult",
        "RetrievalResults",
        "TextbookRetriever",
    ),
    "recto.errors": (
        "CollectionEmpty",
        "CollectionMissing",
        "ConfigurationError",
        "EmbeddingError",
        "ErrorKind",
        "FingerprintMismatch",
        "IndexDamaged",
        "InvalidArgument",
        "InvalidOption",
        "InvalidQuery",
        "PageMissing",
        "RectoError",
        "StorageError",
        "StoreBusy",
        "Unreachable",
    ),
    "recto.evaluation.binding": ("Missing",),
    "recto.evaluation.measures": (
        "Judged",
        "Measure",
    ),
    "recto.evaluation.runs": (
        "FoundChunk",
        "QueryResult",
        "Run",
    ),
    "recto.evaluation.statistics": ("ScoreEstimate",),
    "recto.evaluation.suites": (
        "Expectation",
        "Suite",
        "load_suite",
    ),
    "recto.indexing.indexer": (
        "IndexProgress",
        "IndexReport",
    ),
    "recto.indexing.planner": (
        "PagePlan",
        "PageState",
        "Plan",
    ),
    "recto.plugins": ("Notify",),
    "recto.protocols": (
        "AsyncEmbedder",
        "AsyncIndex",
        "AsyncStore",
        "Build",
        "Embedder",
        "Index",
        "Metered",
        "Preparable",
        "Progress",
        "Reader",
        "Rollback",
        "SchemaInfo",
        "Source",
        "Store",
        "Versioned",
    ),
    "recto.search.lexical": (
        "Corrections",
        "LexicalQuery",
        "QueryWord",
    ),
    "recto.search.pages": ("BookPage",),
    "recto.search.retriever": (
        "FiltersLike",
        "Retriever",
    ),
    "recto.settings": (
        "Precision",
        "ServerOptions",
        "Settings",
        "load_settings",
    ),
    "recto.types": (
        "AnchorStyle",
        "Block",
        "Calibration",
        "Candidates",
        "Chunk",
        "CostEstimate",
        "Document",
        "EmbedderFingerprint",
        "Failure",
        "Filters",
        "Fingerprint",
        "GroupBy",
        "Hit",
        "IndexInfo",
        "IndexQuery",
        "Mode",
        "Module",
        "Outcome",
        "Page",
        "PageGroup",
        "PayloadSchema",
        "SearchResponse",
        "Section",
        "Selection",
        "SparseVector",
        "Timings",
        "Vector",
    ),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "AnchorStyle",
    "AsyncEmbedder",
    "AsyncIndex",
    "AsyncStore",
    "Block",
    "BookPage",
    "Build",
    "Calibration",
    "Candidates",
    "Chunk",
    "CollectionEmpty",
    "CollectionMissing",
    "ConfigurationError",
    "Corrections",
    "CostEstimate",
    "Document",
    "Embedder",
    "EmbedderFingerprint",
    "EmbeddingError",
    "ErrorKind",
    "Expectation",
    "Failure",
    "Filters",
    "FiltersLike",
    "Fingerprint",
    "FingerprintMismatch",
    "FoundChunk",
    "GroupBy",
    "Hit",
    "Index",
    "IndexDamaged",
    "IndexInfo",
    "IndexProgress",
    "IndexQuery",
    "IndexReport",
    "InvalidArgument",
    "InvalidOption",
    "InvalidQuery",
    "Judged",
    "LexicalQuery",
    "Measure",
    "Metered",
    "Missing",
    "Mode",
    "Module",
    "Notify",
    "Outcome",
    "Page",
    "PageGroup",
    "PageMissing",
    "PagePlan",
    "PageState",
    "PayloadSchema",
    "Plan",
    "Precision",
    "Preparable",
    "Progress",
    "QueryResult",
    "QueryWord",
    "Reader",
    "RectoError",
    "RetrievalResult",
    "RetrievalResults",
    "Retriever",
    "Rollback",
    "Run",
    "SchemaInfo",
    "ScoreEstimate",
    "SearchResponse",
    "Section",
    "Selection",
    "ServerOptions",
    "Settings",
    "Source",
    "SourceOptions",
    "SparseVector",
    "StorageError",
    "Store",
    "StoreBusy",
    "Suite",
    "TextbookRetriever",
    "Timings",
    "Unreachable",
    "Vector",
    "Versioned",
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

if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> object:
        """Load a public name when it is first used, so that importing the package is fast."""
        if name not in _HOMES:
            raise AttributeError(f"module 'recto' has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
