"""`recto suite`: lint a suite, draft one, add what readers asked, import and export it; `recto judge`."""

from __future__ import annotations

from pathlib import Path

import click

from recto._util.text import plural, to_json
from recto.cli import options
from recto.cli.output import echo_json, emit
from recto.cli.runner import Exit, connect, connect_all, notify, progress_bar, warn
from recto.errors import InvalidArgument, missing_extra

_force = click.option("--force", is_flag=True, help="Overwrite the file.")
_qrels = options.file_option(
    "--qrels", "The judgments: query id, 0, page or page#anchor, grade.", required=True
)
_queries = options.file_option("--queries", "The queries: id, tab, query.", required=True)


@click.group()
def suite() -> None:
    """Check a suite of questions, draft one from an index, add what readers asked, import or export one."""


@suite.command()
@options.file_argument("file")
@click.option("--collection", metavar="NAME", help="Also check that this collection has every expected page.")
@options.as_json
def lint(file: Path, collection: str | None, as_json: bool) -> Exit:
    """List the problems of the suite in FILE, with their positions.

    Exits with 5 if there are problems; warnings do not count.
    """
    from recto.evaluation.suite_tools import lint as check

    if collection is None:
        checked = check(file)
    else:
        with connect(collection) as retriever:
            checked = check(file, retriever.open())
    summary = f"{plural(len(checked.problems), 'problem')}, {plural(len(checked.warnings), 'warning')}"
    lines = [
        *(f"[PROBLEM] {problem}" for problem in checked.problems),
        *(f"[WARNING] {warning}" for warning in checked.warnings),
        f"{plural(checked.questions, 'question')}: {summary}.",
    ]
    emit(checked.to_dict(), lines, as_json=as_json)
    return Exit.VALIDATION_FAILED if checked.problems else Exit.OK


@suite.command()
@options.collection
@options.file_option("--out", "Write the suite to this file, not to standard output.")
@options.number("--count", click.IntRange(1, 10_000), 50, "INT", "Maximum number of questions.")
@options.number("--seed", click.IntRange(0), 0, "INT", "Draft other questions from the same index.")
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
    imported = import_suite(qrels, queries)
    if imported.left_out:
        warn(f"{plural(imported.left_out, 'question')} without a relevant page left out.")
    if out is None:
        echo_json(imported.suite.to_dict())
    else:
        write_file(out, to_json(imported.suite.to_dict()) + "\n")
        notify(f"Imported {plural(len(imported.suite.expectations), 'question')}.")
    return Exit.OK


@suite.command()
@options.file_argument("file")
@_qrels
@_queries
@_force
def export(file: Path, qrels: Path, queries: Path, force: bool) -> Exit:
    """Write the suite in FILE as judgments and queries in the format of TREC."""
    from recto.evaluation.records import write_file
    from recto.evaluation.suite_tools import export_suite
    from recto.evaluation.suites import load_strict_suite

    _check_new(qrels, queries, force=force)
    exported = export_suite(load_strict_suite(file))
    if exported.left_out:
        warn(
            f"{plural(exported.left_out, 'question')} without judgments: only expected pages can be exported."
        )
    write_file(qrels, exported.qrels)
    write_file(queries, exported.queries)
    return Exit.OK


def _check_new(*files: Path | None, force: bool) -> None:
    for file in files:
        if file is not None and file.exists() and not force:
            raise InvalidArgument(f"{file} exists", hint="Choose another name, or overwrite it with --force.")


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
    from recto.evaluation.gaps import find_gaps
    from recto.evaluation.records import write_file
    from recto.evaluation.suite_tools import extended, questions_from
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
