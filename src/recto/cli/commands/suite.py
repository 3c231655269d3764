"""`recto suite`: look a suite over, draft one."""

from __future__ import annotations

import json
from pathlib import Path

import click

from recto.cli.commands.index import counted
from recto.cli.commands.search import connect
from recto.cli.output import in_line
from recto.cli.runner import Exit, notify, warn
from recto.errors import InvalidArgument, StorageError


def lint(file: Path, collection: str | None, *, as_json: bool) -> Exit:
    """List what is wrong with a suite."""
    from recto.evaluation.suite_tools import lint as look

    if collection is None:
        found = look(file)
    else:
        with connect(collection) as retriever:
            found = look(file, retriever.open())
    if as_json:
        click.echo(json.dumps(found.to_dict(), indent=2, ensure_ascii=False))
    else:
        for problem in found.problems:
            click.echo(f"[PROBLEM] {in_line(problem)}")
        for warning in found.warnings:
            click.echo(f"[WARNING] {in_line(warning)}")
        summary = f"{counted(len(found.problems), 'problem')}, {counted(len(found.warnings), 'warning')}"
        click.echo(f"{counted(found.questions, 'question')}: {summary}.")
    return Exit.VALIDATION_FAILED if found.problems else Exit.OK


def new(collection: str | None, out: Path | None, count: int, *, force: bool) -> Exit:
    """Draft a suite."""
    from recto.evaluation.suite_tools import draft

    if out is not None and out.exists() and not force:
        raise InvalidArgument(f"{out} exists", hint="Choose another name, or overwrite it with --force.")
    with connect(collection) as retriever:
        suite = draft(retriever.open(), count, retriever.collection)
    if not suite.expectations:
        warn("Nothing in this index lends itself to a question.")
        return Exit.NO_RESULTS
    text = json.dumps(suite.to_dict(), indent=2, ensure_ascii=False) + "\n"
    if out is None:
        click.echo(text, nl=False)
        return Exit.OK
    from recto._util.files import replace_text

    try:
        replace_text(out, text)
    except OSError as error:
        raise StorageError(
            f"{out} cannot be written: {error.strerror or error}", hint="Check the directory."
        ) from error
    notify(
        f"Drafted {counted(len(suite.expectations), 'question')}. Go through them: they ask in the book's words, your readers will not."
    )
    return Exit.OK
