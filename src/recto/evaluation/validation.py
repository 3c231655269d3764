"""Run a suite, and tell whether each first passage is from where it should be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

from recto.addresses import page_key
from recto.evaluation.suite import Expectation, Suite
from recto.limits import DEFAULT_TOP_K
from recto.modules import filter_keys
from recto.retriever import Retriever
from recto.types import Chunk, SearchResponse

THRESHOLD = 0.8
_BATCH = 32


@dataclass(frozen=True, slots=True)
class Verdict:
    """One question's outcome; `page_rank` is where an expected page came, if the suite names one and it was found."""

    expectation: Expectation
    response: SearchResponse
    passed: bool
    page_rank: int | None

    @property
    def actual(self) -> str:
        """Where the first passage is from, in the terms of what was expected."""
        if not self.response.hits:
            return "(no results)"
        chunk = self.response.hits[0].chunk
        return chunk.module_name if self.expectation.modules else chunk.page_url

    @property
    def score(self) -> float:
        """The first passage's score."""
        return self.response.hits[0].score if self.response.hits else 0.0


@dataclass(frozen=True, slots=True)
class ValidationReport:
    """All outcomes of a suite."""

    suite: str
    collection: str
    verdicts: tuple[Verdict, ...]
    seconds: float

    @property
    def passed(self) -> int:
        """How many questions passed."""
        return sum(verdict.passed for verdict in self.verdicts)

    @property
    def accuracy(self) -> float:
        """The share that passed."""
        return self.passed / len(self.verdicts)

    @property
    def sufficient(self) -> bool:
        """Whether the share reaches the contract's threshold."""
        return self.accuracy >= THRESHOLD

    def page_hits(self, within: int) -> float | None:
        """The share of questions whose expected page came within the first results; None where no page is expected."""
        asked = [verdict for verdict in self.verdicts if verdict.expectation.pages]
        if not asked:
            return None
        return sum(verdict.page_rank is not None and verdict.page_rank <= within for verdict in asked) / len(asked)


def validate(retriever: Retriever, suite: Suite, progress: Callable[[int, int], None] | None = None) -> ValidationReport:
    """Ask all questions of a suite."""
    began = perf_counter()
    verdicts: list[Verdict] = []
    for start in range(0, len(suite.expectations), _BATCH):
        batch = suite.expectations[start : start + _BATCH]
        responses = retriever.search_batch([expectation.query for expectation in batch], top_k=DEFAULT_TOP_K)
        verdicts.extend(_verdict(*pair) for pair in zip(batch, responses, strict=True))
        if progress:
            progress(len(verdicts), len(suite.expectations))
    return ValidationReport(suite.name, retriever.collection, tuple(verdicts), perf_counter() - began)


def _verdict(expectation: Expectation, response: SearchResponse) -> Verdict:
    ranks = [rank for rank, hit in enumerate(response.hits, 1) if _is_page(hit.chunk, expectation.pages)]
    page_rank = ranks[0] if ranks else None
    if expectation.modules:
        keys = set(filter_keys(expectation.modules))
        passed = bool(response.hits) and not keys.isdisjoint(response.hits[0].chunk.module_keys)
    else:
        passed = page_rank == 1
    return Verdict(expectation, response, passed, page_rank)


def _is_page(chunk: Chunk, pages: tuple[str, ...]) -> bool:
    """A page is named by its address or by its path in the book, without the extension."""
    names = {page_key(chunk.page_url), page_key(chunk.source)}
    return any(page_key(page) in names for page in pages)
