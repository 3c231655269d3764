"""The measured values of each round, their medians and ranges, and ratios within a round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, Literal

Better = Literal["less", "more"]
_MOST = 1000.0  # the largest ratio that is reported


@dataclass(frozen=True, slots=True)
class Spread:
    """A median over rounds, and the smallest and largest value."""

    middle: float
    low: float
    high: float


def spread(values: Sequence[float]) -> Spread | None:
    """Return the median and the range; None without values."""
    return Spread(median(values), min(values), max(values)) if values else None


@dataclass(frozen=True, slots=True)
class Figure:
    """One system's values for one workload, one for each round; `why` says why there are none."""

    work: str
    system: str
    unit: str
    values: tuple[float, ...] = ()
    cpu: tuple[float, ...] = ()
    better: Better = "less"
    why: str = ""
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def wall(self) -> Spread | None:
        """The median and the range."""
        return spread(self.values)


def ratio(mine: Figure, theirs: Figure) -> Spread | None:
    """Return how many times better `mine` is than `theirs`, paired by round to cancel out slow moments.

    A value of zero or less counts as a thousandth of the other: skipping the round would favour the other
    side.
    """
    pairs = list(zip(mine.values, theirs.values, strict=False))
    if mine.better == "less":
        pairs = [(their, my) for my, their in pairs]
    return spread([above / max(below, above / _MOST) for above, below in pairs if above > 0])


def cpu_ratio(mine: Figure, theirs: Figure) -> Spread | None:
    """Return how many times less CPU time `mine` takes, paired by round; a busy machine changes it little."""
    return spread([their / my for my, their in zip(mine.cpu, theirs.cpu, strict=False) if my > 0])


@dataclass(slots=True)
class Results:
    """All figures of a run, and what is needed to read them."""

    about: dict[str, Any]
    figures: list[Figure] = field(default_factory=list)

    def add(self, figure: Figure) -> None:
        """Add a figure, or replace an earlier one of the same workload and system."""
        for number, existing in enumerate(self.figures):
            if (existing.work, existing.system) == (figure.work, figure.system):
                self.figures[number] = figure
                return
        self.figures.append(figure)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {"about": self.about, "figures": [asdict(figure) for figure in self.figures]}

    def take(self, data: dict[str, Any]) -> None:
        """Add the figures of an earlier run, and the versions of its systems."""
        self.about["versions"] = {**data["about"].get("versions", {}), **self.about.get("versions", {})}
        for fields in data["figures"]:
            self.add(Figure(**{**fields, "values": tuple(fields["values"]), "cpu": tuple(fields["cpu"])}))

    def workloads(self) -> list[str]:
        """Return the workloads in the order in which they ran."""
        return list(dict.fromkeys(figure.work for figure in self.figures))

    def of(self, work: str) -> dict[str, Figure]:
        """Return the figures of one workload by system."""
        return {figure.system: figure for figure in self.figures if figure.work == work}

    def get(self, work: str, system: str) -> Figure | None:
        """Return one figure, if it has values."""
        figure = self.of(work).get(system)
        return figure if figure is not None and figure.values else None
