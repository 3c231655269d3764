"""Explain a search: ranks, margins, near misses and matched words, and why an expected page is not found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise
from time import perf_counter

from recto._util.numbers import cosine
from recto._util.text import filter_keys, nearest, page_key, with_anchor
from recto.errors import InvalidArgument
from recto.evaluation.binding import passage_target
from recto.search.display import matched_query_words, words_to_match
from recto.search.lexical import QueryWord, analyzed_text
from recto.search.pipeline import OpenIndex, PreparedQuery, SearchOptions, nearest_chunks, search_index
from recto.search.query import DEFAULT_TOP_K, MAX_TOP_K, check_query, check_search
from recto.search.retriever import Retriever
from recto.types.search import NO_FILTERS, Chunk, Coverage, Filters, Hit, Mode

_NEAR_MISSES = 5
_FIRST_LIMIT = 200  # hits requested first for an expected page; then more, up to all


PageAnchor = tuple[str, str]
"""A page and, if one is named, an anchor on it."""


def parse_expected(text: str) -> PageAnchor:
    """Read `page#anchor`."""
    page, _, anchor = text.strip().partition("#")
    if not page:
        hint = "Name it by its address, or by its path in the book."
        raise InvalidArgument("--expect needs a page, as page#anchor", hint=hint)
    return page, anchor


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
    """A hit with its rank, its lead over the next hit, and the query words that it contains."""

    rank: int
    hit: Hit
    lead: float | None
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Leg:
    """The rank and score of a chunk in the dense or the lexical ranking; None if it is not in it."""

    rank: int | None
    score: float | None


@dataclass(frozen=True, slots=True)
class Expected:
    """The rank and score of an expected page's best chunk, and how much it lacks to be shown.

    `dense` and `lexical` are its positions in the two rankings; `words` are the query words that it contains.
    """

    wanted: str
    verdict: Verdict
    message: str
    near: str = ""
    hit: Hit | None = None
    rank: int | None = None
    lacks: float | None = None
    lost_to: tuple[Hit, ...] = ()
    dense: Leg | None = None
    lexical: Leg | None = None
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Explanation:
    """A search in full: the hits shown, the near misses, and the expected page."""

    query: str
    collection: str
    filters: Filters
    top_k: int
    chunks: int
    candidates: int
    shown: tuple[RankedHit, ...]
    near_misses: tuple[RankedHit, ...]
    noise_floor: float | None
    auroc: float | None
    timings_ms: dict[str, float]
    warnings: tuple[str, ...]
    mode: Mode = "dense"
    words: tuple[str, ...] = ()
    corrections: tuple[tuple[str, tuple[str, ...]], ...] = ()
    answerable: float | None = None
    coverage: Coverage | None = None
    expected: Expected | None = None

    @property
    def found(self) -> bool:
        """Whether the expected page is shown; without an expectation, whether any hit is."""
        return self.expected.verdict is Verdict.FOUND if self.expected else bool(self.shown)


def explain(
    retriever: Retriever,
    query: str,
    top_k: int = DEFAULT_TOP_K,
    filters: Filters = NO_FILTERS,
    expect: PageAnchor | None = None,
    passage: str = "",
    mode: Mode = "hybrid",
) -> Explanation:
    """Search like `Retriever.search`, and explain the ranking."""
    text = check_query(query)
    check_search(top_k, filters, None, mode=mode)
    began = perf_counter()
    index = retriever.open()
    opened = perf_counter()
    retriever.warm_up()
    loaded = perf_counter()
    response = retriever.search(text, top_k, filters, mode=mode)
    deeper = retriever.search(text, min(MAX_TOP_K, top_k + _NEAR_MISSES + 1), filters, mode=mode)
    searched = perf_counter()
    timings = {
        "open": (opened - began) * 1e3,
        "load the model": (loaded - opened) * 1e3,
        "embed": response.timings.embed_ms,
        "search": response.timings.search_ms,
    }
    lexical = retriever.analyze(text)
    words = words_to_match(text, lexical)
    ranked = _ranked(_append_new(response.hits, deeper.hits), words)
    explanation = Explanation(
        query=text,
        collection=retriever.collection,
        filters=filters,
        top_k=top_k,
        chunks=index.info.chunks,
        candidates=index.count(filters) if filters else index.info.chunks,
        shown=ranked[:top_k],
        near_misses=ranked[top_k : top_k + _NEAR_MISSES],
        noise_floor=response.noise_floor,
        auroc=index.info.calibration.auroc if index.info.calibration else None,
        timings_ms=timings,
        warnings=response.warnings,
        mode=response.mode,
        words=tuple(word.word for word in words),
        corrections=response.corrections,
        answerable=response.answerable,
        coverage=response.coverage,
    )
    if expect is None and not passage:
        return explanation
    current = retriever.open_index()
    search = _ExpectedPage(retriever, current, current.prepare([text])[0], explanation)
    expected = search.find(expect, passage)
    if expected.hit is not None:
        expected = replace(expected, words=matched_query_words(analyzed_text(expected.hit.chunk), words))
    timings = timings | {"find the expected page": (perf_counter() - searched) * 1e3}
    return replace(explanation, expected=expected, timings_ms=timings)


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
        RankedHit(rank, hit, lead, matched_query_words(analyzed_text(hit.chunk), words))
        for rank, (hit, lead) in enumerate(zip(hits, (*leads, None), strict=False), 1)
    )


@dataclass(frozen=True, slots=True)
class _ExpectedPage:
    """Finds an expected page, section or passage in the ranking of a query."""

    retriever: Retriever
    opened: OpenIndex
    query: PreparedQuery
    explanation: Explanation

    def find(self, page_anchor: PageAnchor | None, passage: str) -> Expected:
        """Return the outcome for a page, a passage, or a passage on a page."""
        name = with_anchor(*page_anchor) if page_anchor else f'"{passage}"'
        chunks: list[Chunk] = []
        note = ""
        if page_anchor:
            on_page = self._chunks_of(page_anchor)
            if isinstance(on_page, Expected):
                return on_page
            chunks, note = on_page
        if passage:
            where, target = chunks[0].url if chunks else "the index", passage_target(passage)
            chunks = [chunk for chunk in chunks or self.opened.index.scroll() if target.holds(chunk)]
            if not chunks:
                return self._no_passage(name, passage, where)
        if excluded := self._excluded(chunks):
            ranked = self._ranked(name, chunks, NO_FILTERS)
            return replace(ranked, verdict=Verdict.FILTERED_OUT, message=excluded)
        ranked = self._ranked(name, chunks, self.explanation.filters)
        return replace(ranked, message=f"{note} {ranked.message}".strip())

    def _chunks_of(self, page_anchor: PageAnchor) -> tuple[list[Chunk], str] | Expected:
        """Return the chunks of a page or section with a note, or say what is not in the index."""
        page, anchor = page_anchor
        index, key = self.opened.index, page_key(page)
        chunks = list(index.scroll(Filters(page_url=page)))
        if not chunks:
            names: dict[str, str] = {}
            for chunk in index.scroll():
                names |= {page_key(name): name for name in (chunk.source, chunk.page_url)}
                if key == page_key(chunk.source):
                    chunks.append(chunk)
            if not chunks:
                message = f"There is no page '{page}' in the index."
                return Expected(
                    with_anchor(*page_anchor), Verdict.NO_PAGE, message, _nearest_page(key, names)
                )
        if not anchor:
            return chunks, ""
        anchors = {chunk.id: {chunk.anchor, *chunk.anchors} - {""} for chunk in chunks}
        if section := [chunk for chunk in chunks if anchor in anchors[chunk.id]]:
            return section, ""
        if not any(anchors.values()):
            return chunks, f"No anchors are stored for '{page}', so the whole page counts."
        near = nearest(anchor, sorted(set().union(*anchors.values())))
        message = f"There is no '#{anchor}' on '{page}'."
        return Expected(
            with_anchor(*page_anchor), Verdict.NO_ANCHOR, message, with_anchor(page, near) if near else ""
        )

    def _no_passage(self, name: str, passage: str, where: str) -> Expected:
        """Return the chunk nearest to a text that no chunk contains."""
        (near,) = nearest_chunks(self.opened.index, [self.opened.embedder.embed_query(passage)], 1)
        message = (
            f"The quoted text is in no chunk of {where}. It may have changed, or span two chunks: quote less."
        )
        return Expected(name, Verdict.NO_PASSAGE, message, near[0].chunk.url if near else "")

    def _excluded(self, chunks: Sequence[Chunk]) -> str:
        """Say which filter excludes all of the chunks, if one does."""
        filters, first = self.explanation.filters, chunks[0]
        asked, page = set(filter_keys(filters.modules)), filters.page_url
        if asked and all(asked.isdisjoint(chunk.module_keys) for chunk in chunks):
            return f"Its module '{first.module}' is excluded by --module {', '.join(filters.modules)}."
        if page is not None and all(page_key(chunk.page_url) != page_key(page) for chunk in chunks):
            return f"Its page {first.page_url} is excluded by --url {page}."
        return ""

    def _ranked(self, name: str, chunks: Sequence[Chunk], filters: Filters) -> Expected:
        mode, top_k, noise = self.explanation.mode, self.explanation.top_k, self.explanation.noise_floor
        listed = self._up_to({chunk.id for chunk in chunks}, mode, filters)
        hit = listed[-1] if listed else self._most_similar(chunks)
        dense = self._leg(hit, "dense", filters)
        if dense.score is None:
            dense = replace(dense, score=hit.dense)
        expected = Expected(
            name,
            Verdict.TOO_LOW,
            "The search does not return it, whatever the top k.",
            hit=hit,
            dense=dense,
            lexical=self._leg(hit, "lexical", filters) if self.query.lexical else None,
        )
        if not listed:
            lexical = "It contains none of the query's words."
            return replace(expected, message=lexical) if mode == "lexical" else expected
        rank, above = len(listed), tuple(listed[:-1])
        message = f"It is at rank {rank}."
        if rank <= top_k:
            shown = Verdict.FOUND
            return replace(expected, verdict=shown, message=message, rank=rank, lacks=0.0, lost_to=above)
        lacks = above[top_k - 1].score - hit.score
        message = f"It is at rank {rank} and lacks {lacks:.3f} for the first {top_k}."
        if lacks < 0:
            message = f"It is not among the candidates for the first {top_k}: use a larger top k."
        if noise is not None and hit.score < noise:
            message += f" Its score of {hit.score:.3f} is below the noise floor ({noise:.3f})."
        return replace(expected, message=message, rank=rank, lacks=lacks, lost_to=above[:top_k])

    def _leg(self, hit: Hit, mode: Mode, filters: Filters) -> Leg:
        listed = self._up_to({hit.chunk.id}, mode, filters)
        return Leg(len(listed), listed[-1].score) if listed else Leg(None, None)

    def _most_similar(self, chunks: Sequence[Chunk]) -> Hit:
        """Return the chunk most similar to the query by stored vectors, without a search."""
        vectors = self.opened.index.vectors([chunk.id for chunk in chunks])
        similar = [(cosine(self.query.vector, vectors[one.id]), one) for one in chunks if one.id in vectors]
        score, chunk = max(similar or [(0.0, chunks[0])], key=lambda one: one[0])
        return Hit(score, chunk, score)

    def _up_to(self, ids: set[str], mode: Mode, filters: Filters) -> list[Hit]:
        """Return the hits up to the first with one of the ids, or nothing, with a growing limit."""
        limit, everything = _FIRST_LIMIT, self.explanation.chunks
        hits = self._first_hits(mode, filters)
        while True:
            options = SearchOptions(limit, mode, filters)
            deeper = search_index(self.opened.index, [self.query], options)[0].hits
            hits = _append_new(hits, deeper)
            for rank, hit in enumerate(hits, 1):
                if hit.chunk.id in ids:
                    return hits[:rank]
            if len(deeper) < limit or limit >= everything:
                return []
            limit = min(everything, limit * 10)

    def _first_hits(self, mode: Mode, filters: Filters) -> list[Hit]:
        """Return the hits that are explained; for another mode or other filters, search again."""
        explanation = self.explanation
        if (mode, filters) == (explanation.mode, explanation.filters):
            return [ranked.hit for ranked in (*explanation.shown, *explanation.near_misses)]
        return list(self.retriever.search(explanation.query, explanation.top_k, filters, mode=mode).hits)


def _nearest_page(key: str, names: dict[str, str]) -> str:
    """Guess a page by its whole name, else by its last part: people often leave out the rest."""
    by_last_part = {name.rpartition("/")[2]: name for name in names}
    last_part = nearest(key.rpartition("/")[2], by_last_part) or ""
    meant = nearest(key, names) or by_last_part.get(last_part)
    return names[meant] if meant else ""
