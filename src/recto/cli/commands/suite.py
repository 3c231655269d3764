"""`recto suite`: check a suite of questions, and add queries from the query log to it."""

from __future__ import annotations

from pathlib import Path

import click

from recto._util.text import plural
from recto.cli import Exit, connect, emit, notify, options, progress_bar, warn


@click.group()
def suite() -> None:
    """Check a suite of questions, or add what readers asked."""


@suite.command()
@options.file_argument("file")
@options.collection_option("Also check that this collection has every expected page.")
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
@options.file_argument("file")
@options.collection
@options.log
@options.log_days
@options.number("--count", click.IntRange(1, 1000), 20, "INT", "Maximum number of questions to add.")
def add(file: Path, collection: str | None, log: Path | None, days: int | None, count: int) -> Exit:
    """Add queries from the query log to the suite in FILE, for a person to review.

    Queries that the book does not answer come first, then the most frequent ones. Each expects the section
    that readers opened, or else the nearest one, or nothing. FILE is created if it does not exist.
    """
    from recto._util.files import write_file
    from recto.cli.commands.checks import logged_queries
    from recto.evaluation.gaps import extended, find_gaps, questions_from
    from recto.evaluation.suites import load_suite

    existing = [question.query for question in load_suite(file).expectations] if file.exists() else []
    with connect(collection) as retriever:
        with progress_bar("Searching for queries") as progress:
            gaps = find_gaps(retriever, logged_queries(retriever, log, days), progress)
        entries = questions_from(gaps, retriever.open(), existing, count)
    if not entries:
        warn("The log has no queries that the suite does not have.")
        return Exit.NO_RESULTS
    write_file(file, extended(file, entries, retriever.collection))
    notify(f'Added {plural(len(entries), "question")} to {file}. Review them, and remove "drafted".')
    return Exit.OK
