"""Estimate whether the book covers a query at all, from its best cosine similarity and the words that the book knows."""

from __future__ import annotations

import math

from recto.search.lexical import LexicalQuery
from recto.types import Calibration

LINE = 0.5
"""Below this probability, the book does not seem to cover the query."""
NOT_COVERED = "The book does not seem to cover this."

# Chosen on 360 readers' questions about three books, 30 of which the books do not answer: the line flags 3 % of the answered questions and
# 80 % of the others. The same numbers fit all three, because similarities are measured from each index's own noise floor, in units of its
# own spread.
_SPREAD = 0.05
_KNOWN = 0.4  # what the share of known words counts for beside the cosine similarity
_MIDDLE, _STEEPNESS = 0.35, 30.0


def answerable(best_cosine: float | None, lexical: LexicalQuery | None, calibration: Calibration | None) -> float | None:
    """Return the probability that the book covers a query; None if the index was not calibrated or the query has no cosine."""
    if best_cosine is None or lexical is None or calibration is None:
        return None
    above = (best_cosine - calibration.noise) * _SPREAD / (calibration.spread or _SPREAD)
    return round(1 / (1 + math.exp(_STEEPNESS * (_MIDDLE - above - _KNOWN * lexical.known))), 3)
