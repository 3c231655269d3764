"""Measures as values: `nDCG@10` is a measure, its text is its name, and the name reads back as the measure.

The gain of a result is 1 or 0, or a grade. Hits are chunks, but targets are pages or sections, so a result
gains only if it reaches a target that no earlier result reached: a second chunk of the same page gains
nothing, but takes up a rank. All targets together are the ideal gains.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from recto.errors import InvalidArgument

MISSING = 0.0
"""The value of a question without results."""

_NAME = re.compile(r"\s*([A-Za-z]+)(?:@([0-9]{1,4}))?\s*")
_MOST = 1000


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
        return _KINDS[self.kind].of(judged.gains[: self.cutoff], judged.ideal, self.cutoff)

    def per_query(
        self, ideal: Mapping[str, Sequence[float]], gains: Mapping[str, Sequence[float]]
    ) -> dict[str, float]:
        """Return the value for every judged question; a question without results counts as `MISSING`."""
        values = {
            query: self.of(Judged(tuple(gains.get(query, ())), tuple(best))) for query, best in ideal.items()
        }
        return {query: MISSING if value is None else value for query, value in values.items()}


def parse_measure(name: str) -> Measure:
    """Parse a measure's name, in any case; names of trec_eval and ir-measures work, too."""
    found = _NAME.fullmatch(name)
    kind = _SPELLINGS.get(found[1].lower()) if found else None
    if found is None or kind is None:
        from recto._util.text import nearest

        near = nearest(name.partition("@")[0], _KINDS)
        raise InvalidArgument(
            f"There is no measure {name!r}" + (f"; did you mean {_example(near)}?" if near else ""),
            hint=f"Measures: {', '.join(map(_example, _KINDS))}.",
        )
    cutoff = int(found[2]) if found[2] else None
    rule = _KINDS[kind].cutoff
    if cutoff is None and rule == "needed":
        raise InvalidArgument(f"{kind} needs a number of results", hint=f"Such as {_example(kind)}.")
    if cutoff is not None and rule == "none":
        raise InvalidArgument(f"{kind} looks at the first result only", hint=f"Write it as {kind}.")
    if cutoff is not None and not 1 <= cutoff <= _MOST:
        raise InvalidArgument(
            f"{name.strip()}: a measure looks at 1 to {_MOST} results", hint=f"Such as {_example(kind)}."
        )
    return Measure(kind, cutoff)


def _hit(gains: Sequence[float], _ideal: Sequence[float], _cutoff: int | None) -> float:
    return float(any(gain > 0 for gain in gains))


def _recall(gains: Sequence[float], ideal: Sequence[float], _cutoff: int | None) -> float:
    return _relevant(gains) / relevant if (relevant := _relevant(ideal)) else 0.0


def _precision(gains: Sequence[float], _ideal: Sequence[float], cutoff: int | None) -> float:
    return _relevant(gains) / cutoff if cutoff else 0.0


def _reciprocal_rank(gains: Sequence[float], _ideal: Sequence[float], _cutoff: int | None) -> float:
    return next((1 / rank for rank, gain in enumerate(gains, 1) if gain > 0), 0.0)


def _average_precision(gains: Sequence[float], ideal: Sequence[float], _cutoff: int | None) -> float:
    ranks = [rank for rank, gain in enumerate(gains, 1) if gain > 0]
    relevant = _relevant(ideal)
    return sum(found / rank for found, rank in enumerate(ranks, 1)) / relevant if relevant else 0.0


def _ndcg(gains: Sequence[float], ideal: Sequence[float], cutoff: int | None) -> float:
    best = _discounted(sorted(ideal, reverse=True)[:cutoff])
    return _discounted(gains) / best if best else 0.0


def _discounted(gains: Sequence[float]) -> float:
    return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, 1) if gain > 0)


def _relevant(gains: Sequence[float]) -> int:
    return sum(gain > 0 for gain in gains)


@dataclass(frozen=True, slots=True)
class _Kind:
    of: Callable[[Sequence[float], Sequence[float], int | None], float]
    cutoff: str
    spellings: tuple[str, ...] = ()


_KINDS = {
    "Hit": _Kind(_hit, "needed", ("success",)),
    "Recall": _Kind(_recall, "needed", ("r",)),
    "Precision": _Kind(_precision, "needed", ("p",)),
    "MRR": _Kind(_reciprocal_rank, "free", ("rr",)),
    "MAP": _Kind(_average_precision, "free", ("ap",)),
    "nDCG": _Kind(_ndcg, "free"),
    "ModuleAccuracy": _Kind(_hit, "none"),
}
_SPELLINGS = {spelling: kind for kind, rule in _KINDS.items() for spelling in (kind.lower(), *rule.spellings)}


def _example(kind: str) -> str:
    return (
        kind
        if _KINDS[kind].cutoff == "none" or kind in {"MRR", "MAP"}
        else f"{kind}@{10 if kind == 'nDCG' else 5}"
    )


DEFAULT_MEASURES = (
    Measure("Hit", 1),
    Measure("Hit", 5),
    Measure("Recall", 5),
    Measure("MRR"),
    Measure("nDCG", 10),
    Measure("ModuleAccuracy"),
)
GATED_MEASURES = (Measure("MRR"), Measure("Hit", 5))
"""Few on purpose: every further gated measure makes false alarms likelier or real drops harder to detect."""
