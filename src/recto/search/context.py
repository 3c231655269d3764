"""Context for a language model: the hits of a query with their whole sections, within a budget of tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

from recto.errors import InvalidArgument, PageMissing
from recto.search.pages import BookPage, read_page, to_markdown
from recto.search.selection import truncate
from recto.types import Chunk, Filters, Hit, Outcome, SearchResponse

if TYPE_CHECKING:
    from recto.search.retriever import Retriever

MIN_TOKENS, MAX_TOKENS = 100, 100_000
MAX_NEIGHBORS = 5
OMISSION = "[…]"
"""Stands for chunks of a section that did not fit."""
_PAGE_SHARE = 0.7
"""Of the distance from the noise floor to the best hit: what a hit on the preferred page must reach."""
# Of 100 questions drafted from the sample book, 86 reach it on their own page (13 are noise in the whole
# book), and 0.25 % do on other pages.
_CHARACTERS_PER_TOKEN = 8  # more than any tokenizer needs for prose

Count = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class ContextSection:
    """A section of the book with the hits in it, best first.

    `chunks` are in the order of the page, and `text` is their Markdown with headings. `missing` counts the
    chunks of the section that did not fit. If the first hit alone is longer than the budget, its text ends
    after a sentence, and `truncated` is true.
    """

    hits: tuple[Hit, ...]
    chunks: tuple[Chunk, ...]
    text: str
    tokens: int
    missing: int = 0
    truncated: bool = False

    @property
    def score(self) -> float:
        """The score of the best hit."""
        return self.hits[0].score

    @property
    def url(self) -> str:
        """The URL that opens the section."""
        return self.hits[0].chunk.link


@dataclass(frozen=True, slots=True)
class Context:
    """Sections of a book for a query, most relevant first.

    `tokens` counts the texts of the sections with the tokenizer of the embedding model. `left_out` has the
    hits that did not fit. `page_used` says whether the preferred page comes first; it is None if no page was
    preferred. `response` is the search in the whole book.
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


def check_context(max_tokens: int, neighbors: int, page: str | None, filters: Filters) -> Filters | None:
    """Check the parameters of a context; return the filters for the preferred page, if there is one."""
    for name, value, low, high in (
        ("max_tokens", max_tokens, MIN_TOKENS, MAX_TOKENS),
        ("neighbors", neighbors, 0, MAX_NEIGHBORS),
    ):
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise InvalidArgument(
                f"{name} must be between {low} and {high}", hint="Leave it out for the default."
            )
    if page is None:
        return None
    if filters.page_url is not None:
        raise InvalidArgument(
            "A preferred page and a filter by page exclude each other",
            hint="Use `page` to prefer a page, or the filter `url` to search only in it.",
        )
    return replace(filters, page_url=page)


def build_context(
    retriever: Retriever,
    response: SearchResponse,
    on_page: SearchResponse | None,
    max_tokens: int,
    neighbors: int,
) -> Context:
    """Extend the hits of a response to sections; `on_page` has the hits of the preferred page.

    Hits have priority over the rest of their sections, and both over `neighbors`, the sections before and
    after on the page. Each of these steps takes the most relevant section first.
    """
    hits, page_used = prefer_page(response, on_page) if on_page else (response.hits, None)
    budget = _Budget(max_tokens, retriever.query_embedder.count_tokens)
    drafts, left_out = _place_hits(_drafts(retriever, hits), hits, budget)
    for draft in drafts:
        draft.extend(draft.rest_of_section(), budget)
    taken = {chunk.id for draft in drafts for chunk in draft.page[draft.start : draft.end]}
    for draft in drafts if neighbors else ():
        draft.extend(
            (place for place in draft.around(neighbors) if draft.page[place].id not in taken), budget
        )
        taken.update(draft.page[place].id for place in draft.chosen)
    sections = tuple(draft.section() for draft in drafts)
    message = _page_message(on_page, used=bool(page_used)) if on_page else ""
    return Context(response, sections, budget.used, max_tokens, left_out, page_used, message)


def prefer_page(response: SearchResponse, on_page: SearchResponse) -> tuple[tuple[Hit, ...], bool]:
    """Put the relevant hits of a page before those of the whole book; return whether there are any.

    A hit is relevant if its score is at least 70 % as far above the noise floor as the best one of the book
    (in lexical mode: if it has 70 % of the best score). If the noise floor is unknown, it
    must be among the hits of the book.
    """
    book = {hit.chunk.id for hit in response.hits}
    known = [value for hit in response.hits if (value := _above_noise(hit, response)) is not None]
    least = _PAGE_SHARE * max(known, default=0.0)
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


class _Budget:
    """Counts tokens up to a maximum."""

    def __init__(self, max_tokens: int, count: Count) -> None:
        self._max_tokens = max_tokens
        self.count = count
        self.used = 0

    @property
    def free(self) -> int:
        return self._max_tokens - self.used


class _Draft:
    """A section on its page, and which chunks of the page were chosen; all places are indices into `page`."""

    def __init__(self, page: Sequence[Chunk], start: int, end: int) -> None:
        self.page = page
        self.start, self.end = start, end
        self.hits: list[Hit] = []
        self.chosen: set[int] = set()
        self._text, self._tokens = "", 0
        self._truncated = False

    def add(self, places: Iterable[int], budget: _Budget) -> bool:
        """Choose more chunks if they fit."""
        chosen = self.chosen | set(places)
        text = _render(self.page, sorted(chosen))
        tokens = budget.count(text)
        if tokens - self._tokens > budget.free:
            return False
        budget.used += tokens - self._tokens
        self.chosen, self._text, self._tokens = chosen, text, tokens
        return True

    def truncate(self, place: int, budget: _Budget) -> None:
        """Choose the beginning of a chunk that does not fit as a whole."""
        whole, most = _render(self.page, [place]), budget.free
        self._text = truncate(whole, lambda text: budget.count(text) <= most, most * _CHARACTERS_PER_TOKEN)
        self._tokens = budget.count(self._text)
        budget.used += self._tokens
        self.chosen, self._truncated = {place}, True

    def extend(self, places: Iterable[int], budget: _Budget) -> None:
        """Choose chunks one by one until one does not fit."""
        for place in places:
            if self._truncated or not self.add([place], budget):
                return

    def rest_of_section(self) -> list[int]:
        """Return the other chunks of the section, those next to a hit first, and what follows it before."""
        rest = [place for place in range(self.start, self.end) if place not in self.chosen]
        return sorted(rest, key=self._distance)

    def around(self, neighbors: int) -> list[int]:
        """Return the chunks of the sections before and after, the nearest first."""
        runs = _runs(self.page)
        own = next(number for number, (start, _) in enumerate(runs) if start == self.start)
        start = runs[max(0, own - neighbors)][0]
        end = runs[min(len(runs) - 1, own + neighbors)][1]
        outside = (*range(start, self.start), *range(self.end, end))
        return sorted(outside, key=self._distance)

    def _distance(self, place: int) -> tuple[int, bool]:
        nearest = min(self.chosen, key=lambda chosen: abs(place - chosen))
        return abs(place - nearest), place < nearest

    def section(self) -> ContextSection:
        missing = sum(place not in self.chosen for place in range(self.start, self.end))
        chunks = tuple(self.page[place] for place in sorted(self.chosen))
        return ContextSection(tuple(self.hits), chunks, self._text, self._tokens, missing, self._truncated)


def _drafts(retriever: Retriever, hits: Sequence[Hit]) -> dict[str, tuple[_Draft, int]]:
    """Return the section of each hit, and the place of the hit on its page, by the id of the hit's chunk."""
    index = retriever.open()
    pages: dict[str, BookPage | None] = {}
    sections: dict[tuple[str, int], _Draft] = {}
    found: dict[str, tuple[_Draft, int]] = {}
    for chunk in (hit.chunk for hit in hits):
        if chunk.page_url not in pages:
            try:
                pages[chunk.page_url] = read_page(index, chunk.page_url, retriever.collection)
            except PageMissing:  # a new generation without it was published after the search
                pages[chunk.page_url] = None
        page = pages[chunk.page_url]
        chunks = page.chunks if page else ()
        place = next((place for place, one in enumerate(chunks) if one.id == chunk.id), None)
        if place is None:
            found[chunk.id] = _Draft((chunk,), 0, 1), 0
            continue
        start, end = next(run for run in _runs(chunks) if run[0] <= place < run[1])
        found[chunk.id] = sections.setdefault((chunk.page_url, start), _Draft(chunks, start, end)), place
    return found


def _place_hits(
    drafts: dict[str, tuple[_Draft, int]], hits: Sequence[Hit], budget: _Budget
) -> tuple[list[_Draft], tuple[Hit, ...]]:
    """Choose the chunks of the hits; return the sections, best hit first, and the hits that did not fit."""
    chosen: dict[int, _Draft] = {}
    left_out = []
    for hit in hits:
        draft, place = drafts[hit.chunk.id]
        if not draft.add([place], budget):
            if chosen:
                left_out.append(hit)
                continue
            draft.truncate(place, budget)
        draft.hits.append(hit)
        chosen.setdefault(id(draft), draft)
    return list(chosen.values()), tuple(left_out)


def _runs(chunks: Sequence[Chunk]) -> list[tuple[int, int]]:
    """Return where each section of a page starts and ends: consecutive chunks with the same headings."""
    runs, start = [], 0
    for _, group in groupby(chunks, key=lambda chunk: chunk.headings):
        end = start + len(list(group))
        runs.append((start, end))
        start = end
    return runs


def _render(page: Sequence[Chunk], places: Sequence[int]) -> str:
    """Return chunks of a page as Markdown; a mark stands for those that are left out between them."""
    runs: list[list[int]] = []
    for place in places:
        if runs and runs[-1][-1] == place - 1:
            runs[-1].append(place)
        else:
            runs.append([place])
    texts = (to_markdown([page[place] for place in run]) for run in runs)
    return f"\n\n{OMISSION}\n\n".join(texts)
