"""The small interfaces that embedders, stores and book sources implement; their docstrings are the specification."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

from recto.types import (
    NO_FILTERS,
    Calibration,
    Candidates,
    Chunk,
    CostEstimate,
    Document,
    EmbedderFingerprint,
    Failure,
    Filters,
    Fingerprint,
    Hit,
    IndexInfo,
    IndexQuery,
    Page,
    PayloadSchema,
    SparseVector,
    Vector,
)

Progress = Callable[[int, int], None]
"""Called with how much is done and how much there is in all."""


class Embedder(Protocol):
    """Turns text into finite, normalised vectors of `dim` numbers.

    Questions and passages are different methods on purpose: a model that treats them differently can then never be
    asked the wrong way. Constructing an embedder is light, `warm_up` or the first call loads the model. All methods
    may be called from many threads. Failures are `RectoError`s.
    """

    @property
    def fingerprint(self) -> EmbedderFingerprint:
        """What identifies the vectors, known without loading the model."""

    @property
    def dim(self) -> int:
        """How many numbers a vector has."""

    @property
    def max_tokens(self) -> int:
        """The longest text, in its own tokens and with its special ones, that the model reads whole."""

    def warm_up(self) -> None:
        """Load whatever the first call needs."""

    def count_tokens(self, text: str) -> int:
        """Count the tokens of a text as the model sees it, special ones included."""

    def embed_query(self, text: str) -> Vector:
        """Embed one question; what is beyond `max_tokens` is not read."""

    def embed_queries(self, texts: Sequence[str]) -> list[Vector]:
        """Embed several questions, in their order."""

    def embed_documents(self, texts: Sequence[str], progress: Progress | None = None) -> list[Vector]:
        """Embed passages, in their order; one that is longer than `max_tokens` is an error, never cut in silence."""

    def close(self) -> None:
        """Let go of connections; it may be used again."""


@runtime_checkable
class Metered(Protocol):
    """An embedder whose work is counted and paid for."""

    def estimate(self, texts: int, tokens: int) -> CostEstimate:
        """Say what embedding so many passages with so many tokens will take."""


class Index(Protocol):
    """One published state of a collection, never changed under the reader's feet."""

    @property
    def info(self) -> IndexInfo:
        """What this index is."""

    def query(
        self, vector: Vector, limit: int, filters: Filters = NO_FILTERS, min_score: float | None = None
    ) -> list[Hit]:
        """Return the nearest chunks, best first; ties are ordered by page, then place in the page."""

    def query_batch(
        self,
        vectors: Sequence[Vector],
        limit: int,
        filters: Filters = NO_FILTERS,
        min_score: float | None = None,
    ) -> list[list[Hit]]:
        """Answer several queries in one call of the engine."""

    def candidates(
        self, queries: Sequence[IndexQuery], limit: int, filters: Filters = NO_FILTERS
    ) -> list[Candidates]:
        """Return the scores of the chunks that may be among the best `limit` of each query.

        `dense` has cosine similarities, `lexical` has BM25 scores: for each term that the query and the chunk
        share, the product of both values and of ln(1 + (N - n + 0.5) / (n + 0.5)), where n of the N chunks of
        the index have the term. If a query has both parts, a chunk that only the lexical part finds has its
        cosine similarity, too; a chunk that is not in `lexical` counts as 0. More candidates than needed are
        fine. Raises `ConfigurationError` if a query has a lexical part and the index no lexical vectors.
        """

    def chunks(self, ids: Iterable[Hashable]) -> dict[Hashable, Chunk]:
        """Return chunks by the ids that `candidates` gave."""

    def lexicon(self) -> bytes:
        """Return the vocabulary that was published with the index, or nothing if there is none."""

    def count(self, filters: Filters = NO_FILTERS) -> int:
        """Count the chunks that a filter lets through."""

    def scroll(self, filters: Filters = NO_FILTERS, batch: int = 256) -> Iterator[Chunk]:
        """Yield every chunk that a filter lets through, once."""

    def vectors(self, ids: Sequence[str]) -> dict[str, Vector]:
        """Return the stored vectors of the chunks that exist."""

    def modules(self) -> dict[str, int]:
        """Count the chunks of each module."""

    def pages(self) -> dict[str, int]:
        """Count the chunks of each page address."""


@runtime_checkable
class AsyncEmbedder(Protocol):
    """An embedder that can also be awaited: one that asks a service."""

    async def aembed_queries(self, texts: Sequence[str]) -> list[Vector]:
        """Embed several questions, in their order."""

    async def aclose(self) -> None:
        """Let go of the running event loop's connections."""


@runtime_checkable
class AsyncStore(Protocol):
    """A store that holds connections of an event loop."""

    async def aclose(self) -> None:
        """Let go of the running event loop's connections."""


@runtime_checkable
class AsyncIndex(Protocol):
    """An index that can also be awaited: one on a server."""

    async def aquery_batch(
        self,
        vectors: Sequence[Vector],
        limit: int,
        filters: Filters = NO_FILTERS,
        min_score: float | None = None,
    ) -> list[list[Hit]]:
        """Answer several queries in one call of the engine."""

    async def acandidates(
        self, queries: Sequence[IndexQuery], limit: int, filters: Filters = NO_FILTERS
    ) -> list[Candidates]:
        """Return the scores of the chunks that may be among the best; see `Index.candidates`."""

    async def achunks(self, ids: Iterable[Hashable]) -> dict[Hashable, Chunk]:
        """Return chunks by the ids that `acandidates` gave."""


class Build(Protocol):
    """An index in the making: nothing of it is seen by readers before `publish`; leaving without it drops all."""

    def __enter__(self) -> Self:
        """Begin."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Drop what was not published."""

    def add(
        self,
        chunks: Sequence[Chunk],
        vectors: Sequence[Vector],
        lexical: Sequence[SparseVector] | None = None,
    ) -> None:
        """Add chunks with their vectors; wrong dimensions or numbers that are not finite are refused whole."""

    def keep(
        self, chunks: Sequence[Chunk], current: Index, lexical: Sequence[SparseVector] | None = None
    ) -> None:
        """Keep chunks that the current state holds exactly so, with their dense vectors."""

    def publish(self, fingerprint: Fingerprint, lexicon: bytes = b"") -> IndexInfo:
        """Check what was written and make it, at once and whole, what readers see; `lexicon` is stored with it."""


class Store(Protocol):
    """Collections of chunks under names; aliases are further names for a collection."""

    def collections(self) -> tuple[str, ...]:
        """Name the collections that exist, without aliases."""

    def aliases(self) -> Mapping[str, str]:
        """Return which further names lead to which collection."""

    def open(self, name: str) -> Index:
        """Return the current state of a collection or alias; the same object as long as nothing was published."""

    def build(
        self,
        name: str,
        embedder: EmbedderFingerprint,
        *,
        analyzer: str = "",
        rebuild: bool = False,
        wait: Callable[[str], None] | None = None,
    ) -> Build:
        """Begin a new state of a collection; one writer at a time.

        A store may change the current state in place, new chunks first, stale ones last; with `rebuild`, or if the current state was made
        with another embedder or another lexical `analyzer`, it never does.

        Another writer is refused, or awaited if `wait` is given: it is called once, with a sentence that says who is waited for.
        """

    def set_aliases(self, aliases: Iterable[str], name: str) -> None:
        """Let aliases lead to a collection. A collection of an alias's own name keeps it."""

    def save_calibration(self, info: IndexInfo, calibration: Calibration) -> None:
        """Keep what was measured of a published state beside it, for as long as that state lasts.

        A collection that Recto did not make is left as it is: that is a configuration error.
        """

    def close(self) -> None:
        """Let go of all open indexes."""


@runtime_checkable
class Rollback(Protocol):
    """A store that keeps earlier generations of a collection."""

    def rollback(self, name: str) -> IndexInfo:
        """Publish the previous generation again."""


@runtime_checkable
class Versioned(Protocol):
    """A store that knows the version of its engine."""

    def version(self) -> str:
        """Return the engine's version; a server is asked for it."""


@runtime_checkable
class Preparable(Protocol):
    """A store whose filters need payload indexes: one on a server."""

    def missing_fields(self, name: str) -> tuple[str, ...]:
        """Name the fields that filters use and that have no payload index."""

    def prepare(self, name: str) -> tuple[str, ...]:
        """Create the missing payload indexes of a collection and return their fields."""


@runtime_checkable
class SchemaInfo(Protocol):
    """An index that may hold payloads of another pipeline."""

    @property
    def payload_schema(self) -> PayloadSchema:
        """How the payloads are read."""


class Reader(Protocol):
    """Parses the pages of one file format; a function `read(page) -> Document` is enough.

    Return the sections of the page in order; sections without text are dropped. The headings of a section
    begin with the title of the page, which is `page.title` if the text states none. The anchor is the id that
    the published page gives the heading, or "" if it has none. The text of a block is as written. Lines are
    those of `page.text`, counted from one. If the reader raises an exception, the page is reported as failed
    and the other pages are indexed.
    """

    def __call__(self, page: Page, /) -> Document:
        """Return the parsed page."""


class Source(Protocol):
    """A book: where its pages come from."""

    @property
    def book(self) -> str:
        """The book's stable name; part of every chunk's id."""

    @property
    def location(self) -> str:
        """Where the book was read from, for people."""

    def pages(self) -> Iterator[Page]:
        """Yield the pages in a stable order; a page that cannot be read is told to `failed` and left out."""

    @property
    def failed(self) -> Sequence[Failure]:
        """The pages that could not be read in the last run."""

    @property
    def notes(self) -> Sequence[str]:
        """What a person should know of the last run that is no failure: drafts left out, an address that was guessed."""
