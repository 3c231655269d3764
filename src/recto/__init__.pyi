# scripts/make_stubs.py writes this file.
from recto.api import SourceOptions, aconnect, aevaluate, aindex, connect, evaluate, index
from recto.contracts.textbook import RetrievalResult, TextbookRetriever
from recto.errors import (
    CollectionEmpty,
    CollectionMissing,
    ConfigurationError,
    InvalidArgument,
    RectoError,
    StoreBusy,
    Unreachable,
)
from recto.evaluation.runs import Run
from recto.evaluation.suites import Suite, load_suite
from recto.indexing.indexer import IndexProgress, IndexReport
from recto.search.context import Context
from recto.search.pages import BookPage
from recto.search.retriever import Retriever
from recto.settings import Settings, load_settings
from recto.types.search import Chunk, Filters, Hit, Module, Outcome, SearchResponse

__version__: str

__all__ = [
    "BookPage",
    "Chunk",
    "CollectionEmpty",
    "CollectionMissing",
    "ConfigurationError",
    "Context",
    "Filters",
    "Hit",
    "IndexProgress",
    "IndexReport",
    "InvalidArgument",
    "Module",
    "Outcome",
    "RectoError",
    "RetrievalResult",
    "Retriever",
    "Run",
    "SearchResponse",
    "Settings",
    "SourceOptions",
    "StoreBusy",
    "Suite",
    "TextbookRetriever",
    "Unreachable",
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
