"""Clamp a value, compare vectors, and describe the distribution of values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import mul


def clamp(value: float) -> float:
    """Limit a value to the range from 0 to 1."""
    return min(1.0, max(0.0, value))


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the cosine of the angle between two vectors; 0 if one is zero or their dimensions differ."""
    lengths = math.hypot(*one) * math.hypot(*other)
    return sum(map(mul, one, other)) / lengths if lengths and len(one) == len(other) else 0.0


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
