"""Rank candidates: by cosine similarity, by BM25, or by the weighted sum of both; group hits by page."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from recto.types import Candidates, Hit, Mode, PageGroup

Ranked = list[tuple[Hashable, float]]


def rank(candidates: Candidates, mode: Mode, weight: float, min_score: float | None = None) -> Ranked:
    """Return the candidates' ids and scores, best first.

    The hybrid score is the cosine similarity plus `weight` times the BM25 score, divided by the best BM25 score of the query. Scores are
    added, not ranks: ranks lose how much better one chunk is than the next.
    """
    if mode == "lexical":
        scores = candidates.lexical
    elif mode == "dense" or not candidates.lexical:
        scores = candidates.dense
    else:
        scale = weight / max(candidates.lexical.values())
        scores = {
            id: cosine + scale * candidates.lexical.get(id, 0.0) for id, cosine in candidates.dense.items()
        }
    ranked = sorted(scores.items(), key=lambda item: -item[1])
    return ranked if min_score is None else [item for item in ranked if item[1] >= min_score]


def group_by_page(hits: Sequence[Hit], pages: int) -> tuple[PageGroup, ...]:
    """Return the first pages with their hits, the page of the best hit first."""
    found: dict[str, list[Hit]] = {}
    for hit in hits:
        if hit.chunk.page_url in found or len(found) < pages:
            found.setdefault(hit.chunk.page_url, []).append(hit)
    return tuple(PageGroup(tuple(group)) for group in found.values())
