"""`recto explain`: why a search answers as it does, for people and for scripts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from recto.cli.commands import connect
from recto.cli.running import Exit, warn
from recto.limits import FLAGS, check_query, check_search

if TYPE_CHECKING:
    from recto.evaluation.explain import Expected, Explanation, Ranked
    from recto.types import Filters, Hit


def explain(
    query: str, top_k: int, filters: Filters, expect: str | None, passage: str | None, collection: str | None, *, as_json: bool
) -> Exit:
    """Explain one search on standard output."""
    check_query(query)
    check_search(top_k, filters, None, FLAGS)
    from recto.evaluation.places import parse_place

    place = parse_place(expect) if expect is not None else None
    with connect(collection) as retriever:
        from recto.evaluation import explain as explaining

        explanation = explaining.explain(retriever, query, top_k, filters, place, " ".join((passage or "").split()))
    for warning in explanation.warnings:
        warn(warning)
    click.echo(json.dumps(_data(explanation), indent=2, ensure_ascii=False) if as_json else "\n".join(_lines(explanation)))
    return Exit.OK if explanation.found else Exit.NO_RESULTS


def _lines(explanation: Explanation) -> Iterator[str]:
    from recto.cli.render import filters_dict, in_line, shown

    filters = ", ".join(f"{name} {value}" for name, value in filters_dict(explanation.filters).items())
    yield f'Query: "{shown(explanation.query)}"'
    searched = f"{explanation.candidates} of {explanation.chunks} passages ({filters})" if filters else f"{explanation.chunks} passages"
    yield f"Searched: {searched} of '{explanation.collection}'"
    if explanation.noise is None:
        yield "Noise: not measured; `recto calibrate` does it"
    else:
        yield f"Noise: scores below {explanation.noise:.3f}; a question of the book's own is above in {explanation.separation:.0%} of cases"
    yield "Time: " + ", ".join(f"{step.name} {step.milliseconds:.1f} ms" for step in explanation.steps)
    yield ""
    yield f"{'Rank':>4}  {'Score':>6}  {'Lead':>6}  Passage"
    for ranked in explanation.shown:
        yield from _row(ranked, explanation.noise)
    if not explanation.shown:
        yield "      nothing: the filters leave no passage"
    if explanation.near_misses:
        yield f"      --- the first {explanation.top_k} end here ---"
    for ranked in explanation.near_misses:
        yield from _row(ranked, explanation.noise)
    if explanation.expected:
        yield ""
        yield from (in_line(line) if not line.startswith(" ") else line for line in _expected_lines(explanation.expected))


def _row(ranked: Ranked, noise: float | None) -> Iterator[str]:
    from recto.cli.render import in_line

    chunk = ranked.hit.chunk
    lead = "" if ranked.lead is None else f"{ranked.lead:.3f}"
    mark = "  (noise)" if noise is not None and ranked.hit.score < noise else ""
    yield f"{ranked.rank:>4}  {ranked.hit.score:>6.3f}  {lead:>6}  {in_line(chunk.heading_path or chunk.page_title)}{mark}"
    yield f"{'':>22}{in_line(chunk.link)}"


def _named(hit: Hit) -> str:
    from recto.cli.render import in_line

    return in_line(f"{hit.chunk.link}  {hit.chunk.heading_path or hit.chunk.page_title}")


def _expected_lines(expected: Expected) -> Iterator[str]:
    yield f"Expected: {expected.wanted}: {expected.verdict.replace('_', ' ')}"
    yield f"  {expected.message}"
    if expected.near:
        yield f"  Nearest: {expected.near}"
    if expected.hit and expected.rank:
        yield f"  Its best passage: rank {expected.rank}, score {expected.hit.score:.3f}, {_named(expected.hit)}"
    if expected.lost_to and expected.rank != 1:
        first = expected.lost_to[0]
        lost = first.score - (expected.hit.score if expected.hit else 0)
        yield f"  The first hit is {lost:.3f} above it: {_named(first)}"


def _data(explanation: Explanation) -> dict[str, Any]:
    from recto.cli.render import filters_dict

    expected = explanation.expected
    return {
        "query": explanation.query,
        "collection": explanation.collection,
        "filters": filters_dict(explanation.filters),
        "chunks": explanation.chunks,
        "candidates": explanation.candidates,
        "noise": explanation.noise,
        "separation": explanation.separation,
        "timings_ms": {step.name: round(step.milliseconds, 3) for step in explanation.steps},
        "results": [_ranked_data(ranked, explanation.noise) for ranked in explanation.shown],
        "near_misses": [_ranked_data(ranked, explanation.noise) for ranked in explanation.near_misses],
        "expected": expected
        and {
            "wanted": expected.wanted,
            "verdict": expected.verdict.value,
            "message": expected.message,
            "nearest": expected.near or None,
            "rank": expected.rank,
            "lacks": expected.lacks,
            "best": expected.hit and _hit_data(expected.hit),
            "lost_to": [_hit_data(hit) for hit in expected.lost_to],
        },
    }


def _ranked_data(ranked: Ranked, noise: float | None) -> dict[str, Any]:
    margin = None if noise is None else round(ranked.hit.score - noise, 6)
    above = None if margin is None else margin >= 0
    return {"rank": ranked.rank, **_hit_data(ranked.hit), "lead": ranked.lead, "margin": margin, "above_noise": above}


def _hit_data(hit: Hit) -> dict[str, Any]:
    chunk = hit.chunk
    return {
        "score": round(hit.score, 6),
        "page_url": chunk.page_url,
        "anchor": chunk.anchor,
        "headings": list(chunk.headings),
        "module_name": chunk.module_name,
        "chunk_index": chunk.chunk_index,
    }
