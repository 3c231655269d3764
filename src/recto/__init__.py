"""Recto finds the right page of a textbook and proves that it does."""

from __future__ import annotations

__version__ = "0.3.0"

_EXPORTS = {
    "recto.api": "SourceOptions aconnect aevaluate aindex connect evaluate index",
    "recto.contracts.textbook": "RetrievalResult TextbookRetriever",
    "recto.errors": (
        "CollectionEmpty CollectionMissing ConfigurationError InvalidArgument RectoError StoreBusy "
        "Unreachable"
    ),
    "recto.evaluation.runs": "Run",
    "recto.evaluation.suites": "Suite load_suite",
    "recto.indexing.indexer": "IndexProgress IndexReport",
    "recto.search.context": "Context",
    "recto.search.pages": "BookPage",
    "recto.search.retriever": "Retriever",
    "recto.settings": "Settings load_settings",
    "recto.types.search": "Chunk Filters Hit Module Outcome SearchResponse",
}
"""The public names by module. `scripts/make_stubs.py` writes `__init__.pyi` from it, for type checkers."""

_MOVED = {
    "recto.contracts.textbook": "RetrievalResults",
    "recto.errors": (
        "EmbeddingError ErrorKind FingerprintMismatch FormatMismatch IndexDamaged InvalidOption InvalidQuery "
        "PageMissing StorageError"
    ),
    "recto.evaluation": "Expectation Judged Measure Missing QueryResult ScoreEstimate",
    "recto.indexing.planner": "PagePlan PageState Plan",
    "recto.plugins": "Notify",
    "recto.protocols": (
        "Archivable AsyncEmbedder AsyncIndex AsyncStore Build Deletable Embedder Index "
        "Metered PortableCounter Preparable Progress Reader Rollback Source Store "
        "Verifiable Versioned"
    ),
    "recto.search.context": "ContextSection",
    "recto.search.lexical": "LexicalQuery QueryWord",
    "recto.search.retriever": "FiltersLike",
    "recto.settings": (
        "CoherePace Device OpenAIOptions Precision QueryDevice QueryLogOptions QueryLogText ServerOptions "
        "VariableSource Variables"
    ),
    "recto.types.book": "AnchorStyle Block Document Failure Page Section",
    "recto.types.index": (
        "Calibration Candidates CostEstimate EmbedderFingerprint Fingerprint GenerationInfo IndexInfo "
        "IndexQuery PayloadSchema SparseVector StoreProblem"
    ),
    "recto.types.search": "Coverage GroupBy Mode PageGroup Selection Timings Vector",
}
"""Names that `recto` exported in 0.2, by their new module. They are removed in the next version."""

__all__ = sorted(["__version__", *" ".join(_EXPORTS.values()).split()])  # noqa: PLE0605 - the stub has the names


def _home(table: dict[str, str], name: str) -> str | None:
    return next((module for module, names in table.items() if name in names.split()), None)


def __getattr__(name: str) -> object:
    """Load a public name when it is first used, so that importing the package is fast."""
    module = _home(_EXPORTS, name)
    if module is None:
        module = _home(_MOVED, name)
        if module is None:
            raise AttributeError(f"module 'recto' has no attribute {name!r}")
        import warnings

        message = f"recto.{name} has moved: import {name} from {module}"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
    from importlib import import_module

    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    """List the public names, for completion in a shell."""
    return __all__
