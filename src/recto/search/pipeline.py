"""The search pipeline: query an index, rank the candidates, and turn the best of them into hits.

Every search runs through `search_index`, or through `asearch_index` if the index is on a server: searches of
a retriever, comparisons of two indexes and explanations. `top_k` of a request is the number of chunks that
are ranked for each query.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from time import perf_counter
from typing import NamedTuple

from recto._util.languages import ENGLISH
from recto.protocols import AsyncIndex, Embedder, Index, embedder_abilities
from recto.search.lexical import LexicalQuery, Lexicon, analyze_query, unknown_language_weight
from recto.search.markdown import is_link_list, is_release
from recto.stores import candidate_limit, no_lexical_vectors
from recto.types.index import Candidates, Fingerprint, IndexQuery
from recto.types.request import SearchRequest
from recto.types.search import (
    LEXICAL_WEIGHT,
    NO_FILTERS,
    Chunk,
    Filters,
    Hit,
    Mode,
    Timings,
    Vector,
    hit_order,
)

MINOR_PENALTY = 0.1
"""What minor chunks lose in the order of hybrid hits: about what the first and the fifth differ by."""
PAGE_HITS, PAGE_SHARE = 13, 0.5
"""A page's best hit gains this share of the lead of its second hit over the last of the `PAGE_HITS` best."""
SPREAD_HITS, SECTION_HITS = 5, 2
"""Of the first hybrid hits, at most this many are of the same section, if there are others."""
ScoredIds = list[tuple[Hashable, float]]
"""The ids and scores of candidates, best first."""


class PreparedQuery(NamedTuple):
    """A query with its vector, empty if no mode needs it, and its words, None without a vocabulary."""

    text: str
    lexical: LexicalQuery | None
    vector: Vector


class QueryHits(NamedTuple):
    """The hits of a query; `evidence` is what `best_evidence` returns, None in dense mode."""

    query: PreparedQuery
    hits: list[Hit]
    evidence: float | None = None


@dataclass(frozen=True, slots=True)
class OpenIndex:
    """An index, the embedder for its queries, its vocabulary for lexical search, and how it was made."""

    index: Index
    embedder: Embedder
    lexicon: Lexicon | None
    lexical_weight: float = LEXICAL_WEIGHT
    fingerprint: Fingerprint | None = None

    def supported_mode(self, mode: Mode) -> Mode:
        """Return the mode to search in: hybrid falls back to dense, lexical raises an error."""
        if mode == "dense" or self.lexicon is not None:
            return mode
        if mode == "lexical":
            raise no_lexical_vectors(self.index.info)
        return "dense"

    def analyze(self, texts: Sequence[str], language: str = "") -> list[PreparedQuery]:
        """Look up the words of queries; their vectors are still missing.

        Without a `language`, it is the one of the book's languages that a query has most words of.
        """
        return [PreparedQuery(text, self._analyze(text, language), []) for text in texts]

    def _analyze(self, text: str, language: str) -> LexicalQuery | None:
        """Look up the words of a query; they count more in a language that the model does not know."""
        if self.lexicon is None:
            return None
        query = analyze_query(text, self.lexicon, self.lexical_weight, language)
        known = embedder_abilities(self.embedder).languages
        if not known or query.language in (ENGLISH, *known):
            return query
        return query._replace(weight=unknown_language_weight(query.language, query.weight))

    def prepare(self, texts: Sequence[str]) -> list[PreparedQuery]:
        """Analyse and embed queries."""
        return with_vectors(self.analyze(texts), self.embedder.embed_queries(texts))


class SearchRun(NamedTuple):
    """A search that has begun: its index is open, and its queries are analysed.

    `request` has the mode that the index supports. Moments are values of `perf_counter`.
    """

    collection: str
    opened: OpenIndex
    request: SearchRequest
    queries: Sequence[PreparedQuery]
    warnings: tuple[str, ...]
    started_at: float
    opened_at: float

    def finish(self, results: list[QueryHits], embedded_at: float) -> SearchedBatch:
        """Add the results, and the average times per query."""
        ended_at, ms = perf_counter(), 1e3 / len(self.queries)
        timings = Timings(
            (embedded_at - self.opened_at) * ms,
            (ended_at - embedded_at) * ms,
            (ended_at - self.started_at) * ms,
        )
        return SearchedBatch(self, results, timings)


class SearchedBatch(NamedTuple):
    """The results of queries that were searched for together."""

    run: SearchRun
    results: list[QueryHits]
    timings: Timings


SearchHook = Callable[
    [str, Sequence[str], SearchRequest], AbstractContextManager[Callable[[SearchedBatch], None]]
]
"""Called with the collection, the queries and the request of each search; records the result."""


def with_vectors(queries: Sequence[PreparedQuery], vectors: Sequence[Vector]) -> list[PreparedQuery]:
    """Add the vectors of queries."""
    return [query._replace(vector=vector) for query, vector in zip(queries, vectors, strict=True)]


def search_index(index: Index, queries: Sequence[PreparedQuery], request: SearchRequest) -> list[QueryHits]:
    """Return the best hits of each query."""
    candidates = index.candidates(index_queries(queries, request.mode), request.top_k, request.filters)
    ranking = rank_queries(queries, candidates, request)
    return ranking.to_hits(index.chunks(ranking.ids))


async def asearch_index(
    index: AsyncIndex, queries: Sequence[PreparedQuery], request: SearchRequest
) -> list[QueryHits]:
    """Do the same as `search_index`, and await the server."""
    candidates = await index.acandidates(index_queries(queries, request.mode), request.top_k, request.filters)
    ranking = rank_queries(queries, candidates, request)
    return ranking.to_hits(await index.achunks(ranking.ids))


def nearest_chunks(
    index: Index,
    vectors: Sequence[Vector],
    limit: int,
    filters: Filters = NO_FILTERS,
    min_score: float | None = None,
) -> list[list[Hit]]:
    """Return the chunks nearest to each vector, best first."""
    queries = [PreparedQuery("", None, vector) for vector in vectors]
    request = SearchRequest(top_k=limit, mode="dense", filters=filters, min_score=min_score)
    return [result.hits for result in search_index(index, queries, request)]


def index_queries(queries: Sequence[PreparedQuery], mode: Mode) -> list[IndexQuery]:
    """Return the vectors of queries that a mode needs."""
    return [
        IndexQuery(
            None if mode == "lexical" else query.vector,
            None if mode == "dense" or query.lexical is None else query.lexical.vector,
        )
        for query in queries
    ]


class Ranking(NamedTuple):
    """The ranked candidates of several queries, whose chunks are still to be read."""

    queries: Sequence[PreparedQuery]
    candidates: Sequence[Candidates]
    ranked: Sequence[ScoredIds]
    request: SearchRequest

    @property
    def ids(self) -> list[Hashable]:
        """The distinct ids of all ranked candidates."""
        return list(dict.fromkeys(id for ranked in self.ranked for id, _ in ranked))

    def to_hits(self, chunks: Mapping[Hashable, Chunk]) -> list[QueryHits]:
        """Return the hits of each query."""
        limit, mode = self.request.top_k, self.request.mode
        return [
            QueryHits(
                query,
                to_hits(ranked, candidates, chunks, limit, mode, query.text),
                None if mode == "dense" else best_evidence(candidates),
            )
            for query, ranked, candidates in zip(self.queries, self.ranked, self.candidates, strict=True)
        ]


def rank_queries(
    queries: Sequence[PreparedQuery], candidates: Sequence[Candidates], request: SearchRequest
) -> Ranking:
    """Rank the candidates of each query, each with the lexical weight of its query."""
    ranked = []
    for query, candidate in zip(queries, candidates, strict=True):
        weight = query.lexical.weight if query.lexical else 0.0
        scored = rank(candidate, request.mode, weight, request.min_score)
        # Hybrid hits are put into another order (`arrange`), for which some more are read.
        limit = candidate_limit(request.top_k) if request.mode == "hybrid" else request.top_k
        ranked.append(with_ties(scored, limit))
    return Ranking(queries, candidates, ranked, request)


def rank(candidates: Candidates, mode: Mode, weight: float, min_score: float | None = None) -> ScoredIds:
    """Return the ids and scores of candidates, best first.

    The hybrid score is the weighted mean of the cosine similarity, with weight 1, and the lexical score.
    Scores are added, not ranks, because ranks do not tell how much better a chunk is than the next.
    """
    if mode == "lexical":
        scores = candidates.lexical
    elif mode == "dense" or not candidates.lexical:
        scores = candidates.dense
    else:
        lexical = candidates.lexical
        scores = {
            id: (cosine + weight * lexical.get(id, 0.0)) / (1 + weight)
            for id, cosine in candidates.dense.items()
        }
    ranked = sorted(scores.items(), key=lambda item: -item[1])
    return ranked if min_score is None else [item for item in ranked if item[1] >= min_score]


def with_ties(ranked: ScoredIds, limit: int) -> ScoredIds:
    """Return the best candidates up to a limit, and those that have the same score as the last of them.

    Ties are broken by the page and the position of chunks, which are read later.
    """
    end = limit
    while 0 < end < len(ranked) and ranked[end][1] == ranked[limit - 1][1]:
        end += 1
    return ranked[:end]


def to_hits(
    ranked: ScoredIds,
    candidates: Candidates,
    chunks: Mapping[Hashable, Chunk],
    limit: int,
    mode: Mode = "hybrid",
    query: str = "",
) -> list[Hit]:
    """Return the hits of ranked candidates; skip chunks that were deleted in the meantime."""
    dense, lexical = candidates.dense, candidates.lexical
    without = None if mode == "dense" else 0.0
    hits = [
        Hit(score, chunks[id], dense.get(id), lexical.get(id, without))
        for id, score in ranked
        if id in chunks
    ]
    hits.sort(key=hit_order)
    return (arrange(hits, query) if mode == "hybrid" else hits)[:limit]


def arrange(hits: Sequence[Hit], query: str = "") -> list[Hit]:
    """Let minor chunks count less and pages with two good hits more; put further hits of a section later.

    Minor are link lists and, unless the query names a release, what changed in a release.
    """
    about_release = any(map(is_release, query.split()))
    scored = []
    for hit in hits:
        is_minor = is_link_list(hit.chunk.text, hit.chunk.headings)
        is_minor |= not about_release and any(map(is_release, hit.chunk.headings))
        scored.append((hit.score - MINOR_PENALTY * is_minor, hit))
    least = min((hit.score for hit in hits[:PAGE_HITS]), default=0.0)
    leads: defaultdict[str, list[float]] = defaultdict(list)
    for score, hit in scored[:PAGE_HITS]:
        if score > least:
            leads[hit.chunk.page_url].append(score - least)
    scored.sort(key=lambda item: -item[0])
    # Only the best hit of a page gains: the others would take the place of other pages.
    gains = {page: PAGE_SHARE * sum(found[1:2]) for page, found in leads.items()}
    scored = [(score + gains.pop(hit.chunk.page_url, 0.0), hit) for score, hit in scored]
    scored.sort(key=lambda item: -item[0])
    first, others = list[Hit](), list[Hit]()
    sections: Counter[tuple[str, ...]] = Counter()
    for _, hit in scored:
        section = (hit.chunk.page_url, *hit.chunk.headings)
        sections[section] += 1
        chosen = len(first) < SPREAD_HITS and sections[section] <= SECTION_HITS
        (first if chosen else others).append(hit)
    return first + others


def best_evidence(candidates: Candidates) -> float | None:
    """Return the largest sum of cosine similarity and weighted lexical score, or None without both."""
    lexical = candidates.lexical
    sums = (cosine + LEXICAL_WEIGHT * lexical.get(id, 0.0) for id, cosine in candidates.dense.items())
    return max(sums, default=None)
