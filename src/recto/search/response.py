"""Estimate whether the book covers a query at all, from its best cosine similarity and the words that the book knows."""

from __future__ import annotations

import math

from recto._util.names import filter_keys, nearest
from recto.protocols import Index
from recto.search.lexical import LexicalQuery
from recto.types import Calibration, Filters, Hit, Mode, Outcome, SearchResponse, Timings


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
    best_cosine: float | None = None,
    warnings: tuple[str, ...] = (),
) -> SearchResponse:
    """Make the response to a query from what the engine found."""
    outcome, message = (Outcome.FOUND, "") if hits else _why_nothing(index, filters, min_score, mode)
    info = index.info  # asked for once: an embedded index looks at the disk for it
    return SearchResponse(
        query,
        tuple(hits),
        filters,
        collection,
        outcome,
        timings,
        message,
        info.warnings + warnings,
        info.noise_floor,
        generation=info.generation,
        mode=mode,
        answerable=answerable(best_cosine, lexical, info.calibration),
        corrections=lexical.corrections if lexical and mode != "dense" else (),
    )


def _why_nothing(index: Index, filters: Filters, min_score: float | None, mode: Mode) -> tuple[Outcome, str]:
    """Tell a filter that leaves nothing from a score that nothing reaches; runs only when there is nothing to show."""
    if not filters or index.count(filters):
        if mode == "lexical" and min_score is None:
            return Outcome.NO_MATCH, "No chunk contains any word of the query"
        return Outcome.NO_MATCH, f"No passage reaches the asked score of {min_score}"
    reasons = []
    if filters.modules and not index.count(Filters(modules=filters.modules)):
        modules = index.modules()
        near = nearest(filters.modules[0], modules)
        reasons.append(
            f"There is no module {' or '.join(repr(name) for name in filter_keys(filters.modules))}."
            + (f" Did you mean '{near}'?" if near else "")
            + f" Modules: {', '.join(modules)}."
        )
    if filters.page_url is not None and not index.count(Filters(page_url=filters.page_url)):
        near = nearest(filters.page_url, index.pages())
        reasons.append(
            f"There is no page {filters.page_url!r}." + (f" Did you mean '{near}'?" if near else "")
        )
    return Outcome.FILTERED_OUT, " ".join(
        reasons
    ) or "No page matches all filters together; each of them alone has matches."


LINE = 0.5
"""Below this probability, the book does not seem to cover the query."""
NOT_COVERED = "The book does not seem to cover this."

# Chosen on 360 readers' questions about three books, 30 of which the books do not answer: the line flags 3 % of the answered questions and
# 80 % of the others. The same numbers fit all three, because similarities are measured from each index's own noise floor, in units of its
# own spread.
_SPREAD = 0.05
_KNOWN = 0.4  # what the share of known words counts for beside the cosine similarity
_MIDDLE, _STEEPNESS = 0.35, 30.0


def answerable(
    best_cosine: float | None, lexical: LexicalQuery | None, calibration: Calibration | None
) -> float | None:
    """Return the probability that the book covers a query; None if the index was not calibrated or the query has no cosine."""
    if best_cosine is None or lexical is None or calibration is None:
        return None
    above = (best_cosine - calibration.noise_floor) * _SPREAD / (calibration.spread or _SPREAD)
    return round(1 / (1 + math.exp(_STEEPNESS * (_MIDDLE - above - _KNOWN * lexical.known))), 3)
