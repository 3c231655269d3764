"""`recto coverage` and `recto calibrate`: measure an index without a suite."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recto._util.text import plural
from recto.cli import options
from recto.cli.output import echo, echo_json, one_line
from recto.cli.runner import Exit, connect, progress_bar, save_report
from recto.errors import InvalidArgument
from recto.types import Mode

if TYPE_CHECKING:
    from recto.evaluation.coverage import Coverage, PageCoverage, Reached

_MAX_LISTED = 20
_BAR_WIDTH = 10


@click.command()
@options.collection
@click.option(
    "--fail-under",
    type=float,
    metavar="PERCENT",
    help="Exit with 5 if less than this percentage of the sections is found.",
)
@options.mode
@options.html
@click.option("--verbose", is_flag=True, help="List all sections, not only the first of each kind.")
@options.as_json
def coverage(
    collection: str | None,
    fail_under: float | None,
    mode: Mode,
    html: Path | None,
    verbose: bool,
    as_json: bool,
) -> Exit:
    """Search for every section by its heading and its first sentence, and list those that are not found."""
    if fail_under is not None and not 0 <= fail_under <= 100:
        raise InvalidArgument(
            "--fail-under must be between 0 and 100", hint="It is a percentage of sections."
        )
    from recto.evaluation import records
    from recto.evaluation.coverage import cover

    with connect(collection) as retriever:
        info = retriever.open().info
        with progress_bar("Searching for sections") as progress:
            found = cover(retriever, progress, mode)
    save_report(lambda home: records.keep_coverage(home, info, found))
    if html:
        from recto.evaluation.report import coverage_page

        records.write_file(html, coverage_page(found, info, least=fail_under, when=datetime.now(UTC)))
    if as_json:
        echo_json(_data(found))
    else:
        echo(*_lines(found, verbose=verbose))
    return Exit.VALIDATION_FAILED if fail_under is not None and found.share * 100 < fail_under else Exit.OK


@click.command()
@options.collection
@options.as_json
def calibrate(collection: str | None, as_json: bool) -> Exit:
    """Measure the noise floor of an index: the score below which a result means nothing.

    `recto index` does this automatically.
    """
    from recto.evaluation.calibration import calibrate as measure

    with connect(collection) as retriever:
        index = retriever.open()
        measured = measure(retriever.query_embedder, index)
        own = index.info.fingerprint is not None
        if own:
            retriever.store.save_calibration(index.info, measured)
        name = index.info.collection
    if as_json:
        echo_json({"collection": name, **measured.to_dict(), "kept": own})
        return Exit.OK
    echo(f"Scores below {measured.noise_floor:.3f} are noise in '{name}'.")
    echo(
        f"Measured with {plural(measured.off_topic, 'off-topic query', 'off-topic queries')} "
        f"and {measured.in_book} from the book."
    )
    echo(f"Queries from the book score higher than off-topic ones with an AUROC of {measured.auroc:.3f}.")
    if measured.answerability is not None:
        echo(f"`answerable` separates them with an AUROC of {measured.answerability:.3f}.")
    if not own:
        echo("Another pipeline made the collection, so nothing was saved in it.")
    return Exit.OK


def _lines(found: Coverage, *, verbose: bool) -> Iterator[str]:
    from recto.evaluation.coverage import WITHIN

    total = len(found.sections)
    by_heading, by_sentence = found.by_heading, found.by_sentence
    yield f"Searched for {plural(total, 'section')} of '{found.collection}' in {found.mode} mode"
    yield f"  In the top {WITHIN} by heading:         {by_heading} ({by_heading / max(total, 1):.1%})"
    yield f"  In the top {WITHIN} by first sentence:  {by_sentence} ({by_sentence / max(total, 1):.1%})"
    yield f"  By at least one of them:      {total - len(found.unreachable)} ({found.share:.1%})"
    yield ""
    yield from _listing("Unreachable", found.unreachable, _first, verbose=verbose)
    yield from _listing(
        "Duplicates", found.duplicates, lambda one: f"the same as {', '.join(one.copies)}", verbose=verbose
    )
    yield from _listing(
        "Shadowed", found.shadowed, lambda one: f"outranked by module '{one.shadowed_by}'", verbose=verbose
    )
    yield "First results by module (rows: the module of the section)"
    yield from _matrix(found.confusion)
    yield ""
    yield "Pages (share of searches that find their section)"
    yield from map(_page_line, found.pages())


def _first(reached: Reached) -> str:
    return f"the first result is {reached.first[0].link}" if reached.first else "no results"


def _listing(
    title: str, found: list[Reached], reason: Callable[[Reached], str], *, verbose: bool
) -> Iterator[str]:
    yield f"{title}: {len(found) or 'none'}"
    shown = found if verbose else found[:_MAX_LISTED]
    for reached in shown:
        section = reached.section
        yield one_line(f"{section.link} ({' > '.join(section.headings)}): {reason(reached)}")
    if len(shown) < len(found):
        yield f"... and {len(found) - len(shown)} more; --verbose lists them"


def _matrix(confusion: dict[str, dict[str, int]]) -> Iterator[str]:
    names = sorted({*confusion, *(name for row in confusion.values() for name in row)})
    first = max((len(name) for name in names), default=6)
    widths = {name: max(len(name), 5) for name in names}
    yield f"  {'':<{first}}  " + "  ".join(f"{one_line(name):>{width}}" for name, width in widths.items())
    for name, row in confusion.items():
        cells = (f"{row.get(other, 0):>{width}}" for other, width in widths.items())
        yield f"  {one_line(name):<{first}}  " + "  ".join(cells)


def _page_line(row: PageCoverage) -> str:
    return f"  {_bar(row.heat)} {row.heat:>4.0%}  {row.reached}/{row.sections}  {one_line(row.page_url)}"


def _bar(share: float) -> str:
    """Return a bar, in ASCII if the output cannot encode blocks."""
    filled = round(share * _BAR_WIDTH)
    bar = "█" * filled + "░" * (_BAR_WIDTH - filled)
    try:
        bar.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return bar.translate({ord("█"): "#", ord("░"): "-"})
    return bar


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
