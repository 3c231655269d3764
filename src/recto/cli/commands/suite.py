"""`recto suite`: lint a suite, draft one, add what readers asked; `recto judge`."""

from __future__ import annotations

from pathlib import Path

import click

from recto._util.text import plural, to_json
from recto.cli import options
from recto.cli.output import echo_json, emit
from recto.cli.runner import Exit, connect, connect_all, notify, progress_bar, warn
from recto.errors import InvalidArgument, missing_extra


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
    from recto.evaluation.records import write_file

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
    from recto.cli.commands.coverage import asked_queries
    from recto.evaluation.gaps import extended, find_gaps, questions_from
    from recto.evaluation.records import write_file
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
