"""`recto suite`: lint a suite, draft one, add what readers asked, import and export the files of TREC."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from recto._util.text import plural, to_json
from recto.cli import options
from recto.cli.output import echo, echo_json, echo_text
from recto.cli.runner import Exit, connect, notify, progress_bar, warn
from recto.errors import InvalidArgument


def _path_option(flag: str, help: str) -> Callable[[options.Command], options.Command]:
    return click.option(flag, type=click.Path(path_type=Path), metavar="FILE", required=True, help=help)


_force = click.option("--force", is_flag=True, help="Overwrite the file.")
_qrels = _path_option("--qrels", "The judgments: query id, 0, page or page#anchor, grade.")
_queries = _path_option("--queries", "The queries: id, tab, query.")


@click.group()
def suite() -> None:
    """Check a suite of questions, draft one from an index, add what readers asked, import or export one."""


@suite.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--collection", metavar="NAME", help="Also check that this collection has every expected page.")
@options.as_json
def lint(file: Path, collection: str | None, as_json: bool) -> Exit:
    """List the problems of the suite in FILE, with their positions.

    Exits with 5 if there are problems; warnings do not count.
    """
    from recto.evaluation.suite_tools import lint as check

    if collection is None:
        found = check(file)
    else:
        with connect(collection) as retriever:
            found = check(file, retriever.open())
    if as_json:
        echo_json(found.to_dict())
    else:
        summary = f"{plural(len(found.problems), 'problem')}, {plural(len(found.warnings), 'warning')}"
        echo(
            *(f"[PROBLEM] {problem}" for problem in found.problems),
            *(f"[WARNING] {warning}" for warning in found.warnings),
            f"{plural(found.questions, 'question')}: {summary}.",
        )
    return Exit.VALIDATION_FAILED if found.problems else Exit.OK


@suite.command()
@options.collection
@options.file_option("--out", "Write the suite to this file, not to standard output.")
@click.option(
    "--count",
    type=click.IntRange(1, 10_000),
    default=50,
    show_default=True,
    metavar="INT",
    help="Maximum number of questions.",
)
@click.option(
    "--seed",
    type=click.IntRange(0),
    default=0,
    show_default=True,
    metavar="INT",
    help="Draft other questions from the same index.",
)
@_force
def new(collection: str | None, out: Path | None, count: int, seed: int, force: bool) -> Exit:
    """Draft a suite from an index, for a person to review.

    The questions are made from definitions, steps, tables, identifiers, errors and headings of the book.
    """
    from recto.evaluation.drafts import draft

    _check_new(out, force=force)
    with connect(collection) as retriever:
        drafted = draft(retriever.open(), count, retriever.collection, seed)
    if not drafted.expectations:
        warn("No questions could be drafted from this index.")
        return Exit.NO_RESULTS
    if (found := len(drafted.expectations)) < count:
        warn(f"The book gives {plural(found, 'good draft')}, fewer than the {count:,} that you asked for.")
    if out is None:
        echo_json(drafted.to_dict())
        return Exit.OK
    from recto.evaluation.records import write_file

    write_file(out, to_json(drafted.to_dict()) + "\n")
    questions = plural(len(drafted.expectations), "question")
    notify(f"Drafted {questions}. Review them: they use the words of the book, not those of your readers.")
    return Exit.OK


@suite.command("import")
@_qrels
@_queries
@options.file_option("--out", "Write the suite to this file, not to standard output.")
@_force
def import_(qrels: Path, queries: Path, out: Path | None, force: bool) -> Exit:
    """Make a suite from judgments and queries in the format of TREC.

    Pages are named by URL or path. White space in names is written as %20.
    """
    from recto.evaluation.records import write_file
    from recto.evaluation.suite_tools import import_suite

    _check_new(out, force=force)
    found = import_suite(qrels, queries)
    if found.left_out:
        warn(f"{plural(found.left_out, 'question')} without a relevant page left out.")
    text = to_json(found.suite.to_dict()) + "\n"
    if out is None:
        echo_text(text.rstrip("\n"))
    else:
        write_file(out, text)
        notify(f"Imported {plural(len(found.suite.expectations), 'question')}.")
    return Exit.OK


@suite.command()
@click.argument("file", type=click.Path(path_type=Path))
@_qrels
@_queries
@_force
def export(file: Path, qrels: Path, queries: Path, force: bool) -> Exit:
    """Write the suite in FILE as judgments and queries in the format of TREC."""
    from recto.evaluation.records import write_file
    from recto.evaluation.suite_tools import export_suite
    from recto.evaluation.suites import load_strict_suite

    _check_new(qrels, queries, force=force)
    found = export_suite(load_strict_suite(file))
    if found.left_out:
        warn(f"{plural(found.left_out, 'question')} without judgments: only expected pages can be exported.")
    write_file(qrels, found.qrels)
    write_file(queries, found.queries)
    return Exit.OK


def _check_new(*files: Path | None, force: bool) -> None:
    for file in files:
        if file is not None and file.exists() and not force:
            raise InvalidArgument(f"{file} exists", hint="Choose another name, or overwrite it with --force.")


@suite.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--from-log", is_flag=True, required=True, help="Add queries of the query log.")
@options.collection
@options.log
@options.log_days
@click.option(
    "--count",
    type=click.IntRange(1, 1000),
    default=20,
    show_default=True,
    metavar="INT",
    help="Maximum number of questions to add.",
)
def add(
    file: Path, from_log: bool, collection: str | None, log: Path | None, days: int | None, count: int
) -> Exit:
    """Add queries of readers to the suite in FILE, for a person to judge.

    Queries that the book does not answer come first, then the most frequent ones. Each expects the section
    that readers opened, or else the nearest one, or nothing. FILE is created if it does not exist.
    """
    del from_log
    from recto.cli.commands.gaps import asked_queries
    from recto.evaluation.gaps import find_gaps
    from recto.evaluation.records import write_file
    from recto.evaluation.suite_tools import extended, questions_from
    from recto.evaluation.suites import load_suite

    known = [one.query for one in load_suite(file).expectations] if file.exists() else []
    with connect(collection) as retriever:
        with progress_bar("Searching for queries") as progress:
            found = find_gaps(retriever, asked_queries(retriever, log, days), progress)
        entries = questions_from(found, retriever.open(), known, count)
    if not entries:
        warn("The log has no queries that the suite does not have.")
        return Exit.NO_RESULTS
    write_file(file, extended(file, entries, retriever.collection))
    notify(f'Added {plural(len(entries), "question")} to {file}. Judge them, and remove "drafted".')
    return Exit.OK
