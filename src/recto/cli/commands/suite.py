"""Work with suites: `recto suite` with `lint`, `new` and `add`, `recto judge`, and `recto tune`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recto._util.text import plural, to_json
from recto.cli import (
    Exit,
    connect,
    connect_all,
    echo_json,
    echo_text,
    emit,
    notify,
    one_line,
    options,
    progress_bar,
    table,
    warn,
)
from recto.errors import InvalidArgument, missing_extra

if TYPE_CHECKING:
    from recto.evaluation.tune import Tuning


@click.group()
def suite() -> None:
    """Check a suite of questions, draft one from an index, or add what readers asked."""


@suite.command()
@options.file_argument("file")
@click.option("--collection", metavar="NAME", help="Also check that this collection has every expected page.")
@options.as_json
def lint(file: Path, collection: str | None, as_json: bool) -> Exit:
    """List the problems of the suite in FILE, with their positions.

    Exits with 5 if there are problems; warnings do not count.
    """
    from recto.evaluation.binding import lint as check

    if collection is None:
        checked = check(file)
    else:
        with connect(collection) as retriever:
            checked = check(file, retriever.open())
    problems, warnings = checked["problems"], checked["warnings"]
    lines = [
        *(f"[PROBLEM] {problem}" for problem in problems),
        *(f"[WARNING] {warning}" for warning in warnings),
        f"{plural(checked['questions'], 'question')}: "
        f"{plural(len(problems), 'problem')}, {plural(len(warnings), 'warning')}.",
    ]
    emit(checked, lines, as_json=as_json)
    return Exit.VALIDATION_FAILED if problems else Exit.OK


@suite.command()
@options.collection
@options.file_option("--out", "Write the suite to this file, not to standard output.")
@options.number("--count", click.IntRange(1, 10_000), 50, "INT", "Maximum number of questions.")
@options.number("--seed", click.IntRange(0), 0, "INT", "Draft other questions from the same index.")
@click.option("--force", is_flag=True, help="Overwrite the file.")
def new(collection: str | None, out: Path | None, count: int, seed: int, force: bool) -> Exit:
    """Draft a suite from an index, for a person to review.

    The questions are made from definitions, steps, tables, identifiers, errors and headings of the book.
    """
    from recto.evaluation.drafts import draft

    if out is not None and out.exists() and not force:
        raise InvalidArgument(f"{out} exists", hint="Choose another name, or overwrite it with --force.")
    with connect(collection) as retriever:
        drafted = draft(retriever.open(), count, retriever.collection, seed)
    if not drafted.expectations:
        warn("No questions could be drafted from this index.")
        return Exit.NO_RESULTS
    if (drafts := len(drafted.expectations)) < count:
        warn(f"The book gives {plural(drafts, 'good draft')}, fewer than the {count:,} that you asked for.")
    if out is None:
        echo_json(drafted.to_dict())
        return Exit.OK
    from recto._util.files import write_file

    write_file(out, to_json(drafted.to_dict()) + "\n")
    questions = plural(len(drafted.expectations), "question")
    notify(f"Drafted {questions}. Review them: they use the words of the book, not those of your readers.")
    return Exit.OK


@suite.command()
@options.file_argument("file")
@click.option("--from-log", is_flag=True, required=True, help="Add queries of the query log.")
@options.collection
@options.log
@options.log_days
@options.number("--count", click.IntRange(1, 1000), 20, "INT", "Maximum number of questions to add.")
def add(
    file: Path, from_log: bool, collection: str | None, log: Path | None, days: int | None, count: int
) -> Exit:
    """Add queries of readers to the suite in FILE, for a person to judge.

    Queries that the book does not answer come first, then the most frequent ones. Each expects the section
    that readers opened, or else the nearest one, or nothing. FILE is created if it does not exist.
    """
    del from_log
    from recto._util.files import write_file
    from recto.cli.commands.checks import asked_queries
    from recto.evaluation.gaps import extended, find_gaps, questions_from
    from recto.evaluation.suites import load_suite

    existing = [one.query for one in load_suite(file).expectations] if file.exists() else []
    with connect(collection) as retriever:
        with progress_bar("Searching for queries") as progress:
            gaps = find_gaps(retriever, asked_queries(retriever, log, days), progress)
        entries = questions_from(gaps, retriever.open(), existing, count)
    if not entries:
        warn("The log has no queries that the suite does not have.")
        return Exit.NO_RESULTS
    write_file(file, extended(file, entries, retriever.collection))
    notify(f'Added {plural(len(entries), "question")} to {file}. Judge them, and remove "drafted".')
    return Exit.OK


@click.command()
@options.file_argument("suite")
@options.collection
@options.indexes("Also pool the results of this collection, opened with these settings.")
@options.modes("Pool only the results of these modes: dense, lexical, hybrid.")
@options.number("--depth", click.IntRange(1, 100), 10, "INT", "Pool so many results of each configuration.")
@options.port(0)
def judge(
    suite: Path,
    collection: str | None,
    indexes: tuple[str, ...],
    modes: tuple[str, ...],
    depth: int,
    port: int,
) -> Exit:
    """Grade the results for the questions in SUITE, on a page in your browser.

    The results of all modes and collections are pooled, and the page does not say which of them found what.
    Grades are written into SUITE.
    """
    from recto.evaluation.pooling import PooledSearch, load_judged_suite, pool

    try:
        from recto.server.judge import Judging, serve_judging
    except ModuleNotFoundError as error:
        raise missing_extra("`recto judge`", "serve") from error
    chosen, others = options.parse_modes(modes), [options.parse_index(index) for index in indexes]
    questions = load_judged_suite(suite)
    with connect_all(collection, others) as retrievers:
        configurations = [PooledSearch(one, mode) for one in retrievers for mode in chosen]
        notify(f"Searching for {plural(len(questions.expectations), 'question')}.")
        serve_judging(Judging(suite, pool(questions, configurations, depth)), port, notify)
    return Exit.OK


_TUNE_EPILOG = """\b
Examples:
  recto tune --suite questions.json
  recto tune --suite questions.json --mode hybrid --weight 0.15,0.25,0.4
  recto tune --suite questions.json --index my-book-320
  recto tune --suite questions.json --index my-book-bge,RECTO_MODEL=BAAI/bge-base-en-v1.5
"""
_MAX_WEIGHTS = 50


@click.command(epilog=_TUNE_EPILOG)
@options.file_option("--suite", "Use these questions.", required=True)
@options.collection
@options.modes("Compare only these modes: dense, lexical, hybrid.")
@options.repeated("--weight", "weights", "NUMBERS", "Compare these weights of the lexical score, 0 to 1.")
@options.indexes("Also compare this collection, opened with these settings.")
@options.value_option("--measure", "NAME", "Decide by this measure.", "nDCG@10")
@options.as_json
def tune(
    suite: Path,
    collection: str | None,
    modes: tuple[str, ...],
    weights: tuple[str, ...],
    indexes: tuple[str, ...],
    measure: str | None,
    as_json: bool,
) -> Exit:
    """Recommend how to search a book, or to keep what you have.

    It compares modes, weights of hybrid search, and indexes with other chunk sizes or models, on a suite of
    questions. It recommends a change only if the gain is significant.
    """
    from recto.evaluation.measures import parse_measure
    from recto.evaluation.suites import load_strict_suite
    from recto.evaluation.tune import DEFAULT_MEASURE, DEFAULT_WEIGHTS, advice, verdict
    from recto.evaluation.tune import tune as compare

    chosen_modes, chosen_weights = options.parse_modes(modes), _weights(weights) or DEFAULT_WEIGHTS
    chosen_measure = parse_measure(measure) if measure else DEFAULT_MEASURE
    if (chosen_measure.cutoff or 1) > 100 or chosen_measure.kind == "Judged":
        raise InvalidArgument(f"{chosen_measure} cannot be used", hint="Choose a measure such as nDCG@10.")
    parsed = [options.parse_index(index) for index in indexes]
    questions = load_strict_suite(suite)
    with connect_all(collection, parsed) as retrievers:
        result = compare(retrievers, questions, chosen_modes, chosen_weights, chosen_measure)
    changed = dict(parsed).get(result.recommended.collection, {}) if result.recommended else {}
    steps = advice(result) + [f"Set {name}={value}, too." for name, value in changed.items()]
    if as_json:
        echo_json(result.to_dict() | {"verdict": verdict(result), "apply": steps})
    else:
        echo_text("\n\n".join(_report(result, verdict(result), steps)))
    return Exit.OK


def _weights(groups: tuple[str, ...]) -> tuple[float, ...]:
    numbers = []
    for text in options.split_names(groups):
        try:
            weight = float(text)
        except ValueError:
            weight = math.nan
        if not 0 <= weight <= 1:
            hint = "Such as --weight 0.15,0.25,0.4."
            raise InvalidArgument(f"--weight {text!r} is not a number from 0 to 1", hint=hint)
        numbers.append(weight)
    if len(numbers) > _MAX_WEIGHTS:
        hint = "Each further weight makes it harder to show that one is better."
        raise InvalidArgument(f"--weight has more than {_MAX_WEIGHTS} numbers", hint=hint)
    return tuple(dict.fromkeys(numbers))


def _report(result: Tuning, verdict: str, steps: list[str]) -> list[str]:
    left_out = f"; {result.left_out} left out" if result.left_out else ""
    head = f"Suite '{one_line(result.suite)}': {plural(result.questions, 'question')} compared{left_out}"
    if result.left_out:
        head += "\nQuestions without a target in every index cannot be compared."
    gain = result.expected_gain
    expected = [verdict]
    if gain.low < gain.high:  # otherwise the cross-validation always chooses the current configuration
        interval = f"{gain.mean:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}]"
        expected.append(f"Expected gain: {interval} {result.measure} (nested cross-validation)")
    if result.detectable:
        expected.append(f"This suite finds a gain of {result.detectable:.3f} with a probability of 80 %.")
    return [head, "\n".join(_table(result)), "\n".join([*expected, *steps])]


def _table(result: Tuning) -> list[str]:
    several = len({score.configuration.collection for score in result.scores}) > 1
    titles = ("Configuration", f">{result.measure}", ">Change", "90 % interval", ">p", "")
    rows = []
    for score in result.scores:
        configuration, mean = score.configuration, f"{score.mean:.3f}"
        name = one_line(str(configuration) if several else configuration.label)
        if score.change is None or score.p_value is None:
            rows.append((name, mean, "", "(current)", "", ""))
            continue
        interval = f"[{score.change.low:+.3f}, {score.change.high:+.3f}]"
        mark = "BETTER" if configuration == result.recommended else ""
        rows.append((name, mean, f"{score.change.mean:+.3f}", interval, f"{score.p_value:.3f}", mark))
    return [*table(titles, rows), "p is corrected for the number of configurations."]
