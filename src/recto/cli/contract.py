"""The output formats of the query contract: results and validation, as text and as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from recto._util.numbers import clamp
from recto._util.text import escape_controls, plural, to_json
from recto.cli.output import filters_dict, one_line
from recto.types.search import Hit, Outcome, SearchResponse

if TYPE_CHECKING:
    from recto.evaluation.runs import QueryResult, Run

_WIDTH = 78
_PREVIEW = 300
_RULE = "=" * 50


def results_text(response: SearchResponse, *, verbose: bool) -> str:
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


def results_json(response: SearchResponse) -> str:
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


def validation_text(run: Run, *, verbose: bool) -> str:
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


def validation_json(run: Run) -> str:
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
