"""The values of a search: chunks, filters, hits, responses."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any, Literal, NamedTuple

from recto._util.text import with_anchor

Vector = list[float]
Payload = dict[str, Any]
HEADING_SEPARATOR = " > "
Mode = Literal["hybrid", "dense", "lexical"]
"""How chunks are scored: cosine similarity (dense), BM25 (lexical), or the weighted mean of both (hybrid)."""
Coverage = Literal["covered", "unclear", "not covered"]
"""Whether a book seems to cover a query."""
LEXICAL_WEIGHT = 0.25
"""The default weight of the lexical score in hybrid search (decision 11)."""
MODES: tuple[Mode, ...] = ("hybrid", "dense", "lexical")
GroupBy = Literal["page"]


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a page, with its text as written; `headings` is the path from the page title to its section.

    `anchor` opens its section. `anchors` also has the anchors of sections that were merged into it, and of
    those before it that have no text. `revision` identifies the page's content and how it was read: while it
    is the same, so are all chunks of the page. In a book with several locales,
    `locales` has those whose readers see the page. `questions` are the section questions: they are searched,
    and never shown.
    """

    id: str
    text: str
    page_url: str
    title: str
    module: str
    module_keys: tuple[str, ...]
    headings: tuple[str, ...]
    anchor: str
    chunk_index: int
    total_chunks: int
    start_line: int
    end_line: int
    content_hash: str
    source: str
    book: str = ""
    anchors: tuple[str, ...] = ()
    version: str = ""
    locale: str = ""
    revision: str = ""
    module_title: str = ""
    language: str = ""
    locales: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()

    @property
    def heading_path(self) -> str:
        """The headings on one line."""
        return HEADING_SEPARATOR.join(self.headings)

    @property
    def url(self) -> str:
        """The URL of its section."""
        return with_anchor(self.page_url, self.anchor)

    @property
    def section(self) -> str:
        """The heading of its section."""
        return self.headings[-1] if self.headings else self.title

    @property
    def module_label(self) -> str:
        """The title of its module, or the name if there is none."""
        return self.module_title or self.module

    def to_dict(self, view: View = "page") -> dict[str, Any]:
        """Return the fields of a view that belong to the chunk, as plain JSON values."""
        return {field.name: field.read(self) for field in fields_of(view) if field.source == "chunk"}


class Module(NamedTuple):
    """A module of the book: its name for filters, its title for readers, and how many chunks it has."""

    name: str
    title: str
    chunks: int


@dataclass(frozen=True, slots=True)
class Filters:
    """Restrict a search to chunks of any of the modules, to one page, and to a language such as `de`.

    In a book with several versions or locales, it is restricted to any of `versions` (without them, to the
    current one, unless there is a page) and of `locales`. `preferred` has versions and languages that are
    used if the book has them.
    """

    modules: tuple[str, ...] = ()
    page_url: str | None = None
    language: str | None = None
    versions: tuple[str, ...] = ()
    locales: tuple[str, ...] = ()
    preferred: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Return whether there is any restriction."""
        return self != Filters(preferred=self.preferred)

    def matches(self, chunk: Chunk) -> bool:
        """Return whether a chunk passes all filters; spellings of a page are equal."""
        from recto._util.text import filter_keys, page_key

        if self.modules and set(filter_keys(self.modules)).isdisjoint(chunk.module_keys):
            return False
        if not self.in_edition(chunk):
            return False
        return self.page_url is None or page_key(self.page_url) == page_key(chunk.page_url)

    def in_edition(self, chunk: Chunk) -> bool:
        """Return whether a chunk has the language, and any of the versions and of the locales."""
        if self.language not in (None, chunk.language) or (
            self.versions and chunk.version not in self.versions
        ):
            return False
        return not self.locales or not set(self.locales).isdisjoint(chunk.locales)


NO_FILTERS = Filters()


@dataclass(frozen=True, slots=True)
class Hit:
    """A chunk with its score, its cosine similarity (`dense`) and its lexical score.

    The lexical score is the share of the largest BM25 score that a text can have for the query: 0 to 1.
    `section_text` is the section that the chunk stands in, or the part of it around the chunk, as clean
    Markdown; it is None unless the search had `section_tokens`.
    """

    score: float
    chunk: Chunk
    dense: float | None = None
    lexical: float | None = None
    section_text: str | None = None

    def to_dict(self, digits: int | None = 6, view: View = "search") -> dict[str, Any]:
        """Return the fields of a view, as plain JSON values; scores are rounded unless `digits` is None."""
        scores = {
            field.name: _rounded(field.read(self), digits)
            for field in fields_of(view)
            if field.source == "hit"
        }
        return self.chunk.to_dict(view) | scores


def _rounded(value: Any, digits: int | None) -> Any:
    return value if digits is None or not isinstance(value, float) else round(value, digits)


View = Literal["page", "search", "static", "mcp", "mcp_section", "framework", "explain"]
"""What shows hits: a page, search results as JSON, static search, MCP, a framework, `recto explain`."""


@dataclass(frozen=True, slots=True)
class HitField:
    """A field of a hit: its JSON type, and the views that show it.

    The value is an attribute of the chunk or of the hit, or `recto.search.display` computes it from the
    response.
    """

    name: str
    type: Any
    views: tuple[View, ...]
    description: str = ""
    source: Literal["chunk", "hit", "response"] = "chunk"
    default: Any = None
    """Of a field that is present only on request; None if it is always present."""
    attribute: str = ""
    """Its name in Python, if that is another one."""

    def read(self, value: Chunk | Hit) -> Any:
        """Return the value as plain JSON."""
        content = getattr(value, self.attribute or self.name)
        return list(content) if isinstance(content, tuple) else content


_CHUNKS: tuple[View, ...] = ("page", "search")
_CITED: tuple[View, ...] = (*_CHUNKS, "framework")
_READ: tuple[View, ...] = (*_CHUNKS, "static", "mcp", "framework")
_LOCATED: tuple[View, ...] = (*_READ, "mcp_section", "explain")
_SCORED: tuple[View, ...] = ("search", "mcp", "framework")
_COSINE = "Cosine similarity to the query, if it was computed."
_BM25 = "Share of the largest BM25 score, 0 to 1, if it was computed."

HIT_FIELDS = (
    HitField("rank", int, ("search",), source="response"),
    HitField("id", str, _CHUNKS),
    HitField("url", str, _LOCATED, "Cite this: it opens the section."),
    HitField("page_url", str, (*_CITED, "static", "explain")),
    HitField("anchor", str, (*_CITED, "explain")),
    HitField("anchors", list[str], _CHUNKS),
    HitField("title", str, (*_READ, "mcp_section"), "The page's title."),
    HitField("section", str, _READ, "The heading of the section."),
    HitField("headings", list[str], _LOCATED, "The path from the page's title down to the section."),
    HitField("module", str, _LOCATED),
    HitField("module_title", str, _READ, attribute="module_label"),
    HitField("text", str, (*_CHUNKS, "static", "mcp")),
    HitField("html", str, _CHUNKS, "`text` as HTML, without scripts, styles and images.", "response", ""),
    HitField("source", str, _CITED),
    HitField("start_line", int, _CITED),
    HitField("end_line", int, _CITED),
    HitField("chunk_index", int, (*_CITED, "explain")),
    HitField("total_chunks", int, _CITED),
    HitField("version", str, _CITED),
    HitField("locale", str, _CITED),
    HitField("language", str, (*_CITED, "static")),
    HitField("book", str, ("framework",)),
    HitField(
        "score",
        float,
        (*_SCORED, "mcp_section", "explain"),
        "Ranks the results; compare it within one response only.",
        "hit",
    ),
    HitField("dense", float | None, (*_SCORED, "explain"), _COSINE, "hit"),
    HitField("lexical", float | None, (*_SCORED, "explain"), _BM25, "hit"),
    HitField(
        "above_noise",
        bool | None,
        (*_SCORED, "mcp_section"),
        "False: as unrelated texts score in this book. Null: not measured.",
        "response",
    ),
    HitField(
        "matches",
        list[str],
        (*_CHUNKS, "mcp"),
        "Words of the text and its headings that match the query.",
        "response",
    ),
    HitField(
        "snippet", str, ("search",), "The part of the text around the best matches, in one line.", "response"
    ),
    HitField(
        "section_text",
        str | None,
        ("search",),
        "The section around the chunk as Markdown. Null: the request did not ask for it.",
        "hit",
    ),
)
"""The fields of a hit under their names on all entry points but the contracts."""


@cache
def fields_of(view: View) -> tuple[HitField, ...]:
    """Return the fields that a view shows."""
    return tuple(field for field in HIT_FIELDS if view in field.views)


def hit_order(hit: Hit) -> tuple[float, str, int, str]:
    """Return the sort key of hits: best score first, ties by page and position on the page."""
    return -hit.score, hit.chunk.page_url, hit.chunk.chunk_index, hit.chunk.id


@dataclass(frozen=True, slots=True)
class PageGroup:
    """The hits of one page, best first."""

    hits: tuple[Hit, ...]

    @property
    def score(self) -> float:
        """The score of the best hit."""
        return self.hits[0].score

    @property
    def page_url(self) -> str:
        """The page's URL."""
        return self.hits[0].chunk.page_url

    @property
    def title(self) -> str:
        """The page's title."""
        return self.hits[0].chunk.title


class Timings(NamedTuple):
    """Milliseconds that each step of a search took."""

    embed_ms: float
    search_ms: float
    total_ms: float


class Outcome(StrEnum):
    """The outcome of a search: hits, no chunk with the minimum score, or filters that exclude every chunk."""

    FOUND = "found"
    NO_MATCH = "no_match"
    FILTERED_OUT = "filtered_out"


@dataclass(frozen=True, slots=True)
class Selection:
    """The part of a selected text that was searched for, and its full length.

    `left_out` counts the chunks that were excluded because they contain the selected text.
    """

    text: str
    given: int
    left_out: int = 0

    @property
    def cut(self) -> bool:
        """Whether the text was too long for the model."""
        return len(self.text) < self.given

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {"text": self.text, "given": self.given, "cut": self.cut, "left_out": self.left_out}


@dataclass(frozen=True, slots=True)
class SearchResponse:
    """The hits of a search, or a `message` that says why there are none.

    `generation` is the version of the index that was searched, and `mode` the mode that was used.
    `noise_floor` is the score that off-topic queries reach, and `answerable` the probability that
    the book covers the query, with its grade in `coverage`; each is None if it is unknown. `corrections` has
    the query words that the book does not contain, with the words that were searched for instead. `groups`
    has the hits by page, with `group_by="page"`.
    """

    query: str
    hits: tuple[Hit, ...]
    filters: Filters
    collection: str
    outcome: Outcome
    timings: Timings
    message: str = ""
    warnings: tuple[str, ...] = ()
    noise_floor: float | None = None
    selection: Selection | None = None
    generation: str = ""
    mode: Mode = "dense"
    answerable: float | None = None
    corrections: tuple[tuple[str, tuple[str, ...]], ...] = ()
    groups: tuple[PageGroup, ...] = ()
    coverage: Coverage | None = None

    @property
    def covered(self) -> bool:
        """Whether the book seems to cover the query; True if that is unknown."""
        return self.coverage != "not covered"

    def above_noise(self, hit: Hit) -> bool | None:
        """Return whether a hit's score is above the noise floor; None if the noise floor is unknown."""
        return None if self.noise_floor is None else hit.score >= self.noise_floor

    def to_dict(self, digits: int = 6) -> dict[str, Any]:
        """Return plain JSON values, with scores rounded to `digits`; `selection` only for a selected text."""
        ranks = {id(hit): rank for rank, hit in enumerate(self.hits, 1)}
        data = {
            "query": self.query,
            "collection": self.collection,
            "generation": self.generation,
            "mode": self.mode,
            "outcome": self.outcome.value,
            "message": self.message,
            "warnings": list(self.warnings),
            "answerable": self.answerable,
            "coverage": self.coverage,
            "covered": self.covered,
            "corrections": {word: list(meant) for word, meant in self.corrections},
            "noise_floor": _rounded(self.noise_floor, digits),
            "results": [
                {"rank": rank} | hit.to_dict(digits) | {"above_noise": self.above_noise(hit)}
                for rank, hit in enumerate(self.hits, 1)
            ],
            "groups": [
                {
                    "page_url": group.page_url,
                    "title": group.title,
                    "score": round(group.score, digits),
                    "ranks": [ranks[id(hit)] for hit in group.hits],
                }
                for group in self.groups
            ],
            "timings": {name: round(value, 3) for name, value in self.timings._asdict().items()},
        }
        return data if self.selection is None else data | {"selection": self.selection.to_dict()}
