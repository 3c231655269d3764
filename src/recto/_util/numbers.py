"""Clamp a value, and describe the distribution of values."""

from __future__ import annotations

import math
from collections.abc import Sequence


def clamp(value: float) -> float:
    """Limit a value to the range from 0 to 1."""
    return min(1.0, max(0.0, value))


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the percentile of sorted values, interpolated between the two nearest ones."""
    position = share * (len(ordered) - 1)
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def nearest_rank(values: Sequence[float], share: float) -> float:
    """Return the percentile of values by the nearest-rank method: always one of the values."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def distribution(values: Sequence[float]) -> dict[str, float]:
    """Return how many values there are, and their mean, percentiles and maximum; all 0 if there are none."""
    return {
        "count": len(values),
        "mean": round(sum(values) / max(1, len(values)), 3),
        "p95": nearest_rank(values or [0.0], 0.95),
        "p99": nearest_rank(values or [0.0], 0.99),
        "max": max(values, default=0.0),
    }
