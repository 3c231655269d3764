"""Rank candidates, turn them into hits, and build the response to a query."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence

from recto._util.text import filter_keys, nearest
from recto.protocols import Index
from recto.search.lexical import LexicalQuery
from recto.settings import LEXICAL_WEIGHT
from recto.types import (
    Calibration,
    Candidates,
    Chunk,
    Coverage,
    Filters,
    Hit,
    Mode,
    Outcome,
    PageGroup,
    SearchResponse,
    Timings,
    hit_order,
)

Ranked = list[tuple[Hashable, float]]
"""The ids and scores of candidates, best first."""

COVERED_FROM, NOT_COVERED_BELOW = 0.5, 0.25
"""The probabilities that separate the grades of `SearchResponse.coverage`."""
# Fitted by logistic regression to readers' questions about eleven books (`python -m bench.answerability`).
# Similarities are measured from the noise floor of an index in units of its spread, because every model and
# every book has its own.
SPREAD = 0.05
"""The spread of the books that answerability was fitted to."""
_ABOVE_WEIGHT, _KNOWN_WEIGHT, _OFFSET = 16.0, 6.4, -7.2


def rank(candidates: Candidates, mode: Mode, weight: float, min_score: float | None = None) -> Ranked:
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


def with_ties(ranked: Ranked, limit: int) -> Ranked:
    """Return the best candidates up to a limit, and those that have the same score as the last of them."""
    end = limit
    while 0 < end < len(ranked) and ranked[end][1] == ranked[limit - 1][1]:
        end += 1
    return ranked[:end]


def to_hits(
    ranked: Ranked, candidates: Candidates, chunks: Mapping[Hashable, Chunk], limit: int
) -> list[Hit]:
    """Return the hits of ranked candidates; skip chunks that were deleted in the meantime."""
    dense, lexical = candidates.dense, candidates.lexical
    hits = [
        Hit(score, chunks[id], dense.get(id), lexical.get(id, 0.0)) for id, score in ranked if id in chunks
    ]
    hits.sort(key=hit_order)
    return hits[:limit]


def group_by_page(hits: Sequence[Hit], pages: int) -> tuple[PageGroup, ...]:
    """Return the best pages with their hits, the page of the best hit first."""
    groups: dict[str, list[Hit]] = {}
    for hit in hits:
        if hit.chunk.page_url in groups or len(groups) < pages:
            groups.setdefault(hit.chunk.page_url, []).append(hit)
    return tuple(PageGroup(tuple(group)) for group in groups.values())


def build_response(
    index: Index,
    collection: str,
    query: str,
    hits: list[Hit],
    filters: Filters,
    min_score: float | None,
    timings: Timings,
    mode: Mode = "dense",
    lexical: LexicalQuery | None = None,
    evidence: float | None = None,
    warnings: tuple[str, ...] = (),
) -> SearchResponse:
    """Build the response to a query from its hits."""
    outcome, message = (Outcome.FOUND, "") if hits else _explain_empty(index, filters, min_score, mode)
    info = index.info  # read once, because an embedded index checks the disk for it
    probability = answerable(evidence, lexical, info.calibration)
    return SearchResponse(
        query,
        tuple(hits),
        filters,
        collection,
        outcome,
        timings,
        message,
        info.warnings + warnings,
        noise_score(info.noise_floor, mode, lexical),
        generation=info.generation,
        mode=mode,
        answerable=probability,
        coverage=coverage(probability),
        corrections=lexical.corrections if lexical and mode != "dense" else (),
    )


def _explain_empty(
    index: Index, filters: Filters, min_score: float | None, mode: Mode
) -> tuple[Outcome, str]:
    """Return why there are no hits: filters that exclude every chunk, or no chunk with the minimum score."""
    if not filters or index.count(filters):
        if mode == "lexical" and min_score is None:
            return Outcome.NO_MATCH, "No chunk contains any word of the query"
        return Outcome.NO_MATCH, f"No chunk reaches the minimum score of {min_score}"
    reasons = []
    if filters.modules and not index.count(Filters(modules=filters.modules)):
        modules = index.modules()
        names = " or ".join(map(repr, filter_keys(filters.modules)))
        hint = _did_you_mean(nearest(filters.modules[0], modules))
        reasons.append(f"There is no module {names}.{hint} Modules: {', '.join(modules)}.")
    if filters.page_url is not None and not index.count(Filters(page_url=filters.page_url)):
        from recto.search.pages import nearest_page

        hint = _did_you_mean(nearest_page(index, filters.page_url))
        reasons.append(f"There is no page {filters.page_url!r}.{hint}")
    both = "No page matches all filters together; each of them alone has matches."
    return Outcome.FILTERED_OUT, " ".join(reasons) or both


def _did_you_mean(name: str | None) -> str:
    return f" Did you mean '{name}'?" if name else ""


def best_evidence(candidates: Candidates) -> float | None:
    """Return the largest sum of cosine similarity and weighted lexical score, or None without both."""
    lexical = candidates.lexical
    sums = (cosine + LEXICAL_WEIGHT * lexical.get(id, 0.0) for id, cosine in candidates.dense.items())
    return max(sums, default=None)


def answerable(
    evidence: float | None, lexical: LexicalQuery | None, calibration: Calibration | None
) -> float | None:
    """Return the probability that the book covers a query, or None if one of the inputs is missing."""
    if evidence is None or lexical is None or calibration is None:
        return None
    above = (evidence - calibration.noise_floor) * SPREAD / (calibration.spread or SPREAD)
    return round(1 / (1 + math.exp(-(_ABOVE_WEIGHT * above + _KNOWN_WEIGHT * lexical.known + _OFFSET))), 3)


def noise_score(noise_floor: float | None, mode: Mode, lexical: LexicalQuery | None) -> float | None:
    """Return the score of a chunk at the noise floor that has none of the query's words."""
    if noise_floor is None or mode == "lexical":
        return None
    return noise_floor / (1 + lexical.weight) if mode == "hybrid" and lexical else noise_floor


def coverage(probability: float | None) -> Coverage | None:
    """Return the grade of a probability that the book covers a query."""
    if probability is None:
        return None
    if probability >= COVERED_FROM:
        return "covered"
    return "unclear" if probability >= NOT_COVERED_BELOW else "not covered"
