"""Context for a language model: the hits of a query with their whole sections, within a budget of tokens.

`build_context` is the whole idea: take the hits, put those of a preferred page first, fill the budget with
the most relevant chunks of their sections (`recto.search.packing`), and render the sections.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from recto.errors import InvalidArgument
from recto.protocols import embedder_abilities
from recto.search.packing import ContextSection, PageCache, Relevance, SectionPacker, pack_sections
from recto.search.pipeline import OpenIndex, search_index, with_vectors
from recto.search.query import check_range
from recto.types.request import MAX_TOKENS, MAX_TOP_K, MIN_TOKENS, SearchRequest
from recto.types.search import Hit, Outcome, PageGroup, SearchResponse

MAX_LEFT_OUT = 10  # addresses of hits that did not fit: more would fill a prompt
MAX_NEIGHBORS = 5  # more is a chapter: a caller reads the page instead
# Of the score: hits a little below the noise floor still complete an answer. With this margin, as many
# contexts have the answer as without a limit (532 readers' questions, within .004 in all four budgets).
_NOISE_MARGIN = 0.03
_PAGE_SHARE = 0.7
"""Of the distance from the noise floor to the best hit: what a hit on the preferred page must reach.

All of 50 readers' questions about the sample book reach it on the page that answers them, and 3 on another
page (a test checks both).
"""


@dataclass(frozen=True, slots=True)
class Context:
    """Sections of a book for a query: the page with the most relevant chunk first, sections in its order.

    `tokens` counts the texts of the sections with the tokenizer of the embedding model. `left_out` has the
    hits that did not fit, repeat others, or are off topic. `page_used` says whether the preferred page comes
    first; it is None if no page was preferred. `response` is the search in the whole book.
    """

    response: SearchResponse
    sections: tuple[ContextSection, ...]
    tokens: int
    max_tokens: int
    left_out: tuple[Hit, ...] = ()
    page_used: bool | None = None
    page_message: str = ""

    @property
    def missing(self) -> int:
        """How many chunks of the sections did not fit."""
        return sum(section.missing for section in self.sections)

    @property
    def text(self) -> str:
        """The sections with their URLs, for a prompt."""
        return "\n\n".join(f"{section.url}\n\n{section.text}" for section in self.sections)


def context_to_dict(context: Context, digits: int | None = 6) -> dict[str, Any]:
    """Return the sections of a context and what did not fit, as plain JSON values."""
    response = context.response
    sections = [
        section.hits[0].to_dict(digits, "mcp_section")
        | {name: getattr(section, name) for name in ("text", "tokens", "missing", "truncated")}
        | {"above_noise": response.above_noise(section.hits[0]), "hits": len(section.hits)}
        for section in context.sections
    ]
    return {
        "page_used": context.page_used,
        "sections": sections,
        "tokens": context.tokens,
        "max_tokens": context.max_tokens,
        "left_out": list(dict.fromkeys(hit.chunk.url for hit in context.left_out))[:MAX_LEFT_OUT],
    }


def check_context(
    max_tokens: int, neighbors: int, page: str | None, request: SearchRequest
) -> SearchRequest | None:
    """Check the parameters of a context; return the request for the preferred page, if there is one."""
    check_range("max_tokens", max_tokens, MIN_TOKENS, MAX_TOKENS)
    check_range("neighbors", neighbors, 0, MAX_NEIGHBORS)
    if page is None:
        return None
    if request.filters.page_url is not None:
        raise InvalidArgument(
            "A preferred page and a filter by page exclude each other",
            hint="Use `page` to prefer a page, or the filter `url` to search only in it.",
        )
    return replace(request, filters=replace(request.filters, page_url=page))


def build_context(
    opened: OpenIndex,
    response: SearchResponse,
    on_page: SearchResponse | None,
    max_tokens: int,
    neighbors: int = 0,
    *,
    short_page: bool = True,
    scores: Mapping[str, float] | None = None,
    least: float | None = None,
) -> Context:
    """Extend the hits of a response to sections; `on_page` has the hits of the preferred page.

    The most relevant chunks come first: hits, then other chunks of their sections. With `scores` of chunks
    (`context_scores`), these choose the chunks and sections. Sections of one page are in its order. What
    another section says already is left out. If `short_page`, the page of the best hit is one section if
    several of its sections have hits and it takes little of the budget. `neighbors` adds the sections before
    and after on the page, if they fit; then no page is one section. Hits with less than the `least` score are
    left out, except for the best one.
    """
    hits, page_used = prefer_page(response, on_page) if on_page else (response.hits, None)
    on_topic = hits if least is None else [hit for hit in hits if hit.score >= least] or hits[:1]
    preferred = on_page.filters.page_url if on_page and page_used else None
    packer = SectionPacker(max_tokens, opened.embedder.count_tokens)
    relevance = Relevance(on_topic, scores or {}, preferred)
    pack_sections(relevance, PageCache(opened.index), packer, short_page=short_page and not neighbors)
    if neighbors:
        packer.add_neighbors(neighbors)
    sections = packer.sections()
    chosen = {hit.chunk.id for section in sections for hit in section.hits}
    left_out = tuple(hit for hit in hits if hit.chunk.id not in chosen)
    message = _page_message(on_page, used=bool(page_used)) if on_page else ""
    tokens = sum(section.tokens for section in sections)
    return Context(response, sections, tokens, max_tokens, left_out, page_used, message)


def make_context(
    opened: OpenIndex,
    request: SearchRequest,
    response: SearchResponse,
    on_page: SearchResponse | None,
    max_tokens: int,
    neighbors: int,
) -> Context:
    """Build the context of a search with `context_scores`."""
    scores = context_scores(opened, response, on_page, request.filters.language or "")
    least = _least_score(response)
    return build_context(opened, response, on_page, max_tokens, neighbors, scores=scores, least=least)


def _least_score(response: SearchResponse) -> float | None:
    """Return the score from which hits are on topic; None if the noise floor is unknown."""
    return None if response.noise_floor is None else response.noise_floor - _NOISE_MARGIN


def context_scores(
    opened: OpenIndex, response: SearchResponse, on_page: SearchResponse | None, language: str
) -> dict[str, float]:
    """Return the scores that chunks have for the query of a context, by their ids: the best of each search.

    There are none in lexical mode, if the model has no other vectors for contexts, and if the query or the
    book is not English: those vectors were trained and measured with English.
    """
    embed = embedder_abilities(opened.embedder).embed_context_queries
    if embed is None or not response.hits or response.mode == "lexical":
        return {}
    texts, searched = [response.query], [response]
    if on_page and prefer_page(response, on_page)[1]:
        searched.append(on_page)
    queries = opened.analyze(texts, language)
    lexical = queries[0].lexical
    if lexical and not lexical.is_english:
        return {}
    queries, scores = with_vectors(queries, embed(texts)), dict[str, float]()
    for found in searched:
        request = SearchRequest(top_k=MAX_TOP_K, mode=found.mode, filters=found.filters)
        (result,) = search_index(opened.index, queries, request)
        scores |= {hit.chunk.id: hit.score for hit in result.hits}
    return scores


def sections_of(opened: OpenIndex, response: SearchResponse, max_tokens: int) -> tuple[ContextSection, ...]:
    """Return the sections of the hits of a response, best first, unless the hits are grouped by page."""
    sections = build_context(opened, response, None, max_tokens, short_page=False).sections
    if response.groups:
        return sections
    return tuple(sorted(sections, key=lambda section: -section.score))


def with_sections(opened: OpenIndex, response: SearchResponse, section_tokens: int) -> SearchResponse:
    """Return a response whose hits have `section_text`: their section, or the part that fits."""
    reader, texts = PageCache(opened.index), {}
    for hit in response.hits:
        packer = SectionPacker(section_tokens, opened.embedder.count_tokens)
        pack_sections(Relevance([hit]), reader, packer, short_page=False)
        texts[hit.chunk.id] = packer.sections()[0].text

    hits = {id(hit): replace(hit, section_text=texts[hit.chunk.id]) for hit in response.hits}
    groups = tuple(PageGroup(tuple(hits[id(hit)] for hit in group.hits)) for group in response.groups)
    return replace(response, hits=tuple(hits.values()), groups=groups)


def prefer_page(response: SearchResponse, on_page: SearchResponse) -> tuple[tuple[Hit, ...], bool]:
    """Put the relevant hits of a page before the hits of the whole book; return whether there are any.

    A hit is relevant if its score is at least 70 % as far above the noise floor as the best one of the book
    (in lexical mode: if it has 70 % of the best score). If the noise floor is unknown, it
    must be among the hits of the book.
    """
    book = {hit.chunk.id for hit in response.hits}
    distances = [value for hit in response.hits if (value := _above_noise(hit, response)) is not None]
    least = _PAGE_SHARE * max(distances, default=0.0)
    relevant = []
    for hit in on_page.hits:
        value = _above_noise(hit, response)
        if hit.chunk.id in book if value is None else 0 < value >= least:
            relevant.append(hit)
    preferred = {hit.chunk.id for hit in relevant}
    rest = (hit for hit in response.hits if hit.chunk.id not in preferred)
    return (*relevant, *rest), bool(relevant)


def _above_noise(hit: Hit, response: SearchResponse) -> float | None:
    """Return how far a hit is above the noise; None if that is unknown."""
    if response.mode == "lexical":
        return hit.score
    return None if response.noise_floor is None else hit.score - response.noise_floor


def _page_message(on_page: SearchResponse, *, used: bool) -> str:
    page = on_page.filters.page_url
    if used:
        return f"Results on {page} come first."
    if on_page.outcome is Outcome.FILTERED_OUT:
        return f"{on_page.message} The whole book was searched."
    return f"Nothing on {page} is relevant enough. The whole book was searched."
