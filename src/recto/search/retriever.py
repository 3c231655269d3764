"""The query path: validate, embed, search with filter, explain an empty answer. Sync and async, one and many."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from recto.errors import CollectionEmpty, FingerprintMismatch
from recto.protocols import AsyncEmbedder, AsyncIndex, AsyncStore, Embedder, Index, Store
from recto.search.fusion import Ranked, group_by_page, rank
from recto.search.lexical import LexicalQuery, analyze_query
from recto.search.lexicon import Lexicon, read_lexicon
from recto.search.query import DEFAULT_TOP_K, MAX_TOP_K, check_queries, check_query, check_search, to_filters
from recto.search.response import build_response
from recto.settings import SAMPLE_COLLECTION
from recto.stores.candidates import no_lexical_vectors
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
    from recto.search.pages import BookPage

_CANDIDATES = 60  # passages that are looked at for a selected text, beyond those asked for: some hold the selection, some crowd one page
_CHUNKS_PER_PAGE = 6  # chunks that are looked at for each page of a grouped search
_REINDEX = "This index was made without lexical search, so it is searched in dense mode. Index the book again for better results."


@dataclass(frozen=True, slots=True)
class _Search:
    """What a search is asked for, apart from its queries; `limit` chunks are ranked, `top_k` results are returned."""

    limit: int
    filters: Filters
    min_score: float | None
    mode: Mode


@dataclass(frozen=True, slots=True)
class _Opened:
    """An index that was checked against the embedder, with its vocabulary, if it has lexical vectors."""

    index: Index
    lexicon: Lexicon | None


@dataclass(frozen=True, slots=True)
class _Found:
    """What one query found."""

    hits: list[Hit]
    lexical: LexicalQuery | None
    best_cosine: float | None


FiltersLike = Filters | Mapping[str, Any]
"""`Filters`, or a mapping such as `{"module": "ros2"}`."""
_Results = tuple[_Opened, Mode, list[_Found], Timings]


class Retriever:
    """Searches one collection; may be shared by threads. It notices when a new index is published."""

    def __init__(self, embedder: Embedder, store: Store, collection: str) -> None:
        self._embedder = embedder
        self._store = store
        self._collection = collection
        self._opened: _Opened | None = None
        self._warned: Index | None = None

    @property
    def collection(self) -> str:
        """The name that is searched."""
        return self._collection

    def with_collection(self, collection: str) -> Retriever:
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
        return self._open().index

    def _open(self) -> _Opened:
        index, opened = self._store.open(self._collection), self._opened
        if opened is None or opened.index is not index:
            check_fingerprint(index, self._embedder)
            opened = self._opened = _Opened(index, read_lexicon(index))
        return opened

    def warm_up(self) -> None:
        """Open the index and load the model, so that the first search is as fast as the others."""
        self.open()
        self._embedder.warm_up()

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
        """Return the chunks that answer a query, best first; with `group_by="page"`, the best `top_k` pages."""
        return self._respond([check_query(query)], top_k, to_filters(filters), min_score, mode, group_by)[0]

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
        """Answer several queries with one pass through the model and one call of the engine."""
        return self._respond(check_queries(queries), top_k, to_filters(filters), min_score, mode, group_by)

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
        """Search without holding up the event loop."""
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
        """Answer several queries without holding up the event loop: services are awaited, local work goes to threads."""
        from asyncio import to_thread

        texts, filters = check_queries(queries), to_filters(filters)
        check_search(top_k, filters, min_score, mode=mode, group_by=group_by)
        if not texts:
            return []
        search = _Search(_limit(top_k, group_by), filters, min_score, mode)
        results = await self._afind(texts, search)
        return await to_thread(self._responses, texts, search, results, top_k, group_by)

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
        """Return chunks that go with a selected text, with or without a question about it; those that hold it are left out."""
        from recto.search.selection import build_selection_query, question_or_none

        filters = to_filters(filters)
        check_search(top_k, filters, min_score, mode=mode)
        question = question_or_none(question)
        text, selected = build_selection_query(
            selection, question, self._embedder.max_tokens, self._embedder.count_tokens
        )
        search = _Search(top_k + _CANDIDATES, filters, min_score, mode)
        return self._related(selection, question, selected, search, self._find([text], search), top_k)

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
        """Return chunks that go with a selected text without holding up the event loop."""
        from asyncio import to_thread

        from recto.search.selection import build_selection_query, question_or_none

        filters = to_filters(filters)
        check_search(top_k, filters, min_score, mode=mode)
        question = question_or_none(question)
        text, selected = await to_thread(
            build_selection_query, selection, question, self._embedder.max_tokens, self._embedder.count_tokens
        )
        search = _Search(top_k + _CANDIDATES, filters, min_score, mode)
        return await to_thread(
            self._related, selection, question, selected, search, await self._afind([text], search), top_k
        )

    def analyze(self, query: str) -> LexicalQuery | None:
        """Return a query as lexical search sees it, or None if the index has no lexical vectors."""
        lexicon = self._open().lexicon
        return analyze_query(check_query(query), lexicon) if lexicon else None

    def page(self, url: str) -> BookPage:
        """Return a page of the book by its address."""
        from recto.search.pages import read_page

        return read_page(self.open(), url, self._collection)

    def modules(self) -> tuple[Module, ...]:
        """Return the modules in reading order."""
        index = self.open()
        counts, made = index.modules(), index.info.fingerprint
        titles = dict(made.modules) if made else {}
        ordered = [name for name in titles if name in counts] + [
            name for name in counts if name not in titles
        ]
        return tuple(Module(name, titles.get(name) or name, counts[name]) for name in ordered)

    def pages(self) -> dict[str, int]:
        """Count the passages of each page address."""
        return self.open().pages()

    def _respond(
        self,
        texts: list[str],
        top_k: int,
        filters: Filters,
        min_score: float | None,
        mode: Mode,
        group_by: GroupBy | None,
    ) -> list[SearchResponse]:
        check_search(top_k, filters, min_score, mode=mode, group_by=group_by)
        if not texts:
            return []
        search = _Search(_limit(top_k, group_by), filters, min_score, mode)
        return self._responses(texts, search, self._find(texts, search), top_k, group_by)

    def _responses(
        self, texts: list[str], search: _Search, results: _Results, top_k: int, group_by: GroupBy | None
    ) -> list[SearchResponse]:
        responses = [
            self._response(text, search, results, found)
            for text, found in zip(texts, results[2], strict=True)
        ]
        if group_by is None:
            return responses
        grouped = [(response, group_by_page(response.hits, top_k)) for response in responses]
        return [
            replace(response, hits=tuple(hit for group in groups for hit in group.hits), groups=groups)
            for response, groups in grouped
        ]

    def _response(self, text: str, search: _Search, results: _Results, found: _Found) -> SearchResponse:
        opened, mode, _, timings = results
        warnings: tuple[str, ...] = ()
        if mode != search.mode and self._warned is not opened.index:
            self._warned = opened.index
            warnings = (_REINDEX,)
        return build_response(
            opened.index,
            self._collection,
            text,
            found.hits,
            search.filters,
            search.min_score,
            timings,
            mode,
            found.lexical,
            found.best_cosine,
            warnings,
        )

    def _find(self, texts: Sequence[str], search: _Search) -> _Results:
        """Embed and analyse queries and search for all of them."""
        began = perf_counter()
        opened = self._open()
        mode = _possible(search.mode, opened)
        ready = perf_counter()
        analyzed = (
            [analyze_query(text, opened.lexicon) for text in texts] if opened.lexicon else [None] * len(texts)
        )
        vectors = (
            self._embedder.embed_queries(_embedded_texts(mode, texts, analyzed)) if mode != "lexical" else []
        )
        embedded = perf_counter()
        index = opened.index
        if mode == "dense":
            found = _dense(
                analyzed, index.query_batch(vectors, search.limit, search.filters, search.min_score)
            )
        else:
            candidates = index.candidates(
                _index_queries(mode, vectors, analyzed), search.limit, search.filters
            )
            ranked = _ranked(mode, search, candidates, analyzed)
            found = _hits(ranked, candidates, index.chunks(_ids(ranked)), analyzed, search.limit)
        return opened, mode, found, _shared(began, ready, embedded, perf_counter(), len(texts))

    async def _afind(self, texts: Sequence[str], search: _Search) -> _Results:
        """Do the same, awaiting what can be awaited."""
        from asyncio import to_thread

        embedder = self._embedder
        if not isinstance(embedder, AsyncEmbedder):
            return await to_thread(self._find, texts, search)
        began = perf_counter()
        opened = await to_thread(self._open)
        mode, index = _possible(search.mode, opened), opened.index
        ready = perf_counter()
        analyzed = (
            [analyze_query(text, opened.lexicon) for text in texts] if opened.lexicon else [None] * len(texts)
        )
        vectors = (
            await embedder.aembed_queries(_embedded_texts(mode, texts, analyzed)) if mode != "lexical" else []
        )
        embedded = perf_counter()
        if mode == "dense" and isinstance(index, AsyncIndex):
            found = _dense(
                analyzed, await index.aquery_batch(vectors, search.limit, search.filters, search.min_score)
            )
        elif mode == "dense":
            found = _dense(
                analyzed, index.query_batch(vectors, search.limit, search.filters, search.min_score)
            )
        else:
            queries = _index_queries(mode, vectors, analyzed)
            if isinstance(index, AsyncIndex):
                candidates = await index.acandidates(queries, search.limit, search.filters)
                ranked = _ranked(mode, search, candidates, analyzed)
                chunks = await index.achunks(_ids(ranked))
            else:
                candidates = index.candidates(queries, search.limit, search.filters)
                ranked = _ranked(mode, search, candidates, analyzed)
                chunks = index.chunks(_ids(ranked))
            found = _hits(ranked, candidates, chunks, analyzed, search.limit)
        return opened, mode, found, _shared(began, ready, embedded, perf_counter(), len(texts))

    def _related(
        self,
        selection: str,
        question: str | None,
        selected: Selection,
        search: _Search,
        results: _Results,
        top_k: int,
    ) -> SearchResponse:
        from recto.search.selection import exclude_and_diversify

        found = results[2][0]
        hits, left_out = exclude_and_diversify(found.hits, selection, top_k)
        query = selected.text if question is None else question.strip()
        response = self._response(query, search, results, replace(found, hits=hits))
        if found.hits and not hits:
            response = replace(response, message="Only the selected text itself was found.")
        warnings = response.warnings
        if selected.cut:
            warnings += (
                f"The selected text is long: its first {len(selected.text)} of {selected.given} characters were searched for.",
            )
        return replace(response, warnings=warnings, selection=replace(selected, left_out=left_out))

    def close(self) -> None:
        """Let go of connections and open indexes; the next search opens them again."""
        self._opened = None
        self._embedder.close()
        self._store.close()

    def __enter__(self) -> Self:
        """Use it in a `with` block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    async def aclose(self) -> None:
        """Let go of what async searches in this event loop have opened; call it before the loop ends."""
        for part in (self._embedder, self._store):
            if isinstance(part, AsyncStore):
                await part.aclose()


def _limit(top_k: int, group_by: GroupBy | None) -> int:
    """Return how many chunks are ranked."""
    return top_k if group_by is None else min(top_k * _CHUNKS_PER_PAGE, 2 * MAX_TOP_K)


def _possible(mode: Mode, opened: _Opened) -> Mode:
    """Return the mode that an index can be searched in; only a hybrid search may fall back to the dense mode."""
    if mode == "dense" or opened.lexicon is not None:
        return mode
    if mode == "lexical":
        raise no_lexical_vectors(opened.index.info)
    return "dense"


def _embedded_texts(mode: Mode, texts: Sequence[str], analyzed: Sequence[LexicalQuery | None]) -> list[str]:
    """Return what is embedded for the queries: with corrected words in hybrid mode, as typed in dense mode."""
    return [
        query.text if query and mode == "hybrid" else text
        for text, query in zip(texts, analyzed, strict=True)
    ]


def _index_queries(
    mode: Mode, vectors: Sequence[Vector], analyzed: Sequence[LexicalQuery | None]
) -> list[IndexQuery]:
    dense: Sequence[Vector | None] = [None] * len(analyzed) if mode == "lexical" else vectors
    return [
        IndexQuery(vector, query.vector if query else None)
        for vector, query in zip(dense, analyzed, strict=True)
    ]


def _ranked(
    mode: Mode, search: _Search, candidates: Sequence[Candidates], analyzed: Sequence[LexicalQuery | None]
) -> list[Ranked]:
    """Return the best candidates of each query, with those that tie with the last of them."""
    return [
        _with_ties(rank(found, mode, query.weight if query else 0.0, search.min_score), search.limit)
        for found, query in zip(candidates, analyzed, strict=True)
    ]


def _with_ties(ranked: Ranked, limit: int) -> Ranked:
    end = limit
    while 0 < end < len(ranked) and ranked[end][1] == ranked[limit - 1][1]:
        end += 1
    return ranked[:end]


def _ids(ranked: Sequence[Ranked]) -> list[Hashable]:
    return list(dict.fromkeys(id for found in ranked for id, _ in found))


def _hits(
    ranked: Sequence[Ranked],
    candidates: Sequence[Candidates],
    chunks: Mapping[Hashable, Chunk],
    analyzed: Sequence[LexicalQuery | None],
    limit: int,
) -> list[_Found]:
    results = []
    for best, found, query in zip(ranked, candidates, analyzed, strict=True):
        dense, lexical = found.dense, found.lexical
        hits = [
            Hit(score, chunks[id], dense.get(id), lexical.get(id, 0.0)) for id, score in best if id in chunks
        ]
        hits.sort(key=lambda hit: (-hit.score, hit.chunk.page_url, hit.chunk.chunk_index, hit.chunk.id))
        results.append(_Found(hits[:limit], query, max(dense.values(), default=None)))
    return results


def _dense(analyzed: Sequence[LexicalQuery | None], found: Sequence[list[Hit]]) -> list[_Found]:
    return [
        _Found(hits, query, hits[0].score if hits else None)
        for hits, query in zip(found, analyzed, strict=True)
    ]


def check_fingerprint(index: Index, embedder: Embedder) -> None:
    """Refuse an index that the embedder's vectors cannot be compared with."""
    info, mine = index.info, embedder.fingerprint
    if info.chunks == 0:
        raise CollectionEmpty(
            f"Collection '{info.collection}' is empty",
            hint=f"Index a book with `recto index PATH --collection {info.collection}`.",
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
