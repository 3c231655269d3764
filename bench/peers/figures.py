"""The measured values of each round, their medians and ranges, ratios within a round, goals and tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any, Literal

from bench.common import cell, table
from bench.peers.listing import LIMIT, SELF, System

Better = Literal["less", "more"]
HELP, INTERPRETER = "--help", "python -c pass"
IMPORT, COLD, INSTALL = "import", "cold query", "install, with the same model"
QUERY, FILTERED, REST = "query, end to end", "filtered query, end to end", "query, embedding time subtracted"
FILTERED_REST = "filtered query, embedding time subtracted"
_MOST = 1000.0  # the largest ratio that is reported


@dataclass(frozen=True, slots=True)
class Spread:
    """A median over rounds, and the smallest and largest value."""

    middle: float
    low: float
    high: float

    def __str__(self) -> str:
        """Return the median with its range, or alone if there was one round."""
        if self.low == self.high:
            return number(self.middle)
        return f"{number(self.middle)} ({number(self.low)}–{number(self.high)})"


def spread(values: Sequence[float]) -> Spread | None:
    """Return the median and the range; None without values."""
    return Spread(median(values), min(values), max(values)) if values else None


def number(value: float) -> str:
    """Format a number with three significant digits."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


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
    def middle(self) -> float:
        """The median."""
        return median(self.values)


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

    def of(self, work: str) -> dict[str, Figure]:
        """Return the figures of one workload by system."""
        return {figure.system: figure for figure in self.figures if figure.work == work}

    def get(self, work: str, system: str) -> Figure | None:
        """Return one figure, if it has values."""
        figure = self.of(work).get(system)
        return figure if figure is not None and figure.values else None

    def to_dict(self, systems: Sequence[System]) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "about": self.about,
            "figures": [asdict(figure) for figure in self.figures],
            "goals": [{**asdict(goal), "met": goal.met} for goal in goals(self, systems)],
        }


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal, the reached figure, and the system that Recto was compared with."""

    text: str
    relation: Literal["≥", "≤"]
    wanted: float
    reached: Spread
    against: str
    cpu: Spread | None = None

    @property
    def met(self) -> bool:
        """Whether the median reaches the goal."""
        middle = self.reached.middle
        return middle >= self.wanted if self.relation == "≥" else middle <= self.wanted


def goals(results: Results, systems: Sequence[System]) -> list[Goal]:
    """Return the goals that the figures of a run can decide; a missed goal is shown as missed."""
    return list(_goals(results, systems))


def _goals(results: Results, systems: Sequence[System]) -> Iterator[Goal]:
    peers = [system.name for system in systems if system.is_peer]
    frameworks = [system.name for system in systems if system.kind == "framework"]
    yield from _compared(results, IMPORT, peers, "times as fast as the best peer", "≥", 40)
    yield from _compared(results, COLD, peers, "times as fast as the best peer", "≥", 5.7)
    yield from _compared(results, HELP, [INTERPRETER], "Recto / an interpreter without a program", "≤", 7.5)
    for work in (QUERY, FILTERED):
        yield from _compared(results, work, [LIMIT], "Recto / bare calls of model and engine", "≤", 1.1)
    for work in (REST, FILTERED_REST):
        yield from _compared(results, work, frameworks, "times as fast as the best framework", "≥", 3)
    for work in dict.fromkeys(figure.work for figure in results.figures if figure.work.startswith("index")):
        yield from _compared(results, work, peers, "times as fast as the best peer", "≥", 1)
    yield from _compared(results, INSTALL, peers, "Recto / the smallest peer", "≤", 0.5)


def _compared(
    results: Results, work: str, names: Sequence[str], text: str, relation: Literal["≥", "≤"], wanted: float
) -> Iterator[Goal]:
    """Compare Recto with the best of some systems."""
    mine = results.get(work, SELF)
    others = [figure for name in sorted(names) if (figure := results.get(work, name))]
    if mine is None or not others:
        return
    sign = 1 if mine.better == "less" else -1
    best = min(others, key=lambda figure: sign * figure.middle)
    pair = (mine, best) if relation == "≥" else (best, mine)
    if reached := ratio(*pair):
        title = f"{work[0].upper()}{work[1:]}: {text}"
        yield Goal(title, relation, wanted, reached, best.system, cpu_ratio(*pair))


def markdown(results: Results, systems: Sequence[System]) -> str:
    """Return the whole report: the environment, the goals, and all medians in one table."""
    titles = {system.name: system.title for system in systems}
    versions = results.about.get("versions", {})
    lines = [f"- {name}: {value}" for name, value in results.about.items() if name != "versions"]
    lines.append(f"- Recto: {versions.get(SELF, '?')}")
    rows = [
        [
            goal.text,
            titles.get(goal.against, goal.against),
            f"{goal.relation} {goal.wanted:g}",
            str(goal.reached),
            str(goal.cpu or "–"),
            "yes" if goal.met else "**no**",
        ]
        for goal in goals(results, systems)
    ]
    heads = ["goal", "compared with", "target", "reached (range)", "by CPU time", "met"]
    parts = ["\n".join(lines) + "\n", table(heads, rows), median_table(results, systems)]
    parts += [
        f"- {titles.get(figure.system, figure.system)}, {figure.work}: {cell(figure.why)}"
        for figure in results.figures
        if figure.why
    ]
    return "\n".join(parts)


def median_table(results: Results, systems: Sequence[System]) -> str:
    """Return a row for each system and a column for each workload: medians, and the ratio to Recto."""
    works = list(dict.fromkeys(figure.work for figure in results.figures))
    works = [work for work in works if len(results.of(work)) > 1 and INTERPRETER not in results.of(work)]
    heads = ["system", *(f"{work}, {next(iter(results.of(work).values())).unit}" for work in works)]
    rows = []
    for system in systems:
        title = f"**{system.title}**" if system.name == SELF else system.title
        rows.append([title, *(_median_cell(results, work, system.name) for work in works)])
    return table(heads, rows)


def _median_cell(results: Results, work: str, system: str) -> str:
    figure, mine = results.get(work, system), results.get(work, SELF)
    if figure is None:
        return "–"
    times = ratio(mine, figure) if mine and system != SELF else None
    if times is None:
        return number(figure.middle)
    text = f"{number(figure.middle)} ({number(times.middle)})"
    return text if times.middle >= 1 else f"**{text}**"
