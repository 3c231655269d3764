"""`recto suite lint` and `recto suite new`."""

from __future__ import annotations

from pathlib import Path

import click

from recto._util.text import plural
from recto.cli import options
from recto.cli.output import echo, echo_json, to_json
from recto.cli.runner import Exit, connect, notify, warn
from recto.errors import InvalidArgument


@click.group()
def suite() -> None:
    """Check a suite of questions, or draft one from an index."""


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
