"""The values that all parts share: pages, chunks, filters, hits, responses, fingerprints."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, Literal

from recto._util.probe import is_same_probe
from recto._util.text import with_anchor

Vector = list[float]
Payload = dict[str, Any]

HEADING_SEPARATOR = " > "
_PRECISIONS = frozenset({"int8-weights-fp32", "int8-weights-bf16", "int8-1", "int8-2", "int8-3", "int8-4"})
"""Compatible variants of the built-in model, old ones included: cosine of 0.98 or more for the same text."""

Mode = Literal["hybrid", "dense", "lexical"]
"""How chunks are scored: cosine similarity (dense), BM25 (lexical), or the weighted mean of both (hybrid)."""
Coverage = Literal["covered", "unclear", "not covered"]
"""Whether a book seems to cover a query."""
MODES: tuple[Mode, ...] = ("hybrid", "dense", "lexical")
GroupBy = Literal["page"]

AnchorStyle = Literal["github", "python-markdown"]
"""How anchors are made from headings: as Docusaurus and GitHub do, or as MkDocs does."""


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a book, as its source yields it.

    `path` identifies the page within the book. `title` is used if the text has no title. `module_keys` are
    all names by which a module filter can refer to its module. If the text was put together from several
    files, `lines` maps each line of it to a line of the page's own file. `position` is the page's place in
    the reading order, counted from one; zero if the source has no order.
    """

    path: str
    url: str
    title: str
    module: str
    module_keys: tuple[str, ...]
    text: str
    revision: str
    format: str = "markdown"
    anchors: AnchorStyle = "github"
    version: str = ""
    locale: str = ""
    lines: tuple[int, ...] = ()
    module_title: str = ""
    position: int = 0


@dataclass(frozen=True, slots=True)
class Block:
    """A part of a section, such as a paragraph or a list; lines count from one, `last` is its last line.

    `kind` decides where a block that is too long is split: `paragraph` after sentences, `table` between rows,
    `code` (in a fence) between lines, anything else at blank lines. `cuts` are the lines where its nested
    blocks begin and end, by nesting level: the best places to split it.
    `lines` are the source lines of the lines of `text`; it is empty if they are consecutive.
    """

    kind: str
    text: str
    first: int
    last: int
    cuts: tuple[tuple[int, ...], ...] = ()
    lines: tuple[int, ...] = ()

    def source_line(self, number: int) -> int:
        """Return the source line of a line of the text, counted from zero."""
        return self.lines[number] if self.lines else self.first + number


@dataclass(frozen=True, slots=True)
class Section:
    """The text under one heading, without its subsections; `headings` begins with the page title.

    `anchors` are all anchors in it, with their lines: its own anchor, the anchors of headings above it that
    have no text, and the anchors of headings and ids within its blocks.
    """

    headings: tuple[str, ...]
    level: int
    anchor: str
    line: int
    blocks: tuple[Block, ...]
    anchors: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed page: its title, and the sections that have text, in the order of the page."""

    title: str
    sections: tuple[Section, ...]
    front_matter: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Failure:
    """A page that could not be read, or a whole directory (`path` then ends with a slash), and why."""

    path: str
    reason: str

    def __str__(self) -> str:
        """Return one line for a report."""
        return f"{self.path}: {self.reason}"

    def covers(self, path: str) -> bool:
        """Return whether this failure affects the page at a path."""
        return path.startswith(self.path) if self.path.endswith("/") else path == self.path


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of a page, with its text as written; `headings` is the path from the page title to its section.

    `anchor` opens its section. `anchors` also has the anchors of sections that were merged into it, and of
    those before it that have no text. `revision` identifies the page's content and how it was read: while it
    is the same, so are all chunks of the page.
    """

    id: str
    text: str
    page_url: str
    page_title: str
    module_name: str
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

    @property
    def heading_path(self) -> str:
        """The headings on one line."""
        return HEADING_SEPARATOR.join(self.headings)

    @property
    def link(self) -> str:
        """The URL of its section."""
        return with_anchor(self.page_url, self.anchor)


@dataclass(frozen=True, slots=True)
class Module:
    """A module of the book: its name for filters, its title for readers, and how many chunks it has."""

    name: str
    title: str
    chunks: int


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """The cost of embedding by a service: calls, minutes with a trial key, dollars if known."""

    calls: int
    minutes: float
    dollars: float | None


@dataclass(frozen=True, slots=True)
class Filters:
    """Restrict a search to chunks of any of the modules, and to one page."""

    modules: tuple[str, ...] = ()
    page_url: str | None = None

    def __bool__(self) -> bool:
        """Return whether there is any restriction."""
        return bool(self.modules) or self.page_url is not None

    def matches(self, chunk: Chunk) -> bool:
        """Return whether a chunk is of one of the modules and of the page; spellings of a page are equal."""
        from recto._util.text import filter_keys, page_key

        if self.modules and set(filter_keys(self.modules)).isdisjoint(chunk.module_keys):
            return False
        return self.page_url is None or page_key(self.page_url) == page_key(chunk.page_url)


NO_FILTERS = Filters()


@dataclass(frozen=True, slots=True)
class SparseVector:
    """The non-zero elements of a vector over the vocabulary: distinct indices and their values.

    A query also has the inverse document frequency of each term, for stores that do not compute it.
    """

    indices: tuple[int, ...]
    values: tuple[float, ...]
    idf: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class PayloadSchema:
    """How an index reads payloads; `missing` lists the required fields that the payloads do not have."""

    dialect: str
    own: bool
    missing: tuple[str, ...]
    description: str


@dataclass(frozen=True, slots=True)
class IndexQuery:
    """The vectors of one query: dense, lexical, or both."""

    dense: Vector | None = None
    lexical: SparseVector | None = None

    @property
    def is_hybrid(self) -> bool:
        """Whether the query has both vectors."""
        return self.dense is not None and self.lexical is not None


@dataclass(frozen=True, slots=True)
class Candidates:
    """The scores of the chunks that a query found: cosine similarities and lexical scores by the store's ids.

    In a hybrid search, the chunks in `dense` are ranked; those that are not in `lexical` have the score 0.
    """

    dense: dict[Hashable, float] = field(default_factory=dict)
    lexical: dict[Hashable, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Hit:
    """A chunk with its score, its cosine similarity (`dense`) and its lexical score.

    The lexical score is the share of the largest BM25 score that a text can have for the query: 0 to 1.
    """

    score: float
    chunk: Chunk
    dense: float | None = None
    lexical: float | None = None


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
    def page_title(self) -> str:
        """The page's title."""
        return self.hits[0].chunk.page_title


@dataclass(frozen=True, slots=True)
class Timings:
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


@dataclass(frozen=True, slots=True)
class EmbedderFingerprint:
    """Identifies the vectors of an embedder: vectors with compatible fingerprints can be compared."""

    model: str
    revision: str
    dim: int
    variant: str = "fp32"
    distance: str = "cosine"

    def is_compatible(self, other: EmbedderFingerprint) -> bool:
        """Return whether vectors of both can be compared: the same model, maybe in another precision."""
        same_model = replace(self, variant="", revision="") == replace(other, variant="", revision="")
        same_revision = self.revision == other.revision or is_same_probe(self.revision, other.revision)
        same_variant = self.variant == other.variant or {self.variant, other.variant} <= _PRECISIONS
        return same_model and same_revision and same_variant

    def __str__(self) -> str:
        """Return the model and its variant for a message."""
        return f"{self.model} ({self.dim}-d, {self.variant}, revision {self.revision[:12]})"


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """How an index was made: what is needed to check queries against it and to build it again.

    `analyzer` is the version of the lexical analysis, empty if the index has no lexical vectors. `modules`
    are the names and titles of the book's modules in reading order. `unresolved_includes` counts the included
    files that could not be read. Readers see the `title` and the `logo` of the book ("" if it has none); the
    logo is a `data:` URL.
    """

    embedder: EmbedderFingerprint
    chunker: str
    book: str
    source: str
    content_hash: str
    pages: int
    recto_version: str
    created_at: str
    analyzer: str = ""
    modules: tuple[tuple[str, str], ...] = ()
    unresolved_includes: int = 0
    title: str = ""
    logo: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {**asdict(self), "modules": [list(module) for module in self.modules]}

    def summary(self) -> dict[str, Any]:
        """Return `to_dict` for a report, without the image."""
        return {name: value for name, value in self.to_dict().items() if name != "logo"}

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Fingerprint:
        """Read the result of `to_dict`, also of older versions, and of newer ones that added fields."""
        modules = tuple((str(name), str(title)) for name, title in data.get("modules", ()))
        embedder = EmbedderFingerprint(**_known_fields(EmbedderFingerprint, data["embedder"]))
        return Fingerprint(**{**_known_fields(Fingerprint, data), "embedder": embedder, "modules": modules})


def _known_fields(kind: type[Any], data: dict[str, Any]) -> dict[str, Any]:
    return {one.name: data[one.name] for one in fields(kind) if one.name in data}


@dataclass(frozen=True, slots=True)
class Calibration:
    """How off-topic queries score, compared with queries from the book, for one model and one book.

    `noise_floor` is the 95th percentile of the best scores of off-topic queries. `auroc` is the probability
    that a query from the book scores above an off-topic one. `off_topic` and `in_book` count the queries.
    `spread` is the distance from the mean off-topic score to the noise floor. `answerability` is the AUROC of
    `SearchResponse.answerable`.
    """

    noise_floor: float
    auroc: float
    off_topic: int
    in_book: int
    spread: float | None = None
    answerability: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Calibration:
        """Read the result of `to_dict`, also of version 0.1."""
        optional = {
            name: float(data[name]) for name in ("spread", "answerability") if data.get(name) is not None
        }
        floor = float(data["noise_floor"] if "noise_floor" in data else data["noise"])
        auroc = float(data["auroc"] if "auroc" in data else data["separation"])
        return Calibration(floor, auroc, int(data["off_topic"]), int(data["in_book"]), **optional)


@dataclass(frozen=True, slots=True)
class IndexInfo:
    """One published generation of a collection; `fingerprint` is None if Recto did not create it."""

    collection: str
    generation: str
    chunks: int
    fingerprint: Fingerprint | None
    warnings: tuple[str, ...] = ()
    dim: int | None = None
    calibration: Calibration | None = None

    @property
    def noise_floor(self) -> float | None:
        """The cosine similarity that off-topic queries reach, or None if it was not measured."""
        return self.calibration.noise_floor if self.calibration else None


@dataclass(frozen=True, slots=True)
class StoreProblem:
    """Something that is wrong with the server of a collection, and what to do about it.

    `serious` means that searches fail or miss chunks; otherwise redundancy or speed is reduced.
    """

    kind: str
    message: str
    repair: str
    serious: bool = False


@dataclass(frozen=True, slots=True)
class GenerationInfo:
    """A generation that a store keeps.

    `bytes` is its size on disk, if the store knows it. `problem` says why it cannot be used, if it cannot.
    """

    name: str
    created_at: str
    chunks: int
    bytes: int | None
    current: bool
    problem: str = ""
