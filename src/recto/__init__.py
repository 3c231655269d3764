"""Recto finds the right page of a textbook and proves that it does."""

from __future__ import annotations

__version__ = "0.4.0"

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

__all__ = sorted(["__version__", *" ".join(_EXPORTS.values()).split()])  # noqa: PLE0605 - the stub has the names


def __getattr__(name: str) -> object:
    """Load a public name when it is first used, so that importing the package is fast."""
    for module, names in _EXPORTS.items():
        if name in names.split():
            from importlib import import_module

            return getattr(import_module(module), name)
    raise AttributeError(f"module 'recto' has no attribute {name!r}")


def __dir__() -> list[str]:
    """List the public names, for completion in a shell."""
    return __all__
