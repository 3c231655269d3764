"""Context for a language model: the hits of a query with their whole sections, within a budget of tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from recto.errors import InvalidArgument, PageMissing
from recto.protocols import Index
from recto.search.pages import read_page, to_markdown
from recto.search.pipeline import OpenIndex
from recto.search.selection import truncate
from recto.types.search import Chunk, Filters, Hit, Outcome, SearchResponse

MIN_TOKENS, MAX_TOKENS = 100, 100_000
MAX_NEIGHBORS = 5
OMISSION = "[…]"
"""Stands for chunks of a section that did not fit."""
_PAGE_SHARE = 0.7
"""Of the distance from the noise floor to the best hit: what a hit on the preferred page must reach."""
# Of 100 questions drafted from the sample book, 86 reach it on their own page (13 are noise in the whole
# book), and 0.25 % do on other pages.
_CHARACTERS_PER_TOKEN = 8  # more than any tokenizer needs for prose


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
        return self.hits[0].chunk.url


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
    opened: OpenIndex,
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
    budget = _Budget(max_tokens, opened.embedder.count_tokens)
    builders, left_out = _take_hits(hits, opened.index, budget)
    for builder in builders:
        builder.extend(builder.rest_of_section(), budget)
    # A section that is a result itself, or the neighbor of an earlier result, is not repeated.
    used = {chunk.id for builder in builders for chunk in builder.page[builder.start : builder.end]}
    for builder in builders if neighbors else ():
        around = builder.around(neighbors)
        builder.extend((position for position in around if builder.page[position].id not in used), budget)
        used.update(builder.page[position].id for position in builder.chosen)
    sections = tuple(builder.section() for builder in builders)
    message = _page_message(on_page, used=bool(page_used)) if on_page else ""
    return Context(response, sections, budget.used, max_tokens, left_out, page_used, message)


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


class _Budget:
    """Counts tokens up to a maximum."""

    def __init__(self, max_tokens: int, count: Callable[[str], int]) -> None:
        self._max_tokens = max_tokens
        self.count = count
        self.used = 0

    @property
    def free(self) -> int:
        return self._max_tokens - self.used


class _SectionBuilder:
    """A section from `start` to `end` of its page, and which chunks of the page were chosen, by position."""

    def __init__(self, page: Sequence[Chunk], start: int, end: int) -> None:
        self.page = page
        self.start, self.end = start, end
        self.hits: list[Hit] = []
        self.chosen: set[int] = set()
        self._text, self._tokens = "", 0
        self._truncated = False

    def add(self, position: int, budget: _Budget) -> bool:
        """Choose a chunk if it fits."""
        chosen = self.chosen | {position}
        text = _render(self.page, sorted(chosen))
        tokens = budget.count(text)
        if tokens - self._tokens > budget.free:
            return False
        budget.used += tokens - self._tokens
        self.chosen, self._text, self._tokens = chosen, text, tokens
        return True

    def truncate(self, position: int, budget: _Budget) -> None:
        """Choose the beginning of a chunk that does not fit as a whole."""
        whole, most = _render(self.page, [position]), budget.free
        self._text = truncate(whole, lambda text: budget.count(text) <= most, most * _CHARACTERS_PER_TOKEN)
        self._tokens = budget.count(self._text)
        budget.used += self._tokens
        self.chosen, self._truncated = {position}, True

    def extend(self, positions: Iterable[int], budget: _Budget) -> None:
        """Choose chunks one by one until one does not fit."""
        for position in positions:
            if self._truncated or not self.add(position, budget):
                return

    def rest_of_section(self) -> list[int]:
        """Return the other chunks of the section, the nearest to a hit first, and what follows it before."""
        rest = [position for position in range(self.start, self.end) if position not in self.chosen]
        return sorted(rest, key=self._distance)

    def around(self, neighbors: int) -> list[int]:
        """Return the chunks of the sections before and after, the nearest first."""
        runs = _runs(self.page)
        own = runs.index((self.start, self.end))
        start = runs[max(0, own - neighbors)][0]
        end = runs[min(len(runs) - 1, own + neighbors)][1]
        return sorted((*range(start, self.start), *range(self.end, end)), key=self._distance)

    def _distance(self, position: int) -> tuple[int, bool]:
        nearest = min(self.chosen, key=lambda chosen: abs(position - chosen))
        return abs(position - nearest), position < nearest

    def section(self) -> ContextSection:
        missing = sum(position not in self.chosen for position in range(self.start, self.end))
        chunks = tuple(self.page[position] for position in sorted(self.chosen))
        return ContextSection(tuple(self.hits), chunks, self._text, self._tokens, missing, self._truncated)


def _take_hits(
    hits: Sequence[Hit], index: Index, budget: _Budget
) -> tuple[list[_SectionBuilder], tuple[Hit, ...]]:
    """Choose the chunks of the hits; return the sections, best hit first, and the hits that did not fit."""
    pages: dict[str, tuple[Chunk, ...]] = {}
    builders: dict[tuple[str, int], _SectionBuilder] = {}
    left_out = []
    for hit in hits:
        url = hit.chunk.page_url
        if url not in pages:
            pages[url] = _page_chunks(index, url)
        chunks, position = pages[url], 0
        while position < len(chunks) and chunks[position].id != hit.chunk.id:
            position += 1
        if position == len(chunks):  # a new generation without the chunk was published after the search
            chunks, position, url = (hit.chunk,), 0, hit.chunk.id
        start, end = next(run for run in _runs(chunks) if run[0] <= position < run[1])
        builder = builders.get((url, start)) or _SectionBuilder(chunks, start, end)
        if not builder.add(position, budget):
            if builders:
                left_out.append(hit)
                continue
            builder.truncate(position, budget)
        builder.hits.append(hit)
        builders[url, start] = builder
    return list(builders.values()), tuple(left_out)


def _page_chunks(index: Index, url: str) -> tuple[Chunk, ...]:
    try:
        return read_page(index, url, index.info.collection).chunks
    except PageMissing:
        return ()


def _runs(chunks: Sequence[Chunk]) -> list[tuple[int, int]]:
    """Return where each section of a page starts and ends: consecutive chunks with the same headings."""
    runs, start = [], 0
    for _, group in groupby(chunks, key=lambda chunk: chunk.headings):
        end = start + len(list(group))
        runs.append((start, end))
        start = end
    return runs


def _render(page: Sequence[Chunk], positions: Sequence[int]) -> str:
    """Return chunks of a page as Markdown; a mark stands for those that are left out between them."""
    # Consecutive positions have the same difference from their rank.
    runs = groupby(enumerate(positions), key=lambda item: item[1] - item[0])
    texts = (to_markdown([page[position] for _, position in run]) for _, run in runs)
    return f"\n\n{OMISSION}\n\n".join(texts)
