"""Context for a language model: the hits of a query with their whole sections, within a budget of tokens."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from itertools import count, groupby
from operator import add
from typing import NamedTuple

from recto._util.text import page_key
from recto.errors import InvalidArgument, PageMissing
from recto.protocols import Index, context_embedder, known_languages
from recto.search.markdown import clean_markdown, close_fences, one_line
from recto.search.pages import read_page, section_runs, to_markdown
from recto.search.pipeline import OpenIndex, SearchOptions, search_index, with_vectors
from recto.search.query import MAX_TOP_K
from recto.search.selection import longest_start, truncate, word_runs
from recto.types.search import HEADING_SEPARATOR, Chunk, Filters, Hit, Outcome, PageGroup, SearchResponse

MIN_TOKENS, MAX_TOKENS = 100, 100_000
MAX_NEIGHBORS = 5
OMISSION = "[…]"
"""Stands for chunks of a section that did not fit."""
_PAGE_SHARE = 0.7
"""Of the distance from the noise floor to the best hit: what a hit on the preferred page must reach."""
# All of 50 readers' questions about the sample book reach it on the page that answers them, and 3 on another
# page (a test checks both).
_CHARACTERS_PER_TOKEN = 8  # more than any tokenizer needs for prose
# Chosen on readers' questions about five books (`python -m bench.context`).
_SECTION_WEIGHT = 0.5  # of the relevance of a section's best hit, for all its chunks
_PAGE_WEIGHT = 0.3  # of the relevance of a page's best hit, for all its chunks
_SHORT_PAGE = 0.6  # of a budget: if the page of the best hit takes no more, all of it is shown
_REPEATED = 0.65  # of the runs of words in a chunk: from this share on, earlier chunks said the same
_LARGEST_SHARE = 0.25  # of a budget, for a lead-in with what it introduces
_LEAST_TOKENS = 16  # a chunk with fewer is rare
_MIN_RUNS = 3  # a shorter text is a lead-in or a line that occurs everywhere
_FENCE_TOKENS = 4  # what the mark takes that closes a truncated code block


@dataclass(frozen=True, slots=True)
class ContextSection:
    """A section of the book, or a short page, with the hits in it, best first.

    `chunks` are in the order of the page. `text` is their Markdown without tags and addresses, after the path
    of headings; code blocks are complete, and of several tabs there is one. `missing` counts the
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
    """Sections of a book for a query: the page with the most relevant chunk first, sections in its order.

    `tokens` counts the texts of the sections with the tokenizer of the embedding model. `left_out` has the
    hits that did not fit or repeat others. `page_used` says whether the preferred page comes first; it is
    None if no page was preferred. `response` is the search in the whole book.
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
    _check_range("max_tokens", max_tokens, MIN_TOKENS, MAX_TOKENS)
    _check_range("neighbors", neighbors, 0, MAX_NEIGHBORS)
    if page is None:
        return None
    if filters.page_url is not None:
        raise InvalidArgument(
            "A preferred page and a filter by page exclude each other",
            hint="Use `page` to prefer a page, or the filter `url` to search only in it.",
        )
    return replace(filters, page_url=page)


def _check_range(name: str, value: int, low: int, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidArgument(
            f"{name} must be between {low} and {high}", hint="Leave it out for the default."
        )


def build_context(
    opened: OpenIndex,
    response: SearchResponse,
    on_page: SearchResponse | None,
    max_tokens: int,
    neighbors: int = 0,
    *,
    all_tabs: bool = False,
    short_page: bool = True,
    scores: Mapping[str, float] | None = None,
) -> Context:
    """Extend the hits of a response to sections; `on_page` has the hits of the preferred page.

    The most relevant chunks come first: hits, then other chunks of their sections. With `scores` of chunks
    (`context_scores`), these choose the chunks and sections. Sections of one page are in its order. What
    another section says already is left out. If `short_page`, the page of the best hit is one section if
    several of its sections have hits and it takes little of the budget. `neighbors` adds the sections before
    and after on the page, if they fit; then no page is one section.
    """
    hits, page_used = prefer_page(response, on_page) if on_page else (response.hits, None)
    reader = _PageReader(opened.index)
    selector = _Selector(max_tokens, opened.embedder.count_tokens, all_tabs=all_tabs)
    preferred = on_page.filters.page_url if on_page and page_used else None
    _choose_chunks(hits, reader, selector, preferred, scores, short_page=short_page and not neighbors)
    if neighbors:
        selector.add_neighbors(neighbors)
    sections = selector.sections()
    shown = {hit.chunk.id for section in sections for hit in section.hits}
    left_out = tuple(hit for hit in hits if hit.chunk.id not in shown)
    message = _page_message(on_page, used=bool(page_used)) if on_page else ""
    used = sum(section.tokens for section in sections)
    return Context(response, sections, used, max_tokens, left_out, page_used, message)


def make_context(
    opened: OpenIndex,
    response: SearchResponse,
    on_page: SearchResponse | None,
    max_tokens: int,
    neighbors: int,
    language: str,
) -> Context:
    """Build the context of a search with `context_scores`; an empty `language` is unknown."""
    scores = context_scores(opened, response, on_page, language)
    return build_context(opened, response, on_page, max_tokens, neighbors, scores=scores)


def context_scores(
    opened: OpenIndex, response: SearchResponse, on_page: SearchResponse | None, language: str
) -> dict[str, float]:
    """Return the scores that chunks have for the query of a context, by their ids: the best of each search.

    There are none in lexical mode, and if the model has no other vectors for contexts or does not know the
    language of the query.
    """
    embedder, known = context_embedder(opened.embedder), known_languages(opened.embedder)
    if embedder is None or not response.hits or response.mode == "lexical":
        return {}
    texts, searched = [response.query], [response]
    if on_page and prefer_page(response, on_page)[1]:
        searched.append(on_page)
    queries = opened.analyze(texts, language)
    lexical = queries[0].lexical
    if known and lexical and lexical.language not in known:
        return {}
    queries, scores = with_vectors(queries, embedder.embed_context_queries(texts)), dict[str, float]()
    for one in searched:
        options = SearchOptions(MAX_TOP_K, one.mode, one.filters)
        (found,) = search_index(opened.index, queries, options)
        scores |= {hit.chunk.id: hit.score for hit in found.hits}
    return scores


def with_sections(opened: OpenIndex, response: SearchResponse, section_tokens: int) -> SearchResponse:
    """Return a response whose hits have `section_text`: their section, or the part that fits."""
    _check_range("section_tokens", section_tokens, MIN_TOKENS, MAX_TOKENS)
    reader, texts = _PageReader(opened.index), {}
    for hit in response.hits:
        selector = _Selector(section_tokens, opened.embedder.count_tokens, all_tabs=False)
        _choose_chunks([hit], reader, selector, short_page=False)
        texts[hit.chunk.id] = selector.sections()[0].text

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


@dataclass(frozen=True, slots=True)
class _Section:
    """Where a section starts and ends on its page."""

    page: tuple[Chunk, ...]
    start: int
    end: int

    @property
    def key(self) -> str:
        return self.page[self.start].id


class _Unit(NamedTuple):
    """Chunks of a section that are shown together, and the hit among them, if there is one."""

    section: _Section
    positions: tuple[int, ...]
    hit: Hit | None = None


class _PageReader:
    """Reads each page once; pages in `whole` count as one section."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._pages: dict[str, tuple[Chunk, ...]] = {}
        self.whole: set[str] = set()

    def page_of(self, chunk: Chunk) -> tuple[Chunk, ...]:
        """Return the page of a chunk; a new generation may not have it any more."""
        url = chunk.page_url
        if url not in self._pages:
            self._pages[url] = ()
            with suppress(PageMissing):
                self._pages[url] = read_page(self._index, url, self._index.info.collection).chunks
        return self._pages[url]

    def locate(self, chunk: Chunk) -> tuple[_Section, int]:
        """Return the section of a chunk and its position on the page."""
        page = self.page_of(chunk)
        position = next((number for number, other in enumerate(page) if other.id == chunk.id), None)
        if position is None:  # a new generation without the chunk was published after the search
            return _Section((chunk,), 0, 1), 0
        if chunk.page_url in self.whole:
            return _Section(page, 0, len(page)), position
        start, end = next(run for run in section_runs(page) if run[0] <= position < run[1])
        return _Section(page, start, end), position


def _choose_chunks(
    hits: Sequence[Hit],
    reader: _PageReader,
    selector: _Selector,
    preferred: str | None = None,
    scores: Mapping[str, float] | None = None,
    *,
    short_page: bool,
) -> None:
    """Choose hits and other chunks of their sections, the most relevant first, until the budget is spent.

    The relevance of a hit is its score between the worst and the best one, 0 to 1. Sections and pages with a
    better hit have more of it. If there are `scores` by the ids of chunks, they count for chunks and sections
    instead of the hits' own; a chunk without one has the worst. The `preferred` page comes first. If
    `short_page`, all chunks of the best hit's page come next if other sections of it have hits, too, and if
    they take little of the budget. A page is read only if one of its hits is chosen.
    """
    first = page_key(preferred) if preferred else None
    preferences = [float(page_key(hit.chunk.page_url) == first) for hit in hits]
    of_pages = values = list(map(add, _scaled([hit.score for hit in hits]), preferences))
    if scores:
        worst = min(scores.values())
        values = list(map(add, _scaled([scores.get(hit.chunk.id, worst) for hit in hits]), preferences))
    best_of_page: dict[str, float] = defaultdict(float)
    best_of_section: dict[tuple[str, ...], float] = defaultdict(float)
    for hit, of_page, value in zip(hits, of_pages, values, strict=True):
        page, section_key = hit.chunk.page_url, _section_key(hit.chunk)
        best_of_page[page] = max(best_of_page[page], of_page)
        best_of_section[section_key] = max(best_of_section[section_key], value)

    def around(chunk: Chunk) -> float:
        in_section = _SECTION_WEIGHT * best_of_section[_section_key(chunk)]
        return _PAGE_WEIGHT * best_of_page[chunk.page_url] + in_section

    relevances = [value + around(hit.chunk) for value, hit in zip(values, hits, strict=True)]
    if hits and short_page:
        chunk = hits[relevances.index(max(relevances))].chunk
        sections = {hit.chunk.headings for hit in hits if hit.chunk.page_url == chunk.page_url}
        if len(sections) > 1 and selector.is_short(reader.page_of(chunk)):
            reader.whole.add(chunk.page_url)
    numbers = count()  # ties keep their order
    queue: list[tuple[float, int, Hit | _Unit]] = [
        (-value, next(numbers), hit) for value, hit in zip(relevances, hits, strict=True)
    ]
    heapify(queue)
    expanded: set[str] = set()
    while queue and selector.has_room:
        priority, _, item = heappop(queue)
        if isinstance(item, _Unit):
            selector.add(item)
        elif selector.fits(item.chunk):
            section, own = reader.locate(item.chunk)
            selector.add(_Unit(section, _with_lead_in(section, own), item))
            if section.key in expanded:
                continue
            expanded.add(section.key)
            others = priority if item.chunk.page_url in reader.whole else -around(item.chunk)
            for position in sorted(range(section.start, section.end), key=lambda each: abs(each - own)):
                heappush(queue, (others, next(numbers), _Unit(section, _with_lead_in(section, position))))


def _scaled(scores: Sequence[float]) -> list[float]:
    """Return where scores lie between the worst and the best one, 0 to 1."""
    low, high = min(scores, default=0.0), max(scores, default=0.0)
    return [(score - low) / (high - low) if high > low else 1.0 for score in scores]


def _section_key(chunk: Chunk) -> tuple[str, ...]:
    """Return what identifies the section of a chunk."""
    return (chunk.page_url, *chunk.headings)


def _with_lead_in(section: _Section, position: int) -> tuple[int, ...]:
    """Return a chunk with the one that it introduces: what ends with a colon says nothing alone."""
    introduces = section.page[position].text.rstrip().endswith(":") and position + 1 < section.end
    return (position, position + 1) if introduces else (position,)


class _Selector:
    """Chooses chunks within a budget of tokens, and renders the sections that they are in."""

    def __init__(self, max_tokens: int, count: Callable[[str], int], *, all_tabs: bool) -> None:
        self._max_tokens, self._count, self._all_tabs = max_tokens, count, all_tabs
        self._measured: dict[str, tuple[int, set[tuple[str, ...]]]] = {}
        self._free = max_tokens
        self._sections: dict[str, _Section] = {}
        self._chosen: dict[str, set[int]] = {}
        self._hits: dict[str, list[Hit]] = {}
        self._order: list[tuple[str, tuple[int, ...], Hit | None]] = []  # what was chosen, in this order
        self._seen: set[tuple[str, ...]] = set()

    @property
    def has_room(self) -> bool:
        """Whether another chunk may fit."""
        return self._free >= _LEAST_TOKENS or not self._order

    def fits(self, chunk: Chunk) -> bool:
        """Return whether a chunk fits; the first one always does, because it is truncated."""
        return not self._order or self._measure(chunk)[0] <= self._free

    def _measure(self, chunk: Chunk) -> tuple[int, set[tuple[str, ...]]]:
        """Return the tokens of a chunk and its runs of words."""
        if chunk.id not in self._measured:
            text = clean_markdown(chunk.text, all_tabs=True)
            self._measured[chunk.id] = self._count(text), word_runs(text)
        return self._measured[chunk.id]

    def is_short(self, page: Sequence[Chunk]) -> bool:
        """Return whether a page may be shown whole; of a long one, only the beginning is counted."""
        free = self._max_tokens * _SHORT_PAGE
        for chunk in page:
            free -= self._measure(chunk)[0]
            if free < 0:
                return False
        return bool(page)

    def add(self, unit: _Unit) -> None:
        """Choose the chunks of a unit if they fit, and if they are a hit or stand in the section of one."""
        section = unit.section
        if unit.hit is None and section.key not in self._chosen:
            return
        chosen = self._chosen.get(section.key, set())
        positions = tuple(position for position in unit.positions if position not in chosen)
        if not positions and unit.hit is None:
            return
        measured = [self._measure(section.page[position]) for position in positions]
        if len(measured) > 1 and sum(tokens for tokens, _ in measured) > self._max_tokens * _LARGEST_SHARE:
            positions, measured = positions[:1], measured[:1]
        runs = {run for _, own in measured for run in own}
        if len(runs) >= _MIN_RUNS and len(runs & self._seen) >= _REPEATED * len(runs):
            return
        tokens = sum(tokens for tokens, _ in measured)
        if section.key not in self._chosen:
            tokens += self._count(_title(section))
        if tokens > self._free and self._order:
            return
        self._free -= tokens
        self._seen |= runs
        self._choose(section, positions, unit.hit)

    def add_neighbors(self, neighbors: int) -> None:
        """Choose chunks of the sections before and after each chosen one while they fit, nearest first."""
        for key in list(self._chosen):
            section = self._sections[key]
            runs = section_runs(section.page)
            own = runs.index((section.start, section.end))
            start, end = runs[max(0, own - neighbors)][0], runs[min(len(runs) - 1, own + neighbors)][1]
            around = [*range(section.start - 1, start - 1, -1), *range(section.end, end)]
            taken = {
                self._sections[other].page[position].id
                for other, positions in self._chosen.items()
                for position in positions
            }
            for position in sorted(
                around, key=lambda each: min(abs(each - section.start), abs(each - section.end))
            ):
                chunk = section.page[position]
                tokens = self._measure(chunk)[0] + self._count(chunk.section)
                if chunk.id not in taken and tokens <= self._free:
                    self._free -= tokens
                    self._choose(section, (position,), None)

    def _choose(self, section: _Section, positions: tuple[int, ...], hit: Hit | None) -> None:
        self._sections[section.key] = section
        self._chosen.setdefault(section.key, set()).update(positions)
        self._hits.setdefault(section.key, []).extend([hit] if hit else [])
        self._order.append((section.key, positions, hit))

    def sections(self) -> tuple[ContextSection, ...]:
        """Render the sections; what is too long after all loses the last choice.

        The pages are in the order of their best hits, and the sections of a page in its own.
        """
        rendered = {key: self._render(key) for key in self._chosen}
        while (
            sum(section.tokens for section in rendered.values()) > self._max_tokens and len(self._order) > 1
        ):
            key, positions, hit = self._order.pop()
            self._chosen[key] -= set(positions)
            if hit:
                self._hits[key].remove(hit)
            if self._chosen[key]:
                rendered[key] = self._render(key)
            else:
                del self._chosen[key], rendered[key]
        pages = list(dict.fromkeys(self._sections[key].page[0].id for key in self._chosen))
        ordered = sorted(
            rendered, key=lambda key: (pages.index(self._sections[key].page[0].id), self._sections[key].start)
        )
        return tuple(rendered[key] for key in ordered)

    def _render(self, key: str) -> ContextSection:
        section, positions = self._sections[key], sorted(self._chosen[key])
        hits = sorted(self._hits[key], key=lambda hit: -hit.score)
        hit_texts = [hit.chunk.text for hit in hits]
        path, texts = section.page[section.start].headings, []
        # Consecutive positions have the same difference from their rank.
        for _, run in groupby(enumerate(positions), key=lambda item: item[1] - item[0]):
            chunks = [section.page[position] for _, position in run]
            texts.append(clean_markdown(to_markdown(chunks, path), hit_texts, all_tabs=self._all_tabs))
        text = f"{_title(section)}\n\n" + f"\n\n{OMISSION}\n\n".join(filter(None, texts))
        truncated = self._count(text) > self._max_tokens and len(self._order) == 1
        if truncated:
            text = self._truncate(text)
        missing = sum(position not in self._chosen[key] for position in range(section.start, section.end))
        chosen = tuple(section.page[position] for position in positions)
        return ContextSection(tuple(hits), chosen, text, self._count(text), missing, truncated)

    def _truncate(self, text: str) -> str:
        """Return the beginning of a text that fits: whole sentences, or whole lines of code."""
        most = self._max_tokens - _FENCE_TOKENS

        def fits(part: str) -> bool:
            return self._count(part) <= most

        longest = most * _CHARACTERS_PER_TOKEN
        cut = truncate(text, fits, longest)
        if self._count(cut) < most // 2:  # code has few sentences
            line_ends = [number for number, letter in enumerate(text[:longest]) if letter == "\n"]
            cut = max(cut, longest_start(text, line_ends, fits), key=len)
        return close_fences(cut)


def _title(section: _Section) -> str:
    """Return the heading path of a section as one heading."""
    chunk = section.page[section.start]
    return f"# {HEADING_SEPARATOR.join(map(one_line, chunk.headings or (chunk.title,)))}"
