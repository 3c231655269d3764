"""The goals of Recto and what it reaches; a missed goal is shown as missed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from bench.peers.figures import Figure, Results, Spread, cpu_ratio, ratio
from bench.peers.listing import LIMIT, SELF, System
from bench.peers.workloads import installing, pipelines, querying, scifact, starting

Relation = Literal["at least", "at most"]


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal, the reached figure, and the system that Recto was compared with."""

    text: str
    relation: Relation
    wanted: float
    reached: Spread
    against: str
    cpu: Spread | None = None

    @property
    def met(self) -> bool:
        """Whether the median reaches the goal."""
        return (
            self.reached.middle >= self.wanted
            if self.relation == "at least"
            else self.reached.middle <= self.wanted
        )


def goals(results: Results, systems: tuple[System, ...]) -> list[Goal]:
    """Return the goals that the figures of a run can decide."""
    return list(_goals(results, systems))


def _goals(results: Results, systems: tuple[System, ...]) -> Iterator[Goal]:
    peers = {system.name for system in systems if system.is_peer}
    frameworks = {system.name for system in systems if system.kind == "framework"}
    thin = {system.name for system in systems if system.kind == "thin"}
    for work in results.workloads():
        if work.startswith("cold query"):
            yield from _lead(results, work, peers, "Cold query: times as fast as the best peer", 5)
        elif work == starting.IMPORT:
            yield from _lead(results, work, peers, "Import: times as fast as the best peer", 20)
        elif work.startswith("index, ") and work.endswith("embedding included"):
            yield from _lead(results, work, peers, f"{work.capitalize()}: times as fast as the best peer", 1)
        elif "embedding time subtracted" in work:
            yield from _lead(
                results, work, frameworks, f"{work.capitalize()}: times as fast as the best framework", 3
            )
        elif "overhead above the same engine calls" in work:
            text = f"{work.capitalize()}: the best framework's overhead / Recto's overhead"
            yield from _lead(results, work, thin, text, 3)
        elif work.startswith("query, ") and "end to end" in work:
            yield from _cost(
                results, work, f"{work.capitalize()}: Recto / bare calls of model and engine", 1.10
            )
    for work in (installing.SIZE, installing.ALONE):
        yield from _small(results, work, peers)
    if (mine := results.get(scifact.WORK, SELF)) and mine.wall:
        yield Goal(scifact.WORK, "at least", 0.70, mine.wall, "")
    yield from _growth(results)
    yield from _books(results, peers)


def _best(results: Results, work: str, names: set[str]) -> tuple[Figure, Figure] | None:
    """Return the figures of Recto and of the best other system."""
    mine = results.get(work, SELF)
    others = [figure for name in sorted(names) if (figure := results.get(work, name))]
    if mine is None or not others:
        return None

    def middle(figure: Figure) -> float:
        return figure.wall.middle if figure.wall else 0.0

    return mine, min(others, key=middle) if mine.better == "less" else max(others, key=middle)


def _lead(results: Results, work: str, names: set[str], text: str, wanted: float) -> Iterator[Goal]:
    pair = _best(results, work, names)
    if pair and (times := ratio(*pair)):
        yield Goal(text, "at least", wanted, times, pair[1].system, cpu_ratio(*pair))


def _cost(results: Results, work: str, text: str, wanted: float) -> Iterator[Goal]:
    mine, bare = results.get(work, SELF), results.get(work, LIMIT)
    if mine and bare and (times := ratio(bare, mine)):
        yield Goal(text, "at most", wanted, times, LIMIT, cpu_ratio(bare, mine))


def _small(results: Results, work: str, names: set[str]) -> Iterator[Goal]:
    pair = _best(results, work, names)
    if pair and (times := ratio(pair[1], pair[0])):
        yield Goal(f"{work.capitalize()}: Recto / the smallest peer", "at most", 0.5, times, pair[1].system)


def _growth(results: Results) -> Iterator[Goal]:
    """Compare the smallest with the largest size of a run; the goals are for 1 000 and 100 000."""
    small, large = 1000, 100_000
    named: list[tuple[Callable[[int], str], str, float]] = [
        (
            lambda size: querying.query_work(size, model=False, filtered=False),
            "Search time, 100k / 1k chunks",
            4,
        ),
        (
            lambda size: querying.memory_work(size, model=False),
            "Private memory without the model, 100k / 1k chunks",
            2,
        ),
    ]
    for name, text, wanted in named:
        first, last = results.get(name(small), SELF), results.get(name(large), SELF)
        if first and last and (times := ratio(first, last)):
            yield Goal(text, "at most", wanted, times, "")


def _books(results: Results, names: set[str]) -> Iterator[Goal]:
    for work in results.workloads():
        if not work.endswith(f"page {pipelines.MEASURES[-1]}"):
            continue
        for name in sorted(names):
            figure = results.get(work, name)
            lead = figure.more.get("lead") if figure else None
            if lead:
                yield Goal(
                    f"{work}: Recto minus the other system",
                    "at least",
                    0.0,
                    Spread(lead["mean"], lead["low"], lead["high"]),
                    name,
                )
