"""Pack the sections of hits into a budget of tokens: rank their chunks, choose the best, render the sections.

`Relevance` says how much each hit, and each other chunk of its section, is worth. `pack_sections` offers them
to a `SectionPacker`, the most relevant first. The packer takes what fits and does not repeat earlier text.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import count, groupby
from typing import NamedTuple

from recto._util.text import page_key
from recto.errors import PageMissing
from recto.protocols import Index
from recto.search.markdown import clean_markdown, close_fences, one_line
from recto.search.pages import read_page, section_runs, to_markdown
from recto.search.selection import longest_start, truncate, word_runs
from recto.types.search import HEADING_SEPARATOR, Chunk, Hit

OMISSION = "[…]"
"""Stands for chunks of a section that did not fit."""
# The shares and weights were chosen on readers' questions about five books (`python -m bench.context`).
_SECTION_WEIGHT = 0.5  # of the relevance of a section's best hit, for all its chunks
_PAGE_WEIGHT = 0.3  # of the relevance of a page's best hit, for all its chunks
_SHORT_PAGE = 0.6  # of a budget: if the page of the best hit takes no more, all of it is shown
_REPEATED = 0.65  # of the runs of words in a chunk: from this share on, earlier chunks said the same
_LARGEST_SHARE = 0.25  # of a budget, for a lead-in with what it introduces
_LEAST_TOKENS = 16  # a chunk with fewer is rare
_MIN_RUNS = 3  # a shorter text is a lead-in or a line that occurs everywhere
_FENCE_TOKENS = 4  # what the mark takes that closes a truncated code block
_CHARACTERS_PER_TOKEN = 8  # more than any tokenizer needs for prose

WordRuns = set[tuple[str, ...]]


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
class _Section:
    """Where a section starts and ends on its page."""

    page: tuple[Chunk, ...]
    start: int
    end: int

    @property
    def key(self) -> str:
        return self.page[self.start].id

    @property
    def title(self) -> str:
        """The heading path as one heading."""
        chunk = self.page[self.start]
        return f"# {HEADING_SEPARATOR.join(map(one_line, chunk.headings or (chunk.title,)))}"


class _Unit(NamedTuple):
    """Chunks of a section that are shown together, and the hit among them, if there is one."""

    section: _Section
    positions: tuple[int, ...]
    hit: Hit | None = None


class PageCache:
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


class Relevance:
    """How relevant hits are, and the other chunks of their sections.

    The value of a hit is its score between the worst and the best one, 0 to 1, and 1 more on the `preferred`
    page. `scores` by the ids of chunks count instead of the hits' scores, except for pages; a chunk without
    one has the worst. Every chunk also gets a share of the best value of its section and of its page.
    """

    def __init__(
        self, hits: Sequence[Hit], scores: Mapping[str, float] | None = None, preferred: str | None = None
    ) -> None:
        self.hits = hits
        first = page_key(preferred) if preferred else None
        bonuses = [float(page_key(hit.chunk.page_url) == first) for hit in hits]
        page_values = _add(_scaled([hit.score for hit in hits]), bonuses)
        values = page_values
        if scores:
            worst = min(scores.values())
            values = _add(_scaled([scores.get(hit.chunk.id, worst) for hit in hits]), bonuses)
        self._best_of_page: dict[str, float] = defaultdict(float)
        self._best_of_section: dict[tuple[str, ...], float] = defaultdict(float)
        for hit, page_value, value in zip(hits, page_values, values, strict=True):
            page, section = hit.chunk.page_url, _section_key(hit.chunk)
            self._best_of_page[page] = max(self._best_of_page[page], page_value)
            self._best_of_section[section] = max(self._best_of_section[section], value)
        self.values = [value + self.around(hit.chunk) for value, hit in zip(values, hits, strict=True)]

    def around(self, chunk: Chunk) -> float:
        """Return what the best hits of its section and its page add to a chunk."""
        in_section = _SECTION_WEIGHT * self._best_of_section[_section_key(chunk)]
        return _PAGE_WEIGHT * self._best_of_page[chunk.page_url] + in_section

    def best_page(self) -> tuple[Chunk, int] | None:
        """Return the chunk of the most relevant hit, and how many sections of its page have hits."""
        if not self.hits:
            return None
        chunk = self.hits[self.values.index(max(self.values))].chunk
        return chunk, len({hit.chunk.headings for hit in self.hits if hit.chunk.page_url == chunk.page_url})


def _scaled(scores: Sequence[float]) -> list[float]:
    """Return where scores lie between the worst and the best one, 0 to 1."""
    low, high = min(scores, default=0.0), max(scores, default=0.0)
    return [(score - low) / (high - low) if high > low else 1.0 for score in scores]


def _add(values: Sequence[float], others: Sequence[float]) -> list[float]:
    return [value + other for value, other in zip(values, others, strict=True)]


def _section_key(chunk: Chunk) -> tuple[str, ...]:
    """Return what identifies the section of a chunk."""
    return (chunk.page_url, *chunk.headings)


def pack_sections(
    relevance: Relevance, reader: PageCache, packer: SectionPacker, *, short_page: bool
) -> None:
    """Offer hits and other chunks of their sections to a packer, most relevant first, while it has room.

    If `short_page`, all chunks of the best hit's page come next if other sections of it have hits, too, and
    if they take little of the budget. A page is read only if one of its hits is chosen.
    """
    if short_page and (best := relevance.best_page()):
        chunk, sections = best
        if sections > 1 and packer.is_short(reader.page_of(chunk)):
            reader.whole.add(chunk.page_url)
    numbers = count()  # ties keep their order
    queue: list[tuple[float, int, Hit | _Unit]] = [
        (-value, next(numbers), hit) for value, hit in zip(relevance.values, relevance.hits, strict=True)
    ]
    heapify(queue)
    expanded: set[str] = set()
    while queue and packer.has_room:
        priority, _, item = heappop(queue)
        if isinstance(item, _Unit):
            packer.add(item)
        elif packer.fits(item.chunk):
            section, hit_position = reader.locate(item.chunk)
            packer.add(_Unit(section, _with_lead_in(section, hit_position), item))
            if section.key in expanded:
                continue
            expanded.add(section.key)
            others = priority if item.chunk.page_url in reader.whole else -relevance.around(item.chunk)
            nearest_first = sorted(
                range(section.start, section.end), key=lambda position: abs(position - hit_position)
            )
            for position in nearest_first:
                heappush(queue, (others, next(numbers), _Unit(section, _with_lead_in(section, position))))


def _with_lead_in(section: _Section, position: int) -> tuple[int, ...]:
    """Return a chunk with the one that it introduces: what ends with a colon says nothing alone."""
    introduces = section.page[position].text.rstrip().endswith(":") and position + 1 < section.end
    return (position, position + 1) if introduces else (position,)


def _with_end(text: str) -> str:
    """Return Markdown without headings at its end; mark what a lead-in at its end introduces as left out."""
    blocks = text.split("\n\n")
    while blocks and (not blocks[-1].strip() or _is_heading(blocks[-1])):
        blocks.pop()
    if blocks and blocks[-1].rstrip().endswith(":"):  # the sentence itself often has the answer
        blocks.append(OMISSION)
    return "\n\n".join(blocks)


def _is_heading(block: str) -> bool:
    return block.startswith("#") and "\n" not in block and block.lstrip("#").startswith(" ")


def _has_text(section: ContextSection) -> bool:
    """Return whether there is more than the path of headings."""
    return "\n" in section.text.strip()


@dataclass(eq=False, slots=True)
class _Packed:
    """What was chosen of a section: positions on its page, and hits."""

    section: _Section
    positions: set[int] = field(default_factory=set)
    hits: list[Hit] = field(default_factory=list)


class SectionPacker:
    """Takes chunks within a budget of tokens, and renders the sections that they are in."""

    def __init__(self, max_tokens: int, count_tokens: Callable[[str], int]) -> None:
        self._max_tokens = max_tokens
        self._count = count_tokens
        self._free = max_tokens
        self._measured: dict[str, tuple[int, WordRuns]] = {}
        self._packed: dict[str, _Packed] = {}
        self._order: list[_Unit] = []  # what was chosen, in this order
        self._seen: WordRuns = set()

    @property
    def has_room(self) -> bool:
        """Whether another chunk may fit."""
        return self._free >= _LEAST_TOKENS or not self._order

    def fits(self, chunk: Chunk) -> bool:
        """Return whether a chunk fits; the first one always does, because it is truncated."""
        return not self._order or self._measure(chunk)[0] <= self._free

    def is_short(self, page: Sequence[Chunk]) -> bool:
        """Return whether a page may be shown whole; of a long one, only the beginning is counted."""
        free = self._max_tokens * _SHORT_PAGE
        for chunk in page:
            free -= self._measure(chunk)[0]
            if free < 0:
                return False
        return bool(page)

    def _measure(self, chunk: Chunk) -> tuple[int, WordRuns]:
        """Return the tokens of a chunk and its runs of words."""
        if chunk.id not in self._measured:
            text = clean_markdown(chunk.text, all_tabs=True)
            self._measured[chunk.id] = self._count(text), word_runs(text)
        return self._measured[chunk.id]

    def add(self, unit: _Unit) -> None:
        """Choose the chunks of a unit if they fit, and if they are a hit or stand in the section of one."""
        section = unit.section
        packed = self._packed.get(section.key)
        if unit.hit is None and packed is None:
            return
        positions = tuple(
            position for position in unit.positions if packed is None or position not in packed.positions
        )
        if not positions and unit.hit is None:
            return
        measured = [self._measure(section.page[position]) for position in positions]
        if len(measured) > 1 and sum(tokens for tokens, _ in measured) > self._max_tokens * _LARGEST_SHARE:
            positions, measured = positions[:1], measured[:1]
        runs = {run for _, chunk_runs in measured for run in chunk_runs}
        if len(runs) >= _MIN_RUNS and len(runs & self._seen) >= _REPEATED * len(runs):
            return
        tokens = sum(tokens for tokens, _ in measured)
        if packed is None:
            tokens += self._count(section.title)
        if tokens > self._free and self._order:
            return
        self._free -= tokens
        self._seen |= runs
        self._choose(_Unit(section, positions, unit.hit))

    def add_neighbors(self, neighbors: int) -> None:
        """Choose chunks of the sections before and after each chosen one while they fit, nearest first."""
        for packed in list(self._packed.values()):
            section = packed.section
            runs = section_runs(section.page)
            number = runs.index((section.start, section.end))
            start, end = runs[max(0, number - neighbors)][0], runs[min(len(runs) - 1, number + neighbors)][1]
            around = [*range(section.start - 1, start - 1, -1), *range(section.end, end)]
            taken = {
                other.section.page[position].id
                for other in self._packed.values()
                for position in other.positions
            }
            around.sort(key=lambda position: min(abs(position - section.start), abs(position - section.end)))
            for position in around:
                chunk = section.page[position]
                tokens = self._measure(chunk)[0] + self._count(chunk.section)
                if chunk.id not in taken and tokens <= self._free:
                    self._free -= tokens
                    self._choose(_Unit(section, (position,)))

    def _choose(self, unit: _Unit) -> None:
        packed = self._packed.setdefault(unit.section.key, _Packed(unit.section))
        packed.positions.update(unit.positions)
        packed.hits.extend([unit.hit] if unit.hit else [])
        self._order.append(unit)

    def sections(self) -> tuple[ContextSection, ...]:
        """Render the sections; if they exceed the budget, drop the chunks that were chosen last.

        The pages are in the order of their best hits, and the sections of a page in its order.
        """
        rendered = {key: self._render(packed) for key, packed in self._packed.items()}
        while (
            sum(section.tokens for section in rendered.values()) > self._max_tokens and len(self._order) > 1
        ):
            last = self._order.pop()
            key, packed = last.section.key, self._packed[last.section.key]
            packed.positions -= set(last.positions)
            if last.hit:
                packed.hits.remove(last.hit)
            if packed.positions:
                rendered[key] = self._render(packed)
            else:
                del self._packed[key], rendered[key]
        chosen = [packed for packed in self._packed.values() if _has_text(rendered[packed.section.key])]
        chosen = chosen or list(self._packed.values())
        pages = list(dict.fromkeys(packed.section.page[0].id for packed in chosen))

        def place(packed: _Packed) -> tuple[int, int]:
            return pages.index(packed.section.page[0].id), packed.section.start

        return tuple(rendered[packed.section.key] for packed in sorted(chosen, key=place))

    def _render(self, packed: _Packed) -> ContextSection:
        section, positions = packed.section, sorted(packed.positions)
        hits = sorted(packed.hits, key=lambda hit: -hit.score)
        hit_texts = [hit.chunk.text for hit in hits]
        path, texts = section.page[section.start].headings, []
        # Consecutive positions have the same difference from their rank.
        for _, run in groupby(enumerate(positions), key=lambda item: item[1] - item[0]):
            chunks = [section.page[position] for _, position in run]
            texts.append(_with_end(clean_markdown(to_markdown(chunks, path), hit_texts)))
        text = f"{section.title}\n\n" + f"\n\n{OMISSION}\n\n".join(filter(None, texts))
        text = text.replace(f"{OMISSION}\n\n{OMISSION}", OMISSION)
        truncated = self._count(text) > self._max_tokens and len(self._order) == 1
        if truncated:
            text = self._truncate(text)
        missing = sum(position not in packed.positions for position in range(section.start, section.end))
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
