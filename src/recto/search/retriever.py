"""The retriever: search a collection, sync and async, one query or many; read its pages and modules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Self, Unpack

from recto.errors import CollectionEmpty, FingerprintMismatch, InvalidArgument
from recto.search.query import (
    DEFAULT_CONTEXT_TOKENS,
    DEFAULT_CONTEXT_TOP_K,
    check_queries,
    check_query,
    make_options,
    make_request,
    narrowed,
    other_versions,
)
from recto.types.request import MAX_TOP_K, SearchOptions, SearchRequest
from recto.types.search import LEXICAL_WEIGHT, Module, SearchResponse

if TYPE_CHECKING:  # importing the class is fast; opening an index loads the search pipeline
    from recto.protocols import Embedder, Index, Store
    from recto.search.context import Context
    from recto.search.lexical import LexicalQuery
    from recto.search.pages import BookPage
    from recto.search.pipeline import OpenIndex, SearchedBatch, SearchHook, SearchRun
    from recto.settings import Settings
    from recto.types.index import IndexInfo

SELECTION_CANDIDATES = 60  # more than top_k, because chunks with the selected text and others are excluded
CHUNKS_PER_PAGE = 6  # chunks that are ranked for each page of a grouped search
_DENSE_ONLY = (
    "This index has no vocabulary for lexical search, so it is searched in dense mode. "
    "Index the book again for better results."
)


def _no_hook(*_: object) -> AbstractContextManager[Callable[[SearchedBatch], None]]:
    return nullcontext(lambda _: None)


class Retriever:
    """Searches one collection. It is thread-safe, and uses a new index as soon as one is published.

    `embedder` is the configured one, which embeds new indexes; `query_embedder` embeds queries to the current
    index. `lexical_weight` is the weight of the lexical score in hybrid search. `hook` wraps each search.
    """

    def __init__(
        self,
        embedder: Embedder,
        store: Store,
        collection: str,
        lexical_weight: float = LEXICAL_WEIGHT,
        hook: SearchHook = _no_hook,
    ) -> None:
        self.embedder = embedder
        self.store = store
        self.collection = collection
        self.lexical_weight = lexical_weight
        self._hook = hook
        self._opened: OpenIndex | None = None
        self._warned: Index | None = None

    @property
    def query_embedder(self) -> Embedder:
        """The embedder for queries to the current index, of the model that made the index."""
        return self.open_index().embedder

    def with_collection(self, collection: str) -> Retriever:
        """Return a retriever of another collection that shares the embedder and the store."""
        return Retriever(self.embedder, self.store, collection, self.lexical_weight, self._hook)

    def open(self) -> Index:
        """Return the current index; raise an error if it is empty or does not match the embedder."""
        return self.open_index().index

    def open_index(self) -> OpenIndex:
        """Return the current index with what its queries need; raise the same errors as `open`."""
        index, opened = self.store.open(self.collection), self._opened
        if opened is None or opened.index is not index:
            from recto.search.lexical import read_lexicon
            from recto.search.pipeline import OpenIndex

            embedder = query_embedder(index, self.embedder)
            made = index.info.fingerprint
            opened = OpenIndex(index, embedder, read_lexicon(index), self.lexical_weight, made)
            self._opened = opened
        return opened

    def warm_up(self) -> None:
        """Open the index and load the model, so that the first search is as fast as the others."""
        self.query_embedder.warm_up()

    def search(self, query: str | SearchRequest, **options: Unpack[SearchOptions]) -> SearchResponse:
        """Return the best chunks for a query, best first; with `group_by="page"`, by page.

        `query` is the text, or a whole request. `SearchOptions` has the options, such as `top_k` and `mode`.
        """
        request = make_request(query, **options)
        return _responses(self._find([request.query], request), request)[0]

    def search_batch(self, queries: Sequence[str], **options: Unpack[SearchOptions]) -> list[SearchResponse]:
        """Search for several queries with one call of the model and one of the engine."""
        texts, request = check_queries(queries), make_options(**options)
        return _responses(self._find(texts, request), request) if texts else []

    async def asearch(self, query: str | SearchRequest, **options: Unpack[SearchOptions]) -> SearchResponse:
        """Search without blocking the event loop."""
        from asyncio import to_thread

        request = make_request(query, **options)
        return (await to_thread(_responses, await self._afind([request.query], request), request))[0]

    async def asearch_batch(
        self, queries: Sequence[str], **options: Unpack[SearchOptions]
    ) -> list[SearchResponse]:
        """Search for several queries without blocking the event loop; local work runs in threads."""
        from asyncio import to_thread

        texts, request = check_queries(queries), make_options(**options)
        return await to_thread(_responses, await self._afind(texts, request), request) if texts else []

    def related(
        self, selection: str, question: str | None = None, **options: Unpack[SearchOptions]
    ) -> SearchResponse:
        """Return chunks that are related to a selected text, and to a question about it if there is one.

        Chunks that contain the selected text are left out.
        """
        from recto.search.selection import build_related_response, build_selection_query

        request = make_options(**options)
        embedder = self.embedder
        query = build_selection_query(selection, question, embedder.max_tokens, embedder.count_tokens)
        return build_related_response(query, self._find([query.text], _more(request)), request.top_k)

    async def arelated(
        self, selection: str, question: str | None = None, **options: Unpack[SearchOptions]
    ) -> SearchResponse:
        """Do the same as `related` without blocking the event loop."""
        from asyncio import to_thread

        from recto.search.selection import build_related_response, build_selection_query

        request = make_options(**options)
        most, count = self.embedder.max_tokens, self.embedder.count_tokens
        query = await to_thread(build_selection_query, selection, question, most, count)
        searched = await self._afind([query.text], _more(request))
        return await to_thread(build_related_response, query, searched, request.top_k)

    def context(
        self,
        query: str | SearchRequest,
        max_tokens: int = DEFAULT_CONTEXT_TOKENS,
        *,
        page: str | None = None,
        neighbors: int = 0,
        **options: Unpack[SearchOptions],
    ) -> Context:
        """Return the sections of the best hits as text for a language model, within a budget of tokens.

        Hits on `page`, the page that the user is reading, come first if they are relevant. `neighbors` adds
        that many sections before and after each section on its page, if they fit.
        """
        from recto.search.context import check_context, make_context

        request = _context_request(query, options)
        page_request = check_context(max_tokens, neighbors, page, request)
        response = self.search(request)
        on_page = self.search(page_request) if page_request else None
        return make_context(self.open_index(), request, response, on_page, max_tokens, neighbors)

    async def acontext(
        self,
        query: str | SearchRequest,
        max_tokens: int = DEFAULT_CONTEXT_TOKENS,
        *,
        page: str | None = None,
        neighbors: int = 0,
        **options: Unpack[SearchOptions],
    ) -> Context:
        """Do the same as `context` without blocking the event loop."""
        from asyncio import to_thread

        from recto.search.context import check_context, make_context

        request = _context_request(query, options)
        page_request = check_context(max_tokens, neighbors, page, request)
        response = await self.asearch(request)
        on_page = await self.asearch(page_request) if page_request else None
        opened = await to_thread(self.open_index)
        return await to_thread(make_context, opened, request, response, on_page, max_tokens, neighbors)

    def analyze(self, query: str) -> LexicalQuery | None:
        """Return a query as lexical search sees it, or None if the index has no lexical vectors."""
        return self.open_index().analyze([check_query(query)])[0].lexical

    def page(self, url: str) -> BookPage:
        """Return a page of the book by its URL."""
        from recto.search.pages import read_page

        return read_page(self.open(), url, self.collection)

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

    def _find(self, texts: Sequence[str], request: SearchRequest) -> SearchedBatch:
        """Embed and analyse queries, and search for all of them."""
        from recto.search.pipeline import search_index, with_vectors

        with self._hook(self.collection, texts, request) as record:
            run = self._start(texts, request)
            queries = run.queries
            if run.request.mode != "lexical":
                queries = with_vectors(queries, run.opened.embedder.embed_queries(texts))
            embedded_at = perf_counter()
            searched = run.finish(search_index(run.opened.index, queries, run.request), embedded_at)
            record(searched)
        return searched

    async def _afind(self, texts: Sequence[str], request: SearchRequest) -> SearchedBatch:
        """Do the same as `_find`, and await services; a model on this machine works in a thread."""
        from asyncio import to_thread

        from recto.protocols import AsyncIndex, embedder_abilities
        from recto.search.pipeline import asearch_index, search_index, with_vectors

        aembed_queries = embedder_abilities(self.embedder).aembed_queries
        if aembed_queries is None:
            return await to_thread(self._find, texts, request)
        with self._hook(self.collection, texts, request) as record:
            run = await to_thread(self._start, texts, request)
            queries, index = run.queries, run.opened.index
            if run.request.mode != "lexical":
                queries = with_vectors(queries, await aembed_queries(texts))
            embedded_at = perf_counter()
            if isinstance(index, AsyncIndex):
                results = await asearch_index(index, queries, run.request)
            else:
                results = await to_thread(search_index, index, queries, run.request)
            searched = run.finish(results, embedded_at)
            record(searched)
        return searched

    def _start(self, texts: Sequence[str], request: SearchRequest) -> SearchRun:
        """Open the index and analyse the queries; warn once about each index."""
        from recto.search.lexical import other_analyzer
        from recto.search.pipeline import SearchRun

        started_at = perf_counter()
        opened = self.open_index()
        mode = opened.supported_mode(request.mode)
        opened_at = perf_counter()
        warnings: tuple[str, ...] = ()
        if self._warned is not opened.index:
            self._warned = opened.index
            if mode != request.mode:
                warnings = (other_analyzer(opened.index.info) or _DENSE_ONLY,)
            elif opened.embedder is not self.embedder:
                warnings = (other_model(opened.index.info, self.embedder),)
        filters = narrowed(request.filters, opened.fingerprint)
        return SearchRun(
            self.collection,
            opened,
            replace(request, top_k=_ranked_chunks(request), mode=mode, filters=filters),
            opened.analyze(texts, request.filters.language or ""),
            (*warnings, *other_versions(request.filters, filters, opened.fingerprint)),
            started_at,
            opened_at,
        )

    def close(self) -> None:
        """Close the embedder and the store; the next search opens them again."""
        self._opened = None
        self.embedder.close()
        self.store.close()

    def __enter__(self) -> Self:
        """Return the retriever."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the retriever."""
        self.close()

    async def aclose(self) -> None:
        """Close the connections of async searches in this event loop; call it before the loop ends."""
        from recto.protocols import embedder_abilities, store_abilities

        for aclose in (embedder_abilities(self.embedder).aclose, store_abilities(self.store).aclose):
            if aclose is not None:
                await aclose()


def make_retriever(settings: Settings, embedder: Embedder, store: Store, collection: str) -> Retriever:
    """Return a retriever that records spans if the settings say so."""
    if not settings.otel:
        return Retriever(embedder, store, collection, settings.lexical_weight)
    from recto.search.tracing import SearchTracer

    return Retriever(embedder, store, collection, settings.lexical_weight, SearchTracer(settings).trace)


def query_embedder(index: Index, embedder: Embedder) -> Embedder:
    """Return the embedder for queries to an index: the given one, or one of the model that made the index.

    Raise an error if the index is empty, or if no embedder's vectors can be compared with the index's.
    """
    from recto.protocols import embedder_abilities

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
        theirs = info.fingerprint.embedder
        for_index = embedder_abilities(embedder).for_index
        if for_index and (other := for_index(theirs)):
            return other
        same_name = (theirs.model, theirs.dim, theirs.variant) == (mine.model, mine.dim, mine.variant)
        raise FingerprintMismatch(
            f"Collection '{info.collection}' was indexed with {theirs}, but queries are embedded with {mine}",
            hint=f"Run `{_command(info)}`, or "
            + ("restore the model that had this name before." if same_name else "set RECTO_MODEL back."),
        )
    return embedder


def other_model(info: IndexInfo, embedder: Embedder) -> str:
    """Return the hint for an index of an older built-in model."""
    model = info.fingerprint.embedder.model if info.fingerprint else ""
    return (
        f"{model} made this index. {embedder.fingerprint.model} can search it in English; "
        f"index the book again for all languages: {_command(info)}"
    )


def _command(info: IndexInfo) -> str:
    """Return the command that indexes the book of an index again."""
    from recto.settings import index_command

    made = info.fingerprint
    return index_command(info.collection, made.source if made else "", options=made.options if made else ())


def _ranked_chunks(request: SearchRequest) -> int:
    """Return how many chunks are ranked: for a grouped search, enough for `top_k` pages."""
    if request.group_by is None:
        return request.top_k
    return min(request.top_k * CHUNKS_PER_PAGE, 2 * MAX_TOP_K)


def _more(request: SearchRequest) -> SearchRequest:
    """Return the request for a selected text: some of its hits are excluded."""
    if request.group_by is not None or request.section_tokens is not None:
        message = "A search for related chunks does not support group_by and section_tokens"
        raise InvalidArgument(message, hint="Leave them out.")
    return replace(request, top_k=request.top_k + SELECTION_CANDIDATES)


def _context_request(query: str | SearchRequest, options: SearchOptions) -> SearchRequest:
    if isinstance(query, str) and "top_k" not in options:
        options = {**options, "top_k": DEFAULT_CONTEXT_TOP_K}
    return make_request(query, **options)


def _responses(searched: SearchedBatch, request: SearchRequest) -> list[SearchResponse]:
    from recto.search.response import build_responses, group_by_page

    responses = build_responses(searched)
    if request.group_by is not None:
        responses = [group_by_page(response, request.top_k) for response in responses]
    if request.section_tokens is not None:
        from recto.search.context import with_sections

        opened = searched.run.opened
        responses = [with_sections(opened, response, request.section_tokens) for response in responses]
    return responses
