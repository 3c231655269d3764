"""`recto explain`: why a search answers as it does, for people and for scripts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from recto.cli.commands.search import connect
from recto.cli.runner import Exit, warn
from recto.search.query import FLAGS, check_query, check_search

if TYPE_CHECKING:
    from recto.evaluation.explain import Expected, Explanation, Leg, Ranked
    from recto.types import Filters, Hit, Mode


def explain(
    query: str,
    top_k: int,
    filters: Filters,
    expect: str | None,
    passage: str | None,
    collection: str | None,
    *,
    mode: Mode,
    as_json: bool,
) -> Exit:
    """Explain one search on standard output."""
    check_query(query)
    check_search(top_k, filters, None, FLAGS, mode)
    from recto.evaluation.explain import parse_place

    place = parse_place(expect) if expect is not None else None
    with connect(collection) as retriever:
        from recto.evaluation import explain as explaining

        explanation = explaining.explain(
            retriever, query, top_k, filters, place, " ".join((passage or "").split()), mode
        )
    for warning in explanation.warnings:
        warn(warning)
    click.echo(
        json.dumps(_data(explanation), indent=2, ensure_ascii=False)
        if as_json
        else "\n".join(_lines(explanation))
    )
    return Exit.OK if explanation.found else Exit.NO_RESULTS


def _lines(explanation: Explanation) -> Iterator[str]:
    from recto.cli.output import filters_dict, in_line, shown

    filters = ", ".join(f"{name} {value}" for name, value in filters_dict(explanation.filters).items())
    yield f'Query: "{shown(explanation.query)}"'
    searched = (
        f"{explanation.candidates} of {explanation.chunks} chunks ({filters})"
        if filters
        else f"{explanation.chunks} chunks"
    )
    yield f"Searched: {searched} of '{explanation.collection}' in {explanation.mode} mode"
    yield f"Words: {in_line(', '.join(explanation.words)) or 'none'}"
    for word, meant in explanation.corrections:
        yield in_line(f'Correction: "{word}" is not in the book. Searched for {", ".join(meant)}.')
    if explanation.noise_floor is None:
        yield "Noise floor: not measured; `recto calibrate` does it"
    else:
        yield f"Noise floor: a cosine of {explanation.noise_floor:.3f}; AUROC {explanation.auroc:.3f}"
    if explanation.answerable is not None:
        yield f"Covered by the book: {explanation.answerable:.0%} likely"
    yield "Time: " + ", ".join(f"{step} {ms:.1f} ms" for step, ms in explanation.timings_ms.items())
    yield ""
    yield f"{'Rank':>4}  {'Score':>6}  {'Lead':>6}  {'Dense':>6}  {'Lexical':>7}  Chunk"
    for ranked in explanation.shown:
        yield from _row(ranked, explanation)
    if not explanation.shown:
        yield "      nothing: the filters leave no chunk" if explanation.filters else "      nothing"
    if explanation.near_misses:
        yield f"      --- the first {explanation.top_k} end here ---"
    for ranked in explanation.near_misses:
        yield from _row(ranked, explanation)
    if explanation.expected:
        yield ""
        lines = _expected_lines(explanation.expected, explanation)
        yield from (in_line(line) if not line.startswith(" ") else line for line in lines)


def _row(ranked: Ranked, explanation: Explanation) -> Iterator[str]:
    from recto.cli.output import in_line

    hit, chunk = ranked.hit, ranked.hit.chunk
    mark = "  (noise)" if _above_noise(hit, explanation) is False else ""
    figures = (
        f"{hit.score:>6.3f}  {_figure(ranked.lead):>6}  {_figure(hit.dense):>6}  {_figure(hit.lexical):>7}"
    )
    yield f"{ranked.rank:>4}  {figures}  {in_line(chunk.heading_path or chunk.page_title)}{mark}"
    yield f"{'':>39}{in_line(chunk.link)}"
    if ranked.words:
        yield f"{'':>39}has: {in_line(', '.join(ranked.words))}"


def _figure(number: float | None) -> str:
    return "" if number is None else f"{number:.3f}"


def _above_noise(hit: Hit, explanation: Explanation) -> bool | None:
    cosine = hit.score if explanation.mode == "dense" else hit.dense
    return None if explanation.noise_floor is None or cosine is None else cosine >= explanation.noise_floor


def _named(hit: Hit) -> str:
    from recto.cli.output import in_line

    return in_line(f"{hit.chunk.link}  {hit.chunk.heading_path or hit.chunk.page_title}")


def _expected_lines(expected: Expected, explanation: Explanation) -> Iterator[str]:
    from recto.cli.output import in_line

    yield f"Expected: {expected.wanted}: {expected.verdict.replace('_', ' ')}"
    yield f"  {expected.message}"
    if expected.near:
        yield f"  Nearest: {expected.near}"
    if expected.hit and expected.rank:
        yield f"  Its best chunk: rank {expected.rank}, score {expected.hit.score:.3f}, {_named(expected.hit)}"
    if expected.dense:
        yield f"  Dense: {_leg(expected.dense, 'cosine')}"
    if expected.lexical:
        yield f"  Lexical: {_leg(expected.lexical, 'BM25')}"
    if expected.hit and explanation.words:
        lacking = [word for word in explanation.words if word not in expected.words]
        has, lacks = (in_line(", ".join(words)) or "none" for words in (expected.words, lacking))
        yield f"  Words of the query: has {has}; lacks {lacks}"
    if expected.lost_to and expected.rank != 1:
        first = expected.lost_to[0]
        lost = first.score - (expected.hit.score if expected.hit else 0)
        yield f"  The first hit is {lost:.3f} above it: {_named(first)}"


def _leg(leg: Leg, unit: str) -> str:
    place = f"rank {leg.rank}" if leg.rank else "not ranked"
    return place if leg.score is None else f"{place}, {unit} {leg.score:.3f}"


def _data(explanation: Explanation) -> dict[str, Any]:
    from recto.cli.output import filters_dict

    expected = explanation.expected
    return {
        "query": explanation.query,
        "collection": explanation.collection,
        "mode": explanation.mode,
        "words": list(explanation.words),
        "corrections": {word: list(meant) for word, meant in explanation.corrections},
        "answerable": explanation.answerable,
        "filters": filters_dict(explanation.filters),
        "chunks": explanation.chunks,
        "candidates": explanation.candidates,
        "noise_floor": explanation.noise_floor,
        "auroc": explanation.auroc,
        "timings_ms": {step: round(ms, 3) for step, ms in explanation.timings_ms.items()},
        "results": [_ranked_data(ranked, explanation) for ranked in explanation.shown],
        "near_misses": [_ranked_data(ranked, explanation) for ranked in explanation.near_misses],
        "expected": expected
        and {
            "wanted": expected.wanted,
            "verdict": expected.verdict.value,
            "message": expected.message,
            "nearest": expected.near or None,
            "rank": expected.rank,
            "lacks": expected.lacks,
            "dense": expected.dense and asdict(expected.dense),
            "lexical": expected.lexical and asdict(expected.lexical),
            "words": list(expected.words),
            "best": expected.hit and _hit_data(expected.hit),
            "lost_to": [_hit_data(hit) for hit in expected.lost_to],
        },
    }


def _ranked_data(ranked: Ranked, explanation: Explanation) -> dict[str, Any]:
    hit, noise = ranked.hit, explanation.noise_floor
    cosine = hit.score if explanation.mode == "dense" else hit.dense
    margin = None if noise is None or cosine is None else round(cosine - noise, 6)
    above = _above_noise(hit, explanation)
    data = {"rank": ranked.rank, **_hit_data(hit), "lead": ranked.lead, "words": list(ranked.words)}
    return data | {"margin": margin, "above_noise": above}


def _hit_data(hit: Hit) -> dict[str, Any]:
    chunk = hit.chunk
    return {
        "score": round(hit.score, 6),
        "dense": None if hit.dense is None else round(hit.dense, 6),
        "lexical": None if hit.lexical is None else round(hit.lexical, 6),
        "page_url": chunk.page_url,
        "anchor": chunk.anchor,
        "headings": list(chunk.headings),
        "module_name": chunk.module_name,
        "chunk_index": chunk.chunk_index,
    }
