"""Run a suite: the contract's report of first passages, and the full run that measures, baselines and gates are made from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter

from recto.addresses import page_key
from recto.errors import InvalidArgument
from recto.evaluation.binding import Bound, BoundSuite, bind
from recto.evaluation.measures import DEFAULT_MEASURES, Measure
from recto.evaluation.run import Answer, Found, Run
from recto.evaluation.suite import DEFAULT_THRESHOLD, Expectation, Suite
from recto.limits import DEFAULT_TOP_K, MAX_TOP_K
from recto.modules import filter_keys
from recto.protocols import Progress
from recto.retriever import Retriever
from recto.search.answerability import LINE
from recto.types import HEADING_SEPARATOR, Chunk, Filters, Mode, SearchResponse

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
        return self.accuracy >= DEFAULT_THRESHOLD

    def page_hits(self, within: int) -> float | None:
        """The share of questions whose expected page came within the first results; None where no page is expected."""
        asked = [verdict for verdict in self.verdicts if verdict.expectation.pages]
        if not asked:
            return None
        return sum(verdict.page_rank is not None and verdict.page_rank <= within for verdict in asked) / len(asked)


def validate(retriever: Retriever, suite: Suite, progress: Progress | None = None, mode: Mode = "dense") -> ValidationReport:
    """Ask all questions of a suite, and look only at where the first passages are from; the query contract is dense."""
    if any(expectation.nothing for expectation in suite.expectations):
        raise InvalidArgument('This report knows no questions that expect "nothing"', hint="Run them with `recto validate --suite`.")
    began = perf_counter()
    verdicts: dict[int, Verdict] = {}
    for numbers, responses in _asked(retriever, suite.expectations, DEFAULT_TOP_K, mode):
        for number, response in zip(numbers, responses, strict=True):
            verdicts[number] = _verdict(suite, suite.expectations[number], response)
        if progress:
            progress(len(verdicts), len(suite.expectations))
    ordered = tuple(verdicts[number] for number in range(len(suite.expectations)))
    return ValidationReport(suite.name, retriever.collection, ordered, perf_counter() - began)


@dataclass(frozen=True, slots=True)
class Options:
    """How a suite is run: how many results are shown, what is measured, and the score below which an index returns noise."""

    top_k: int = DEFAULT_TOP_K
    measures: tuple[Measure, ...] = field(default=DEFAULT_MEASURES)
    noise: float | None = None
    mode: Mode = "hybrid"

    @property
    def depth(self) -> int:
        """How many results are asked for: as many as are shown, or as the deepest measure looks at."""
        return min(MAX_TOP_K, max(self.top_k, *(measure.cutoff or 1 for measure in self.measures), 1))


DEFAULT_OPTIONS = Options()


def run_suite(
    retriever: Retriever,
    suite: Suite | BoundSuite,
    options: Options = DEFAULT_OPTIONS,
    progress: Progress | None = None,
) -> Run:
    """Ask the questions of a suite whose places exist, in batches, and measure the answers."""
    began = perf_counter()
    index = retriever.open()
    bound = bind(suite, index) if isinstance(suite, Suite) else suite
    asked = [question for question in bound.questions if question.measured]
    answers: dict[int, Answer] = {}
    for numbers, responses in _asked(retriever, [question.expectation for question in asked], options.depth, options.mode):
        for number, response in zip(numbers, responses, strict=True):
            answers[number] = _answer(asked[number], response, options)
        if progress:
            progress(len(answers), len(asked))
    return Run(
        suite=bound.suite.name,
        suite_digest=bound.suite.digest,
        collection=retriever.collection,
        generation=index.info.generation,
        fingerprint=index.info.fingerprint,
        top_k=options.top_k,
        depth=options.depth,
        threshold=bound.suite.threshold,
        measures=options.measures,
        answers=tuple(answers[number] for number in range(len(asked))),
        unmeasured=tuple(missing for question in bound.unmeasured for missing in question.missing),
        partial=bound.partial,
        seconds=perf_counter() - began,
        mode=options.mode,
    )


def _asked(
    retriever: Retriever, questions: Sequence[Expectation], top_k: int, mode: Mode
) -> Iterator[tuple[list[int], list[SearchResponse]]]:
    """Ask in batches of questions that are narrowed alike; yields their numbers and the responses."""
    groups: dict[Filters, list[int]] = {}
    for number, question in enumerate(questions):
        groups.setdefault(question.filters, []).append(number)
    for filters, numbers in groups.items():
        for start in range(0, len(numbers), _BATCH):
            batch = numbers[start : start + _BATCH]
            yield batch, retriever.search_batch([questions[number].query for number in batch], top_k, filters, mode=mode)


def _answer(bound: Bound, response: SearchResponse, options: Options) -> Answer:
    expectation = bound.expectation
    judged = bound.judge(hit.chunk for hit in response.hits)
    values = {str(measure): value for measure in options.measures if (value := measure.of(judged)) is not None}
    if expectation.nothing:
        passed = _covers_nothing(response, options.noise)
    else:
        passed = judged.module if judged.module is not None else judged.gains[:1] == (1.0,)
    return Answer(
        key=expectation.key,
        query=expectation.query,
        targets=tuple(target.name for target in bound.targets),
        expected=expectation.expected,
        modules=tuple(sorted(bound.modules)),
        tags=expectation.tags,
        found=tuple(map(Found.of, response.hits)),
        ranks=tuple(rank for rank, gain in enumerate(judged.gains, 1) if gain > 0),
        passed=passed,
        measures=values,
        ms=response.timings.total_ms,
        nothing=expectation.nothing,
        module_right=judged.module,
    )


def _covers_nothing(response: SearchResponse, noise: float | None) -> bool | None:
    """Whether a response says that the book does not cover the query: by the given noise floor, else by its answerability."""
    if response.mode == "lexical":
        return None  # words alone do not tell
    if noise is not None:
        cosines = [hit.score if hit.dense is None else hit.dense for hit in response.hits]
        return max(cosines, default=-1.0) < noise
    if response.answerable is not None:
        return response.answerable < LINE
    return None if response.noise is None else _covers_nothing(response, response.noise)


def _verdict(suite: Suite, expectation: Expectation, response: SearchResponse) -> Verdict:
    pages = tuple(map(suite.page, expectation.pages))
    ranks = [rank for rank, hit in enumerate(response.hits, 1) if _is_page(hit.chunk, pages)]
    page_rank = ranks[0] if ranks else None
    if expectation.modules:
        keys = set(filter_keys(expectation.modules))
        passed = bool(response.hits) and not keys.isdisjoint(response.hits[0].chunk.module_keys)
    elif expectation.passages:
        passed = bool(response.hits) and any(_dense(passage) in _dense(response.hits[0].chunk.text) for passage in expectation.passages)
    else:
        passed = page_rank == 1
    return Verdict(expectation, response, passed, page_rank)


def _dense(text: str) -> str:
    return "".join(text.split())


def _is_page(chunk: Chunk, pages: tuple[str, ...]) -> bool:
    """A page is named by its address or by its path in the book, without the extension."""
    names = {page_key(chunk.page_url), page_key(chunk.source)}
    return any(page_key(page.partition(HEADING_SEPARATOR)[0]) in names for page in pages)
