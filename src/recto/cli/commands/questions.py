"""`recto questions`: write, add and check the section questions of a book."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recto._util.text import plural
from recto.cli import Exit, confirm_endpoint, connect, echo_text, emit, notify, options, progress_bar, warn
from recto.errors import InvalidArgument, RectoError

if TYPE_CHECKING:
    from recto.evaluation.questions import QuestionBook
    from recto.search.retriever import Retriever

_MAX_LISTED = 20
_book = click.argument("path", default=".")
_file = options.value_option("--questions", "FILE", "The question file.", "recto-questions.jsonl in the book")
_pages = options.value_option("--page", "TEXT", "Only pages whose path begins with this.", "all")
_count = options.value_option(
    "--count", "INT", "Maximum number of sections.", "all", type=click.IntRange(1, 100_000)
)


@click.group(invoke_without_command=True)
@click.pass_context
def questions(context: click.Context) -> None:
    """Write the questions that sections answer, so that readers find them by their own words.

    Without a command, it prints what an agent has to do to write them.
    """
    if context.invoked_subcommand is None:
        from recto.evaluation.questions import AGENT_GUIDE

        echo_text(AGENT_GUIDE.read_text("utf-8"), nl=False)


@questions.command("next")
@_book
@_file
@_pages
@options.number("--count", click.IntRange(1, 1000), 20, "INT", "Maximum number of sections.")
@options.as_json
def next_sections(path: str, questions: str | None, page: str | None, count: int, as_json: bool) -> Exit:
    """Print the next sections of the book at PATH that need questions, with their text.

    Exits with 1 if no section needs questions.
    """
    from recto.evaluation.questions import BRIEF, sections_text

    book, _ = _open_book(path, questions)
    needed = [section for section in book.needed if section.page.startswith(page or "")]
    sections = needed[:count]
    rows = [
        {"page": section.page, "heading": section.heading, "stale": section.stale, "text": section.text}
        for section in sections
    ]
    brief = BRIEF.read_text("utf-8")
    if as_json:
        emit({"needed": len(needed), "brief": brief, "sections": rows}, (), as_json=True)
    elif sections:
        echo_text(f"{brief}\n{sections_text(sections)}")
        notify(f"{len(needed) - len(sections)} more sections need questions after these.")
    else:
        notify("No section needs questions.")
    return Exit.OK if sections else Exit.NO_RESULTS


@questions.command()
@options.file_argument("file")
@_book
@_file
@options.as_json
def add(file: Path, path: str, questions: str | None, as_json: bool) -> Exit:
    """Check the questions in FILE (JSON Lines), and merge them into the question file of the book at PATH.

    Exits with 1 if something was refused.
    """
    from recto._util.files import read_text
    from recto.book.questions import LARGEST_FILE
    from recto.evaluation.questions import add_questions, needs_text

    book, _ = _open_book(path, questions)
    text = sys.stdin.read() if str(file) == "-" else read_text(file, LARGEST_FILE)
    added = add_questions(book, text, str(file))
    if added.sections:
        book.save()
    lines = [
        *(f"Refused: {reason}" for reason in added.refused),
        f"Added {plural(added.questions, 'question')} of {plural(added.sections, 'section')} to {book.path}.",
        needs_text(book.summary()),
    ]
    emit({**asdict(added), "file": str(book.path), **book.summary()}, lines, as_json=as_json)
    return Exit.NO_RESULTS if added.refused else Exit.OK


@questions.command()
@_book
@_file
@options.collection_option("Ask the questions of this collection.", "the one of the book, if it is indexed")
@click.option("--strict", is_flag=True, help="Fail also for warnings.")
@options.as_json
def check(path: str, questions: str | None, collection: str | None, strict: bool, as_json: bool) -> Exit:
    """List the problems of the question file of the book at PATH, with their lines.

    Stale lines, lines without a section, and questions of two sections are errors. Sections without questions
    and questions that do not find their own page are warnings. Exits with 5 if there are errors.
    """
    from recto.evaluation.questions import check_questions, needs_text

    book, indexed = _open_book(path, questions, collection)
    retriever: Retriever | None = connect(indexed) if indexed else None
    try:
        problems = list(check_questions(book, retriever))
    finally:
        if retriever is not None:
            retriever.close()
    errors = sum(problem.is_error for problem in problems)
    listed = [problem for problem in problems if problem.kind != "missing"]
    missing = [problem for problem in problems if problem.kind == "missing"]
    lines = [
        f"[{'ERROR' if problem.is_error else 'WARNING'}] {book.path}"
        f"{f':{problem.line}' if problem.line else ''}: {problem.message}"
        for problem in (*listed, *missing[:_MAX_LISTED])
    ]
    if len(missing) > _MAX_LISTED:
        lines.append(f"... and {len(missing) - _MAX_LISTED} more sections without questions")
    total = book.summary()["questions"]
    found = total - sum(problem.kind == "not_found" for problem in problems)
    lines.append(
        "Not checked whether questions find their page: index the book first."
        if retriever is None
        else f"{found} of {plural(total, 'question')} find their page."
    )
    lines += [
        needs_text(book.summary()),
        f"{plural(errors, 'error')}, {plural(len(problems) - errors, 'warning')}.",
    ]
    data = {**book.summary(), "file": str(book.path), "problems": [asdict(problem) for problem in problems]}
    emit(data, lines, as_json=as_json)
    return Exit.VALIDATION_FAILED if errors or (strict and problems) else Exit.OK


@questions.command()
@_book
@_file
@_pages
@_count
@options.number("--concurrency", click.IntRange(1, 64), 4, "INT", "Requests at a time.")
@options.value_option("--budget", "TOKENS", "Stop after this many tokens.", "none", type=click.IntRange(1))
@options.value_option("--prices", "IN,OUT", "Dollars for a million tokens sent and received.", "unknown")
@click.option("--dry-run", is_flag=True, help="Show what would be sent; send nothing.")
@click.option("--yes", is_flag=True, help="Do not ask before sending.")
@options.as_json
def write(
    path: str,
    questions: str | None,
    page: str | None,
    count: int | None,
    concurrency: int,
    budget: int | None,
    prices: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> Exit:
    """Let a language model write the questions of the book at PATH.

    It is the model of RECTO_ANSWER_URL and RECTO_ANSWER_MODEL, and gets the text of each section that has no
    questions, or stale ones. The file is saved all the time: after an error or Ctrl-C, the same command goes
    on. Exits with 1 if sections are left.
    """
    from recto.evaluation.question_writer import QuestionWriter, plan_writing
    from recto.evaluation.questions import needs_text
    from recto.settings import load_settings

    cost = _parse_prices(prices)
    settings = load_settings()
    book, _ = _open_book(path, questions)
    sections = [section for section in book.needed if section.page.startswith(page or "")][:count]
    plan = plan_writing(sections)
    dollars = f"about ${plan.dollars(cost):.2f}" if cost else "cost unknown (give --prices)"
    notify(
        f"{plural(plan.sections, 'section')} in {plural(plan.requests, 'request')}: about "
        f"{plan.input_tokens:,} tokens to send and {plan.output_tokens:,} to receive, {dollars}"
    )
    if dry_run or not sections:
        data = {**plan._asdict(), "dollars": plan.dollars(cost) if cost else None}
        emit(data, [needs_text(book.summary())], as_json=as_json)
        return Exit.OK
    writer = QuestionWriter(book, settings.answer, concurrency=concurrency, budget=budget)
    confirm_endpoint(settings)
    if sys.stdin.isatty() and not yes and not click.confirm(f"Send them to {settings.answer.url}?", err=True):
        return Exit.NO_RESULTS
    with progress_bar("Writing questions") as progress:
        written = writer.run(sections, progress)
    for reason in written.failed:
        warn(reason)
    lines = [
        f"Wrote {plural(written.questions, 'question')} of {plural(written.sections, 'section')} to "
        f"{book.path}: {written.tokens:,} tokens.",
        *([f"Stopped: {written.stopped}. The same command goes on."] if written.stopped else []),
        needs_text(book.summary()),
    ]
    emit({**asdict(written), "file": str(book.path), **book.summary()}, lines, as_json=as_json)
    return Exit.NO_RESULTS if written.failed or written.stopped else Exit.OK


def _parse_prices(prices: str | None) -> tuple[float, float] | None:
    if prices is None:
        return None
    try:
        sent, received = (float(price) for price in prices.split(","))
    except ValueError:
        sent = received = -1.0
    if not (0 <= sent < 1e6 and 0 <= received < 1e6):
        raise InvalidArgument(
            "--prices must be two prices, such as 0.15,0.60", hint="Leave it out if unknown."
        )
    return sent, received


def _open_book(
    path: str, questions: str | None, collection: str | None = None
) -> tuple[QuestionBook, str | None]:
    """Read a book as it was indexed, and its question file; return it with its collection, if it has one.

    A book that is not indexed yet is read as `recto index` without options would read it.
    """
    from recto.book.sources import SourceOptions
    from recto.cli.commands.collections import open_configured_store
    from recto.evaluation.questions import QuestionBook
    from recto.indexing import indexed_collection, open_as_indexed
    from recto.protocols import Source
    from recto.settings import load_settings

    settings = load_settings()
    store = open_configured_store(settings)
    found: list[str | None] = [collection]

    def find(source: Source) -> str | None:
        try:
            found[0] = collection or indexed_collection(source, settings, store)
        except RectoError as error:
            warn(f"{error}. The book is read without the options of its index.")
        return found[0]

    source = open_as_indexed(path, SourceOptions(), None, notify, settings, store, find)
    book = QuestionBook.open(source, Path(questions) if questions is not None else None)
    for failure in book.failed:
        notify(f"{failure.path} cannot be read: {failure.reason}")
    return book, found[0]
