"""Explain a search: ranks, margins, near misses and matched words, and why an expected page is not found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from time import perf_counter

from recto._util.text import filter_keys, nearest, page_key, with_anchor
from recto.errors import InvalidArgument
from recto.evaluation.binding import passage_target
from recto.evaluation.calibration import cosine
from recto.protocols import Index
from recto.search.display import matched_query_words, words_to_match
from recto.search.lexical import LexicalQuery, QueryWord, analyzed_text
from recto.search.query import DEFAULT_TOP_K, MAX_TOP_K, check_query, check_search
from recto.search.response import rank
from recto.search.retriever import Retriever
from recto.types import NO_FILTERS, Chunk, Filters, Hit, IndexQuery, Mode

_NEAR_MISSES = 5
_FIRST_LIMIT = 200  # hits requested first for an expected page; then more, up to all


@dataclass(frozen=True, slots=True)
class Place:
    """A page and, if one is named, an anchor on it."""

    page: str
    anchor: str = ""

    def __str__(self) -> str:
        """Return `page#anchor`."""
        return with_anchor(self.page, self.anchor)


@dataclass(frozen=True, slots=True)
class PlaceChunks:
    """The chunks of a page or section; if there are none, `missing` says why and `near` is a guess."""

    chunks: tuple[Chunk, ...]
    missing: str = ""
    near: str = ""


def parse_place(text: str) -> Place:
    """Read `page#anchor`."""
    page, _, anchor = text.strip().partition("#")
    if not page:
        raise InvalidArgument(
            "--expect needs a page, as page#anchor",
            hint="Name it by its address, or by its path in the book.",
        )
    return Place(page, anchor)


def find_place(index: Index, place: Place) -> PlaceChunks:
    """Return the chunks of a page or section, or say what is not in the index."""
    chunks = list(index.scroll(Filters(page_url=place.page))) or _by_path(index, place.page)
    if isinstance(chunks, str):
        return PlaceChunks((), f"There is no page '{place.page}' in the index.", chunks)
    if not place.anchor:
        return PlaceChunks(tuple(chunks))
    there = tuple(chunk for chunk in chunks if place.anchor in (chunk.anchor, *chunk.anchors))
    if there:
        return PlaceChunks(there)
    anchors = dict.fromkeys(anchor for chunk in chunks for anchor in (chunk.anchor, *chunk.anchors) if anchor)
    if not anchors:
        return PlaceChunks(
            tuple(chunks), f"No anchors are stored for '{place.page}', so the whole page counts."
        )
    near = nearest(place.anchor, anchors)
    return PlaceChunks(
        (), f"There is no '#{place.anchor}' on '{place.page}'.", with_anchor(place.page, near) if near else ""
    )


def _by_path(index: Index, page: str) -> list[Chunk] | str:
    """Return the chunks of the page with a path in the book, or the nearest name that exists."""
    wanted = page_key(page)
    known: dict[str, str] = {}
    found: list[Chunk] = []
    for chunk in index.scroll():
        known[page_key(chunk.source)] = chunk.source
        known[page_key(chunk.page_url)] = chunk.page_url
        if wanted == page_key(chunk.source):
            found.append(chunk)
    return found or _nearest(wanted, known)


def _nearest(wanted: str, known: dict[str, str]) -> str:
    """Guess by the whole name, else by its last part: people often leave out the rest."""
    meant = nearest(wanted, known)
    if meant is None:
        last = {_last(name): name for name in known}
        meant = last.get(nearest(_last(wanted), last) or "")
    return known[meant] if meant else ""


def _last(name: str) -> str:
    return name.rpartition("/")[2]


class Verdict(StrEnum):
    """The outcome for an expected page, section or passage."""

    FOUND = "found"
    TOO_LOW = "too_low"
    FILTERED_OUT = "filtered_out"
    NO_PAGE = "no_such_page"
    NO_ANCHOR = "no_such_anchor"
    NO_PASSAGE = "no_such_passage"


@dataclass(frozen=True, slots=True)
class Ranked:
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
class Step:
    """The duration of a step."""

    name: str
    milliseconds: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """A search in full: the hits shown, the near misses, and the expected page."""

    query: str
    collection: str
    filters: Filters
    top_k: int
    chunks: int
    candidates: int
    shown: tuple[Ranked, ...]
    near_misses: tuple[Ranked, ...]
    noise_floor: float | None
    auroc: float | None
    steps: tuple[Step, ...]
    warnings: tuple[str, ...]
    mode: Mode = "dense"
    words: tuple[str, ...] = ()
    corrections: tuple[tuple[str, tuple[str, ...]], ...] = ()
    answerable: float | None = None
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
    expect: Place | None = None,
    passage: str = "",
    mode: Mode = "hybrid",
) -> Explanation:
    """Search like `Retriever.search`, and explain the ranking."""
    text = check_query(query)
    check_search(top_k, filters, None, mode=mode)
    steps: list[Step] = []
    began = perf_counter()
    index = retriever.open()
    began = _note(steps, "open", began)
    retriever.embedder.warm_up()
    _note(steps, "load the model", began)
    response = retriever.search(text, min(MAX_TOP_K, top_k + _NEAR_MISSES + 1), filters, mode=mode)
    steps += [Step("embed", response.timings.embed_ms), Step("search", response.timings.search_ms)]
    began = perf_counter()
    lexical = retriever.analyze(text)
    words = words_to_match(text, lexical)
    ranked = _ranked(response.hits, words)
    explanation = Explanation(
        query=text,
        collection=retriever.collection,
        filters=filters,
        top_k=top_k,
        chunks=index.info.chunks,
        candidates=index.count(filters) if filters else index.info.chunks,
        shown=ranked[:top_k],
        near_misses=ranked[top_k : top_k + _NEAR_MISSES],
        noise_floor=index.info.noise_floor,
        auroc=index.info.calibration.auroc if index.info.calibration else None,
        steps=tuple(steps),
        warnings=response.warnings,
        mode=response.mode,
        words=tuple(word.word for word in words),
        corrections=response.corrections,
        answerable=response.answerable,
    )
    if expect is None and not passage:
        return explanation
    vector = retriever.embedder.embed_query(text)
    expected = _Search(retriever, index, vector, lexical, explanation).expected(expect, passage)
    if expected.hit is not None:
        expected = replace(expected, words=matched_query_words(analyzed_text(expected.hit.chunk), words))
    _note(steps, "look for the expected place", began)
    return replace(explanation, expected=expected, steps=tuple(steps))


class _Search:
    """Finds an expected page, section or passage in the ranking of an embedded query."""

    def __init__(
        self,
        retriever: Retriever,
        index: Index,
        vector: list[float],
        lexical: LexicalQuery | None,
        explanation: Explanation,
    ) -> None:
        self._retriever = retriever
        self._index = index
        self._vector = vector
        self._lexical = lexical
        self._explanation = explanation

    def expected(self, place: Place | None, passage: str) -> Expected:
        """Return the outcome for a page, a passage, or a passage on a page."""
        wanted = str(place) if place else f'"{passage}"'
        found = (
            find_place(self._index, place)
            if place
            else PlaceChunks(tuple(self._with_passage(self._index.scroll(), passage)))
        )
        if place and found.missing and not found.chunks:
            verdict = Verdict.NO_ANCHOR if "#" in found.missing else Verdict.NO_PAGE
            return Expected(wanted, verdict, found.missing, found.near)
        chunks = self._with_passage(found.chunks, passage) if passage else list(found.chunks)
        if not chunks:
            return self._no_passage(wanted, passage, found.chunks)
        excluded = self._excluded(chunks)
        if excluded:
            return replace(
                self._ranked(wanted, chunks, NO_FILTERS), verdict=Verdict.FILTERED_OUT, message=excluded
            )
        ranked = self._ranked(wanted, chunks, self._explanation.filters)
        return replace(ranked, message=" ".join(filter(None, (found.missing, ranked.message))))

    @staticmethod
    def _with_passage(chunks: Iterable[Chunk], passage: str) -> list[Chunk]:
        """Return the chunks that contain a quoted text, ignoring white space and case."""
        wanted = passage_target(passage)
        return [chunk for chunk in chunks if wanted.holds(chunk)]

    def _no_passage(self, wanted: str, passage: str, chunks: Sequence[Chunk]) -> Expected:
        """Return the chunk nearest to a text that no chunk contains."""
        vector = self._retriever.embedder.embed_query(passage)
        near = self._index.query(vector, 1)
        where = f"no chunk of {chunks[0].link}" if chunks else "no chunk of the index"
        message = f"The quoted text is in {where}. It may have changed, or span two chunks: quote less."
        return Expected(wanted, Verdict.NO_PASSAGE, message, near[0].chunk.link if near else "")

    def _excluded(self, chunks: Sequence[Chunk]) -> str:
        """Say which filter excludes all of the chunks, if one does."""
        filters = self._explanation.filters
        asked = set(filter_keys(filters.modules))
        if asked and all(asked.isdisjoint(chunk.module_keys) for chunk in chunks):
            return (
                f"Its module '{chunks[0].module_name}' is excluded by --module {', '.join(filters.modules)}."
            )
        if filters.page_url is not None and all(
            page_key(chunk.page_url) != page_key(filters.page_url) for chunk in chunks
        ):
            return f"Its page {chunks[0].page_url} is excluded by --url {filters.page_url}."
        return ""

    def _ranked(self, wanted: str, chunks: Sequence[Chunk], filters: Filters) -> Expected:
        mode, top_k = self._explanation.mode, self._explanation.top_k
        listed = self._up_to({chunk.id for chunk in chunks}, mode, filters)
        if not listed:
            nearest = self._nearest(chunks)
            message = "The search does not return it, whatever the top k."
            if mode == "lexical":
                message = "It contains none of the query's words."
            return self._with_legs(Expected(wanted, Verdict.TOO_LOW, message, hit=nearest), nearest, filters)
        *above, best = listed
        place = Expected(
            wanted, Verdict.FOUND, f"It is at rank {len(listed)}.", hit=best, rank=len(listed), lacks=0.0
        )
        place = self._with_legs(place, best, filters)
        if len(listed) <= top_k:
            return replace(place, lost_to=tuple(above))
        lacks = above[top_k - 1].score - best.score
        message = f"It is at rank {len(listed)} and lacks {lacks:.3f} for the first {top_k}."
        noise, similarity = self._explanation.noise_floor, place.dense.score if place.dense else None
        if noise is not None and similarity is not None and similarity < noise:
            message += f" Its cosine similarity of {similarity:.3f} is below the noise floor ({noise:.3f})."
        return replace(
            place, verdict=Verdict.TOO_LOW, message=message, lacks=lacks, lost_to=tuple(above[:top_k])
        )

    def _with_legs(self, expected: Expected, hit: Hit, filters: Filters) -> Expected:
        """Add the positions of a chunk in the dense and the lexical ranking."""
        dense = self._leg(hit, "dense", filters)
        if dense.score is None:
            dense = replace(dense, score=hit.dense)
        return replace(
            expected, dense=dense, lexical=self._leg(hit, "lexical", filters) if self._lexical else None
        )

    def _leg(self, hit: Hit, mode: Mode, filters: Filters) -> Leg:
        listed = self._up_to({hit.chunk.id}, mode, filters)
        return Leg(len(listed), listed[-1].score) if listed else Leg(None, None)

    def _nearest(self, chunks: Sequence[Chunk]) -> Hit:
        """Return the chunk most similar to the query by stored vectors, without a search."""
        vectors = self._index.vectors([chunk.id for chunk in chunks])
        similar = [
            (cosine(self._vector, vectors[chunk.id]), chunk) for chunk in chunks if chunk.id in vectors
        ]
        score, chunk = max(similar or [(0.0, chunks[0])], key=lambda one: one[0])
        return Hit(score, chunk, score)

    def _up_to(self, wanted: set[str], mode: Mode, filters: Filters) -> list[Hit]:
        """Return the hits up to the first wanted one, with a growing limit; empty if it never appears."""
        limit, everything = _FIRST_LIMIT, self._explanation.chunks
        while True:
            hits = self._hits(limit, mode, filters)
            for place, hit in enumerate(hits, 1):
                if hit.chunk.id in wanted:
                    return hits[:place]
            if len(hits) < limit or limit >= everything:
                return []
            limit = min(everything, limit * 10)

    def _hits(self, limit: int, mode: Mode, filters: Filters) -> list[Hit]:
        if mode == "dense":
            return self._index.query(self._vector, limit, filters)
        if self._lexical is None:
            return []
        query = IndexQuery(self._vector if mode == "hybrid" else None, self._lexical.vector)
        (found,) = self._index.candidates([query], limit, filters)
        best = rank(found, mode, self._lexical.weight)[:limit]
        chunks = self._index.chunks([id for id, _ in best])
        hits = [
            Hit(score, chunks[id], found.dense.get(id), found.lexical.get(id, 0.0))
            for id, score in best
            if id in chunks
        ]
        return sorted(
            hits, key=lambda hit: (-hit.score, hit.chunk.page_url, hit.chunk.chunk_index, hit.chunk.id)
        )


def _ranked(hits: Sequence[Hit], words: Sequence[QueryWord]) -> tuple[Ranked, ...]:
    below = [*(hit.score for hit in hits[1:]), None]
    return tuple(
        Ranked(
            place,
            hit,
            None if lower is None else hit.score - lower,
            matched_query_words(analyzed_text(hit.chunk), words),
        )
        for place, (hit, lower) in enumerate(zip(hits, below, strict=True), 1)
    )


def _note(steps: list[Step], name: str, began: float) -> float:
    now = perf_counter()
    steps.append(Step(name, (now - began) * 1e3))
    return now
