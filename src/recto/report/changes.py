"""What changed since a baseline: measures first, then the questions that won or lost, then the other results that moved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from recto.evaluation.comparison import RISK, Change, Comparison, Delta
from recto.report import charts, tables
from recto.report.markup import Markup, counted, element, joined, number, place, signed, words
from recto.report.page import folded, note, outcome

_NOWHERE = 1 << 30


def changed(comparison: Comparison) -> Markup:
    """Return the comparison's part of a page."""
    better, worse, other = _sorted(comparison.changes)
    nothing = note("No question's results changed.") if not comparison.changes else None
    return joined(
        (
            element("p", f"{counted(comparison.compared, 'question')} compared with ", words(comparison.against), "."),
            _deltas(comparison),
            *_not_compared(comparison),
            nothing,
            _listed("Worse: the expected place came later", worse),
            _listed("Better: the expected place came earlier", better),
            folded(f"Other results, same rank: {counted(len(other), 'question')}", _changes(other)) if other else None,
        )
    )


def _sorted(changes: Iterable[Change]) -> tuple[list[Change], list[Change], list[Change]]:
    better: list[Change] = []
    worse: list[Change] = []
    other: list[Change] = []
    for change in changes:
        before, now = change.rank_before or _NOWHERE, change.rank_now or _NOWHERE
        (better if now < before else worse if now > before else other).append(change)
    return better, worse, other


def _deltas(comparison: Comparison) -> Markup | None:
    if not comparison.deltas:
        return note("No question has a measure on both sides.")
    reach = max(max(abs(value) for value in (delta.delta.mean, delta.delta.low, delta.delta.high)) for delta in comparison.deltas)
    reach = max(reach, 0.01)
    columns = (
        tables.text("Measure"),
        tables.chart(f"\N{MINUS SIGN}{reach:.2f} to +{reach:.2f}"),
        *map(tables.numbers, ("Before", "Now", "Change", "95 % interval", "Questions", "p")),
        tables.text("Loss"),
    )
    told = note(
        "The interval is a paired bootstrap's. p is the chance of such a fall if neither side is better; the watched measures "
        f"together may be wrong with a chance of {RISK:.0%}."
    )
    rows = (_delta(delta, reach) for delta in comparison.deltas)
    return joined((tables.table("Measures before and now", columns, rows), told))


def _delta(delta: Delta, reach: float) -> tuple[str, ...]:
    one = delta.delta
    return (
        delta.measure,
        charts.change(delta.measure, one, reach, lost=delta.lost),
        number(delta.before),
        number(delta.now),
        signed(one.mean),
        f"{signed(one.low)} to {signed(one.high)}",
        str(one.count),
        number(delta.chance),
        outcome(good=not delta.lost, yes="none shown", no="LOST") if delta.gated else element("span", "not watched", class_="none"),
    )


def _not_compared(comparison: Comparison) -> Iterator[Markup]:
    if not comparison.same_suite:
        yield note("The suite is not the one of the baseline.")
    for keys, why in (
        (comparison.only_before, "only before"),
        (comparison.only_now, "only now"),
        (comparison.expected_otherwise, "with another expectation than before"),
    ):
        if keys:
            listed = element("ul", *(element("li", words(key)) for key in keys))
            yield folded(f"{counted(len(keys), 'question')} {why}, not compared", listed)


def _listed(title: str, changes: list[Change]) -> Markup | None:
    if not changes:
        return None
    return joined((element("h3", f"{title} ({counted(len(changes), 'question')})"), _changes(changes)))


def _changes(changes: Iterable[Change]) -> Markup:
    columns = (tables.text("Question"), tables.numbers("Rank before"), tables.numbers("Rank now"), tables.text("Results"))
    rows = ((words(one.query), _rank(one.rank_before), _rank(one.rank_now), _results(one)) for one in changes)
    return tables.table("Questions whose results changed", columns, rows)


def _rank(rank: int | None) -> str:
    return "none" if rank is None else str(rank)


def _results(change: Change) -> Markup:
    if not change.entered and not change.left:
        return element("span", "the same, in another order", class_="none")
    signs = (("+", "entered", change.entered), ("\N{MINUS SIGN}", "left", change.left))
    items = (
        element("li", element("span", sign, class_="sign", title=verb), " ", place(one)) for sign, verb, places in signs for one in places
    )
    return folded(f"{len(change.entered)} entered, {len(change.left)} left", element("ul", *items))
