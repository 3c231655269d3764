"""Arithmetic of the benchmarks: ranges of characters, ranks, and standard errors of means."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

Range = tuple[int, int]

_ROUNDS = 2000  # enough for two digits of a standard error


@dataclass(frozen=True, slots=True)
class Overlap:
    """How retrieved text and the references of a question cover each other."""

    recall: float
    precision: float
    iou: float


def overlap(retrieved: Sequence[Range], references: Sequence[Range]) -> Overlap:
    """Compare by characters; text that is retrieved twice is found once, but counts twice as text to read."""
    expected = size(union(references))
    common = shared(retrieved, references)
    taken = size(retrieved)
    return Overlap(common / expected, common / taken if taken else 0.0, common / (taken + expected - common))


def best_precision(chunks: Sequence[Range], references: Sequence[Range]) -> float:
    """Return Chroma's omega: the precision if exactly the chunks with a part of a reference are retrieved."""
    touched = union([chunk for chunk in chunks if any(_common(chunk, reference) for reference in references)])
    found, wanted = shared(touched, references), size(union(references))
    return found / (size(touched) + wanted - found)


def shared(some: Sequence[Range], others: Sequence[Range]) -> int:
    """Count the characters in both, once each."""
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
    """Count the characters, including duplicates."""
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
        """Return the paired difference of two means over the same questions."""
        return mean([mine - theirs for mine, theirs in zip(self.values, other.values, strict=True)])

    def __str__(self) -> str:
        """Return the mean and its standard error for a table."""
        return f"{self.value:.3f} ± {self.error:.3f}"


def mean(values: Sequence[float]) -> Mean:
    """Return the mean with its bootstrap standard error, which is the same in every run."""
    import numpy as np

    if not values:
        return Mean(float("nan"), float("nan"))
    sample = np.asarray(values, np.float64)
    chosen = np.random.default_rng(0).integers(0, len(sample), (_ROUNDS, len(sample)))
    return Mean(float(sample.mean()), float(sample[chosen].mean(axis=1).std()), tuple(values))


def mean_of(means: Sequence[Mean]) -> Mean:
    """Return the unweighted mean of means over different questions."""
    return Mean(
        sum(each.value for each in means) / len(means),
        math.hypot(*(each.error for each in means)) / len(means),
    )
