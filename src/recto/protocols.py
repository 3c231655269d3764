"""The interfaces of embedders, stores and book sources; the docstrings are the specification."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar, runtime_checkable

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

Abilities = TypeVar("Abilities", bound=Any)
Progress = Callable[[int, int], None]
"""Called with the number of finished items and their total number."""


class Embedder(Protocol):
    """Turns text into finite, normalised vectors of `dim` numbers.

    Queries and chunks have different methods, because some models treat them differently. Constructing an
    embedder is cheap; `warm_up` or the first call loads the model. All methods are thread-safe. Failures are
    `RectoError`s.
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


@dataclass(frozen=True, slots=True)
class EmbedderAbilities:
    """What an embedder can do besides embedding; None, or the default, if it cannot.

    An embedder has an ability if it has a method or an attribute of that name. A wrapper has an attribute
    `abilities` instead: the abilities of the embedder inside, with its changes.
    """

    aembed_queries: Callable[[Sequence[str]], Awaitable[list[Vector]]] | None = None
    """Embed queries without blocking the event loop, in their order: the embedder calls a service."""
    aclose: Callable[[], Awaitable[None]] | None = None
    """Close the running event loop's connections."""
    embed_context_queries: Callable[[Sequence[str]], list[Vector]] | None = None
    """Embed the queries of contexts, whose vectors differ from the vectors of searches."""
    for_index: Callable[[EmbedderFingerprint], Embedder | None] | None = None
    """Return the embedder of the model that made an index, or None if it is not available."""
    token_counter: Callable[[], Callable[[str], int]] | None = None
    """Return a function that counts like `count_tokens`, for other processes: it can be pickled."""
    estimate: Callable[[int, int], CostEstimate] | None = None
    """Estimate the cost of embedding a number of texts with a total number of tokens."""
    describe: Callable[[], Iterable[str]] | None = None
    """Ask the service about its model, and return lines for `recto doctor`."""
    languages: tuple[str, ...] = ()
    """The tags of the languages that the model knows; none: all."""
    batch_size: int = 96
    """How many texts a call of `embed_documents` should have; the default is Cohere's limit."""


def embedder_abilities(embedder: Embedder) -> EmbedderAbilities:
    """Return the abilities of an embedder."""
    return _read_abilities(EmbedderAbilities, embedder)


def _read_abilities(kind: type[Abilities], part: object) -> Abilities:
    stated: Abilities | None = getattr(part, "abilities", None)
    if stated is not None:
        return stated
    found: Abilities = kind(
        **{field.name: getattr(part, field.name, field.default) for field in fields(kind)}
    )
    return found


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


class Restore(Protocol):
    """Publishes the content of a file of `StoreAbilities.backup` as a new generation.

    `name` defaults to the name that was backed up. Raise `InvalidArgument` if the collection exists, unless
    it is to be replaced. Aliases that are taken are not changed. If the file cannot be used, raise an error
    and change nothing: it may come from someone else. `Store.build` explains `wait`.
    """

    def __call__(
        self,
        file: Path,
        name: str | None = None,
        *,
        replace: bool = False,
        progress: Progress | None = None,
        wait: Callable[[str], None] | None = None,
    ) -> IndexInfo:
        """Return the new generation."""


@dataclass(frozen=True, slots=True)
class StoreAbilities:
    """What a store can do besides `Store`: it has methods of these names; None if it cannot.

    Except for `aclose`, `restore` and `version`, the first argument is the name of a collection.
    """

    aclose: Callable[[], Awaitable[None]] | None = None
    """Close the running event loop's connections."""
    generations: Callable[[str], tuple[GenerationInfo, ...]] | None = None
    """Return the generations of a collection, newest first."""
    rollback: Callable[[str, str | None], IndexInfo] | None = None
    """Make a generation the current one again: the one before the current one if none is given.

    The next `publish` removes the generations that are newer than the one that was restored.
    """
    backup: Callable[[str, Path, Progress | None], GenerationInfo] | None = None
    """Write the current generation, its calibration and its aliases into a file, atomically.

    What writers do meanwhile is not in the file. `bytes` of the result is the size of the file.
    """
    restore: Restore | None = None
    delete: Callable[[str], None] | None = None
    """Delete all generations and aliases of a collection; the name is not one of its aliases."""
    verify: Callable[[str], None] | None = None
    """Compare every file of the current index with its digest; raise `IndexDamaged` if one differs."""
    version: Callable[[], str] | None = None
    """Return the engine's version; this calls the server if there is one."""
    payload_schema: Callable[[str], PayloadSchema] | None = None
    """Return how the payloads of a collection are read, which another pipeline may have written."""
    missing_fields: Callable[[str], tuple[str, ...]] | None = None
    """Return the fields that filters use and that have no payload index."""
    prepare: Callable[[str], tuple[str, ...]] | None = None
    """Create the missing payload indexes of a collection, and return their fields."""
    redundancy: Callable[[str], str] | None = None
    """Explain how many nodes the collection can lose."""
    problems: Callable[[str], tuple[StoreProblem, ...]] | None = None
    """Return what is wrong with the servers of a collection, such as a node that does not answer."""


def store_abilities(store: Store) -> StoreAbilities:
    """Return the abilities of a store."""
    return _read_abilities(StoreAbilities, store)


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
