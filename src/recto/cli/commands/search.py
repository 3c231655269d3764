"""`recto search` and `recto explain`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from recto._util.text import plural
from recto.cli import Exit, connect, emit, filters_dict, one_line, options, print_results, table, warn
from recto.types.request import SearchRequest

if TYPE_CHECKING:
    from recto.evaluation.explain import Expected, Explanation, RankAndScore, RankedHit
    from recto.types.search import Hit

_EPILOG = """\b
Examples:
  recto search "What is ROS 2?"
  recto search "URDF" --module ros2 --top-k 3
  recto search "sensors" --by-page --collection my-book
"""


@click.command(epilog=_EPILOG)
@click.argument("query", default="")
@options.search_options()
@options.collection
@options.verbose
@options.as_json
def search(request: SearchRequest, collection: str | None, verbose: bool, as_json: bool) -> Exit:
    """Search a book for the chunks that answer QUERY.

    Exits with 1 if there are no results.
    """
    with connect(collection, single_query=True) as retriever:
        retriever.warm_up()  # so that the time shown is only for the query
        response = retriever.search(request)
        from recto.search.display import response_words

        words = response_words(retriever, response)
    from recto.cli import render

    if as_json:
        return print_results(response, render.results_json(response, words))
    style = render.terminal_style() if sys.stdout.isatty() else render.Style()
    text = render.results(response, words, style, verbose=verbose)
    return print_results(response, f'Query: "{one_line(response.query)}"\n{text}', color=style.color)


@click.command()
@click.argument("query", default="")
@click.option("--expect", metavar="PAGE#ANCHOR", help="Show the rank of this page or section.")
@click.option("--passage", metavar="TEXT", help="Show the rank of this quotation from the book.")
@options.search_options("min_score", "group_by")
@options.collection
@options.as_json
def explain(
    request: SearchRequest, expect: str | None, passage: str | None, collection: str | None, as_json: bool
) -> Exit:
    """Explain why QUERY has these results.

    Shows the scores, the matched words, the next results and the time of each step. For an expected page, it
    shows the dense and the lexical rank, which words of the query the page has, or why it cannot be found.

    Exits with 1 if the expected page is not among the results.
    """
    from recto.evaluation.explain import explain as explain_query
    from recto.evaluation.explain import split_expected

    split_expected(expect)
    quotation = " ".join((passage or "").split())
    with connect(collection) as retriever:
        explanation = explain_query(retriever, request, expect, quotation)
    for warning in explanation.response.warnings:
        warn(warning)
    emit(_data(explanation), explanation_lines(explanation), as_json=as_json)
    return Exit.OK if explanation.found else Exit.NO_RESULTS


def explanation_lines(explanation: Explanation) -> Iterator[str]:
    """Yield the lines about the ranking of a query."""
    response = explanation.response
    filters = ", ".join(f"{name} {value}" for name, value in filters_dict(response.filters).items())
    yield f'Query: "{response.query}"'
    searched = f"{explanation.candidates} of " if filters else ""
    yield (
        f"Searched: {searched}{plural(explanation.chunks, 'chunk')}{f' ({filters})' if filters else ''}"
        f" of '{response.collection}' in {response.mode} mode"
    )
    yield f"Words: {one_line(', '.join(explanation.words)) or 'none'}"
    for word, meant in response.corrections:
        yield one_line(f'Correction: "{word}" is not in the book. Searched for {", ".join(meant)}.')
    if response.noise_floor is None:
        yield "Noise floor: not measured; run `recto calibrate`"
    else:
        yield f"Noise floor: a score of {response.noise_floor:.3f}; AUROC {explanation.auroc:.3f}"
    if response.answerable is not None:
        yield f"Coverage: {response.coverage} (answerable {response.answerable:.3f})"
    yield "Time: " + ", ".join(f"{step} {ms:.1f} ms" for step, ms in explanation.timings_ms.items())
    yield ""
    rows = [_row(ranked, explanation) for ranked in explanation.shown]
    if not rows:
        rows.append((*[""] * 5, "nothing: no chunk matches the filters" if response.filters else "nothing"))
    if explanation.near_misses:
        rows.append((*[""] * 5, f"--- end of the top {explanation.top_k} ---"))
        rows += [_row(ranked, explanation) for ranked in explanation.near_misses]
    yield from table((">Rank", ">Score", ">Lead", ">Dense", ">Lexical", "Chunk"), rows)
    if explanation.expected:
        yield ""
        yield from _expected_lines(explanation.expected, explanation)


def _row(ranked: RankedHit, explanation: Explanation) -> tuple[str, ...]:
    hit, chunk = ranked.hit, ranked.hit.chunk
    noise = "  (noise)" if (_margin(hit, explanation) or 0) < 0 else ""
    lines = [f"{one_line(chunk.heading_path or chunk.title)}{noise}", one_line(chunk.url)]
    if ranked.words:
        lines.append(f"has: {one_line(', '.join(ranked.words))}")
    if ranked.question_words:
        lines.append(f"its section questions have: {one_line(', '.join(ranked.question_words))}")
    scores = (hit.score, ranked.lead, hit.dense, hit.lexical)
    return (str(ranked.rank), *map(_number, scores), "\n".join(lines))


def _number(number: float | None) -> str:
    return "" if number is None else f"{number:.3f}"


def _margin(hit: Hit, explanation: Explanation) -> float | None:
    """Return how far a hit is above the noise floor, if it is known."""
    return None if explanation.response.noise_floor is None else hit.score - explanation.response.noise_floor


def _named(hit: Hit) -> str:
    return f"{hit.chunk.url}  {hit.chunk.heading_path or hit.chunk.title}"


def _expected_lines(expected: Expected, explanation: Explanation) -> Iterator[str]:
    lines = [expected.message]
    if expected.near:
        lines.append(f"Nearest: {expected.near}")
    if expected.hit and expected.rank:
        best = f"rank {expected.rank}, score {expected.hit.score:.3f}, {_named(expected.hit)}"
        lines.append(f"Its best chunk: {best}")
    if expected.dense:
        lines.append(f"Dense: {_position(expected.dense, 'cosine')}")
    if expected.lexical:
        lines.append(f"Lexical: {_position(expected.lexical, 'score')}")
    if expected.hit and explanation.words:
        found = {*expected.words, *expected.question_words}
        lacking = [word for word in explanation.words if word not in found]
        has, lacks = (", ".join(words) or "none" for words in (expected.words, lacking))
        lines.append(f"Words of the query: has {has}; lacks {lacks}")
    if expected.question_words:
        lines.append(f"Its section questions have: {', '.join(expected.question_words)}")
    if expected.lost_to and expected.rank != 1:
        first = expected.lost_to[0]
        lead = first.score - (expected.hit.score if expected.hit else 0)
        lines.append(f"The first result is {lead:.3f} above it: {_named(first)}")
    yield one_line(f"Expected: {expected.name}: {expected.verdict.replace('_', ' ')}")
    yield from (f"  {one_line(line)}" for line in lines)


def _position(position: RankAndScore, unit: str) -> str:
    rank, score = position
    position_text = f"rank {rank}" if rank else "not ranked"
    return position_text if score is None else f"{position_text}, {unit} {score:.3f}"


def _data(explanation: Explanation) -> dict[str, Any]:
    response, expected = explanation.response, explanation.expected
    return {
        "query": response.query,
        "collection": response.collection,
        "mode": response.mode,
        "words": list(explanation.words),
        "corrections": {word: list(meant) for word, meant in response.corrections},
        "answerable": response.answerable,
        "coverage": response.coverage,
        "filters": filters_dict(response.filters),
        "chunks": explanation.chunks,
        "candidates": explanation.candidates,
        "noise_floor": response.noise_floor,
        "auroc": explanation.auroc,
        "timings_ms": {step: round(ms, 3) for step, ms in explanation.timings_ms.items()},
        "results": [_ranked_data(ranked, explanation) for ranked in explanation.shown],
        "near_misses": [_ranked_data(ranked, explanation) for ranked in explanation.near_misses],
        "expected": expected
        and {
            "wanted": expected.name,
            "verdict": expected.verdict.value,
            "message": expected.message,
            "nearest": expected.near or None,
            "rank": expected.rank,
            "lacks": expected.lacks,
            "dense": expected.dense and dict(zip(("rank", "score"), expected.dense, strict=True)),
            "lexical": expected.lexical and dict(zip(("rank", "score"), expected.lexical, strict=True)),
            "words": list(expected.words),
            "question_words": list(expected.question_words),
            "best": expected.hit and _hit_data(expected.hit),
            "lost_to": [_hit_data(hit) for hit in expected.lost_to],
        },
    }


def _ranked_data(ranked: RankedHit, explanation: Explanation) -> dict[str, Any]:
    margin = _margin(ranked.hit, explanation)
    return {
        "rank": ranked.rank,
        **_hit_data(ranked.hit),
        "lead": ranked.lead,
        "words": list(ranked.words),
        "question_words": list(ranked.question_words),
        "margin": margin and round(margin, 6),
        "above_noise": None if margin is None else margin >= 0,
    }


def _hit_data(hit: Hit) -> dict[str, Any]:
    return hit.to_dict(view="explain")
