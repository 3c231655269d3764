"""The values of an index: fingerprints, vectors of a query, candidates, what a store knows."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, NamedTuple

from recto._util import is_same_probe
from recto.types.search import Vector

_PRECISIONS = frozenset({"int8-weights-fp32", "int8-weights-bf16", "int8-4"})
"""Compatible variants of the built-in model: the cosine for the same text is 0.98 or more. 0.3 wrote bf16."""


class CostEstimate(NamedTuple):
    """The cost of embedding by a service: calls, minutes with a trial key, dollars if known."""

    calls: int
    minutes: float
    dollars: float | None


class SparseVector(NamedTuple):
    """The non-zero elements of a vector over the vocabulary: distinct indices and their values.

    A query also has the inverse document frequency of each term, for stores that do not compute it.
    """

    indices: tuple[int, ...]
    values: tuple[float, ...]
    idf: tuple[float, ...] = ()


class PayloadSchema(NamedTuple):
    """How an index reads payloads; `missing` lists the required fields that the payloads do not have."""

    dialect: str
    own: bool
    missing: tuple[str, ...]
    description: str


class IndexQuery(NamedTuple):
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
    files that could not be read. `options` are the options of the index run, by the names of `SourceOptions`,
    so that the next run can repeat them. Readers see the `title` and the `logo` of the book ("" if it has
    none); the logo is a `data:` URL. A book with several versions has their names in `versions`, each with
    whether it is current, and a book with several locales has their names in `locales`. `stale_questions` has
    the pages and headings of section questions that were written for another text. `order` has the paths of
    the pages in the order of the navigation; it is empty if that is the order of the paths.
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
    options: tuple[tuple[str, str | float | bool], ...] = ()
    versions: tuple[tuple[str, bool], ...] = ()
    locales: tuple[str, ...] = ()
    stale_questions: tuple[tuple[str, str], ...] = ()
    order: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values; without `stale_questions` and `order` if there are none."""
        modules, options = [list(module) for module in self.modules], dict(self.options)
        data = {**asdict(self), "modules": modules, "options": options}
        return {
            name: value for name, value in data.items() if value or name not in ("stale_questions", "order")
        }

    def summary(self) -> dict[str, Any]:
        """Return `to_dict` for a report, without the image and the list of pages."""
        return {name: value for name, value in self.to_dict().items() if name not in ("logo", "order")}

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Fingerprint:
        """Read the result of `to_dict`, also of older versions, and of newer ones that added fields."""
        modules = tuple((str(name), str(title)) for name, title in data.get("modules", ()))
        embedder = EmbedderFingerprint(**_known_fields(EmbedderFingerprint, data["embedder"]))
        own: dict[str, Any] = {
            "embedder": embedder,
            "modules": modules,
            "options": tuple(data.get("options", {}).items()),
            "versions": tuple((str(name), bool(current)) for name, current in data.get("versions", ())),
            "locales": tuple(data.get("locales", ())),
            "order": tuple(map(str, data.get("order", ()))),
            "stale_questions": tuple((page, heading) for page, heading in data.get("stale_questions", ())),
        }
        return Fingerprint(**{**_known_fields(Fingerprint, data), **own})


def _known_fields(kind: type[Any], data: dict[str, Any]) -> dict[str, Any]:
    return {one.name: data[one.name] for one in fields(kind) if one.name in data}


class Calibration(NamedTuple):
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
        return self._asdict()

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Calibration:
        """Read the result of `to_dict`."""
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

    @property
    def created_at(self) -> str | None:
        """When the index was made, such as 2025-12-17T10:30:00Z, or None if that is unknown."""
        from datetime import UTC, datetime

        try:
            created = datetime.fromisoformat(self.fingerprint.created_at if self.fingerprint else "")
        except ValueError:
            return None
        return created.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if created.tzinfo else None


class StoreProblem(NamedTuple):
    """Something that is wrong with the server of a collection, and what to do about it.

    `serious` means that searches fail or miss chunks; otherwise redundancy or speed is reduced.
    """

    kind: str
    message: str
    repair: str
    serious: bool = False


class GenerationInfo(NamedTuple):
    """A generation that a store keeps.

    `bytes` is its size on disk, if the store knows it. `problem` says why it cannot be used, if it cannot.
    """

    name: str
    created_at: str
    chunks: int
    bytes: int | None
    current: bool
    problem: str = ""
