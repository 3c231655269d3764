"""The values that travel between the rooms of the house: pages, chunks, filters, hits, responses, fingerprints."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal

Vector = list[float]
Payload = dict[str, Any]

HEADING_SEPARATOR = " > "
_PRECISIONS = frozenset({"int8-weights-fp32", "int8-weights-bf16", "int8-1", "int8-2"})
"""Compatible variants of the built-in model, those of older releases included: same text, cosine of 0.98 or more."""

Mode = Literal["hybrid", "dense", "lexical"]
"""How chunks are scored: by cosine similarity, by BM25, or by the weighted sum of both."""
MODES: tuple[Mode, ...] = ("hybrid", "dense", "lexical")
GroupBy = Literal["page"]

AnchorStyle = Literal["github", "python-markdown"]
"""Who makes the anchors of a page's headings: Docusaurus and GitHub, or MkDocs."""


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a book, as its source yields it.

    `path` names it within the book, for good; `title` is a last resort for a page that states none; `module_keys` are all names that a
    module filter may call it by. `lines` has, for a text that was put together, the file's own line of each line; else it is empty.
    `position` is the page's place in the reading order of the book, from one on; zero if the source has no order.
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

    `anchors` are all anchors in it, with their lines: its own, those of headings above it that have no text,
    and those of headings and ids within its blocks.
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
    """A page that could not be read, or all below a directory (`path` then ends with a slash), and why."""

    path: str
    reason: str

    def __str__(self) -> str:
        """One sentence for a report."""
        return f"{self.path}: {self.reason}"

    def covers(self, path: str) -> bool:
        """Whether a page of this path could not be read because of it."""
        return path.startswith(self.path) if self.path.endswith("/") else path == self.path


@dataclass(frozen=True, slots=True)
class Chunk:
    """A passage of a page; `text` is as written, `headings` is the path from the page's title down to it.

    `anchor` opens its section; `anchors` are all that lead into it, those of sections that were joined to it or have no text included.
    `revision` stands for the page as it was read, and for how: as long as it is the same, so are all the page's chunks.
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
        """The headings in one line."""
        return HEADING_SEPARATOR.join(self.headings)

    @property
    def link(self) -> str:
        """The address that opens its section."""
        return f"{self.page_url}#{self.anchor}" if self.anchor else self.page_url


@dataclass(frozen=True, slots=True)
class Module:
    """A module of the book: the name that filters use, the title that readers see, and how many chunks it has."""

    name: str
    title: str
    chunks: int


@dataclass(frozen=True, slots=True)
class CostEstimate:
    """What embedding by a service will take: calls, minutes at the limits of a trial key, and money if the price is known."""

    calls: int
    minutes: float
    dollars: float | None


@dataclass(frozen=True, slots=True)
class Filters:
    """What a search is narrowed to: any of the modules, and the page."""

    modules: tuple[str, ...] = ()
    page_url: str | None = None

    def __bool__(self) -> bool:
        """Whether anything is narrowed at all."""
        return bool(self.modules) or self.page_url is not None

    def matches(self, chunk: Chunk) -> bool:
        """Return whether a chunk is of one of the modules and of the page; spellings of a page are equal."""
        from recto._util.names import filter_keys, page_key

        if self.modules and set(filter_keys(self.modules)).isdisjoint(chunk.module_keys):
            return False
        return self.page_url is None or page_key(self.page_url) == page_key(chunk.page_url)


NO_FILTERS = Filters()


@dataclass(frozen=True, slots=True)
class SparseVector:
    """The non-zero elements of a vector over the vocabulary: distinct indices and their values."""

    indices: tuple[int, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class PayloadSchema:
    """How an index reads payloads; `missing` names the required fields that no payload field holds."""

    dialect: str
    own: bool
    missing: tuple[str, ...]
    description: str


@dataclass(frozen=True, slots=True)
class IndexQuery:
    """One query as an index sees it: a dense vector, a lexical one, or both."""

    dense: Vector | None = None
    lexical: SparseVector | None = None


@dataclass(frozen=True, slots=True)
class Candidates:
    """The chunks that one query found, by the store's own ids: cosine similarities and BM25 scores.

    Every id in `dense` may be ranked; `lexical` may hold more ids than `dense` where both were asked for.
    """

    dense: dict[Hashable, float] = field(default_factory=dict)
    lexical: dict[Hashable, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Hit:
    """A chunk with the score that ranks it; `dense` is its cosine similarity, `lexical` its BM25 score, if they were computed."""

    score: float
    chunk: Chunk
    dense: float | None = None
    lexical: float | None = None


@dataclass(frozen=True, slots=True)
class PageGroup:
    """The hits of one page, best first; the group's score is that of its best hit."""

    hits: tuple[Hit, ...]

    @property
    def score(self) -> float:
        """The best hit's score."""
        return self.hits[0].score

    @property
    def page_url(self) -> str:
        """The page's address."""
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
    """Why a response looks as it does: results, nothing above the asked score, or a filter that leaves nothing."""

    FOUND = "found"
    NO_MATCH = "no_match"
    FILTERED_OUT = "filtered_out"


@dataclass(frozen=True, slots=True)
class Selection:
    """What of a selected text was searched for, how long it was, and how many passages were left out because they hold it."""

    text: str
    given: int
    left_out: int = 0

    @property
    def cut(self) -> bool:
        """Whether the model could not read all of it."""
        return len(self.text) < self.given


@dataclass(frozen=True, slots=True)
class SearchResponse:
    """What a search found, or why it found nothing (`message`); scores below `noise` mean nothing, if it was measured.

    `generation` names the published state that it came from. `mode` is the mode that was used. `answerable` is the probability that
    the book covers the query, or None if it cannot be told. `corrections` maps query words that the book does not have to the words that
    were searched for instead. `groups` holds the same hits by page if `group_by="page"` was asked for.
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


@dataclass(frozen=True, slots=True)
class EmbedderFingerprint:
    """What two vectors must agree on to be comparable."""

    model: str
    revision: str
    dim: int
    variant: str = "fp32"
    distance: str = "cosine"

    def is_compatible(self, other: EmbedderFingerprint) -> bool:
        """Return whether vectors of both can be compared: the same model, at most in another precision."""
        same_model = replace(self, variant="") == replace(other, variant="")
        return same_model and (self.variant == other.variant or {self.variant, other.variant} <= _PRECISIONS)

    def __str__(self) -> str:
        """The model as a person names it."""
        return f"{self.model} ({self.dim}-d, {self.variant}, revision {self.revision[:12]})"


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """How an index was made: enough to refuse a wrong query and to make it again.

    `modules` are the names and titles of the book's modules in reading order; `unresolved_includes` counts the files that pages include
    and that could not be read.
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
    """The version of the lexical analysis; empty if the index has no lexical vectors."""
    modules: tuple[tuple[str, str], ...] = ()
    unresolved_includes: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {**asdict(self), "modules": [list(module) for module in self.modules]}

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Fingerprint:
        """Read what `to_dict` wrote, now or in an older version."""
        modules = tuple((str(name), str(title)) for name, title in data.get("modules", ()))
        return Fingerprint(
            **{**data, "embedder": EmbedderFingerprint(**data["embedder"]), "modules": modules}
        )


@dataclass(frozen=True, slots=True)
class Calibration:
    """Where noise ends for one model and one book.

    `noise` is the score that questions about other things reach in this index one time in twenty; `separation` is how often a question
    that is the book's own scores above one that is not, from 0.5 (never better than chance) to 1. The rest says from how many questions.
    `spread` is the distance from the mean score of these off-topic questions to `noise`; `answerability` is the AUROC of telling the
    book's own questions from off-topic ones by `SearchResponse.answerable`.
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
        """Read what `to_dict` wrote, now or in version 0.1."""
        optional = {
            name: float(data[name]) for name in ("spread", "answerability") if data.get(name) is not None
        }
        floor = float(data["noise_floor"] if "noise_floor" in data else data["noise"])
        auroc = float(data["auroc"] if "auroc" in data else data["separation"])
        return Calibration(floor, auroc, int(data["off_topic"]), int(data["in_book"]), **optional)


@dataclass(frozen=True, slots=True)
class IndexInfo:
    """One published state of a collection; one that Recto did not make has no fingerprint, only a dimension."""

    collection: str
    generation: str
    chunks: int
    fingerprint: Fingerprint | None
    warnings: tuple[str, ...] = ()
    dim: int | None = None
    calibration: Calibration | None = None

    @property
    def noise_floor(self) -> float | None:
        """The score below which a hit is noise, if it was measured."""
        return self.calibration.noise_floor if self.calibration else None
