"""Confidence intervals by percentile bootstrap, and a test of whether paired values dropped.

A resample only depends on how often each distinct value is drawn, so resamples are drawn as counts: a suite
of a hundred thousand questions is as fast as one of a hundred. Random numbers are the same in every run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LEVEL = 0.95
_RESAMPLES = 4000
_SEED = 20_260_101
_CELLS = 2_000_000
_DRAWS = 20_000_000
"""The limit of draws per interval; a suite with very many distinct values gets fewer resamples."""


@dataclass(frozen=True, slots=True)
class ScoreEstimate:
    """A mean over `count` questions with its 95 % confidence interval."""

    mean: float
    low: float
    high: float
    count: int

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            name: round(value, 6) if isinstance(value, float) else value
            for name, value in asdict(self).items()
        }


def estimate(values: Sequence[float]) -> ScoreEstimate | None:
    """Return the mean of values with its percentile-bootstrap interval; None without values."""
    if not values:
        return None
    import numpy as np

    means = _resampled(np.asarray(values, dtype=np.float64))
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return ScoreEstimate(math.fsum(values) / len(values), float(low), float(high), len(values))


def p_value_of_loss(deltas: Sequence[float]) -> float:
    """Return the one-sided p-value of a drop, by the sign-flip test of paired values.

    If neither side is better, each delta could as well have the other sign. For values of 0 or 1 this is the
    exact McNemar test; for others the signs are drawn at random, one draw for all deltas of a size.
    """
    changed = [delta for delta in deltas if abs(delta) > 1e-12]
    if not changed:
        return 1.0
    sizes = {round(abs(delta), 9) for delta in changed}
    if len(sizes) == 1:
        lost = sum(delta < 0 for delta in changed)
        tail = sum(math.comb(len(changed), count) for count in range(lost, len(changed) + 1))
        return float(tail / 2 ** len(changed))
    import numpy as np

    observed = math.fsum(changed)
    size, count = np.unique(np.round(np.abs(changed), 9), return_counts=True)
    generator = np.random.default_rng(_SEED)
    drawn = np.zeros(_RESAMPLES)
    for value, times in zip(size, count, strict=True):
        drawn += value * (2.0 * generator.binomial(times, 0.5, size=_RESAMPLES) - times)
    return float((1 + np.count_nonzero(drawn <= observed + 1e-9)) / (1 + _RESAMPLES))


def holm(p_values: Sequence[float], level: float) -> list[bool]:
    """Return which of several hypotheses to reject at a family-wise error rate of `level` (Holm's method)."""
    holds = [False] * len(p_values)
    for place, number in enumerate(sorted(range(len(p_values)), key=lambda index: p_values[index])):
        if p_values[number] > level / (len(p_values) - place):
            break
        holds[number] = True
    return holds


def _resampled(values: NDArray[np.float64]) -> NDArray[np.float64]:
    import numpy as np

    distinct, counts = np.unique(values, return_counts=True)
    if len(distinct) == 1:
        return np.full(1, distinct[0])
    generator = np.random.default_rng(_SEED)
    resamples = max(400, min(_RESAMPLES, _DRAWS // len(distinct)))
    rows = max(1, _CELLS // len(distinct))
    parts = [
        generator.multinomial(len(values), counts / len(values), size=min(rows, resamples - start))
        @ distinct
        / len(values)
        for start in range(0, resamples, rows)
    ]
    return np.concatenate(parts)
