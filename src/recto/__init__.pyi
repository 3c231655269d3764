# scripts/make_stubs.py writes this file.
from recto.api import SourceOptions as SourceOptions
from recto.api import aconnect as aconnect
from recto.api import aevaluate as aevaluate
from recto.api import aindex as aindex
from recto.api import connect as connect
from recto.api import evaluate as evaluate
from recto.api import index as index
from recto.contracts.textbook import RetrievalResult as RetrievalResult
from recto.contracts.textbook import TextbookRetriever as TextbookRetriever
from recto.errors import CollectionEmpty as CollectionEmpty
from recto.errors import CollectionMissing as CollectionMissing
from recto.errors import ConfigurationError as ConfigurationError
from recto.errors import InvalidArgument as InvalidArgument
from recto.errors import RectoError as RectoError
from recto.errors import StoreBusy as StoreBusy
from recto.errors import Unreachable as Unreachable
from recto.evaluation.runs import Run as Run
from recto.evaluation.suites import Suite as Suite
from recto.evaluation.suites import load_suite as load_suite
from recto.indexing.indexer import IndexProgress as IndexProgress
from recto.indexing.indexer import IndexReport as IndexReport
from recto.search.context import Context as Context
from recto.search.pages import BookPage as BookPage
from recto.search.retriever import Retriever as Retriever
from recto.settings import Settings as Settings
from recto.settings import load_settings as load_settings
from recto.types import Chunk as Chunk
from recto.types import Filters as Filters
from recto.types import Hit as Hit
from recto.types import Module as Module
from recto.types import Outcome as Outcome
from recto.types import SearchResponse as SearchResponse

__version__: str
