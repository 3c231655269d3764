"""A run of a suite as a page: the verdict and its reasons, the measures, what changed, and what needs a person's eyes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from recto import __version__
from recto.evaluation.baseline import RISK, Change, Comparison, Delta
from recto.evaluation.calibration import percentile
from recto.evaluation.gate import Check
from recto.evaluation.report import page as charts
from recto.evaluation.report import page as tables
from recto.evaluation.report.page import (
    Markup,
    Report,
    Section,
    counted,
    document,
    element,
    facts,
    folded,
    joined,
    made,
    moment,
    note,
    number,
    outcome,
    place,
    signed,
    tiles,
    words,
)
from recto.evaluation.runs import Answer, Found, Run
from recto.evaluation.statistics import Estimate

_NOWHERE = 1 << 30


def changed(comparison: Comparison) -> Markup:
    """Return the comparison's part of a page."""
    better, worse, other = _sorted(comparison.changes)
    nothing = note("No question's results changed.") if not comparison.changes else None
    return joined(
        (
            element(
                "p",
                f"{counted(comparison.compared, 'question')} compared with ",
                words(comparison.against),
                ".",
            ),
            _deltas(comparison),
            *_not_compared(comparison),
            nothing,
            _listed("Worse: the expected place came later", worse),
            _listed("Better: the expected place came earlier", better),
            folded(f"Other results, same rank: {counted(len(other), 'question')}", _changes(other))
            if other
            else None,
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
    reach = max(
        max(abs(value) for value in (delta.delta.mean, delta.delta.low, delta.delta.high))
        for delta in comparison.deltas
    )
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
        charts.change(delta.measure, one, reach, lost=delta.significant_drop),
        number(delta.before),
        number(delta.now),
        signed(one.mean),
        f"{signed(one.low)} to {signed(one.high)}",
        str(one.count),
        number(delta.p_value),
        outcome(good=not delta.significant_drop, yes="none shown", no="LOST")
        if delta.gated
        else element("span", "not watched", class_="none"),
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
    columns = (
        tables.text("Question"),
        tables.numbers("Rank before"),
        tables.numbers("Rank now"),
        tables.text("Results"),
    )
    rows = ((words(one.query), _rank(one.rank_before), _rank(one.rank_now), _results(one)) for one in changes)
    return tables.table("Questions whose results changed", columns, rows)


def _rank(rank: int | None) -> str:
    return "none" if rank is None else str(rank)


def _results(change: Change) -> Markup:
    if not change.entered and not change.left:
        return element("span", "the same, in another order", class_="none")
    signs = (("+", "entered", change.entered), ("\N{MINUS SIGN}", "left", change.left))
    items = (
        element("li", element("span", sign, class_="sign", title=verb), " ", place(one))
        for sign, verb, places in signs
        for one in places
    )
    return folded(f"{len(change.entered)} entered, {len(change.left)} left", element("ul", *items))


_WORST = 10
_NOTHING = "\N{EN DASH}"


def worst(run: Run, noise_floor: float | None) -> Markup:
    """Return the questions whose expected place came latest or not at all."""
    found = run.worst(_WORST)
    if not found:
        return note("Every expected place came first.") if run.answers else Markup()
    level = (
        note(
            f"The bars are scores from 0 to 1; the line is {number(noise_floor)}, below which a result is noise in this index."
        )
        if noise_floor is not None
        else note(
            "The bars are scores from 0 to 1. Where noise ends in this index was not measured: run `recto calibrate`."
        )
    )
    return joined((level, *(_question(answer, run, noise_floor) for answer in found)))


def every(run: Run) -> Markup:
    """Return the table of all questions, folded."""
    if not run.answers:
        return Markup()
    names = [str(measure) for measure in run.measures]
    columns = (
        tables.text("Question"),
        tables.text("Outcome"),
        tables.numbers("Rank"),
        *map(tables.numbers, names),
        tables.text("Expected"),
        tables.text("First result"),
        tables.numbers("Score"),
        tables.numbers("ms"),
    )
    table = tables.table("All questions of the run", columns, (_row(answer, names) for answer in run.answers))
    return folded(counted(len(run.answers), "question"), table)


def _question(answer: Answer, run: Run, noise_floor: float | None) -> Markup:
    wanted = [place(target) for target in answer.targets] or [words(answer.expected)]
    came = f"rank {answer.rank}" if answer.rank else f"not in the first {run.depth}"
    where = "" if answer.nothing else f" \N{MIDDLE DOT} {came}"
    head = element("h3", words(answer.query))
    expected = element(
        "p", _outcome(answer), where, " \N{MIDDLE DOT} expected ", joined(wanted, " or "), class_="expected"
    )
    if not answer.found:
        return element("article", head, expected, note("Nothing was found."))
    columns = (tables.numbers("Rank"), tables.text("Found"), tables.chart("0 to 1"), tables.numbers("Score"))
    shown = max(run.top_k, answer.rank or 0)
    rows = (_result(rank, found, answer, noise_floor) for rank, found in enumerate(answer.found[:shown], 1))
    return element(
        "article", head, expected, tables.table(f"What was found for: {answer.query}", columns, rows)
    )


def _result(rank: int, found: Found, answer: Answer, noise_floor: float | None) -> tuple[str, ...]:
    weak = noise_floor is not None and found.score < noise_floor
    mark = joined(
        (
            place(found.place),
            _tick() if rank in answer.ranks else None,
            element("small", words(found.module)),
        ),
        " ",
    )
    said = f"score {number(found.score)}" + (
        f", noise below {number(noise_floor)}" if noise_floor is not None else ""
    )
    value = element("span", number(found.score), element("small", "noise_floor") if weak else None)
    return str(rank), mark, charts.bar(said, found.score, noise_floor, weak=weak), value


def _tick() -> Markup:
    return element("span", "\N{CHECK MARK} expected", class_="good")


def _outcome(answer: Answer) -> Markup:
    if answer.passed is None:
        return element("span", "? not judged", class_="none")
    return outcome(good=answer.passed, yes="passed", no="failed")


def _row(answer: Answer, names: list[str]) -> tuple[str, ...]:
    first = answer.found[0] if answer.found else None
    values = (number(answer.measures[name]) if name in answer.measures else _NOTHING for name in names)
    key = element("small", words(answer.key)) if answer.key != answer.query else None
    tags = element("small", words(", ".join(answer.tags))) if answer.tags else None
    return (
        joined((words(answer.query), key, tags), " "),
        _outcome(answer),
        _NOTHING if answer.nothing or not answer.targets else str(answer.rank or "none"),
        *values,
        joined([place(target) for target in answer.targets] or [words(answer.expected)], ", "),
        place(first.place) if first else "nothing",
        number(first.score) if first else _NOTHING,
        f"{answer.ms:.1f}",
    )


_RANKS = 10
_BINS = 10
_TILES = 4


def validation_page(
    run: Run,
    gate: Sequence[Check],
    comparison: Comparison | None,
    *,
    noise_floor: float | None,
    when: datetime,
) -> str:
    """Return the page of a run; `noise_floor` is the score below which a result means nothing, if it is known."""
    sections = (
        Section("measures", "Measures", _measures(run)),
        Section("comparison", "Comparison", changed(comparison) if comparison else Markup()),
        Section("unmeasured", "Not in the index", _missing(run)),
        Section("ranks", "Rank of the first expected place", _ranks(run)),
        Section("worst", "Furthest from what is expected", worst(run, noise_floor)),
        Section("confusion", "Modules", _modules(run)),
        Section("tags", "Tags", _groups("Means by tag", "Tag", run.by_tag())),
        Section("times", "Times", _times(run)),
        Section("questions", "All questions", every(run)),
    )
    return document(
        Report(
            f"Validation of {run.collection}", _verdict(run, gate), _facts(run, noise_floor, when), sections
        )
    )


def _verdict(run: Run, gate: Sequence[Check]) -> Markup:
    good = all(check.holds for check in gate)
    told = [
        element(
            "li",
            outcome(good=check.holds, yes="holds", no="fails"),
            element("b", f" {check.name}"),
            f": {check.reason}",
        )
        for check in gate
    ]
    head = element("h2", outcome(good=good, yes="Passed", no="Failed"), id="verdict-title")
    share = "none judged" if run.share is None else f"{run.passed} of {len(run.judged)}"
    passed = ("Questions passed", share, "" if run.share is None else f"{run.share:.1%}")
    scores = list(run.scores().items())[:_TILES]
    shown = tiles(
        [
            passed,
            *(
                (name, number(score.mean), f"{number(score.low)} to {number(score.high)}")
                for name, score in scores
            ),
        ]
    )
    body = (head, element("ul", *told, class_="checks"), shown)
    return element(
        "section",
        joined(body),
        class_=f"verdict {'passed' if good else 'failed'}",
        aria_labelledby="verdict-title",
    )


def _facts(run: Run, noise_floor: float | None, when: datetime) -> Markup:
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
            ("Noise", "not measured" if noise_floor is None else f"scores below {number(noise_floor)}"),
            ("Run", joined((moment(when), f"in {run.seconds:.2f} s, by Recto {__version__}"), " ")),
        ]
    )


def _measures(run: Run) -> Markup:
    scores = run.scores()
    if not scores:
        return note("No question of this suite has a measure.")
    columns = (
        tables.text("Measure"),
        tables.chart("0 to 1"),
        tables.numbers("Mean"),
        tables.numbers("95 % interval"),
    )
    rows = (
        (name, charts.whisker(name, score), number(score.mean), _interval(score), str(score.count))
        for name, score in scores.items()
    )
    table = tables.table(
        "Means over the questions that a measure applies to", (*columns, tables.numbers("Questions")), rows
    )
    return joined(
        (
            table,
            note(
                "The interval is where 95 % of resampled suites fall (percentile bootstrap over the questions)."
            ),
        )
    )


def _groups(caption: str, title: str, groups: dict[str, dict[str, Estimate]]) -> Markup:
    names = list(dict.fromkeys(name for scores in groups.values() for name in scores))
    if not names:
        return Markup()
    columns = (tables.text(title), *map(tables.numbers, names), tables.numbers("Questions"))
    return tables.table(
        f"{caption}, with their 95 % intervals",
        columns,
        (_group(group, scores, names) for group, scores in groups.items()),
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
    legend = note(
        "Blue: the expected module. Orange: another one. The deeper, the larger the share of the row."
    )
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
    columns = (
        tables.numbers("Rank"),
        tables.chart("Share"),
        tables.numbers("Questions"),
        tables.numbers("Percent"),
    )
    return tables.table(
        f"At which rank the first expected place came, of {counted(asked, 'question')}", columns, rows
    )


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
    told = note(
        "Questions are asked in batches; a question's time is its share of the time that its batch took."
    )
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
    columns = (
        tables.text("Question"),
        tables.text("Measured"),
        tables.text("Expected"),
        tables.text("Nearest that exists"),
    )
    told = note(
        "A place that is not in the index says nothing of retrieval: repair the suite, or index the page."
    )
    return joined((tables.table("Expected places that the index does not hold", columns, rows), told))
