"""Charts as SVG that stretches: lengths are shares of the width, so dots stay round and lines stay thin on a phone and on paper.

Each chart is one row of a table whose other cells have its numbers, so no chart holds text that would shrink with it.
"""

from __future__ import annotations

from collections.abc import Iterator

from recto.evaluation.statistics import Estimate
from recto.report.markup import Markup, element, joined, number, signed

_HEIGHT = 20
_STEPS = (0.25, 0.45, 0.65, 0.8, 0.9, 0.97)
"""Finer at the top: in most books nearly all sections come, and the few pages that lag behind have to be seen."""


def whisker(name: str, score: Estimate) -> Markup:
    """Draw a mean between 0 and 1 as a dot, with its interval as a line."""
    said = f"{name}: mean {number(score.mean)}, 95 % interval from {number(score.low)} to {number(score.high)}"
    low, high = _percent(score.low), _percent(score.high)
    drawn = (_track(), *_ticks(25, 50, 75), *_interval(low, high), _dot(_percent(score.mean), "dot"))
    return _svg(said, *drawn)


def change(name: str, delta: Estimate, reach: float, *, lost: bool) -> Markup:
    """Draw a change as a dot on an axis from `-reach` to `reach`, with its interval as a line and no change in the middle."""
    said = f"{name}: change {signed(delta.mean)}, 95 % interval from {signed(delta.low)} to {signed(delta.high)}"

    def at(value: float) -> str:
        return _percent(0.5 + value / (2 * reach) if reach else 0.5)

    middle = element("line", class_="zero", x1="50%", x2="50%", y1=1, y2=_HEIGHT - 1)
    return _svg(said, _track(), middle, *_interval(at(delta.low), at(delta.high)), _dot(at(delta.mean), "dot lost" if lost else "dot"))


def bar(said: str, share: float, mark: float | None = None, *, weak: bool = False) -> Markup:
    """Draw a share of the width as a bar; `mark` is a line across it, such as a noise level."""
    filled = element("rect", class_="bar weak" if weak else "bar", x=0, y=4, width=_percent(share), height=_HEIGHT - 8, rx=2)
    line = None if mark is None else element("line", class_="mark", x1=_percent(mark), x2=_percent(mark), y1=1, y2=_HEIGHT - 1)
    return _svg(said, _track(), filled, line)


def shade(share: float) -> str:
    """Return the class of a colour from orange to blue, which differ for every kind of colour vision; a sound page is blue."""
    return f"s{sum(share >= step for step in _STEPS)}"


def agreement(share: float, *, right: bool) -> str:
    """Return the class of a matrix's cell: blue for right and orange for wrong, deeper for a larger share of its row."""
    steps = (0.5, 0.8) if right else (0.15, 0.4)
    depth = 1 + sum(share >= step for step in steps)
    return f"s{3 + depth if right else 3 - depth}"


def _svg(said: str, *parts: str | None) -> Markup:
    title = element("title", said)
    return element("svg", title, joined(parts, ""), role="img", aria_label=said, width="100%", height=_HEIGHT)


def _track() -> Markup:
    middle = _HEIGHT // 2
    return element("line", class_="track", x1="0%", x2="100%", y1=middle, y2=middle)


def _ticks(*percents: int) -> Iterator[Markup]:
    for percent in percents:
        yield element("line", class_="tick", x1=f"{percent}%", x2=f"{percent}%", y1=_HEIGHT // 2 - 3, y2=_HEIGHT // 2 + 3)


def _interval(low: str, high: str) -> Iterator[Markup]:
    middle = _HEIGHT // 2
    yield element("line", class_="whisker", x1=low, x2=high, y1=middle, y2=middle)
    for end in (low, high):
        yield element("line", class_="whisker", x1=end, x2=end, y1=middle - 4, y2=middle + 4)


def _dot(where: str, class_: str) -> Markup:
    return element("circle", class_=class_, cx=where, cy=_HEIGHT // 2, r=4.5)


def _percent(share: float) -> str:
    return f"{min(1.0, max(0.0, share)) * 100:.4g}%"
