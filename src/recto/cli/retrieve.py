"""Document 000's command, `retrieve.py`: search and validate, and the formats of both for people and JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recto._util import clamp
from recto._util.text import escape_controls, plural, to_json
from recto.cli import (
    Exit,
    connect,
    echo_text,
    filters_dict,
    make_main,
    one_line,
    options,
    print_results,
    save_report,
    warn,
)
from recto.contracts import QUERY_COLLECTION
from recto.errors import InvalidArgument
from recto.search.query import CONTRACT_MODES, FLAGS, make_request
from recto.types.search import Filters, Hit, Mode, Outcome, SearchResponse

if TYPE_CHECKING:
    from recto.evaluation.runs import QueryResult, Run
    from recto.search.retriever import Retriever

_EPILOG = """\b
Examples:
  uv run python retrieve.py "What is ROS 2?"
  uv run python retrieve.py "robot navigation" --top-k 10
  uv run python retrieve.py "URDF" --module ros2 --top-k 3
  uv run python retrieve.py "digital twin" --json
  uv run python retrieve.py --validate

\b
Exit codes: 0 results, 1 no results, 2 configuration, 3 connection or storage,
4 invalid argument, 5 validation below 80 %.
"""
VALIDATE = ("recto", "validate")
_WIDTH = 78
_PREVIEW = 300
_RULE = "=" * 50


@click.command(epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("query", default="")
@options.search_option("top_k")
@options.search_option("module")
@options.search_option("url")
@options.search_option("min_score")
@options.search_option(
    "mode",
    type=click.Choice(CONTRACT_MODES),
    default="dense",
    help="Rank by vector similarity (dense), or by similarity and BM25 (hybrid).",
)
@options.collection
@click.option(
    "--validate", "validating", is_flag=True, help="Run the validation test suite instead of a query."
)
@options.suite
@options.verbose
@options.as_json
def retrieve(
    query: str,
    top_k: int,
    module: tuple[str, ...],
    url: str | None,
    min_score: float | None,
    mode: Mode,
    collection: str | None,
    validating: bool,
    suite: Path | None,
    verbose: bool,
    as_json: bool,
) -> Exit:
    """Find the chunks of the book that answer QUERY."""
    if validating:
        program = ("python", "retrieve.py", "--validate")
        return validate_contract(suite, collection, program, verbose=verbose, as_json=as_json)
    if suite is not None:
        raise InvalidArgument("--suite goes with --validate", hint="Add --validate to run the suite.")
    modules = options.split_names(module)
    request = make_request(query, FLAGS, top_k=top_k, module=modules, url=url, min_score=min_score, mode=mode)
    with connect(collection, default=QUERY_COLLECTION, single_query=True) as retriever:
        retriever.warm_up()  # so that the time shown is only for the query
        response = retriever.search(request)
    text = _results_json(response) if as_json else _results_text(response, verbose=verbose)
    return print_results(response, text)


def validate_contract(
    suite_file: Path | None, collection: str | None, program: tuple[str, ...], *, verbose: bool, as_json: bool
) -> Exit:
    """Run a suite and print the report of the query contract; `program` is the command that was called."""
    from recto.evaluation.suites import documented_suite, load_suite

    suite = load_suite(suite_file) if suite_file else documented_suite()
    default = None if program == VALIDATE else QUERY_COLLECTION
    with connect(collection, default=default) as retriever:
        if program == VALIDATE:
            check_book(retriever)
        warm_up(retriever)
        from recto.evaluation.runs import validate as run_validation

        run = run_validation(retriever, suite)
        info = retriever.open().info
    from recto.evaluation.report import keep_run

    command = command_line(program, suite_file, run.collection)
    save_report(lambda home: keep_run(home, info, run, command))
    echo_text(_validation_json(run) if as_json else _validation_text(run, verbose=verbose))
    return Exit.OK if run.sufficient else Exit.VALIDATION_FAILED


def check_book(retriever: Retriever) -> None:
    """Raise an error if the built-in questions are not about the book: it lacks a module that they expect."""
    from recto.evaluation.suites import documented_suite

    index, name = retriever.open(), retriever.collection
    expected = [module for question in documented_suite().expectations for module in question.modules]
    missing = [module for module in expected if not index.count(Filters((module,)))]
    if missing:
        raise InvalidArgument(
            f"'{name}' needs a suite: the built-in questions are about the sample book, "
            f"and '{name}' has no module {' or '.join(missing)}",
            hint="Write a suite (see docs/how-to/validate.md), then run "
            f"`recto validate --suite questions.json --collection {name}`.",
        )


def command_line(program: tuple[str, ...], suite: Path | None, collection: str, *options: str) -> str:
    """Return the command that repeats a run."""
    import shlex

    suite_flag = ("--suite", str(suite)) if suite else ()
    return shlex.join([*program, *suite_flag, "--collection", collection, *options])


def warm_up(retriever: Retriever) -> None:
    """Print the warnings of the index, and load the model before the first question is timed."""
    for warning in retriever.open().info.warnings:
        warn(warning)
    retriever.warm_up()


def _results_text(response: SearchResponse, *, verbose: bool) -> str:
    """Return the results in the contract's standard or verbose format."""
    lines = [
        f'Query: "{escape_controls(response.query)}"',
        f"Found {plural(len(response.hits), 'result')} in {response.timings.total_ms:.0f}ms",
    ]
    for number, hit in enumerate(response.hits, 1):
        lines += ["", *_hit_lines(number, hit, response, verbose=verbose)]
    if response.outcome is not Outcome.FOUND:
        lines += ["", f"No results found. {escape_controls(response.message)}"]
    return "\n".join(lines)


def _results_json(response: SearchResponse) -> str:
    """Return the results in the contract's JSON format; `message` says why there are none."""
    data: dict[str, Any] = {
        "query": response.query,
        "total_found": len(response.hits),
        "query_time_ms": round(response.timings.total_ms),
        "filters": filters_dict(response.filters),
        "results": [
            {
                "score": _score(hit, response),
                "module_name": hit.chunk.module,
                "page_title": hit.chunk.title,
                "page_url": hit.chunk.page_url,
                "chunk_index": hit.chunk.chunk_index,
                "text": hit.chunk.text,
            }
            for hit in response.hits
        ],
    }
    if response.outcome is not Outcome.FOUND:
        data |= {"outcome": response.outcome.value, "message": response.message}
    return to_json(data)


def _validation_text(run: Run, *, verbose: bool) -> str:
    """Return a run in the contract's validation format."""
    lines = ["Running Retrieval Validation Suite...", ""]
    for answer in run.answers:
        lines += [*_answer_lines(answer, verbose=verbose), ""]
    total = len(run.answers)
    lines += [
        _RULE,
        "Validation Complete!",
        _RULE,
        f"  Total Tests:  {total}",
        f"  Passed:       {run.passed}",
        f"  Failed:       {total - run.passed}",
        f"  Accuracy:     {run.share or 0.0:.1%}",
    ]
    if (first := run.page_hits(1)) is not None and (top := run.page_hits(5)) is not None:
        lines += [f"  Right page:   {first:.1%} first, {top:.1%} in the top 5"]
    lines += [f"  Duration:     {run.seconds:.2f}s", _RULE]
    return "\n".join(lines)


def _validation_json(run: Run) -> str:
    """Return a run as JSON."""
    return to_json(
        {
            "suite": run.suite,
            "collection": run.collection,
            "total": len(run.answers),
            "passed": run.passed,
            "failed": len(run.answers) - run.passed,
            "accuracy": round(run.share or 0.0, 4),
            "page_hit_at_1": run.page_hits(1),
            "page_hit_at_5": run.page_hits(5),
            "duration_s": round(run.seconds, 3),
            "tests": [
                {
                    "query": answer.query,
                    "passed": answer.passed,
                    "expected": answer.expected,
                    "actual": answer.actual,
                    "score": round(clamp(answer.score), 6),
                    "result_count": len(answer.found),
                    "query_time_ms": round(answer.ms, 2),
                }
                for answer in run.answers
            ],
        }
    )


def _score(hit: Hit, response: SearchResponse) -> float:
    """Return a cosine similarity between 0 and 1, as the contract says; hybrid scores can be higher."""
    return round(clamp(hit.score) if response.mode == "dense" else hit.score, 6)


def _hit_lines(number: int, hit: Hit, response: SearchResponse, *, verbose: bool) -> Iterator[str]:
    chunk = hit.chunk
    yield f"[{number}] Score: {_score(hit, response):.3f} | Module: {one_line(chunk.module)}"
    yield f"    Title: {one_line(chunk.title)}"
    yield f"    URL: {one_line(chunk.page_url)}"
    if verbose:
        yield from _quoted("    Text: ", chunk.text)


def _answer_lines(answer: QueryResult, *, verbose: bool) -> Iterator[str]:
    yield f'[{"PASS" if answer.passed else "FAIL"}] "{escape_controls(answer.query)}"'
    expected, actual = one_line(answer.expected), one_line(answer.actual)
    yield f"       Expected: {expected} | Actual: {actual} | Score: {clamp(answer.score):.3f}"
    if verbose and answer.found:
        chunk = answer.found[0].chunk
        yield f"       Results: {len(answer.found)} | Time: {answer.ms:.1f}ms"
        yield f"       Title: {one_line(chunk.title)}"
        yield f"       URL: {one_line(chunk.page_url)}"
        yield from _quoted("       Text: ", chunk.text)


def _quoted(label: str, text: str) -> list[str]:
    """Return the beginning of a text in quotes, wrapped and indented below the label."""
    flat = one_line(text)
    preview = textwrap.shorten(flat, _PREVIEW, placeholder="...") if len(flat) > _PREVIEW else flat
    if preview == "...":  # the first word is longer than the preview
        preview = f"{flat[:_PREVIEW]}..."
    return textwrap.wrap(
        f'"{preview}"', _WIDTH, initial_indent=label, subsequent_indent=" " * len(label)
    ) or [label.rstrip()]


main = make_main(retrieve, "retrieve.py")
