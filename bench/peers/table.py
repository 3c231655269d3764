"""Format the figures as Markdown: the environment, the goals, and a table for each workload."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from bench.peers.figures import Figure, Results, Spread, cpu_ratio, ratio
from bench.peers.goals import Goal, goals
from bench.peers.listing import SELF, System

START, END = "<!-- figures: made by `python -m bench --docs`, do not edit -->", "<!-- end of figures -->"


def markdown(results: Results, systems: tuple[System, ...]) -> str:
    """Return the whole report."""
    titles = {system.name: system.title for system in systems}
    parts = [about(results, systems), "### Goals\n", goal_table(goals(results, systems), titles)]
    for work in results.workloads():
        parts += [f"### {work[0].upper()}{work[1:]}\n", work_table(results.of(work), titles)]
    return "\n".join(parts)


def into(text: str, report: str, start: str = START, end: str = END) -> str:
    """Replace the text between the markers of a page by a report."""
    before, found, rest = text.partition(start)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise SystemExit(f"The page has no markers for the figures: add {start} and {end}.")
    return f"{before}{start}\n\n{report.strip()}\n\n{end}{after}"


def about(results: Results, systems: tuple[System, ...]) -> str:
    """Return the machine, the date and the versions."""
    versions = results.about.get("versions", {})
    lines = [f"- {name}: {value}" for name, value in results.about.items() if name != "versions"]
    lines += [
        f"- {system.title}: {versions[system.name]}" + (f" ({system.note})" if system.note else "")
        for system in systems
        if system.name in versions
    ]
    return "\n".join(lines) + "\n"


def goal_table(found: Sequence[Goal], titles: dict[str, str]) -> str:
    """Return the goals and what was reached."""
    rows = []
    for goal in found:
        sign = "≥" if goal.relation == "at least" else "≤"
        rows.append(
            [
                goal.text,
                titles.get(goal.against, goal.against) or "–",
                f"{sign} {goal.wanted:g}",
                spread(goal.reached),
                spread(goal.cpu),
                "yes" if goal.met else "**no**",
            ]
        )
    return table(["goal", "compared with", "target", "reached (range)", "by CPU time", "met"], rows)


_EXTRA = {"p95": "p95", "packages": "packages", "rss": "RSS, MB", "agreement": "recall against exact search"}


def work_table(figures: dict[str, Figure], titles: dict[str, str]) -> str:
    """Return the systems' figures for one workload, best first, each with its ratio to Recto."""
    measured = sorted((figure for figure in figures.values() if figure.values), key=_order)
    if not measured:
        return table(
            ["system", "why not"], [[titles[name], shown(figure.why)] for name, figure in figures.items()]
        )
    columns = _columns(measured, figures.get(SELF))
    rows = [
        [
            f"**{titles[SELF]}**" if figure.system == SELF else titles[figure.system],
            *(cell(figure) for _, cell in columns),
        ]
        for figure in measured
    ]
    missing = [(name, figure) for name, figure in figures.items() if not figure.values]
    rows += [
        [titles[name], f"– ({shown(figure.why)})", *[""] * (len(columns) - 1)] for name, figure in missing
    ]
    return table(["system", *(head for head, _ in columns)], rows)


def _columns(measured: Sequence[Figure], mine: Figure | None) -> list[tuple[str, Callable[[Figure], str]]]:
    """Return the headings of a table's columns, and a function that formats each cell."""
    unit = measured[0].unit
    if any("lead" in figure.more for figure in measured):
        return [
            ("mean", lambda figure: f"{figure.values[0]:.3f}"),
            ("Recto minus this system (95 % interval)", _lead),
        ]
    columns: list[tuple[str, Callable[[Figure], str]]] = [
        (f"{unit or 'value'} (range)", lambda figure: spread(figure.wall))
    ]
    with_cpu = any(figure.cpu for figure in measured)
    if with_cpu:
        head = {"chunks/s": "CPU ms per chunk", "answers/s": "CPU ms per answer"}.get(unit, f"CPU {unit}")
        columns.append((head, lambda figure: number(median(figure.cpu)) if figure.cpu else "–"))
    columns += [
        (head, _named(name))
        for name, head in _EXTRA.items()
        if any(name in figure.more for figure in measured)
    ]
    columns.append(
        (
            "ratio to Recto (above 1: Recto is better)",
            lambda figure: _times(ratio(mine, figure) if mine and figure.system != SELF else None),
        )
    )
    if with_cpu:
        columns.append(
            (
                "ratio of CPU time",
                lambda figure: _times(cpu_ratio(mine, figure) if mine and figure.system != SELF else None),
            )
        )
    return columns


def _named(name: str) -> Callable[[Figure], str]:
    return lambda figure: number(figure.more[name]) if name in figure.more else "–"


def _lead(figure: Figure) -> str:
    lead = figure.more.get("lead")
    return f"{lead['mean']:+.3f} ({lead['low']:+.3f} to {lead['high']:+.3f})" if lead else ""


def _times(times: Spread | None) -> str:
    if times is None:
        return ""
    return f"{spread(times)} ×" if times.middle >= 1 else f"**{spread(times)} × (worse)**"


def _order(figure: Figure) -> float:
    middle = figure.wall.middle if figure.wall else 0.0
    return middle if figure.better == "less" else -middle


def spread(found: Spread | None) -> str:
    """Return a median with its range, or alone if there was one round."""
    if found is None:
        return "–"
    if found.low == found.high:
        return number(found.middle)
    return f"{number(found.middle)} ({number(found.low)}–{number(found.high)})"


def number(value: float) -> str:
    """Format a number with three significant digits."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def shown(text: str) -> str:
    """Format a message for a cell."""
    line = " ".join(text.split()).replace("|", "/")
    return line if len(line) <= 120 else f"{line[:119]}…"


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (heads, ["---"] * len(heads), *rows)) + "\n"
