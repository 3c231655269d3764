"""Why a search answers as it does: margins, near misses, noise; and where an expected place is, or why it cannot come."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from time import perf_counter

from recto.addresses import page_key
from recto.calibration.measuring import cosine
from recto.evaluation.places import Found, Place, find_place
from recto.limits import DEFAULT_TOP_K, check_query, check_search
from recto.modules import filter_keys
from recto.protocols import Index
from recto.retriever import Retriever
from recto.types import NO_FILTERS, Chunk, Filters, Hit

_NEAR_MISSES = 5
_FIRST_LOOK = 200  # hits that are looked at for an expected place; then more, up to all
_SAME = 1e-5  # scores of a search and of two vectors may differ by this


class Verdict(StrEnum):
    """What became of an expected place."""

    FOUND = "found"
    TOO_LOW = "too_low"
    FILTERED_OUT = "filtered_out"
    NO_PAGE = "no_such_page"
    NO_ANCHOR = "no_such_anchor"
    NO_PASSAGE = "no_such_passage"


@dataclass(frozen=True, slots=True)
class Ranked:
    """A hit with its rank and its lead: by how much it is above the next one."""

    rank: int
    hit: Hit
    lead: float | None


@dataclass(frozen=True, slots=True)
class Expected:
    """Where an expected place is: its best passage's rank and score, and how much it lacks for the last place that is shown."""

    wanted: str
    verdict: Verdict
    message: str
    near: str = ""
    hit: Hit | None = None
    rank: int | None = None
    lacks: float | None = None
    lost_to: tuple[Hit, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """What a step took."""

    name: str
    milliseconds: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """A search in full: what is shown, what came just below, what was expected."""

    query: str
    collection: str
    filters: Filters
    top_k: int
    chunks: int
    candidates: int
    shown: tuple[Ranked, ...]
    near_misses: tuple[Ranked, ...]
    noise: float | None
    separation: float | None
    steps: tuple[Step, ...]
    warnings: tuple[str, ...]
    expected: Expected | None = None

    @property
    def found(self) -> bool:
        """Whether what was expected is shown; without an expectation, whether anything is."""
        return self.expected.verdict is Verdict.FOUND if self.expected else bool(self.shown)


def explain(
    retriever: Retriever,
    query: str,
    top_k: int = DEFAULT_TOP_K,
    filters: Filters = NO_FILTERS,
    expect: Place | None = None,
    passage: str = "",
) -> Explanation:
    """Search as `Retriever.search` does, and look at everything around it."""
    text = check_query(query)
    check_search(top_k, filters, None)
    steps: list[Step] = []
    began = perf_counter()
    index = retriever.open()
    began = _note(steps, "open", began)
    retriever.embedder.warm_up()
    began = _note(steps, "load the model", began)
    vector = retriever.embedder.embed_query(text)
    began = _note(steps, "embed", began)
    hits = index.query(vector, top_k + _NEAR_MISSES + 1, filters)
    began = _note(steps, "search", began)
    ranked = _ranked(hits)
    explanation = Explanation(
        query=text,
        collection=retriever.collection,
        filters=filters,
        top_k=top_k,
        chunks=index.info.chunks,
        candidates=index.count(filters) if filters else index.info.chunks,
        shown=ranked[:top_k],
        near_misses=ranked[top_k : top_k + _NEAR_MISSES],
        noise=index.info.noise,
        separation=index.info.calibration.separation if index.info.calibration else None,
        steps=tuple(steps),
        warnings=index.info.warnings,
    )
    if expect is None and not passage:
        return explanation
    expected = _Search(retriever, index, vector, explanation).expected(expect, passage)
    _note(steps, "look for the expected place", began)
    return replace(explanation, expected=expected, steps=tuple(steps))


class _Search:
    """Looks for what was expected, once the question has its vector."""

    def __init__(self, retriever: Retriever, index: Index, vector: list[float], explanation: Explanation) -> None:
        self._retriever = retriever
        self._index = index
        self._vector = vector
        self._explanation = explanation

    def expected(self, place: Place | None, passage: str) -> Expected:
        """Say what became of a place, of a passage, or of a passage at a place."""
        wanted = str(place) if place else f'"{passage}"'
        found = find_place(self._index, place) if place else Found(tuple(self._with_passage(self._index.scroll(), passage)))
        if place and found.missing and not found.chunks:
            verdict = Verdict.NO_ANCHOR if "#" in found.missing else Verdict.NO_PAGE
            return Expected(wanted, verdict, found.missing, found.near)
        chunks = self._with_passage(found.chunks, passage) if passage else list(found.chunks)
        if not chunks:
            return self._no_passage(wanted, passage, found.chunks)
        excluded = self._excluded(chunks)
        if excluded:
            return replace(self._ranked(wanted, chunks, NO_FILTERS), verdict=Verdict.FILTERED_OUT, message=excluded)
        ranked = self._ranked(wanted, chunks, self._explanation.filters)
        return replace(ranked, message=" ".join(filter(None, (found.missing, ranked.message))))

    @staticmethod
    def _with_passage(chunks: Iterable[Chunk], passage: str) -> list[Chunk]:
        """Return the chunks that hold a quoted text, whatever its white space and case."""
        wanted = _plain(passage)
        return [chunk for chunk in chunks if wanted in _plain(chunk.text)]

    def _no_passage(self, wanted: str, passage: str, chunks: Sequence[Chunk]) -> Expected:
        """Show what comes nearest to a text that is in no chunk."""
        vector = self._retriever.embedder.embed_query(passage)
        near = self._index.query(vector, 1)
        where = f"no passage of {chunks[0].link}" if chunks else "no passage of the index"
        message = f"The quoted text is in {where}. It may have been changed, or stand in two passages; a shorter quotation may be found."
        return Expected(wanted, Verdict.NO_PASSAGE, message, near[0].chunk.link if near else "")

    def _excluded(self, chunks: Sequence[Chunk]) -> str:
        """Say which filter lets none of the chunks through, if one does."""
        filters = self._explanation.filters
        asked = set(filter_keys(filters.modules))
        if asked and all(asked.isdisjoint(chunk.module_keys) for chunk in chunks):
            return f"It is of module '{chunks[0].module_name}', which --module {', '.join(filters.modules)} leaves out."
        if filters.page_url is not None and all(page_key(chunk.page_url) != page_key(filters.page_url) for chunk in chunks):
            return f"It is on {chunks[0].page_url}, which --url {filters.page_url} leaves out."
        return ""

    def _ranked(self, wanted: str, chunks: Sequence[Chunk], filters: Filters) -> Expected:
        best = self._best(chunks)
        above = self._above(best, {chunk.id for chunk in chunks}, filters)
        if above is None:
            return Expected(wanted, Verdict.TOO_LOW, "The search does not bring it at all, however many hits are asked for.", hit=best)
        rank, top_k = len(above) + 1, self._explanation.top_k
        if rank <= top_k:
            return Expected(wanted, Verdict.FOUND, f"It is at rank {rank}.", hit=best, rank=rank, lacks=0.0, lost_to=tuple(above))
        lacks = above[top_k - 1].score - best.score
        message = f"It is at rank {rank} and lacks {lacks:.3f} for the first {top_k}."
        noise = self._explanation.noise
        if noise is not None and best.score < noise:
            message += f" Its score of {best.score:.3f} is below the level of noise ({noise:.3f})."
        return Expected(wanted, Verdict.TOO_LOW, message, hit=best, rank=rank, lacks=lacks, lost_to=tuple(above[:top_k]))

    def _best(self, chunks: Sequence[Chunk]) -> Hit:
        """Score chunks by their stored vectors, without a search."""
        vectors = self._index.vectors([chunk.id for chunk in chunks])
        scored = [Hit(cosine(self._vector, vectors[chunk.id]), chunk) for chunk in chunks if chunk.id in vectors]
        return max(scored or [Hit(0.0, chunks[0])], key=lambda hit: hit.score)

    def _above(self, best: Hit, wanted: set[str], filters: Filters) -> list[Hit] | None:
        """Return the hits before the expected one, asking for more and more of them; None if it never comes."""
        limit, everything = _FIRST_LOOK, self._explanation.chunks
        while True:
            hits = self._index.query(self._vector, limit, filters, best.score - _SAME)
            for rank, hit in enumerate(hits):
                if hit.chunk.id in wanted:
                    return hits[:rank]
            if len(hits) < limit or limit >= everything:
                return None
            limit = min(everything, limit * 10)


def _ranked(hits: Sequence[Hit]) -> tuple[Ranked, ...]:
    below = [*(hit.score for hit in hits[1:]), None]
    return tuple(
        Ranked(rank, hit, None if lower is None else hit.score - lower)
        for rank, (hit, lower) in enumerate(zip(hits, below, strict=True), 1)
    )


def _note(steps: list[Step], name: str, began: float) -> float:
    now = perf_counter()
    steps.append(Step(name, (now - began) * 1e3))
    return now


def _plain(text: str) -> str:
    return " ".join(text.split()).lower()
