"""Estimate whether the book covers a query at all, from its best cosine similarity and the words that the book knows."""

from __future__ import annotations

import math

from recto.search.lexical import LexicalQuery
from recto.types import Calibration

LINE = 0.5
"""Below this probability, the book does not seem to cover the query."""
_KNOWN = 0.3  # what the share of known words counts for beside the cosine similarity
_STEEPNESS = 20.0
_MARGIN = 0.3


def answerable(best_cosine: float | None, lexical: LexicalQuery | None, calibration: Calibration | None) -> float | None:
    """Return the probability that the book covers a query; None if the index was not calibrated or the query has no cosine."""
    if best_cosine is None or lexical is None or calibration is None:
        return None
    signal = best_cosine - calibration.noise + _KNOWN * lexical.known
    return round(1 / (1 + math.exp(-_STEEPNESS * (signal - _MARGIN))), 3)
