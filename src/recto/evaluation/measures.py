"""Measures of one question, their means with confidence intervals, and a test of whether they dropped.

A measure is a value: `nDCG@10` is its name, and the name reads back as the measure. The gain of a result is 1
or 0, or a grade. Hits are chunks, but targets are pages or sections, so a result gains only if it reaches a
target that no earlier result reached: a second chunk of the same page gains nothing, but takes up a rank. All
targets together are the ideal gains.

Intervals of proportions are Wilson's; others are percentile bootstraps. A resample only depends on how often
each distinct value is drawn, so resamples are drawn as counts: a suite of a hundred thousand questions is as
fast as one of a hundred. Random numbers are the same in every run.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any

from recto._util.text import nearest
from recto.errors import InvalidArgument

_NAME = re.compile(r"\s*([A-Za-z]+)(?:@([0-9]{1,4}))?\s*")
_MAX_CUTOFF = 1000
_NAMES = ("Hit@5", "Recall@5", "Precision@5", "MRR", "MAP", "nDCG@10", "ModuleAccuracy")
_EXAMPLES = {name.partition("@")[0]: name for name in _NAMES}
_NEEDS_CUTOFF = ("Hit", "Recall", "Precision")
_ALIASES = {"success": "Hit", "r": "Recall", "p": "Precision", "rr": "MRR", "ap": "MAP"}
_KINDS = {kind.lower(): kind for kind in _EXAMPLES} | _ALIASES

_LEVEL = 0.95
_RESAMPLES = 4000
_SEED = 20_260_101


@dataclass(frozen=True, slots=True)
class Judged:
    """The gains of a question's results and of its targets, and whether the first result's module is right.

    `module` is None if no module is expected; `ideal` is empty if no target is expected.
    """

    gains: tuple[float, ...]
    ideal: tuple[float, ...]
    module: bool | None = None


@dataclass(frozen=True, slots=True)
class Measure:
    """A kind of measure, and its cutoff."""

    kind: str
    cutoff: int | None = None

    def __str__(self) -> str:
        """Return the name; `parse_measure` reads it back."""
        return self.kind if self.cutoff is None else f"{self.kind}@{self.cutoff}"

    def of(self, judged: Judged) -> float | None:
        """Return the value for one question, or None if the measure does not apply."""
        if self.kind == "ModuleAccuracy":
            return None if judged.module is None else float(judged.module)
        if not judged.ideal:
            return None
        gains = judged.gains[: self.cutoff]
        ranks = [rank for rank, gain in enumerate(gains, 1) if gain > 0]
        relevant = sum(gain > 0 for gain in judged.ideal)
        return self._value(gains, ranks, judged.ideal, relevant) if ranks and relevant else 0.0

    def _value(
        self, gains: Sequence[float], ranks: Sequence[int], ideal: Sequence[float], relevant: int
    ) -> float:
        match self.kind:
            case "Hit":
                return 1.0
            case "Recall":
                return len(ranks) / relevant
            case "Precision":
                return len(ranks) / (self.cutoff or len(gains))
            case "MRR":
                return 1 / ranks[0]
            case "MAP":
                return sum(found / rank for found, rank in enumerate(ranks, 1)) / relevant
            case _:
                return _dcg(gains) / _dcg(sorted(ideal, reverse=True)[: self.cutoff])


def _dcg(gains: Sequence[float]) -> float:
    return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, 1) if gain > 0)


def parse_measure(name: str) -> Measure:
    """Parse a measure's name, in any case; names of trec_eval and ir-measures work, too."""
    found = _NAME.fullmatch(name)
    kind = _KINDS.get(found[1].lower()) if found else None
    if found is None or kind is None:
        near = nearest(name.partition("@")[0], _EXAMPLES)
        raise InvalidArgument(
            f"There is no measure {name!r}" + (f"; did you mean {_EXAMPLES[near]}?" if near else ""),
            hint=f"Measures: {', '.join(_EXAMPLES.values())}.",
        )
    example, cutoff = f"Such as {_EXAMPLES[kind]}.", int(found[2]) if found[2] else None
    if cutoff is None and kind in _NEEDS_CUTOFF:
        raise InvalidArgument(f"{kind} needs a number of results", hint=example)
    if cutoff is not None and kind == "ModuleAccuracy":
        raise InvalidArgument(f"{kind} looks at the first result only", hint=f"Write it as {kind}.")
    if cutoff is not None and not 1 <= cutoff <= _MAX_CUTOFF:
        raise InvalidArgument(f"{name.strip()}: a measure looks at 1 to {_MAX_CUTOFF} results", hint=example)
    return Measure(kind, cutoff)


_DEFAULTS = ("Hit@1", "Hit@5", "Recall@5", "MRR", "nDCG@10", "ModuleAccuracy")
DEFAULT_MEASURES = tuple(map(parse_measure, _DEFAULTS))
GATED_MEASURES = (Measure("MRR"), Measure("Hit", 5))
"""Few on purpose: every further gated measure makes false alarms likelier or real drops harder to detect."""


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
    """Return the mean of values with its confidence interval; None without values.

    For a proportion, whose values are all 0 or 1, it is Wilson's score interval, which is right for few
    questions, too. For others, it is a percentile bootstrap.
    """
    if not values:
        return None
    if set(values) <= {0.0, 1.0}:
        return _wilson(math.fsum(values), len(values))
    import numpy as np

    distinct, counts = np.unique(np.asarray(values, dtype=np.float64), return_counts=True)
    draws = np.random.default_rng(_SEED).multinomial(len(values), counts / len(values), size=_RESAMPLES)
    means = draws @ distinct / len(values)
    low, high = np.quantile(means, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    return ScoreEstimate(math.fsum(values) / len(values), float(low), float(high), len(values))


def _wilson(found: float, count: int) -> ScoreEstimate:
    z = NormalDist().inv_cdf((1 + _LEVEL) / 2)
    share, scale = found / count, 1 + z * z / count
    middle = (share + z * z / (2 * count)) / scale
    radius = z / scale * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return ScoreEstimate(share, max(0.0, middle - radius), min(1.0, middle + radius), count)


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
