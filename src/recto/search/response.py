"""Build the response to a query from its hits, and estimate whether the book covers the query."""

from __future__ import annotations

import math
from dataclasses import replace

from recto._util.text import filter_keys, nearest
from recto.protocols import Index, embedder_abilities
from recto.search.lexical import LexicalQuery
from recto.search.pipeline import OpenIndex, QueryHits, SearchedBatch
from recto.types.index import Calibration
from recto.types.request import SearchRequest
from recto.types.search import Coverage, Filters, Hit, Mode, Outcome, PageGroup, SearchResponse

COVERED_FROM, NOT_COVERED_BELOW = 0.5, 0.25
"""The probabilities that separate the grades of `SearchResponse.coverage`."""
# Fitted by logistic regression to readers' questions about eleven books (decision 11).
# Similarities are measured from the noise floor of an index in units of its spread, because every model and
# every book has its own.
SPREAD = 0.05
"""The spread of the books that answerability was fitted to."""
_ABOVE_WEIGHT, _KNOWN_WEIGHT, _OFFSET = 16.0, 6.4, -7.2
COVERAGE_RULES = {
    "covered_from": COVERED_FROM,
    "not_covered_below": NOT_COVERED_BELOW,
    "spread": SPREAD,
    "above_weight": _ABOVE_WEIGHT,
    "known_weight": _KNOWN_WEIGHT,
    "offset": _OFFSET,
}


def build_responses(searched: SearchedBatch) -> list[SearchResponse]:
    """Build the response to each query; warnings about the index are in the first one."""
    return [
        _build_response(searched, result, searched.run.warnings if number == 0 else ())
        for number, result in enumerate(searched.results)
    ]


def _build_response(searched: SearchedBatch, result: QueryHits, warnings: tuple[str, ...]) -> SearchResponse:
    run, lexical = searched.run, result.query.lexical
    index, mode = run.opened.index, run.request.mode
    outcome, message = (Outcome.FOUND, "") if result.hits else _explain_empty(index, run.request)
    info = index.info  # read once, because an embedded index checks the disk for it
    probability = answerable(result.evidence, lexical, info.calibration)
    return SearchResponse(
        result.query.text,
        tuple(result.hits),
        run.request.filters,
        run.collection,
        outcome,
        searched.timings,
        message,
        info.warnings + warnings + _other_language(run.opened, mode, lexical),
        noise_score(info.noise_floor, mode, lexical),
        generation=info.generation,
        mode=mode,
        answerable=probability,
        coverage=coverage(probability),
        corrections=lexical.corrections if lexical and mode != "dense" else (),
    )


def _other_language(opened: OpenIndex, mode: Mode, lexical: LexicalQuery | None) -> tuple[str, ...]:
    """Return a note about a query in a language that the book does not have, unless the model knows it."""
    if opened.lexicon is None or lexical is None or not lexical.foreign:
        return ()
    known = embedder_abilities(opened.embedder).languages
    if mode != "lexical" and (not known or lexical.foreign in known):
        return ()
    book = " and ".join(f"'{one}'" for one in opened.lexicon.languages)
    return (f"The query seems to be in another language ('{lexical.foreign}') than the book ({book}).",)


def group_by_page(response: SearchResponse, pages: int) -> SearchResponse:
    """Return a response with the hits of its best pages, the best hit of each page first."""
    hits_by_page: dict[str, list[Hit]] = {}
    for hit in response.hits:
        hits_by_page.setdefault(hit.chunk.page_url, []).append(hit)
    best = list(hits_by_page.values())[:pages]
    groups = tuple(PageGroup(tuple(hits)) for hits in best)
    return replace(response, hits=tuple(hit for hits in best for hit in hits), groups=groups)


def _explain_empty(index: Index, request: SearchRequest) -> tuple[Outcome, str]:
    """Return why there are no hits: filters that exclude every chunk, or no chunk with the minimum score."""
    filters, min_score = request.filters, request.min_score
    if not filters or index.count(filters):
        if request.mode == "lexical" and min_score is None:
            return Outcome.NO_MATCH, "No chunk contains any word of the query"
        return Outcome.NO_MATCH, f"No chunk reaches the minimum score of {min_score}"
    reasons = []
    if filters.modules and not index.count(Filters(modules=filters.modules)):
        modules = index.modules()
        names = " or ".join(map(repr, filter_keys(filters.modules)))
        hint = _did_you_mean(nearest(filters.modules[0], modules))
        reasons.append(f"There is no module {names}.{hint} Modules: {', '.join(modules)}.")
    if filters.page_url is not None and not index.count(Filters(page_url=filters.page_url)):
        from recto.search.pages import nearest_page

        hint = _did_you_mean(nearest_page(index, filters.page_url))
        reasons.append(f"There is no page {filters.page_url!r}.{hint}")
    if filters.language is not None and not index.count(Filters(language=filters.language)):
        reasons.append(f"The book has no page in the language '{filters.language}'.")
    if filters.versions and not index.count(Filters(versions=filters.versions)):
        made = index.info.fingerprint
        names = ", ".join(name for name, _ in made.versions) if made else ""
        known = f" Versions: {names}." if names else ""
        reasons.append(f"The book has no version '{filters.versions[0]}'.{known}")
    both = "No page matches all filters together; each of them alone has matches."
    return Outcome.FILTERED_OUT, " ".join(reasons) or both


def _did_you_mean(name: str | None) -> str:
    return f" Did you mean '{name}'?" if name else ""


def answerable(
    evidence: float | None, lexical: LexicalQuery | None, calibration: Calibration | None
) -> float | None:
    """Return the probability that the book covers a query, or None if one of the inputs is missing.

    The constants were fitted to English, so it is unknown in other languages.
    """
    if evidence is None or lexical is None or calibration is None or not lexical.is_english:
        return None
    above = (evidence - calibration.noise_floor) * SPREAD / (calibration.spread or SPREAD)
    return round(1 / (1 + math.exp(-(_ABOVE_WEIGHT * above + _KNOWN_WEIGHT * lexical.known + _OFFSET))), 3)


def noise_score(noise_floor: float | None, mode: Mode, lexical: LexicalQuery | None) -> float | None:
    """Return the score of a chunk at the noise floor that has none of the query's words.

    The off-topic queries of the calibration are English, so it is unknown in other languages.
    """
    if noise_floor is None or mode == "lexical" or (lexical and not lexical.is_english):
        return None
    return noise_floor / (1 + lexical.weight) if mode == "hybrid" and lexical else noise_floor


def coverage(probability: float | None) -> Coverage | None:
    """Return the grade of a probability that the book covers a query."""
    if probability is None:
        return None
    if probability >= COVERED_FROM:
        return "covered"
    return "unclear" if probability >= NOT_COVERED_BELOW else "not covered"
