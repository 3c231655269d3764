"""A run of a suite as a page: the verdict and its reasons, the measures, what changed, and what needs a person's eyes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import datetime

from recto import __version__
from recto.calibration.measuring import percentile
from recto.evaluation.comparison import Comparison
from recto.evaluation.gate import Check
from recto.evaluation.run import Run
from recto.evaluation.statistics import Estimate
from recto.report import charts, tables
from recto.report.changes import changed
from recto.report.markup import Markup, counted, element, joined, number, words
from recto.report.page import Report, Section, document, facts, made, moment, note, outcome, tiles
from recto.report.questions import every, worst

_RANKS = 10
_BINS = 10
_TILES = 4


def validation_page(run: Run, gate: Sequence[Check], comparison: Comparison | None, *, noise: float | None, when: datetime) -> str:
    """Return the page of a run; `noise` is the score below which a result means nothing, if it is known."""
    sections = (
        Section("measures", "Measures", _measures(run)),
        Section("comparison", "Comparison", changed(comparison) if comparison else Markup()),
        Section("unmeasured", "Not in the index", _missing(run)),
        Section("ranks", "Rank of the first expected place", _ranks(run)),
        Section("worst", "Furthest from what is expected", worst(run, noise)),
        Section("confusion", "Modules", _modules(run)),
        Section("tags", "Tags", _groups("Means by tag", "Tag", run.by_tag())),
        Section("times", "Times", _times(run)),
        Section("questions", "All questions", every(run)),
    )
    return document(Report(f"Validation of {run.collection}", _verdict(run, gate), _facts(run, noise, when), sections))


def _verdict(run: Run, gate: Sequence[Check]) -> Markup:
    good = all(check.holds for check in gate)
    told = [
        element("li", outcome(good=check.holds, yes="holds", no="fails"), element("b", f" {check.name}"), f": {check.reason}")
        for check in gate
    ]
    head = element("h2", outcome(good=good, yes="Passed", no="Failed"), id="verdict-title")
    share = "none judged" if run.share is None else f"{run.passed} of {len(run.judged)}"
    passed = ("Questions passed", share, "" if run.share is None else f"{run.share:.1%}")
    scores = list(run.scores().items())[:_TILES]
    shown = tiles([passed, *((name, number(score.mean), f"{number(score.low)} to {number(score.high)}") for name, score in scores)])
    body = (head, element("ul", *told, class_="checks"), shown)
    return element("section", joined(body), class_=f"verdict {'passed' if good else 'failed'}", aria_labelledby="verdict-title")


def _facts(run: Run, noise: float | None, when: datetime) -> Markup:
    gone = len({missing.key for missing in run.unmeasured})
    unjudged = len(run.answers) - len(run.judged)
    asked = [counted(len(run.answers), "question")]
    asked += [f"{unjudged} not judged"] if unjudged else []
    asked += [f"{gone} unmeasured"] if gone else []
    return facts(
        [
            ("Suite", words(run.suite)),
            ("Digest", run.suite_digest),
            ("Asked", f"{', '.join(asked)}; {run.depth} results each, {run.top_k} shown"),
            ("Collection", words(run.collection)),
            ("Generation", run.generation),
            *made(run.fingerprint),
            ("Noise", "not measured" if noise is None else f"scores below {number(noise)}"),
            ("Run", joined((moment(when), f"in {run.seconds:.2f} s, by Recto {__version__}"), " ")),
        ]
    )


def _measures(run: Run) -> Markup:
    scores = run.scores()
    if not scores:
        return note("No question of this suite has a measure.")
    columns = (tables.text("Measure"), tables.chart("0 to 1"), tables.numbers("Mean"), tables.numbers("95 % interval"))
    rows = ((name, charts.whisker(name, score), number(score.mean), _interval(score), str(score.count)) for name, score in scores.items())
    table = tables.table("Means over the questions that a measure applies to", (*columns, tables.numbers("Questions")), rows)
    return joined((table, note("The interval is where 95 % of resampled suites fall (percentile bootstrap over the questions).")))


def _groups(caption: str, title: str, groups: dict[str, dict[str, Estimate]]) -> Markup:
    names = list(dict.fromkeys(name for scores in groups.values() for name in scores))
    if not names:
        return Markup()
    columns = (tables.text(title), *map(tables.numbers, names), tables.numbers("Questions"))
    return tables.table(
        f"{caption}, with their 95 % intervals", columns, (_group(group, scores, names) for group, scores in groups.items())
    )


def _group(group: str, scores: dict[str, Estimate], names: Sequence[str]) -> tuple[str, ...]:
    """A row; a measure that applies to fewer of the group's questions than others says to how many."""
    most = max((score.count for score in scores.values()), default=0)
    return words(group), *(_score(scores.get(name), most) for name in names), str(most)


def _score(score: Estimate | None, most: int) -> Markup:
    if score is None:
        return element("span", "\N{EN DASH}", class_="none")
    fewer = element("small", f"of {score.count}") if score.count != most else None
    return element("span", number(score.mean), element("small", _interval(score)), fewer)


def _interval(score: Estimate) -> str:
    return f"{number(score.low)} to {number(score.high)}"


def _modules(run: Run) -> Markup:
    confusion = run.confusion()
    if not confusion:
        return Markup()
    matrix = tables.matrix("Where the first result was from, for each expected module", "Expected", confusion)
    legend = note("Blue: the expected module. Orange: another one. The deeper, the larger the share of the row.")
    return joined((matrix, legend, _groups("Means by expected module", "Module", run.by_module())))


def _ranks(run: Run) -> Markup:
    counts = run.ranks()
    asked = sum(counts.values())
    if not asked:
        return Markup()
    rows = (
        (
            rank if rank != "none" else f"not in {run.depth}",
            charts.bar(f"{count} of {asked}", count / asked),
            str(count),
            f"{count / asked:.1%}",
        )
        for rank, count in counts.items()
        if count or rank == "none" or int(rank) <= _RANKS
    )
    columns = (tables.numbers("Rank"), tables.chart("Share"), tables.numbers("Questions"), tables.numbers("Percent"))
    return tables.table(f"At which rank the first expected place came, of {counted(asked, 'question')}", columns, rows)


def _times(run: Run) -> Markup:
    times = sorted(answer.ms for answer in run.answers)
    if not times:
        return Markup()
    shares = (("median", 0.5), ("90 %", 0.9), ("99 %", 0.99), ("longest", 1.0))
    shown = tiles([(name, f"{percentile(times, share):.1f} ms", "") for name, share in shares])
    rows = (
        (f"{low:.1f} to {high:.1f}", charts.bar(f"{count} of {len(times)}", count / len(times)), str(count))
        for low, high, count in _bins(times)
    )
    columns = (tables.numbers("Milliseconds"), tables.chart("Share"), tables.numbers("Questions"))
    told = note("Questions are asked in batches; a question's time is its share of the time that its batch took.")
    return joined((shown, tables.table("How long questions took", columns, rows), told))


def _bins(ordered: Sequence[float]) -> Iterator[tuple[float, float, int]]:
    """Count values between round limits: steps of 1, 2 or 5 times a power of ten."""
    low, high = ordered[0], ordered[-1]
    rough = max((high - low) / _BINS, 0.1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first = math.floor(low / step)
    counts: dict[int, int] = {}
    for value in ordered:
        place = math.floor(value / step)
        counts[place] = counts.get(place, 0) + 1
    for place in range(first, math.floor(high / step) + 1):
        yield place * step, (place + 1) * step, counts.get(place, 0)


def _missing(run: Run) -> Markup:
    rows = [
        (words(missing.query), kind, words(missing.target), words(missing.near) if missing.near else "")
        for kind, found in (("UNMEASURED", run.unmeasured), ("in part", run.partial))
        for missing in found
    ]
    if not rows:
        return Markup()
    columns = (tables.text("Question"), tables.text("Measured"), tables.text("Expected"), tables.text("Nearest that exists"))
    told = note("A place that is not in the index says nothing of retrieval: repair the suite, or index the page.")
    return joined((tables.table("Expected places that the index does not hold", columns, rows), told))
