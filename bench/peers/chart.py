"""Draw an SVG chart: how much longer, larger or slower than Recto each system is, for each workload."""

from __future__ import annotations

from math import log10

from bench.peers.figures import Figure, Results, ratio
from bench.peers.listing import SELF, System
from bench.peers.svg import Markup, element, joined
from bench.peers.workloads import indexing, installing, querying, starting

_ROW, _GAP, _TOP = 20, 34, 46
_LEFT, _WIDTH, _RIGHT = 270, 420, 90
_STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1d232b } .head { font-weight: 600 }
.small { font-size: 12px; fill: #59636e } .bar { fill: #8796a8 } .own { fill: #2467c9 }
.worse { fill: #b8531b } .one { stroke: #59636e; stroke-dasharray: 3 3 }
.paper { fill: #ffffff }
@media (prefers-color-scheme: dark) { text { fill: #e6e9ee } .small { fill: #a3adb8 } .bar { fill: #7d8b9c }
.own { fill: #6ca6f5 }
.worse { fill: #e58b52 } .one { stroke: #a3adb8 } .paper { fill: #14181d } }
"""


def chart(results: Results, systems: tuple[System, ...]) -> str:
    """Draw the workloads for which a ratio is meaningful; a system that beats Recto has a warning colour."""
    titles = {system.name: system.title for system in systems}
    groups = [(work, bars) for work in _works(results) if len(bars := _bars(results.of(work))) > 1]
    most = max((times for _, bars in groups for _, times in bars), default=10.0)
    decades = max(1.0, log10(max(most, 10.0)))
    parts: list[Markup] = []
    place = _TOP
    for work, bars in groups:
        parts.append(element("text", f"{work[0].upper()}{work[1:]}", x=8, y=place, class_="head"))
        place += 10
        for name, times in bars:
            parts += _row(titles[name], name, times, place, decades)
            place += _ROW
        place += _GAP
    width, height = _LEFT + _WIDTH + _RIGHT, place
    said = "Time or space of each system relative to Recto, on a logarithmic scale; shorter is better"
    return element(
        "svg",
        element("title", said),
        element("style", _STYLE),
        element("rect", class_="paper", x=0, y=0, width=width, height=height),
        element("text", f"{said}.", x=8, y=20, class_="small"),
        joined(parts),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width} {height}",
        width=width,
        height=height,
        role="img",
    )


def _works(results: Results) -> list[str]:
    largest = max(
        (
            int(work.split()[1])
            for work in results.workloads()
            if work.startswith("query, ") and "vectors given" in work
        ),
        default=0,
    )
    wanted = {starting.IMPORT, installing.SIZE}
    wanted |= {querying.query_work(largest, model=False, filtered=filtered) for filtered in (False, True)}
    prefixes = ("cold query", indexing.work_of(100)[:6])
    chosen = []
    for work in results.workloads():
        complete = work.startswith("query, ") and "end to end" in work
        embedded = work.startswith(prefixes[1]) and work.endswith("embedding included")
        if work in wanted or work.startswith(prefixes[0]) or complete or embedded:
            chosen.append(work)
    return chosen


def _bars(figures: dict[str, Figure]) -> list[tuple[str, float]]:
    """Return each system's multiple of Recto's figure, the smallest first."""
    mine = figures.get(SELF)
    if mine is None or not mine.values:
        return []
    found = {name: times.middle for name, figure in figures.items() if (times := ratio(mine, figure))}
    return sorted(found.items(), key=lambda pair: pair[1])


def _row(title: str, name: str, times: float, place: int, decades: float) -> list[Markup]:
    unit = _WIDTH / (decades + 1)  # the left end is a tenth of Recto's figure, one unit below it
    length = max(2.0, (min(decades, max(-1.0, log10(times))) + 1) * unit)
    kind = "own" if name == SELF else "worse" if times < 1 else "bar"
    return [
        element("text", title, x=8, y=place + 15),
        element("rect", class_=kind, x=_LEFT, y=place + 3, width=f"{length:.1f}", height=_ROW - 6, rx=2),
        element(
            "line",
            class_="one",
            x1=f"{_LEFT + unit:.1f}",
            x2=f"{_LEFT + unit:.1f}",
            y1=place,
            y2=place + _ROW,
        ),
        element("text", f"{times:.3g} ×", x=f"{_LEFT + length + 6:.1f}", y=place + 15, class_="small"),
    ]
