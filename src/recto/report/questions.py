"""Questions of a run: the worst with what was found instead, and all of them in a table."""

from __future__ import annotations

from recto.evaluation.run import Answer, Found, Run
from recto.report import charts, tables
from recto.report.markup import Markup, counted, element, joined, number, place, words
from recto.report.page import folded, note, outcome

_WORST = 10
_NOTHING = "\N{EN DASH}"


def worst(run: Run, noise: float | None) -> Markup:
    """Return the questions whose expected place came latest or not at all."""
    found = run.worst(_WORST)
    if not found:
        return note("Every expected place came first.") if run.answers else Markup()
    level = (
        note(f"The bars are cosine similarities from 0 to 1; the line is {number(noise)}, below which a result is noise in this index.")
        if noise is not None
        else note("The bars are cosine similarities from 0 to 1. Where noise ends in this index was not measured: run `recto calibrate`.")
    )
    return joined((level, *(_question(answer, run, noise) for answer in found)))


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


def _question(answer: Answer, run: Run, noise: float | None) -> Markup:
    wanted = [place(target) for target in answer.targets] or [words(answer.expected)]
    came = f"rank {answer.rank}" if answer.rank else f"not in the first {run.depth}"
    where = "" if answer.nothing else f" \N{MIDDLE DOT} {came}"
    head = element("h3", words(answer.query))
    expected = element("p", _outcome(answer), where, " \N{MIDDLE DOT} expected ", joined(wanted, " or "), class_="expected")
    if not answer.found:
        return element("article", head, expected, note("Nothing was found."))
    columns = (tables.numbers("Rank"), tables.text("Found"), tables.chart("0 to 1"), tables.numbers("Score"))
    shown = max(run.top_k, answer.rank or 0)
    rows = (_result(rank, found, answer, noise) for rank, found in enumerate(answer.found[:shown], 1))
    return element("article", head, expected, tables.table(f"What was found for: {answer.query}", columns, rows))


def _result(rank: int, found: Found, answer: Answer, noise: float | None) -> tuple[str, ...]:
    similarity = found.score if found.cosine is None else found.cosine
    weak = noise is not None and similarity < noise
    mark = joined((place(found.place), _tick() if rank in answer.ranks else None, element("small", words(found.module))), " ")
    said = f"similarity {number(similarity)}" + (f", noise below {number(noise)}" if noise is not None else "")
    value = element("span", number(found.score), element("small", "noise") if weak else None)
    return str(rank), mark, charts.bar(said, similarity, noise, weak=weak), value


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
