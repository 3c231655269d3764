"""The arithmetic of the measurements: ranges of characters, ranks, and how far chance alone moves a mean."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

Range = tuple[int, int]

_ROUNDS = 2000  # resamples; enough for two digits of a standard error


@dataclass(frozen=True, slots=True)
class Overlap:
    """How retrieved text and the references of a question cover each other."""

    recall: float
    precision: float
    iou: float


def overlap(retrieved: Sequence[Range], references: Sequence[Range]) -> Overlap:
    """Compare by characters; what is retrieved twice is found once, but counts twice as text that must be read."""
    wanted = size(union(references))
    found = shared(retrieved, references)
    taken = size(retrieved)
    return Overlap(found / wanted, found / taken if taken else 0.0, found / (taken + wanted - found))


def best_precision(chunks: Sequence[Range], references: Sequence[Range]) -> float:
    """Return the precision (Chroma's omega) of a retrieval that finds all chunks with a part of a reference and no other."""
    touched = union([chunk for chunk in chunks if any(_common(chunk, reference) for reference in references)])
    found, wanted = shared(touched, references), size(union(references))
    return found / (size(touched) + wanted - found)


def shared(some: Sequence[Range], others: Sequence[Range]) -> int:
    """Count the characters that lie in both, once each."""
    return sum(_common(one, other) for one in union(some) for other in union(others))


def union(ranges: Sequence[Range]) -> list[Range]:
    """Join ranges that touch."""
    joined: list[Range] = []
    for start, end in sorted(ranges):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def size(ranges: Sequence[Range]) -> int:
    """Count the characters, doubled ones twice."""
    return sum(end - start for start, end in ranges)


def _common(one: Range, other: Range) -> int:
    return max(0, min(one[1], other[1]) - max(one[0], other[0]))


@dataclass(frozen=True, slots=True)
class Mean:
    """A mean over questions with its bootstrap standard error."""

    value: float
    error: float
    values: tuple[float, ...] = field(default=(), repr=False)

    def minus(self, other: Mean) -> Mean:
        """Compare two means over the same questions; what both find hard or easy then drops out of the error."""
        return mean([mine - theirs for mine, theirs in zip(self.values, other.values, strict=True)])

    def __str__(self) -> str:
        """Both, as a table shows them."""
        return f"{self.value:.3f} ± {self.error:.3f}"


def mean(values: Sequence[float]) -> Mean:
    """Average, and resample the questions to see how far the average moves; the same values always give the same error."""
    import numpy as np

    if not values:
        return Mean(float("nan"), float("nan"))
    sample = np.asarray(values, np.float64)
    chosen = np.random.default_rng(0).integers(0, len(sample), (_ROUNDS, len(sample)))
    return Mean(float(sample.mean()), float(sample[chosen].mean(axis=1).std()), tuple(values))


def mean_of(means: Sequence[Mean]) -> Mean:
    """Average means over different questions, each with the same weight."""
    return Mean(
        sum(each.value for each in means) / len(means),
        math.hypot(*(each.error for each in means)) / len(means),
    )
