"""The query path: validate, embed, search with filter, explain an empty answer. Sync and async, one and many."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from types import TracebackType
from typing import Self

from recto.errors import CollectionEmpty, FingerprintMismatch
from recto.limits import DEFAULT_TOP_K, check_query, check_search
from recto.modules import filter_keys, nearest
from recto.protocols import AsyncEmbedder, AsyncIndex, AsyncStore, Embedder, Index, Store
from recto.settings import SAMPLE_COLLECTION
from recto.types import NO_FILTERS, Filters, Hit, IndexInfo, Outcome, SearchResponse, Timings


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
        return _response(index, self._collection, text, hits, filters, min_score, timings)

    def search_batch(
        self, queries: Sequence[str], top_k: int = DEFAULT_TOP_K, filters: Filters = NO_FILTERS, min_score: float | None = None
    ) -> list[SearchResponse]:
        """Answer several questions with one pass through the model and one call of the engine."""
        began = perf_counter()
        texts = [check_query(query) for query in queries]
        check_search(top_k, filters, min_score)
        if not texts:
            return []
        index = self.open()
        opened = perf_counter()
        vectors = self._embedder.embed_queries(texts)
        embedded = perf_counter()
        found = index.query_batch(vectors, top_k, filters, min_score)
        timings = _shared(began, opened, embedded, perf_counter(), len(texts))
        return [
            _response(index, self._collection, text, hits, filters, min_score, timings) for text, hits in zip(texts, found, strict=True)
        ]

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

        embedder = self._embedder
        if not isinstance(embedder, AsyncEmbedder):
            return await to_thread(self.search_batch, queries, top_k, filters, min_score)
        began = perf_counter()
        texts = [check_query(query) for query in queries]
        check_search(top_k, filters, min_score)
        if not texts:
            return []
        index = await to_thread(self.open)
        opened = perf_counter()
        vectors = await embedder.aembed_queries(texts)
        embedded = perf_counter()
        if isinstance(index, AsyncIndex):
            found = await index.aquery_batch(vectors, top_k, filters, min_score)
        else:
            found = index.query_batch(vectors, top_k, filters, min_score)
        timings = _shared(began, opened, embedded, perf_counter(), len(texts))
        answers = zip(texts, found, strict=True)
        return [
            await to_thread(_response, index, self._collection, text, hits, filters, min_score, timings)
            if not hits
            else _response(index, self._collection, text, hits, filters, min_score, timings)
            for text, hits in answers
        ]

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
    if info.fingerprint is not None and info.fingerprint.embedder != mine:
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


def _response(
    index: Index, collection: str, query: str, hits: list[Hit], filters: Filters, min_score: float | None, timings: Timings
) -> SearchResponse:
    outcome, message = (Outcome.FOUND, "") if hits else _why_nothing(index, filters, min_score)
    return SearchResponse(query, tuple(hits), filters, collection, outcome, timings, message, index.info.warnings, index.info.noise)


def _why_nothing(index: Index, filters: Filters, min_score: float | None) -> tuple[Outcome, str]:
    """Tell a filter that leaves nothing from a score that nothing reaches; runs only when there is nothing to show."""
    if not filters or index.count(filters):
        return Outcome.NO_MATCH, f"No passage reaches the asked score of {min_score}"
    reasons = []
    if filters.modules and not index.count(Filters(modules=filters.modules)):
        modules = index.modules()
        near = nearest(filters.modules[0], modules)
        reasons.append(
            f"There is no module {' or '.join(repr(name) for name in filter_keys(filters.modules))}."
            + (f" Did you mean '{near}'?" if near else "")
            + f" Modules: {', '.join(modules)}."
        )
    if filters.page_url is not None and not index.count(Filters(page_url=filters.page_url)):
        near = nearest(filters.page_url, index.pages())
        reasons.append(f"There is no page {filters.page_url!r}." + (f" Did you mean '{near}'?" if near else ""))
    return Outcome.FILTERED_OUT, " ".join(reasons) or "No page matches all filters together; each of them alone has matches."
