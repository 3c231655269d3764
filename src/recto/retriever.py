"""The query path: validate, embed, search with filter, explain an empty answer. Sync and async, one and many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, Self

from recto.answers import answer
from recto.errors import CollectionEmpty, FingerprintMismatch
from recto.limits import DEFAULT_TOP_K, check_queries, check_query, check_search
from recto.protocols import AsyncEmbedder, AsyncIndex, AsyncStore, Embedder, Index, Store
from recto.settings import SAMPLE_COLLECTION
from recto.types import NO_FILTERS, Filters, Hit, IndexInfo, SearchResponse, Selection, Timings

if TYPE_CHECKING:
    from recto.pages import BookPage

_CANDIDATES = 60  # passages that are looked at for a selected text, beyond those asked for: some hold the selection, some crowd one page


_Found = tuple[Index, list[list[Hit]], Timings]


class Retriever:
    """Searches one collection; may be shared by threads. It notices when a new index is published."""

    def __init__(self, embedder: Embedder, store: Store, collection: str) -> None:
        self._embedder = embedder
        self._store = store
        self._collection = collection
        self._checked: Index | None = None

    @staticmethod
    def connect(collection: str | None = None) -> Retriever:
        """Connect what the environment and `.env` configure, as the commands do."""
        import logging

        from recto.settings import QUERY_COLLECTION, load_settings
        from recto.wiring import open_retriever

        return open_retriever(load_settings(), QUERY_COLLECTION, logging.getLogger("recto").info, collection=collection)

    @property
    def collection(self) -> str:
        """The name that is searched."""
        return self._collection

    def beside(self, collection: str) -> Retriever:
        """Return a retriever of another collection that shares this one's model and store, and is closed with it."""
        return Retriever(self._embedder, self._store, collection)

    @property
    def embedder(self) -> Embedder:
        """What turns questions into vectors."""
        return self._embedder

    @property
    def store(self) -> Store:
        """Where the collection is."""
        return self._store

    def open(self) -> Index:
        """Return the current index, checked against the embedder; checked once for each published state."""
        index = self._store.open(self._collection)
        if index is not self._checked:
            check_fingerprint(index, self._embedder)
            self._checked = index
        return index

    def warm_up(self) -> None:
        """Open the index and load the model, so that the first search is as fast as the others."""
        self.open()
        self._embedder.warm_up()

    def search(
        self, query: str, top_k: int = DEFAULT_TOP_K, filters: Filters = NO_FILTERS, min_score: float | None = None
    ) -> SearchResponse:
        """Return the passages nearest to a question, best first."""
        began = perf_counter()
        text = check_query(query)
        check_search(top_k, filters, min_score)
        index = self.open()
        opened = perf_counter()
        vector = self._embedder.embed_query(text)
        embedded = perf_counter()
        hits = index.query(vector, top_k, filters, min_score)
        ended = perf_counter()
        timings = Timings((embedded - opened) * 1e3, (ended - embedded) * 1e3, (ended - began) * 1e3)
        return answer(index, self._collection, text, hits, filters, min_score, timings)

    def search_batch(
        self, queries: Sequence[str], top_k: int = DEFAULT_TOP_K, filters: Filters = NO_FILTERS, min_score: float | None = None
    ) -> list[SearchResponse]:
        """Answer several questions with one pass through the model and one call of the engine."""
        texts = check_queries(queries)
        check_search(top_k, filters, min_score)
        if not texts:
            return []
        index, found, timings = self._find(texts, top_k, filters, min_score)
        return [answer(index, self._collection, text, hits, filters, min_score, timings) for text, hits in zip(texts, found, strict=True)]

    def related(
        self,
        selection: str,
        question: str | None = None,
        top_k: int = DEFAULT_TOP_K,
        filters: Filters = NO_FILTERS,
        min_score: float | None = None,
    ) -> SearchResponse:
        """Return passages that go with a selected text, with or without a question about it; those that hold it are left out."""
        from recto.selection import asked, question_or_none

        check_search(top_k, filters, min_score)
        question = question_or_none(question)
        text, selected = asked(selection, question, self._embedder.max_tokens, self._embedder.count_tokens)
        index, found, timings = self._find([text], top_k + _CANDIDATES, filters, min_score)
        return self._related(index, selection, question, selected, found[0], top_k, filters, min_score, timings)

    async def arelated(
        self,
        selection: str,
        question: str | None = None,
        top_k: int = DEFAULT_TOP_K,
        filters: Filters = NO_FILTERS,
        min_score: float | None = None,
    ) -> SearchResponse:
        """Return passages that go with a selected text without holding up the event loop."""
        from asyncio import to_thread

        from recto.selection import asked, question_or_none

        check_search(top_k, filters, min_score)
        question = question_or_none(question)
        text, selected = await to_thread(asked, selection, question, self._embedder.max_tokens, self._embedder.count_tokens)
        index, found, timings = await self._afind([text], top_k + _CANDIDATES, filters, min_score)
        return await to_thread(self._related, index, selection, question, selected, found[0], top_k, filters, min_score, timings)

    async def asearch(
        self, query: str, top_k: int = DEFAULT_TOP_K, filters: Filters = NO_FILTERS, min_score: float | None = None
    ) -> SearchResponse:
        """Search without holding up the event loop."""
        return (await self.asearch_batch([query], top_k, filters, min_score))[0]

    async def asearch_batch(
        self, queries: Sequence[str], top_k: int = DEFAULT_TOP_K, filters: Filters = NO_FILTERS, min_score: float | None = None
    ) -> list[SearchResponse]:
        """Answer several questions without holding up the event loop: services are awaited, local work goes to threads."""
        from asyncio import to_thread

        texts = check_queries(queries)
        check_search(top_k, filters, min_score)
        if not texts:
            return []
        index, found, timings = await self._afind(texts, top_k, filters, min_score)
        return [
            await to_thread(answer, index, self._collection, text, hits, filters, min_score, timings)
            if not hits
            else answer(index, self._collection, text, hits, filters, min_score, timings)
            for text, hits in zip(texts, found, strict=True)
        ]

    def page(self, url: str) -> BookPage:
        """Return a page of the book by its address."""
        from recto.pages import read_page

        return read_page(self.open(), url, self._collection)

    def modules(self) -> dict[str, int]:
        """Count the passages of each module."""
        return self.open().modules()

    def pages(self) -> dict[str, int]:
        """Count the passages of each page address."""
        return self.open().pages()

    def _find(self, texts: Sequence[str], limit: int, filters: Filters, min_score: float | None) -> _Found:
        """Embed texts and search for all of them."""
        began = perf_counter()
        index = self.open()
        opened = perf_counter()
        vectors = self._embedder.embed_queries(texts)
        embedded = perf_counter()
        found = index.query_batch(vectors, limit, filters, min_score)
        return index, found, _shared(began, opened, embedded, perf_counter(), len(texts))

    async def _afind(self, texts: Sequence[str], limit: int, filters: Filters, min_score: float | None) -> _Found:
        """Do the same, awaiting what can be awaited."""
        from asyncio import to_thread

        embedder = self._embedder
        if not isinstance(embedder, AsyncEmbedder):
            return await to_thread(self._find, texts, limit, filters, min_score)
        began = perf_counter()
        index = await to_thread(self.open)
        opened = perf_counter()
        vectors = await embedder.aembed_queries(texts)
        embedded = perf_counter()
        if isinstance(index, AsyncIndex):
            found = await index.aquery_batch(vectors, limit, filters, min_score)
        else:
            found = index.query_batch(vectors, limit, filters, min_score)
        return index, found, _shared(began, opened, embedded, perf_counter(), len(texts))

    def _related(
        self,
        index: Index,
        selection: str,
        question: str | None,
        selected: Selection,
        found: list[Hit],
        top_k: int,
        filters: Filters,
        min_score: float | None,
        timings: Timings,
    ) -> SearchResponse:
        from recto.selection import complement

        hits, left_out = complement(found, selection, top_k)
        query = selected.text if question is None else question.strip()
        response = answer(index, self._collection, query, hits, filters, min_score, timings)
        if found and not hits:
            response = replace(response, message="Only the selected text itself was found.")
        warnings = response.warnings
        if selected.cut:
            warnings += (f"The selected text is long: its first {len(selected.text)} of {selected.given} characters were searched for.",)
        return replace(response, warnings=warnings, selection=replace(selected, left_out=left_out))

    def close(self) -> None:
        """Let go of connections and open indexes; the next search opens them again."""
        self._checked = None
        self._embedder.close()
        self._store.close()

    def __enter__(self) -> Self:
        """Use it in a `with` block."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close it."""
        self.close()

    async def aclose(self) -> None:
        """Let go of what async searches in this event loop have opened; call it before the loop ends."""
        for part in (self._embedder, self._store):
            if isinstance(part, AsyncStore):
                await part.aclose()


def check_fingerprint(index: Index, embedder: Embedder) -> None:
    """Refuse an index that the embedder's vectors cannot be compared with."""
    info, mine = index.info, embedder.fingerprint
    if info.chunks == 0:
        raise CollectionEmpty(
            f"Collection '{info.collection}' is empty", hint=f"Index a book with `recto index PATH --collection {info.collection}`."
        )
    if info.fingerprint is None and info.dim != mine.dim:
        raise FingerprintMismatch(
            f"Collection '{info.collection}' has vectors of {info.dim} numbers, but {mine.model} makes {mine.dim}",
            hint="Set RECTO_MODEL to the model that the collection was made with, or index the book again.",
        )
    if info.fingerprint is not None and not info.fingerprint.embedder.is_compatible(mine):
        raise FingerprintMismatch(
            f"Collection '{info.collection}' was indexed with {info.fingerprint.embedder}, but queries are embedded with {mine}",
            hint=f"Run `{_command(info)}`, or set RECTO_MODEL back.",
        )


def _shared(began: float, opened: float, embedded: float, ended: float, questions: int) -> Timings:
    """Share a batch's times among its questions."""
    share = 1e3 / questions
    return Timings((embedded - opened) * share, (ended - embedded) * share, (ended - began) * share)


def _command(info: IndexInfo) -> str:
    """The command that makes an index again."""
    if info.collection == SAMPLE_COLLECTION or info.fingerprint is None:
        return "recto index --sample"
    from shlex import quote

    return f"recto index {quote(info.fingerprint.source)} --collection {info.collection}"
