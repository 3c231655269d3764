"""The retriever: search a collection, sync and async, one query or many; read its pages and modules."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from recto.errors import CollectionEmpty, FingerprintMismatch
from recto.protocols import AsyncEmbedder, AsyncIndex, AsyncStore, Embedder, Index, MultiModel, Store
from recto.search.lexical import LexicalQuery, Lexicon, analyze_query, other_analyzer, read_lexicon
from recto.search.query import (
    DEFAULT_CONTEXT_TOKENS,
    DEFAULT_CONTEXT_TOP_K,
    DEFAULT_TOP_K,
    MAX_TOP_K,
    check_queries,
    check_query,
    check_search,
    to_filters,
)
from recto.search.response import (
    Ranked,
    best_evidence,
    build_response,
    group_by_page,
    rank,
    to_hits,
    with_ties,
)
from recto.settings import LEXICAL_WEIGHT, Settings, index_command
from recto.stores.points import no_lexical_vectors
from recto.types import (
    NO_FILTERS,
    Candidates,
    Chunk,
    Filters,
    GroupBy,
    Hit,
    IndexInfo,
    IndexQuery,
    Mode,
    Module,
    SearchResponse,
    Selection,
    Timings,
    Vector,
)

if TYPE_CHECKING:
    from recto.search.context import Context
    from recto.search.pages import BookPage

SELECTION_CANDIDATES = 60  # more than top_k, because chunks with the selected text and others are excluded
CHUNKS_PER_PAGE = 6  # chunks that are ranked for each page of a grouped search
_DENSE_ONLY = (
    "This index has no vocabulary for lexical search, so it is searched in dense mode. "
    "Index the book again for better results."
)

FiltersLike = Filters | Mapping[str, Any]
"""`Filters`, or a mapping such as `{"module": "ros2"}`."""


@dataclass(frozen=True, slots=True)
class _Parameters:
    """The parameters of a search; `limit` chunks are ranked."""

    limit: int
    filters: Filters
    min_score: float | None
    mode: Mode


@dataclass(frozen=True, slots=True)
class _CheckedIndex:
    """An index, the embedder for its queries, and its vocabulary if it has lexical vectors."""

    index: Index
    embedder: Embedder
    lexicon: Lexicon | None


@dataclass(frozen=True, slots=True)
class _QueryResult:
    """The hits of one query, and what the response says about it."""

    hits: list[Hit]
    lexical: LexicalQuery | None
    evidence: float | None


@dataclass(frozen=True, slots=True)
class _Batch:
    """Queries that are searched together.

    `mode` is the mode that the index supports.
    """

    parameters: _Parameters
    index: Index
    embedder: Embedder
    mode: Mode
    texts: Sequence[str]
    analyzed: Sequence[LexicalQuery | None]
    started: float
    opened: float

    def index_queries(self, vectors: Sequence[Vector]) -> list[IndexQuery]:
        dense: Sequence[Vector | None] = vectors or [None] * len(self.analyzed)
        return [
            IndexQuery(vector, query.vector if query else None)
            for vector, query in zip(dense, self.analyzed, strict=True)
        ]

    def rank(self, candidates: Sequence[Candidates]) -> list[Ranked]:
        parameters = self.parameters
        return [
            with_ties(
                rank(found, self.mode, query.weight if query else 0.0, parameters.min_score), parameters.limit
            )
            for found, query in zip(candidates, self.analyzed, strict=True)
        ]

    def dense_results(self, found: Sequence[list[Hit]]) -> list[_QueryResult]:
        return [_QueryResult(hits, query, None) for hits, query in zip(found, self.analyzed, strict=True)]

    def results(
        self, ranked: Sequence[Ranked], candidates: Sequence[Candidates], chunks: Mapping[Hashable, Chunk]
    ) -> list[_QueryResult]:
        limit = self.parameters.limit
        return [
            _QueryResult(to_hits(best, found, chunks, limit), query, best_evidence(found))
            for best, found, query in zip(ranked, candidates, self.analyzed, strict=True)
        ]

    def timings(self, embedded: float) -> Timings:
        """Return the average times per query."""
        ended, ms = perf_counter(), 1e3 / len(self.texts)
        return Timings((embedded - self.opened) * ms, (ended - embedded) * ms, (ended - self.started) * ms)


_Found = tuple[_Batch, list[_QueryResult], Timings]


class Retriever:
    """Searches one collection. It is thread-safe, and uses a new index as soon as one is published."""

    def __init__(
        self, embedder: Embedder, store: Store, collection: str, lexical_weight: float = LEXICAL_WEIGHT
    ) -> None:
        self._embedder = embedder
        self._store = store
        self._collection = collection
        self._lexical_weight = lexical_weight
        self._checked: _CheckedIndex | None = None
        self._warned: Index | None = None

    @property
    def collection(self) -> str:
        """The name of the collection."""
        return self._collection

    @property
    def embedder(self) -> Embedder:
        """The configured embedder, which embeds new indexes."""
        return self._embedder

    @property
    def query_embedder(self) -> Embedder:
        """The embedder for queries to the current index: that of the model that made the index."""
        return self._open().embedder

    @property
    def lexical_weight(self) -> float:
        """The weight of the lexical score in hybrid search."""
        return self._lexical_weight

    @property
    def store(self) -> Store:
        """The store of the collection."""
        return self._store

    def with_collection(self, collection: str) -> Retriever:
        """Return a retriever of another collection that shares the embedder and the store."""
        return Retriever(self._embedder, self._store, collection, self._lexical_weight)

    def open(self) -> Index:
        """Return the current index; raise an error if it is empty or does not match the embedder."""
        return self._open().index

    def _open(self) -> _CheckedIndex:
        index, checked = self._store.open(self._collection), self._checked
        if checked is None or checked.index is not index:
            embedder = query_embedder(index, self._embedder)
            checked = self._checked = _CheckedIndex(index, embedder, read_lexicon(index))
        return checked

    def warm_up(self) -> None:
        """Open the index and load the model, so that the first search is as fast as the others."""
        self._open().embedder.warm_up()

    def search(
        self,
        query: str,
        top_k: int = DEFAULT_TOP_K,
        filters: FiltersLike = NO_FILTERS,
        min_score: float | None = None,
        *,
        mode: Mode = "hybrid",
        group_by: GroupBy | None = None,
    ) -> SearchResponse:
        """Return the best chunks for a query, best first; with `group_by="page"`, those of the best pages."""
        return self._search([check_query(query)], top_k, filters, min_score, mode, group_by)[0]

    def search_batch(
        self,
        queries: Sequence[str],
        top_k: int = DEFAULT_TOP_K,
        filters: FiltersLike = NO_FILTERS,
        min_score: float | None = None,
        *,
        mode: Mode = "hybrid",
        group_by: GroupBy | None = None,
    ) -> list[SearchResponse]:
        """Search for several queries with one call of the model and one of the engine."""
        return self._search(check_queries(queries), top_k, filters, min_score, mode, group_by)

    async def asearch(
        self,
        query: str,
        top_k: int = DEFAULT_TOP_K,
        filters: FiltersLike = NO_FILTERS,
        min_score: float | None = None,
        *,
        mode: Mode = "hybrid",
        group_by: GroupBy | None = None,
    ) -> SearchResponse:
        """Search without blocking the event loop."""
        return (await self.asearch_batch([query], top_k, filters, min_score, mode=mode, group_by=group_by))[0]

    async def asearch_batch(
        self,
        queries: Sequence[str],
        top_k: int = DEFAULT_TOP_K,
        filters: FiltersLike = NO_FILTERS,
        min_score: float | None = None,
        *,
        mode: Mode = "hybrid",
        group_by: GroupBy | None = None,
    ) -> list[SearchResponse]:
        """Search for several queries without blocking the event loop; local work runs in threads."""
        from asyncio import to_thread

        texts = check_queries(queries)
        parameters = _parameters(top_k, filters, min_score, mode, group_by)
        if not texts:
            return []
        found = await self._afind(texts, parameters)
        return await to_thread(self._responses, texts, found, top_k, group_by)

    def related(
        self,
        selection: str,
        question: str | None = None,
        top_k: int = DEFAULT_TOP_K,
        filters: FiltersLike = NO_FILTERS,
        min_score: float | None = None,
        *,
        mode: Mode = "hybrid",
    ) -> SearchResponse:
        """Return chunks that are related to a selected text, and to a question about it if there is one.

        Chunks that contain the selected text are left out.
        """
        parameters = _parameters(top_k, filters, min_score, mode)
        text, selected = self._selection_query(selection, question)
        found = self._find([text], replace(parameters, limit=top_k + SELECTION_CANDIDATES))
        return self._related(selection, question, selected, found, top_k)

    async def arelated(
        self,
        selection: str,
        question: str | None = None,
        top_k: int = DEFAULT_TOP_K,
        filters: FiltersLike = NO_FILTERS,
        min_score: float | None = None,
        *,
        mode: Mode = "hybrid",
    ) -> SearchResponse:
        """Do the same as `related` without blocking the event loop."""
        from asyncio import to_thread

        parameters = _parameters(top_k, filters, min_score, mode)
        text, selected = await to_thread(self._selection_query, selection, question)
        found = await self._afind([text], replace(parameters, limit=top_k + SELECTION_CANDIDATES))
        return await to_thread(self._related, selection, question, selected, found, top_k)

    def context(
        self,
        query: str,
        max_tokens: int = DEFAULT_CONTEXT_TOKENS,
        top_k: int = DEFAULT_CONTEXT_TOP_K,
        filters: FiltersLike = NO_FILTERS,
        *,
        mode: Mode = "hybrid",
        page: str | None = None,
        neighbors: int = 0,
    ) -> Context:
        """Return the sections of the best hits as text for a language model, within a budget of tokens.

        Hits on `page`, the page that the user is reading, come first if they are relevant. `neighbors` adds
        that many sections before and after each section on its page, if they fit.
        """
        from recto.search.context import build_context, check_context

        filters = to_filters(filters)
        page_filters = check_context(max_tokens, neighbors, page, filters)
        response = self.search(query, top_k, filters, mode=mode)
        on_page = self.search(query, top_k, page_filters, mode=mode) if page_filters else None
        return build_context(self, response, on_page, max_tokens, neighbors)

    async def acontext(
        self,
        query: str,
        max_tokens: int = DEFAULT_CONTEXT_TOKENS,
        top_k: int = DEFAULT_CONTEXT_TOP_K,
        filters: FiltersLike = NO_FILTERS,
        *,
        mode: Mode = "hybrid",
        page: str | None = None,
        neighbors: int = 0,
    ) -> Context:
        """Do the same as `context` without blocking the event loop."""
        from asyncio import to_thread

        from recto.search.context import build_context, check_context

        filters = to_filters(filters)
        page_filters = check_context(max_tokens, neighbors, page, filters)
        response = await self.asearch(query, top_k, filters, mode=mode)
        on_page = await self.asearch(query, top_k, page_filters, mode=mode) if page_filters else None
        return await to_thread(build_context, self, response, on_page, max_tokens, neighbors)

    def analyze(self, query: str) -> LexicalQuery | None:
        """Return a query as lexical search sees it, or None if the index has no lexical vectors."""
        lexicon = self._open().lexicon
        return analyze_query(check_query(query), lexicon, self._lexical_weight) if lexicon else None

    def page(self, url: str) -> BookPage:
        """Return a page of the book by its URL."""
        from recto.search.pages import read_page

        return read_page(self.open(), url, self._collection)

    def modules(self) -> tuple[Module, ...]:
        """Return the modules in reading order."""
        index = self.open()
        counts, fingerprint = index.modules(), index.info.fingerprint
        titles = dict(fingerprint.modules) if fingerprint else {}
        ordered = dict.fromkeys((*(name for name in titles if name in counts), *counts))
        return tuple(Module(name, titles.get(name) or name, counts[name]) for name in ordered)

    def pages(self) -> dict[str, int]:
        """Count the chunks of each page URL."""
        return self.open().pages()

    def _search(
        self,
        texts: list[str],
        top_k: int,
        filters: FiltersLike,
        min_score: float | None,
        mode: Mode,
        group_by: GroupBy | None,
    ) -> list[SearchResponse]:
        parameters = _parameters(top_k, filters, min_score, mode, group_by)
        return self._responses(texts, self._find(texts, parameters), top_k, group_by) if texts else []

    def _find(self, texts: Sequence[str], parameters: _Parameters) -> _Found:
        """Embed and analyse queries, and search for all of them."""
        batch = self._prepare(texts, parameters)
        vectors = batch.embedder.embed_queries(batch.texts) if batch.mode != "lexical" else []
        embedded = perf_counter()
        return batch, _search_index(batch, vectors), batch.timings(embedded)

    async def _afind(self, texts: Sequence[str], parameters: _Parameters) -> _Found:
        """Do the same as `_find`, and await services."""
        from asyncio import to_thread

        embedder = self._embedder
        if not isinstance(embedder, AsyncEmbedder):
            return await to_thread(self._find, texts, parameters)
        batch = await to_thread(self._prepare, texts, parameters)
        vectors = await embedder.aembed_queries(batch.texts) if batch.mode != "lexical" else []
        embedded = perf_counter()
        if isinstance(batch.index, AsyncIndex):
            return batch, await _asearch_index(batch, batch.index, vectors), batch.timings(embedded)
        return batch, await to_thread(_search_index, batch, vectors), batch.timings(embedded)

    def _prepare(self, texts: Sequence[str], parameters: _Parameters) -> _Batch:
        """Open the index and analyse the queries."""
        started = perf_counter()
        checked = self._open()
        mode = _effective_mode(parameters.mode, checked)
        opened = perf_counter()
        lexicon = checked.lexicon
        weight = self._lexical_weight
        analyzed = (
            [analyze_query(text, lexicon, weight) for text in texts] if lexicon else [None] * len(texts)
        )
        return _Batch(parameters, checked.index, checked.embedder, mode, texts, analyzed, started, opened)

    def _responses(
        self, texts: list[str], found: _Found, top_k: int, group_by: GroupBy | None
    ) -> list[SearchResponse]:
        batch, results, timings = found
        responses = [
            self._response(text, batch, result, timings) for text, result in zip(texts, results, strict=True)
        ]
        if group_by is None:
            return responses
        grouped = [(response, group_by_page(response.hits, top_k)) for response in responses]
        return [
            replace(response, hits=tuple(hit for group in groups for hit in group.hits), groups=groups)
            for response, groups in grouped
        ]

    def _response(self, text: str, batch: _Batch, result: _QueryResult, timings: Timings) -> SearchResponse:
        parameters = batch.parameters
        warnings: tuple[str, ...] = ()
        if self._warned is not batch.index:
            self._warned = batch.index
            if batch.mode != parameters.mode:
                warnings = (other_analyzer(batch.index.info) or _DENSE_ONLY,)
            elif batch.embedder is not self._embedder:
                warnings = (other_model(batch.index.info, self._embedder),)
        return build_response(
            batch.index,
            self._collection,
            text,
            result.hits,
            parameters.filters,
            parameters.min_score,
            timings,
            batch.mode,
            result.lexical,
            result.evidence,
            warnings,
        )

    def _selection_query(self, selection: str, question: str | None) -> tuple[str, Selection]:
        from recto.search.selection import build_selection_query

        embedder = self._embedder
        return build_selection_query(
            selection, _blank_to_none(question), embedder.max_tokens, embedder.count_tokens
        )

    def _related(
        self, selection: str, question: str | None, selected: Selection, found: _Found, top_k: int
    ) -> SearchResponse:
        from recto.search.selection import exclude_and_diversify

        batch, (result,), timings = found
        hits, excluded = exclude_and_diversify(result.hits, selection, top_k)
        question = _blank_to_none(question)
        query = selected.text if question is None else question.strip()
        response = self._response(query, batch, replace(result, hits=hits), timings)
        if result.hits and not hits:
            response = replace(response, message="Only the selected text itself was found.")
        warnings = response.warnings
        if selected.cut:
            warnings += (
                f"The selected text is too long: only the first {len(selected.text)} of {selected.given} "
                "characters were searched for.",
            )
        return replace(response, warnings=warnings, selection=replace(selected, left_out=excluded))

    def close(self) -> None:
        """Close the embedder and the store; the next search opens them again."""
        self._checked = None
        self._embedder.close()
        self._store.close()

    def __enter__(self) -> Self:
        """Return the retriever."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the retriever."""
        self.close()

    async def aclose(self) -> None:
        """Close the connections of async searches in this event loop; call it before the loop ends."""
        for part in (self._embedder, self._store):
            if isinstance(part, AsyncEmbedder | AsyncStore):
                await part.aclose()


def make_retriever(settings: Settings, embedder: Embedder, store: Store, collection: str) -> Retriever:
    """Return a retriever that records spans if the settings say so."""
    if not settings.otel:
        return Retriever(embedder, store, collection, settings.lexical_weight)
    from recto.search.tracing import TracedRetriever

    return TracedRetriever(settings, embedder, store, collection)


def query_embedder(index: Index, embedder: Embedder) -> Embedder:
    """Return the embedder for queries to an index: the given one, or that of the model that made the index.

    Raise an error if the index is empty, or if no embedder's vectors can be compared with those of the index.
    """
    info, mine = index.info, embedder.fingerprint
    if info.chunks == 0:
        raise CollectionEmpty(
            f"Collection '{info.collection}' is empty",
            hint=f"Index a book with `recto index PATH --collection {info.collection}`.",
        )
    if info.fingerprint is None and info.dim != mine.dim:
        raise FingerprintMismatch(
            f"Collection '{info.collection}' has vectors of dimension {info.dim}, "
            f"but {mine.model} has dimension {mine.dim}",
            hint="Set RECTO_MODEL to the model that the collection was made with, or index the book again.",
        )
    if info.fingerprint is not None and not info.fingerprint.embedder.is_compatible(mine):
        made = info.fingerprint.embedder
        if isinstance(embedder, MultiModel) and (other := embedder.for_index(made)):
            return other
        same_name = (made.model, made.dim, made.variant) == (mine.model, mine.dim, mine.variant)
        raise FingerprintMismatch(
            f"Collection '{info.collection}' was indexed with {made}, but queries are embedded with {mine}",
            hint=f"Run `{index_command(info.collection, info.fingerprint.source)}`, or "
            + ("restore the model that had this name before." if same_name else "set RECTO_MODEL back."),
        )
    return embedder


def other_model(info: IndexInfo, embedder: Embedder) -> str:
    """Return the hint for an index whose queries another built-in model embeds."""
    made, source = (
        (info.fingerprint.embedder.model, info.fingerprint.source) if info.fingerprint else ("", "")
    )
    return (
        f"{made} made this index and embeds its queries. Index the book again to use "
        f"{embedder.fingerprint.model}: {index_command(info.collection, source)}"
    )


def _parameters(
    top_k: int, filters: FiltersLike, min_score: float | None, mode: Mode, group_by: GroupBy | None = None
) -> _Parameters:
    """Check the parameters of a search."""
    filters = to_filters(filters)
    check_search(top_k, filters, min_score, mode=mode, group_by=group_by)
    limit = top_k if group_by is None else min(top_k * CHUNKS_PER_PAGE, 2 * MAX_TOP_K)
    return _Parameters(limit, filters, min_score, mode)


def _effective_mode(mode: Mode, checked: _CheckedIndex) -> Mode:
    """Return the mode that an index supports: hybrid falls back to dense, lexical is an error."""
    if mode == "dense" or checked.lexicon is not None:
        return mode
    if mode == "lexical":
        raise no_lexical_vectors(checked.index.info)
    return "dense"


def _search_index(batch: _Batch, vectors: Sequence[Vector]) -> list[_QueryResult]:
    index, limit, filters = batch.index, batch.parameters.limit, batch.parameters.filters
    if batch.mode == "dense":
        return batch.dense_results(index.query_batch(vectors, limit, filters, batch.parameters.min_score))
    candidates = index.candidates(batch.index_queries(vectors), limit, filters)
    ranked = batch.rank(candidates)
    return batch.results(ranked, candidates, index.chunks(_ids(ranked)))


async def _asearch_index(batch: _Batch, index: AsyncIndex, vectors: Sequence[Vector]) -> list[_QueryResult]:
    limit, filters = batch.parameters.limit, batch.parameters.filters
    if batch.mode == "dense":
        found = await index.aquery_batch(vectors, limit, filters, batch.parameters.min_score)
        return batch.dense_results(found)
    candidates = await index.acandidates(batch.index_queries(vectors), limit, filters)
    ranked = batch.rank(candidates)
    return batch.results(ranked, candidates, await index.achunks(_ids(ranked)))


def _ids(ranked: Sequence[Ranked]) -> list[Hashable]:
    return list(dict.fromkeys(id for found in ranked for id, _ in found))


def _blank_to_none(question: str | None) -> str | None:
    """Return None for a blank question, which is what an empty form field sends."""
    return None if isinstance(question, str) and not question.strip() else question
