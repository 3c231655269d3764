"""The interfaces of embedders, stores and book sources; the docstrings are the specification."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, cast, runtime_checkable

from recto.types.search import NO_FILTERS, Chunk, Filters, Vector

if TYPE_CHECKING:
    from recto.types.book import BookInfo, Document, Failure, Page
    from recto.types.index import (
        Calibration,
        Candidates,
        CostEstimate,
        EmbedderFingerprint,
        Fingerprint,
        GenerationInfo,
        IndexInfo,
        IndexQuery,
        PayloadSchema,
        SparseVector,
        StoreProblem,
    )

Progress = Callable[[int, int], None]
"""Called with the number of finished items and their total number."""


class Embedder(Protocol):
    """Turns text into finite, normalised vectors of `dim` numbers.

    Queries and chunks have different methods, because some models treat them differently. Constructing an
    embedder is cheap; `warm_up` or the first call loads the model. All methods are thread-safe. Failures are
    `RectoError`s.

    An embedder may also have an attribute `batch_size`, the number of texts that one call of
    `embed_documents` should have (96 without it), an attribute `languages`, the tags of the languages that
    the model knows (all without it), and a method `describe()`, which asks the service about its model and
    returns lines for `recto doctor`.
    """

    @property
    def fingerprint(self) -> EmbedderFingerprint:
        """What identifies the vectors; available without loading the model."""

    @property
    def dim(self) -> int:
        """The dimension of the vectors."""

    @property
    def max_tokens(self) -> int:
        """The model's input limit in tokens, special tokens included."""

    def warm_up(self) -> None:
        """Load whatever the first call needs."""

    def count_tokens(self, text: str) -> int:
        """Count the tokens of a text, special tokens included."""

    def embed_query(self, text: str) -> Vector:
        """Embed one query; a text longer than `max_tokens` is truncated."""

    def embed_queries(self, texts: Sequence[str]) -> list[Vector]:
        """Embed several queries, in their order."""

    def embed_documents(self, texts: Sequence[str], progress: Progress | None = None) -> list[Vector]:
        """Embed the texts of chunks, in their order; raise an error if one is longer than `max_tokens`."""

    def close(self) -> None:
        """Close all connections; the next call opens them again."""


@runtime_checkable
class AsyncEmbedder(Protocol):
    """An embedder that calls a service, and can be awaited."""

    async def aembed_queries(self, texts: Sequence[str]) -> list[Vector]:
        """Embed several queries, in their order."""

    async def aclose(self) -> None:
        """Close the running event loop's connections."""


class ContextQueryEmbedder(Protocol):
    """An embedder that embeds the query of a context in another way than the query of a search."""

    @property
    def has_context_queries(self) -> bool:
        """Whether the vectors of both differ."""

    def embed_context_queries(self, texts: Sequence[str]) -> list[Vector]:
        """Embed several queries, in their order; the vectors are compared with those of chunks."""


def context_embedder(embedder: Embedder) -> ContextQueryEmbedder | None:
    """Return the embedder if it embeds the queries of contexts in another way."""
    return cast("ContextQueryEmbedder", embedder) if getattr(embedder, "has_context_queries", False) else None


def known_languages(embedder: Embedder) -> tuple[str, ...]:
    """Return the languages that the model of an embedder knows, or nothing if it is for all languages."""
    return tuple(getattr(embedder, "languages", ()))


@runtime_checkable
class MultiModel(Protocol):
    """An embedder that can also embed queries with another model, for an index that the other model made."""

    def for_index(self, made: EmbedderFingerprint) -> Embedder | None:
        """Return the embedder of the model that made an index, or None if it is not available."""


@runtime_checkable
class PortableCounter(Protocol):
    """An embedder whose tokens can be counted in other processes, which read a large book in parallel."""

    def token_counter(self) -> Callable[[str], int]:
        """Return a function that counts like `count_tokens`, and that can be pickled."""


@runtime_checkable
class Metered(Protocol):
    """An embedder with rate limits and a price."""

    def estimate(self, texts: int, tokens: int) -> CostEstimate:
        """Estimate the cost of embedding a number of texts with a total number of tokens."""


class Index(Protocol):
    """One published generation of a collection.

    A reader that holds it never sees it change, unless the store updates it in place (see `Store.build`).
    """

    @property
    def info(self) -> IndexInfo:
        """The collection, the generation and how it was made."""

    def candidates(
        self, queries: Sequence[IndexQuery], limit: int, filters: Filters = NO_FILTERS
    ) -> list[Candidates]:
        """Return the scores of the chunks that may be among the best `limit` of each query.

        `dense` has cosine similarities. `lexical` has the sum over the terms that the query and the chunk
        share: the product of both values and of ln(1 + (N - n + 0.5) / (n + 0.5)), where n of the N chunks of
        the index have the term. If a query has both parts, the best chunks of each part have both scores; a
        chunk that is not in `lexical` has none of the terms. More candidates than needed are fine. Raises
        `ConfigurationError` if a query has a lexical part and the index no lexical vectors.
        """

    def chunks(self, ids: Iterable[Hashable]) -> dict[Hashable, Chunk]:
        """Return chunks by the ids that `candidates` returned."""

    def lexicon(self) -> bytes:
        """Return the vocabulary that was published with the index, or nothing if there is none."""

    def count(self, filters: Filters = NO_FILTERS) -> int:
        """Count the chunks that match the filters."""

    def scroll(self, filters: Filters = NO_FILTERS, batch: int = 256) -> Iterator[Chunk]:
        """Yield every chunk that matches the filters, once."""

    def vectors(self, ids: Sequence[str]) -> dict[str, Vector]:
        """Return the stored dense vectors of the chunks that exist."""

    def modules(self) -> dict[str, int]:
        """Count the chunks of each module."""

    def pages(self) -> dict[str, int]:
        """Count the chunks of each page URL."""


@runtime_checkable
class AsyncIndex(Protocol):
    """An index on a server, whose searches can be awaited."""

    async def acandidates(
        self, queries: Sequence[IndexQuery], limit: int, filters: Filters = NO_FILTERS
    ) -> list[Candidates]:
        """Return the scores of chunks that can be among the best; see `Index.candidates`."""

    async def achunks(self, ids: Iterable[Hashable]) -> dict[Hashable, Chunk]:
        """Return chunks by the ids that `acandidates` returned."""


class Build(Protocol):
    """A new generation of a collection; readers do not see it before `publish`.

    Leaving the `with` block without `publish` discards it. Neither rule applies to a store that updates the
    current generation in place (see `Store.build`).
    """

    def __enter__(self) -> Self:
        """Take the collection's write lock."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Discard what was not published, and release the lock."""

    def add(
        self,
        chunks: Sequence[Chunk],
        vectors: Sequence[Vector],
        lexical: Sequence[SparseVector] | None = None,
    ) -> None:
        """Add chunks with their vectors; reject the whole batch if a vector is not `dim` finite numbers."""

    def keep(
        self, chunks: Sequence[Chunk], current: Index, lexical: Sequence[SparseVector] | None = None
    ) -> None:
        """Keep unchanged chunks of the current generation, with their dense vectors."""

    def publish(self, fingerprint: Fingerprint, lexicon: bytes = b"") -> IndexInfo:
        """Check the generation, store the vocabulary with it, and make it the current one atomically."""


class Store(Protocol):
    """A set of named collections; an alias is another name of a collection."""

    @property
    def is_local(self) -> bool:
        """Whether the data is on this machine; such a store never updates an index in place."""

    def collections(self) -> tuple[str, ...]:
        """Return the names of all collections, without aliases."""

    def aliases(self) -> Mapping[str, str]:
        """Return the aliases and the collections that they refer to."""

    def open(self, name: str) -> Index:
        """Return the current generation of a collection or alias: the same object until a new one exists."""

    def build(
        self,
        name: str,
        embedder: EmbedderFingerprint,
        *,
        analyzer: str = "",
        rebuild: bool = False,
        wait: Callable[[str], None] | None = None,
    ) -> Build:
        """Start a new generation of a collection; only one writer at a time is allowed.

        A store may update the current generation in place: it then writes new chunks first and deletes old
        ones last. It must not do so with `rebuild`, or if the embedder or the lexical `analyzer` is another
        one.

        If another process is writing, raise `StoreBusy`, or wait for it if `wait` is set. `wait` is called
        once, with a message that names the other process.
        """

    def set_aliases(self, aliases: Iterable[str], name: str) -> None:
        """Point aliases to a collection; skip those that are names of other collections."""

    def save_calibration(self, info: IndexInfo, calibration: Calibration) -> None:
        """Store the calibration of a generation.

        Raise `ConfigurationError` if Recto did not create the collection.
        """

    def close(self) -> None:
        """Close all open indexes."""


@runtime_checkable
class AsyncStore(Protocol):
    """A store on a server, with connections that belong to an event loop."""

    async def aclose(self) -> None:
        """Close the running event loop's connections."""


@runtime_checkable
class Rollback(Protocol):
    """A store that keeps earlier generations of a collection."""

    def generations(self, name: str) -> tuple[GenerationInfo, ...]:
        """Return the generations of a collection, newest first."""

    def rollback(self, name: str, generation: str | None = None) -> IndexInfo:
        """Make a generation the current one again: the one before the current one if none is given.

        The next `publish` removes the generations that are newer than the one that was restored.
        """


@runtime_checkable
class Archivable(Protocol):
    """A store that can write a collection into one file, and read it on another machine."""

    def backup(self, name: str, file: Path, progress: Progress | None = None) -> GenerationInfo:
        """Write the current generation, its calibration and its aliases into a file, atomically.

        What writers do meanwhile is not in the file. A store that updates an index in place may raise
        `StoreBusy`. `bytes` of the result is the size of the file.
        """

    def restore(
        self,
        file: Path,
        name: str | None = None,
        *,
        replace: bool = False,
        progress: Progress | None = None,
        wait: Callable[[str], None] | None = None,
    ) -> IndexInfo:
        """Publish the content of a file as a new generation; `name` defaults to the name that was backed up.

        Raise `InvalidArgument` if the collection exists, unless it is to be replaced. Aliases that are taken
        are not changed. If the file cannot be used, raise an error and change nothing: it may come from
        someone else. `Store.build` explains `wait`.
        """


@runtime_checkable
class Deletable(Protocol):
    """A store that can delete a collection."""

    def delete(self, name: str) -> None:
        """Delete all generations and aliases of a collection; `name` is not one of its aliases."""


@runtime_checkable
class Verifiable(Protocol):
    """A store with files of its own, which can be damaged or have the format of an older version of Recto."""

    def verify(self, name: str) -> None:
        """Compare every file of the current index with its digest; raise `IndexDamaged` if one differs."""

    def upgrade(self, name: str) -> IndexInfo | None:
        """Bring the current generation to the current format, or return None if it needs no upgrade.

        Raise `FormatMismatch` if the book must be indexed again; the hint has the command.
        """


@runtime_checkable
class Versioned(Protocol):
    """A store that can tell the version of its engine."""

    def version(self) -> str:
        """Return the engine's version; this calls the server if there is one."""


@runtime_checkable
class Preparable(Protocol):
    """A store on a server, whose filters need payload indexes, and whose shards can have replicas."""

    def payload_schema(self, name: str) -> PayloadSchema:
        """Return how the payloads of a collection are read, which another pipeline may have written."""

    def missing_fields(self, name: str) -> tuple[str, ...]:
        """Return the fields that filters use and that have no payload index."""

    def prepare(self, name: str) -> tuple[str, ...]:
        """Create missing payload indexes and replicas of a collection; return what was done, in phrases."""

    def redundancy(self, name: str) -> str:
        """Explain how many nodes the collection can lose."""

    def problems(self, name: str) -> tuple[StoreProblem, ...]:
        """Return what is wrong with the servers of a collection, such as a node that does not answer."""


class Reader(Protocol):
    """Parses the pages of one file format; a function `read(page) -> Document` is enough.

    Return the sections of the page in order; sections without text are dropped. The headings of a section
    begin with the title of the page, which is `page.title` if the text states none. The anchor is the id that
    the published page gives the heading, or "" if it has none. The text of a block is as written. Lines count
    from one, in `page.text`. If the reader raises an exception, the page is reported as failed
    and the other pages are indexed.
    """

    def __call__(self, page: Page, /) -> Document:
        """Return the parsed page."""


class Source(Protocol):
    """A book: the pages to index."""

    @property
    def book(self) -> str:
        """The book's stable name, which is part of every chunk's id."""

    @property
    def location(self) -> str:
        """The path or URL of the book, for messages."""

    @property
    def info(self) -> BookInfo:
        """What else is known about the book, such as its title; it is read after the pages."""

    def pages(self) -> Iterator[Page]:
        """Yield the pages in a stable order; skip those that cannot be read, and add them to `failed`."""

    @property
    def failed(self) -> Sequence[Failure]:
        """The pages that could not be read in the last run."""

    @property
    def notes(self) -> Sequence[str]:
        """Remarks on the last run that are not failures, such as skipped drafts or a guessed URL."""
