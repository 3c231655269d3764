"""`recto coverage` and `recto calibrate`: what an index is to a searcher, measured without any questions from outside."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recto.cli.commands.search import connect
from recto.cli.runner import Exit, keep, notify
from recto.errors import InvalidArgument

if TYPE_CHECKING:
    from recto.evaluation.coverage import Coverage, PageCoverage, Reached
    from recto.types import Mode

_LISTED = 20
_SHADES = " .:-=+*#%@"


def coverage(
    collection: str | None,
    fail_under: float | None,
    html: Path | None,
    mode: Mode,
    *,
    verbose: bool,
    as_json: bool,
) -> Exit:
    """Ask for every section of a book and report which come."""
    if fail_under is not None and not 0 <= fail_under <= 100:
        raise InvalidArgument(
            "--fail-under must be between 0 and 100", hint="It is a percentage of sections."
        )
    with connect(collection) as retriever:
        index = retriever.open()
        from recto.evaluation.coverage import cover

        with _progress("Asking for sections") as progress:
            found = cover(retriever, progress, mode)
        info = index.info
    from recto.evaluation import records

    keep(lambda home: records.keep_coverage(home, info, found))
    if html:
        from recto.evaluation.report import coverage_page

        records.write_file(html, coverage_page(found, info, least=fail_under, when=datetime.now(UTC)))
    click.echo(
        json.dumps(_data(found), indent=2, ensure_ascii=False)
        if as_json
        else "\n".join(_lines(found, verbose=verbose))
    )
    return Exit.VALIDATION_FAILED if fail_under is not None and found.share * 100 < fail_under else Exit.OK


def calibrate(collection: str | None, *, as_json: bool) -> Exit:
    """Measure where noise ends in an index, and keep it with the index if Recto made it."""
    with connect(collection) as retriever:
        index = retriever.open()
        from recto.evaluation import calibration as measuring

        measured = measuring.calibrate(retriever.embedder, index)
        own = index.info.fingerprint is not None
        if own:
            retriever.store.save_calibration(index.info, measured)
        name = index.info.collection
    if as_json:
        click.echo(json.dumps({"collection": name, **measured.to_dict(), "kept": own}, indent=2))
    else:
        click.echo(
            f"Scores below {measured.noise_floor:.3f} are noise in '{name}': {measured.off_topic} questions about other things."
        )
        click.echo(
            f"A question of the book's own scores higher than one about something else in {measured.auroc:.1%} of cases."
        )
        if measured.answerability is not None:
            click.echo(
                f"`answerable` tells the book's own questions from off-topic ones with an AUROC of {measured.answerability:.3f}."
            )
        if not own:
            click.echo("Another pipeline made the collection, so nothing was written to it.")
    return Exit.OK


def _lines(found: Coverage, *, verbose: bool) -> Iterator[str]:
    from recto.evaluation.coverage import WITHIN

    total = len(found.sections)
    by_heading, by_sentence = found.by_heading, found.by_sentence
    yield f"Asked for {total} headings of '{found.collection}' by their text and by their first sentences, in {found.mode} mode"
    yield f"  In the first {WITHIN} by heading:   {by_heading} ({by_heading / max(total, 1):.1%})"
    yield f"  In the first {WITHIN} by sentence:  {by_sentence} ({by_sentence / max(total, 1):.1%})"
    yield f"  By at least one of them:  {total - len(found.unreachable)} ({found.share:.1%})"
    yield ""
    yield from _listing("Unreachable", found.unreachable, _first, verbose=verbose)
    yield from _listing(
        "Duplicates", found.duplicates, lambda one: f"the same as {', '.join(one.copies)}", verbose=verbose
    )
    yield from _listing(
        "Shadowed", found.shadowed, lambda one: f"module '{one.shadowed_by}' comes first", verbose=verbose
    )
    yield "First hits by module (rows: the module asked for)"
    yield from _matrix(found.confusion)
    yield ""
    yield "Pages (share of questions that bring their section)"
    for row in found.pages():
        yield _page_line(row)


def _first(reached: Reached) -> str:
    return f"first came {reached.first[0].link}" if reached.first else "nothing came"


def _listing(
    title: str, found: list[Reached], why: Callable[[Reached], str], *, verbose: bool
) -> Iterator[str]:
    from recto.cli.output import in_line

    if not found:
        yield f"{title}: none"
        return
    yield f"{title}: {len(found)}"
    shown = found if verbose else found[:_LISTED]
    for reached in shown:
        yield in_line(f"{reached.section.link} ({' > '.join(reached.section.headings)}): {why(reached)}")
    if len(shown) < len(found):
        yield f"... and {len(found) - len(shown)} more; --verbose lists them"


def _matrix(confusion: dict[str, dict[str, int]]) -> Iterator[str]:
    from recto.cli.output import in_line

    names = sorted({*confusion, *(name for row in confusion.values() for name in row)})
    width = max((len(name) for name in names), default=6)
    columns = [max(len(name), 5) for name in names]
    yield f"  {'':<{width}}  " + "  ".join(
        f"{in_line(name):>{column}}" for name, column in zip(names, columns, strict=True)
    )
    for name, row in confusion.items():
        cells = (f"{row.get(other, 0):>{column}}" for other, column in zip(names, columns, strict=True))
        yield f"  {in_line(name):<{width}}  " + "  ".join(cells)


def _page_line(row: PageCoverage) -> str:
    from recto.cli.output import in_line

    shade = _SHADES[round(row.heat * (len(_SHADES) - 1))]
    return f"  [{shade * 10}] {row.heat:>4.0%}  {row.reached}/{row.sections}  {in_line(row.page_url)}"


def _data(found: Coverage) -> dict[str, Any]:
    return {
        "collection": found.collection,
        "mode": found.mode,
        "sections": len(found.sections),
        "reached": len(found.sections) - len(found.unreachable),
        "share": round(found.share, 4),
        "unreachable": [_section(one) for one in found.unreachable],
        "duplicates": [_section(one) | {"copies": list(one.copies)} for one in found.duplicates],
        "shadowed": [_section(one) | {"by": one.shadowed_by} for one in found.shadowed],
        "pages": [asdict(row) | {"heat": round(row.heat, 4)} for row in found.pages()],
        "confusion": found.confusion,
    }


def _section(reached: Reached) -> dict[str, Any]:
    section = reached.section
    return {
        "place": section.link,
        "module": section.module,
        "headings": list(section.headings),
        "heading_rank": reached.heading_rank,
        "sentence_rank": reached.sentence_rank,
    }


@contextmanager
def _progress(what: str) -> Iterator[Callable[[int, int], None] | None]:
    """Show a bar on a terminal and nothing elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, total=total, completed=done)
    notify(f"{what}: done")
