"""`recto coverage`, `recto gaps`, `recto calibrate` and `recto doctor`: examine an index."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recto._util.files import write_file
from recto._util.text import plural
from recto._util.variables import working_directory
from recto.cli import (
    EXIT_CODES,
    Exit,
    confirm_endpoint,
    connect,
    echo,
    echo_json,
    emit,
    notify,
    one_line,
    options,
    progress_bar,
    save_report,
    table,
    warn,
)
from recto.errors import ErrorKind, InvalidArgument, RectoError
from recto.settings import load_settings
from recto.types.search import Mode

if TYPE_CHECKING:
    from recto.evaluation.coverage import CoverageReport, Reached
    from recto.evaluation.doctor.environment import Finding
    from recto.evaluation.gaps import Cluster, Gaps, LoggedQueries
    from recto.search.retriever import Retriever

_MAX_LISTED = 20
_MAX_EXAMPLES = 3
_EXITS = EXIT_CODES | {ErrorKind.ARGUMENT: Exit.CONFIGURATION, ErrorKind.DAMAGED: Exit.VALIDATION_FAILED}
_WARNINGS = Exit.NO_RESULTS
_MARKS = {"ok": "[ok]     ", "note": "[note]   ", "warning": "[WARNING]", "error": "[ERROR]  "}
_INDENT = " " * 12


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
@click.option("--verbose", is_flag=True, help="Also list duplicate and shadowed sections, all of each kind.")
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
    from recto.evaluation import report
    from recto.evaluation.coverage import cover

    with connect(collection) as retriever:
        info = retriever.open().info
        with progress_bar("Searching for sections") as progress:
            measured = cover(retriever, progress, mode)
    save_report(lambda home: report.keep_coverage(home, info, measured))
    if html:
        write_file(html, report.coverage_page(measured, info, least=fail_under, when=datetime.now(UTC)))
    emit(_coverage_data(measured), _coverage_lines(measured, verbose=verbose), as_json=as_json)
    too_low = fail_under is not None and measured.share * 100 < fail_under
    return Exit.VALIDATION_FAILED if too_low else Exit.OK


def _coverage_lines(measured: CoverageReport, *, verbose: bool) -> Iterator[str]:
    from recto.evaluation.coverage import WITHIN

    total = len(measured.sections)
    by_heading, by_sentence = measured.by_heading, measured.by_sentence
    yield f"Searched for {plural(total, 'section')} of '{measured.collection}' in {measured.mode} mode"
    yield f"  In the top {WITHIN} by heading:        {by_heading} ({by_heading / max(total, 1):.1%})"
    yield f"  In the top {WITHIN} by first sentence: {by_sentence} ({by_sentence / max(total, 1):.1%})"
    yield f"  By at least one of them:        {total - len(measured.unreachable)} ({measured.share:.1%})"
    yield ""
    kinds: tuple[tuple[str, list[Reached], int, Callable[[Reached], str]], ...] = (
        ("Unreachable", measured.unreachable, _MAX_LISTED, _first_result),
        ("Duplicates", measured.duplicates, 0, lambda reached: f"the same as {', '.join(reached.copies)}"),
        ("Shadowed", measured.shadowed, 0, lambda reached: f"outranked by module '{reached.shadowed_by}'"),
    )
    for title, sections, most, reason in kinds:
        listed = sections if verbose else sections[:most]
        more = len(sections) - len(listed)
        hint = "; --verbose lists them" if more and not listed else ""
        yield f"{title}: {len(sections) or 'none'}{hint}"
        for reached in listed:
            section = reached.section
            yield one_line(f"{section.url} ({' > '.join(section.headings)}): {reason(reached)}")
        if more and listed:
            yield f"... and {more} more; --verbose lists them"
    yield "First results by module (rows: the module of the section)"
    names = sorted({*measured.confusion, *(name for row in measured.confusion.values() for name in row)})
    counts = [
        (name, *(str(row.get(other, 0)) for other in names)) for name, row in measured.confusion.items()
    ]
    yield from table(("", *(f">{name}" for name in names)), counts, "  ")
    yield ""
    yield "Pages (share of searches that find their section)"
    for page in measured.pages():
        shares = f"{page['heat']:>4.0%}  {page['reached']}/{page['sections']}"
        yield f"  {shares}  {one_line(page['page_url'])}"


def _first_result(reached: Reached) -> str:
    return f"the first result is {reached.first[0].url}" if reached.first else "no results"


def _coverage_data(measured: CoverageReport) -> dict[str, Any]:
    return {
        "collection": measured.collection,
        "mode": measured.mode,
        "sections": len(measured.sections),
        "reached": len(measured.sections) - len(measured.unreachable),
        "share": round(measured.share, 4),
        "unreachable": [_section(reached) for reached in measured.unreachable],
        "duplicates": [
            _section(reached) | {"copies": list(reached.copies)} for reached in measured.duplicates
        ],
        "shadowed": [_section(reached) | {"by": reached.shadowed_by} for reached in measured.shadowed],
        "pages": measured.pages(),
        "confusion": measured.confusion,
    }


def _section(reached: Reached) -> dict[str, Any]:
    section = reached.section
    return {
        "place": section.url,
        "module": section.first.module,
        "headings": list(section.headings),
        "heading_rank": reached.heading_rank,
        "sentence_rank": reached.sentence_rank,
    }


@click.command()
@options.collection
@options.as_json
def calibrate(collection: str | None, as_json: bool) -> Exit:
    """Measure the noise floor of an index: the cosine similarity below which a result means nothing.

    `recto index` does this automatically.
    """
    from recto.evaluation.calibration import calibrate as measure

    with connect(collection) as retriever:
        index = retriever.open()
        measured = measure(retriever.query_embedder, index)
        is_saved = index.info.fingerprint is not None
        if is_saved:
            retriever.store.save_calibration(index.info, measured)
        name = index.info.collection
    off_topic = plural(measured.off_topic, "off-topic query", "off-topic queries")
    lines = [
        f"Cosine similarities below {measured.noise_floor:.3f} are noise in '{name}'.",
        f"Measured with {off_topic} and {measured.in_book} from the book.",
        f"Queries from the book score higher than off-topic ones with an AUROC of {measured.auroc:.3f}.",
    ]
    if measured.answerability is not None:
        lines.append(f"`answerable` separates them with an AUROC of {measured.answerability:.3f}.")
    if not is_saved:
        lines.append("Another pipeline made the collection, so nothing was saved in it.")
    emit({"collection": name, **measured.to_dict(), "kept": is_saved}, lines, as_json=as_json)
    return Exit.OK


@click.command()
@options.collection
@options.log
@options.file_option("--queries", "Read queries from this file instead: one per line, or query, tab, count.")
@options.log_days
@options.number("--count", click.IntRange(1, 1000), 10, "INT", "Maximum number of clusters.")
@options.file_option("--questions", "Write queries whose result was opened as section questions.")
@options.html
@options.as_json
def gaps(
    collection: str | None,
    log: Path | None,
    queries: Path | None,
    days: int | None,
    count: int,
    questions: Path | None,
    html: Path | None,
    as_json: bool,
) -> Exit:
    """Cluster the queries of readers by meaning, and list those that the book does not answer.

    The queries come from the query log of `recto serve`. They are searched for in the current index.
    """
    if queries is not None and (log is not None or days is not None):
        raise InvalidArgument("--queries replaces the log", hint="Leave out --log and --days.")
    from recto.evaluation import report
    from recto.evaluation.gaps import find_gaps, read_queries, section_questions

    with connect(collection) as retriever:
        logged = read_queries(queries) if queries else logged_queries(retriever, log, days)
        with progress_bar("Searching for queries") as progress:
            clustered = find_gaps(retriever, logged, progress)
        info = retriever.open().info
        lines = section_questions(clustered, retriever.open()) if questions else []
    if questions:
        write_file(questions, "".join(f"{line}\n" for line in lines))
        notify(f"{plural(len(lines), 'section')} in {questions}: review it, then `recto questions add` it.")
    save_report(lambda home: report.keep_gaps(home, info, clustered, count))
    if html:
        write_file(html, report.gaps_page(clustered, info, count=count, when=datetime.now(UTC)))
    emit(_gaps_data(clustered, count), _gaps_lines(clustered, count), as_json=as_json)
    return Exit.OK


def logged_queries(retriever: Retriever, log: Path | None, days: int | None) -> LoggedQueries:
    """Read the queries about a collection from the given or the configured log."""
    from recto.evaluation.gaps import names_of, read_asked

    directory = log or load_settings().query_log.directory
    if directory is None:
        raise InvalidArgument(
            "There is no query log: RECTO_QUERY_LOG is not set",
            hint="Run `recto serve --query-log DIRECTORY`, and pass the directory with --log.",
        )
    since = None if days is None else datetime.now(UTC) - timedelta(days=days)
    logged = read_asked(directory, names_of(retriever.store, retriever.collection), since)
    if logged.skipped:
        warn(f"Skipped {plural(logged.skipped, 'line')} of the query log that cannot be read")
    return logged


def _gaps_data(clustered: Gaps, count: int) -> dict[str, Any]:
    return {
        "collection": clustered.collection,
        "generation": clustered.generation,
        "queries": clustered.total,
        "distinct": clustered.distinct,
        "clusters": len(clustered.clusters),
        "without_text": clustered.without_text,
        "left_out": clustered.left_out,
        "gaps": [cluster.to_dict() for cluster in clustered.gaps[:count]],
        "unclicked": [cluster.to_dict() for cluster in clustered.unclicked[:count]],
    }


def _gaps_lines(clustered: Gaps, count: int) -> Iterator[str]:
    queries = plural(clustered.total, "query", "queries")
    clusters = plural(len(clustered.clusters), "cluster")
    yield f"{queries} about '{clustered.collection}' ({clustered.distinct} distinct) in {clusters}"
    if clustered.without_text:
        logged = plural(clustered.without_text, "query", "queries")
        yield f"Without text in the log, so not clustered: {logged}"
    if clustered.left_out:
        yield f"Rare queries that were left out: {clustered.left_out}"
    yield ""
    unanswered = clustered.gaps
    yield f"Not answered by the book: {plural(len(unanswered), 'cluster') if unanswered else 'none'}"
    yield from _cluster_lines(unanswered, count)
    if unclicked := clustered.unclicked:
        yield ""
        yield f"Answered, but no result was opened: {plural(len(unclicked), 'cluster')}"
        yield from _cluster_lines(unclicked, count)


def _cluster_lines(clusters: Sequence[Cluster], count: int) -> Iterator[str]:
    for number, cluster in enumerate(clusters[:count], 1):
        yield ""
        yield f"{number:3}. {one_line(cluster.label)}"
        yield f"     {', '.join(_signals(cluster))}"
        others = [text for text, _ in cluster.queries if text != cluster.label][:_MAX_EXAMPLES]
        for label, texts, separator in (
            ("Also asked:", others, "; "),
            ("Not in the book:", cluster.unknown_words, ", "),
            ("Not in the nearest section:", cluster.missing_words, ", "),
        ):
            if texts:
                yield f"     {label} {separator.join(map(one_line, texts))}"
        for hit in cluster.nearest:
            title, url = one_line(hit.chunk.heading_path), one_line(hit.chunk.url)
            yield f"     Near: {title} ({url}) {hit.score:.3f}"
    if len(clusters) > count:
        yield ""
        yield f"{len(clusters) - count} more: see them with --count"


def _signals(cluster: Cluster) -> Iterator[str]:
    yield plural(cluster.count, "query", "queries")
    yield f"{cluster.unanswered:.0%} unanswered"
    if cluster.below_noise:
        yield f"{cluster.below_noise} below this book's noise floor"
    if cluster.no_click is not None:
        yield f"{cluster.no_click} without a click"


@click.command()
@options.collection
@click.option("--all", "everything", is_flag=True, help="Check every chunk of a large index, not a sample.")
@options.as_json
def doctor(collection: str | None, everything: bool, as_json: bool) -> Exit:
    """Check settings, services, index and text, and print the command that repairs each problem.

    Exits with 1 if there are warnings, 2 for a configuration error, 3 if a service or the disk cannot be
    used, and 5 if the index is damaged.
    """
    from recto.evaluation.doctor import examine

    try:
        settings = load_settings()
    except RectoError:
        pass  # the checks report it
    else:
        confirm_endpoint(settings)

    progress = _progress if sys.stderr.isatty() and not as_json else None
    findings: list[Finding] = []
    directory = working_directory()
    for finding in examine(os.environ, directory, collection, everything=everything, progress=progress):
        findings.append(finding)
        if not as_json:
            echo(*_lines(finding))
    code = exit_code(findings)
    if as_json:
        rows = [
            {name: value for name, value in asdict(finding).items() if name != "kind"} for finding in findings
        ]
        echo_json({"healthy": code is Exit.OK, "findings": rows})
    else:
        errors, warnings = (
            sum(finding.severity == severity for finding in findings) for severity in ("error", "warning")
        )
        counts = f"{plural(errors, 'error')}, {plural(warnings, 'warning')}."
        echo("", "No problems found." if code is Exit.OK else counts)
    return code


def exit_code(findings: list[Finding]) -> Exit:
    """Return the exit code of the most basic error, which may cause the others; 1 for warnings alone."""
    errors = [_EXITS[finding.kind] for finding in findings if finding.kind is not None]
    if errors:
        return min(errors)
    return _WARNINGS if any(finding.severity == "warning" for finding in findings) else Exit.OK


def _lines(finding: Finding) -> Iterator[str]:
    yield f"{_MARKS[finding.severity]} {finding.check}: {finding.message}"
    if finding.severity != "ok":
        yield from (f"{_INDENT}{line}" for line in finding.evidence)
    if finding.repair:
        yield f"{_INDENT}Repair: {finding.repair}"


def _progress(name: str) -> None:
    sys.stderr.write(f"\r\033[K{name} ...\r")
    sys.stderr.flush()
