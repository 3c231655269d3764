"""What people and scripts read: the four output formats of the query contract."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator
from typing import Any

from recto.evaluation.runs import ValidationReport, Verdict
from recto.types import Filters, Hit, Outcome, SearchResponse

_WIDTH = 78
_PREVIEW = 300
_RULE = "=" * 50
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def results_text(response: SearchResponse, *, verbose: bool) -> str:
    """Return the results as the contract's standard or verbose output."""
    count = len(response.hits)
    lines = [
        f'Query: "{shown(response.query)}"',
        f"Found {count} result{'' if count == 1 else 's'} in {response.timings.total_ms:.0f}ms",
    ]
    for number, hit in enumerate(response.hits, 1):
        lines += ["", *_hit_lines(number, hit, response, verbose=verbose)]
    if response.outcome is not Outcome.FOUND:
        lines += ["", f"No results found. {shown(response.message)}"]
    return "\n".join(lines)


def results_json(response: SearchResponse) -> str:
    """Return the results as the contract's JSON; an empty answer says why in `message`."""
    data: dict[str, Any] = {
        "query": response.query,
        "total_found": len(response.hits),
        "query_time_ms": round(response.timings.total_ms),
        "filters": filters_dict(response.filters),
        "results": [
            {
                "score": _score(hit, response),
                "module_name": hit.chunk.module_name,
                "page_title": hit.chunk.page_title,
                "page_url": hit.chunk.page_url,
                "chunk_index": hit.chunk.chunk_index,
                "text": hit.chunk.text,
            }
            for hit in response.hits
        ],
    }
    if response.outcome is not Outcome.FOUND:
        data |= {"outcome": response.outcome.value, "message": response.message}
    return json.dumps(data, indent=2, ensure_ascii=False)


def filters_dict(filters: Filters) -> dict[str, Any]:
    """Return the filters that are set, by the names of their flags."""
    found: dict[str, Any] = {}
    if filters.modules:
        found["module"] = filters.modules[0] if len(filters.modules) == 1 else list(filters.modules)
    if filters.page_url is not None:
        found["url"] = filters.page_url
    return found


def validation_text(report: ValidationReport, *, verbose: bool) -> str:
    """Return a validation run as the contract's report."""
    lines = ["Running Retrieval Validation Suite...", ""]
    for verdict in report.verdicts:
        lines += [*_verdict_lines(verdict, verbose=verbose), ""]
    total = len(report.verdicts)
    lines += [_RULE, "Validation Complete!", _RULE]
    lines += [
        f"  Total Tests:  {total}",
        f"  Passed:       {report.passed}",
        f"  Failed:       {total - report.passed}",
    ]
    lines += [f"  Accuracy:     {report.accuracy:.1%}"]
    if (first := report.page_hits(1)) is not None and (top := report.page_hits(5)) is not None:
        lines += [f"  Right page:   {first:.1%} first, {top:.1%} in the top 5"]
    lines += [f"  Duration:     {report.seconds:.2f}s", _RULE]
    return "\n".join(lines)


def validation_json(report: ValidationReport) -> str:
    """Return a validation run for a script."""
    data = {
        "suite": report.suite,
        "collection": report.collection,
        "total": len(report.verdicts),
        "passed": report.passed,
        "failed": len(report.verdicts) - report.passed,
        "accuracy": round(report.accuracy, 4),
        "page_hit_at_1": report.page_hits(1),
        "page_hit_at_5": report.page_hits(5),
        "duration_s": round(report.seconds, 3),
        "tests": [
            {
                "query": verdict.expectation.query,
                "passed": verdict.passed,
                "expected": verdict.expectation.expected,
                "actual": verdict.actual,
                "score": clamped(verdict.score),
                "result_count": len(verdict.response.hits),
                "query_time_ms": round(verdict.response.timings.total_ms, 2),
            }
            for verdict in report.verdicts
        ],
    }
    return json.dumps(data, indent=2, ensure_ascii=False)


def clamped(score: float) -> float:
    """Return a score as the contracts have it: between 0 and 1."""
    return round(min(1.0, max(0.0, score)), 6)


def shown(text: str) -> str:
    """Return a text that cannot play tricks on a terminal."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def in_line(text: str) -> str:
    """Return a text that stays on its line, too."""
    return " ".join(shown(text).split())


def _score(hit: Hit, response: SearchResponse) -> float:
    """Return a cosine similarity as the contracts have it; a hybrid score, which they do not have, as it is."""
    return clamped(hit.score) if response.mode == "dense" else round(hit.score, 6)


def _hit_lines(number: int, hit: Hit, response: SearchResponse, *, verbose: bool) -> Iterator[str]:
    chunk = hit.chunk
    yield f"[{number}] Score: {_score(hit, response):.3f} | Module: {in_line(chunk.module_name)}"
    yield f"    Title: {in_line(chunk.page_title)}"
    yield f"    URL: {in_line(chunk.page_url)}"
    if verbose:
        yield from _quoted("    Text: ", chunk.text)


def _verdict_lines(verdict: Verdict, *, verbose: bool) -> Iterator[str]:
    yield f'[{"PASS" if verdict.passed else "FAIL"}] "{shown(verdict.expectation.query)}"'
    expected, actual = in_line(verdict.expectation.expected), in_line(verdict.actual)
    yield f"       Expected: {expected} | Actual: {actual} | Score: {clamped(verdict.score):.3f}"
    if verbose and verdict.response.hits:
        chunk, timings = verdict.response.hits[0].chunk, verdict.response.timings
        yield f"       Results: {len(verdict.response.hits)} | Time: {timings.total_ms:.1f}ms"
        yield f"       Title: {in_line(chunk.page_title)}"
        yield f"       URL: {in_line(chunk.page_url)}"
        yield from _quoted("       Text: ", chunk.text)


def _quoted(label: str, text: str) -> list[str]:
    """Return a preview in quotes, wrapped under its own beginning."""
    flat = " ".join(shown(text).split())
    preview = textwrap.shorten(flat, _PREVIEW, placeholder="...") if len(flat) > _PREVIEW else flat
    if preview == "...":  # one word that is longer than a preview
        preview = f"{flat[:_PREVIEW]}..."
    return textwrap.wrap(
        f'"{preview}"', _WIDTH, initial_indent=label, subsequent_indent=" " * len(label)
    ) or [label.rstrip()]
