"""Explain a search: ranks, margins, near misses and matched words, and why an expected page is not found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from time import perf_counter
from typing import Unpack
from urllib.parse import urlsplit

from recto._util.text import filter_keys, nearest, page_key, with_anchor
from recto.errors import InvalidArgument
from recto.evaluation.binding import nearest_page, passage_target
from recto.search.display import matched_query_words, words_to_match
from recto.search.lexical import QueryWord, visible_text
from recto.search.pipeline import OpenIndex, PreparedQuery, nearest_chunks, search_index
from recto.search.query import make_request
from recto.search.retriever import Retriever
from recto.types.request import MAX_TOP_K, SearchOptions, SearchRequest
from recto.types.search import NO_FILTERS, Chunk, Filters, Hit, Mode, SearchResponse

_NEAR_MISSES = 5
_FIRST_LIMIT = 200  # hits requested first for an expected page; then more, up to all

RankAndScore = tuple[int | None, float | None]
"""The rank and score of a chunk in one ranking; None if it is not in it."""


class Verdict(StrEnum):
    """The outcome for an expected page, section or passage."""

    FOUND = "found"
    TOO_LOW = "too_low"
    FILTERED_OUT = "filtered_out"
    NO_PAGE = "no_such_page"
    NO_ANCHOR = "no_such_anchor"
    NO_PASSAGE = "no_such_passage"


@dataclass(frozen=True, slots=True)
class RankedHit:
    """A hit with its rank, its lead over the next hit, and the query words that it contains.

    `question_words` are further words of the query: only its section questions have them.
    """

    rank: int
    hit: Hit
    lead: float | None
    words: tuple[str, ...] = ()
    question_words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Expected:
    """The rank and score of an expected page's best chunk, and how much it lacks to be shown.

    `dense` and `lexical` are its ranks and scores in the two rankings, None where it is not in one; `words`
    are the query words that it contains, and `question_words` those that only its section questions have.
    """

    name: str
    verdict: Verdict
    message: str
    near: str = ""
    hit: Hit | None = None
    rank: int | None = None
    lacks: float | None = None
    lost_to: tuple[Hit, ...] = ()
    dense: RankAndScore | None = None
    lexical: RankAndScore | None = None
    words: tuple[str, ...] = ()
    question_words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Explanation:
    """A search in full: the response with its hits, the near misses, and the expected page."""

    response: SearchResponse
    top_k: int
    chunks: int
    candidates: int
    shown: tuple[RankedHit, ...]
    near_misses: tuple[RankedHit, ...]
    auroc: float | None
    timings_ms: dict[str, float]
    words: tuple[str, ...] = ()
    expected: Expected | None = None

    @property
    def found(self) -> bool:
        """Whether the expected page is shown; without an expectation, whether any hit is."""
        return self.expected.verdict is Verdict.FOUND if self.expected else bool(self.shown)


def explain(
    retriever: Retriever,
    query: str | SearchRequest,
    expect: str | None = None,
    passage: str = "",
    **options: Unpack[SearchOptions],
) -> Explanation:
    """Search like `Retriever.search`, and explain the ranking; `expect` is a page, or `page#anchor`."""
    request = make_request(query, **options)
    text, top_k = request.query, request.top_k
    page, anchor = split_expected(expect)
    began = perf_counter()
    index = retriever.open()
    opened = perf_counter()
    retriever.warm_up()
    loaded = perf_counter()
    response = retriever.search(request)
    deeper = retriever.search(request, top_k=min(MAX_TOP_K, top_k + _NEAR_MISSES + 1))
    searched = perf_counter()
    timings = {
        "open": (opened - began) * 1e3,
        "load the model": (loaded - opened) * 1e3,
        "embed": response.timings.embed_ms,
        "search": response.timings.search_ms,
    }
    words = words_to_match(text, retriever.analyze(text))
    ranked = _ranked(_append_new(response.hits, deeper.hits), words)
    explanation = Explanation(
        response,
        top_k,
        chunks=index.info.chunks,
        candidates=index.count(response.filters) if response.filters else index.info.chunks,
        shown=ranked[:top_k],
        near_misses=ranked[top_k : top_k + _NEAR_MISSES],
        auroc=index.info.calibration.auroc if index.info.calibration else None,
        timings_ms=timings,
        words=tuple(word.word for word in words),
    )
    if not page and not passage:
        return explanation
    current = retriever.open_index()
    search = _ExpectedPage(current, current.prepare([text])[0], explanation)
    expected = search.find(page, anchor, passage)
    if expected.hit is not None:
        has, asked = _matched(expected.hit.chunk, words)
        expected = replace(expected, words=has, question_words=asked)
    timings = timings | {"find the expected page": (perf_counter() - searched) * 1e3}
    return replace(explanation, expected=expected, timings_ms=timings)


def split_expected(expect: str | None) -> tuple[str, str]:
    """Return the page and the anchor of an expectation; raise an error if it names no page."""
    page, _, anchor = (expect or "").strip().partition("#")
    if expect is not None and not page:
        hint = "Name it by its address, or by its path in the book."
        raise InvalidArgument("--expect needs a page, as page#anchor", hint=hint)
    return page, anchor


def _append_new(hits: Sequence[Hit], deeper: Sequence[Hit]) -> list[Hit]:
    """Append the hits of a search with a larger limit.

    A larger limit has more candidates, and some of them can have better scores: without this, they would
    change the ranks of the hits that users see.
    """
    ids = {hit.chunk.id for hit in hits}
    return [*hits, *(hit for hit in deeper if hit.chunk.id not in ids)]


def _ranked(hits: Sequence[Hit], words: Sequence[QueryWord]) -> tuple[RankedHit, ...]:
    leads = [hit.score - lower.score for hit, lower in pairwise(hits)]
    return tuple(
        RankedHit(rank, hit, lead, *_matched(hit.chunk, words))
        for rank, (hit, lead) in enumerate(zip(hits, (*leads, None), strict=False), 1)
    )


def _matched(chunk: Chunk, words: Sequence[QueryWord]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the words of a query that a chunk shows, and those that only its section questions have."""
    shown = matched_query_words(visible_text(chunk), words)
    asked = matched_query_words("\n\n".join(chunk.questions), words) if chunk.questions else ()
    return shown, tuple(word for word in asked if word not in shown)


@dataclass(frozen=True, slots=True)
class _ExpectedPage:
    """Finds an expected page, section or passage in the ranking of a query."""

    opened: OpenIndex
    query: PreparedQuery
    explanation: Explanation

    def find(self, page: str, anchor: str, passage: str) -> Expected:
        """Return the outcome for a page, a section, a passage, or a passage on a page."""
        name = with_anchor(page, anchor) if page else f'"{passage}"'
        chunks: list[Chunk] = []
        note = ""
        if page and not (chunks := self._chunks_of(page)):
            everything = self.opened.index.scroll()
            names = {page_key(path): path for chunk in everything for path in (chunk.source, chunk.page_url)}
            near = names.get(nearest_page(page, names), "")
            return Expected(name, Verdict.NO_PAGE, f"There is no page '{page}' in the index.", near)
        if anchor:
            anchors = {chunk.id: {chunk.anchor, *chunk.anchors} - {""} for chunk in chunks}
            if section := [chunk for chunk in chunks if anchor in anchors[chunk.id]]:
                chunks = section
            elif any(anchors.values()):
                near = nearest(anchor, sorted(set().union(*anchors.values()))) or ""
                message = f"There is no '#{anchor}' on '{page}'."
                return Expected(name, Verdict.NO_ANCHOR, message, near and with_anchor(page, near))
            else:
                note = f"No anchors are stored for '{page}', so the whole page counts. "
        if passage:
            where, target = chunks[0].url if chunks else "the index", passage_target(passage)
            chunks = [chunk for chunk in chunks or self.opened.index.scroll() if target.holds(chunk)]
            if not chunks:
                message = (
                    f"The quoted text is in no chunk of {where}. "
                    "It may have changed, or span two chunks: quote less."
                )
                (near_hits,) = nearest_chunks(
                    self.opened.index, [self.opened.embedder.embed_query(passage)], 1
                )
                near = near_hits[0].chunk.url if near_hits else ""
                return Expected(name, Verdict.NO_PASSAGE, message, near)
        if excluded := self._excluded(chunks):
            ranked = self._ranked(name, chunks, NO_FILTERS)
            return replace(ranked, verdict=Verdict.FILTERED_OUT, message=excluded)
        ranked = self._ranked(name, chunks, self.explanation.response.filters)
        return replace(ranked, message=note + ranked.message)

    def _chunks_of(self, page: str) -> list[Chunk]:
        """Return the chunks of a page, which is named by its URL, its URL's path, or its path in the book."""
        index, key = self.opened.index, page_key(page)
        by_url = list(index.scroll(Filters(page_url=page)))
        return by_url or [
            chunk
            for chunk in index.scroll()
            if key.strip("/") in (page_key(chunk.source), page_key(urlsplit(chunk.page_url).path).strip("/"))
        ]

    def _excluded(self, chunks: Sequence[Chunk]) -> str:
        """Say which filter excludes all of the chunks, if one does."""
        filters, first = self.explanation.response.filters, chunks[0]
        modules, page = set(filter_keys(filters.modules)), filters.page_url
        if modules and all(modules.isdisjoint(chunk.module_keys) for chunk in chunks):
            return f"Its module '{first.module}' is excluded by --module {', '.join(filters.modules)}."
        if page is not None and all(page_key(chunk.page_url) != page_key(page) for chunk in chunks):
            return f"Its page {first.page_url} is excluded by --url {page}."
        if not any(map(filters.in_edition, chunks)):
            edition = f"version '{first.version}', language '{first.language}'"
            return f"Its edition ({edition}) is not searched: use --docs-version and --lang."
        return ""

    def _ranked(self, name: str, chunks: Sequence[Chunk], filters: Filters) -> Expected:
        response, top_k = self.explanation.response, self.explanation.top_k
        ids = {chunk.id for chunk in chunks}
        listed = self._up_to(ids, response.mode, filters)
        by_vector = [] if listed else self._up_to(ids, "dense", filters)
        hit = next(reversed(listed or by_vector), Hit(0.0, chunks[0]))
        rank, score = self._position(hit, "dense", filters)
        expected = Expected(
            name,
            Verdict.TOO_LOW,
            "It contains none of the query's words."
            if response.mode == "lexical"
            else "The search does not return it, whatever the top k.",
            hit=hit,
            dense=(rank, hit.dense if score is None else score),
            lexical=self._position(hit, "lexical", filters) if self.query.lexical else None,
        )
        if not listed:
            return expected
        rank, above = len(listed), tuple(listed[:-1])
        message = f"It is at rank {rank}."
        if rank <= top_k:
            shown = Verdict.FOUND
            return replace(expected, verdict=shown, message=message, rank=rank, lacks=0.0, lost_to=above)
        lacks, noise = above[top_k - 1].score - hit.score, response.noise_floor
        message = f"It is at rank {rank} and lacks {lacks:.3f} for the first {top_k}."
        if lacks < 0:
            message = f"It is not among the candidates for the first {top_k}: use a larger top k."
        if noise is not None and hit.score < noise:
            message += f" Its score of {hit.score:.3f} is below the noise floor ({noise:.3f})."
        return replace(expected, message=message, rank=rank, lacks=lacks, lost_to=above[:top_k])

    def _position(self, hit: Hit, mode: Mode, filters: Filters) -> RankAndScore:
        listed = self._up_to({hit.chunk.id}, mode, filters)
        return (len(listed), listed[-1].score) if listed else (None, None)

    def _up_to(self, ids: set[str], mode: Mode, filters: Filters) -> list[Hit]:
        """Return the hits up to the first with one of the ids, or nothing, with a growing limit."""
        limit, everything, hits = _FIRST_LIMIT, self.explanation.chunks, list[Hit]()
        if (mode, filters) == (self.explanation.response.mode, self.explanation.response.filters):
            hits = [ranked.hit for ranked in (*self.explanation.shown, *self.explanation.near_misses)]
        while True:
            request = SearchRequest(top_k=limit, mode=mode, filters=filters)
            deeper = search_index(self.opened.index, [self.query], request)[0].hits
            hits = _append_new(hits, deeper)
            for rank, hit in enumerate(hits, 1):
                if hit.chunk.id in ids:
                    return hits[:rank]
            if len(deeper) < limit or limit >= everything:
                return []
            limit = min(everything, limit * 10)
