"""Run a suite: the contract's report of first passages, and the full run that measures, baselines and gates are made from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from sys import intern
from time import perf_counter
from typing import Any

from recto._util.names import filter_keys, page_key
from recto.errors import InvalidArgument
from recto.evaluation.binding import Bound, BoundSuite, Missing, bind
from recto.evaluation.measures import DEFAULT_MEASURES, Measure
from recto.evaluation.statistics import Estimate, estimate
from recto.evaluation.suites import DEFAULT_THRESHOLD, Expectation, Suite
from recto.protocols import Progress
from recto.search.query import DEFAULT_TOP_K, MAX_TOP_K
from recto.search.response import LINE
from recto.search.retriever import Retriever
from recto.types import HEADING_SEPARATOR, Chunk, Filters, Fingerprint, Hit, Mode, SearchResponse


@dataclass(frozen=True, slots=True)
class Found:
    """One result: where it is from, and how near it was."""

    page: str
    anchor: str
    module: str
    score: float
    chunk_id: str

    @staticmethod
    def of(hit: Hit) -> Found:
        """Take from a hit what a report needs; its text is let go."""
        chunk = hit.chunk
        # Interned: a large suite meets the same places over and over.
        return Found(
            intern(chunk.page_url),
            intern(chunk.anchor),
            intern(chunk.module_name),
            hit.score,
            intern(chunk.id),
        )

    @property
    def place(self) -> str:
        """The address that opens it."""
        return f"{self.page}#{self.anchor}" if self.anchor else self.page

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "place": self.place,
            "module": self.module,
            "score": round(self.score, 6),
            "chunk_id": self.chunk_id,
        }


@dataclass(frozen=True, slots=True)
class Answer:
    """How one question went; `ranks` are the places of results that reach a target, `passed` is None where nobody can judge."""

    key: str
    query: str
    targets: tuple[str, ...]
    expected: str
    modules: tuple[str, ...]
    tags: tuple[str, ...]
    found: tuple[Found, ...]
    ranks: tuple[int, ...]
    passed: bool | None
    measures: dict[str, float]
    ms: float
    nothing: bool = False
    module_right: bool | None = None

    @property
    def rank(self) -> int | None:
        """Where the first target came."""
        return self.ranks[0] if self.ranks else None

    @property
    def outcome(self) -> str:
        """One word for a report."""
        return "not judged" if self.passed is None else "passed" if self.passed else "failed"

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "id": self.key,
            "query": self.query,
            "expected": self.expected,
            "targets": list(self.targets),
            "outcome": self.outcome,
            "rank": self.rank,
            "ranks": list(self.ranks),
            "tags": list(self.tags),
            "measures": {name: round(value, 6) for name, value in self.measures.items()},
            "found": [found.to_dict() for found in self.found],
            "ms": round(self.ms, 3),
        }


@dataclass(frozen=True, slots=True)
class Run:
    """All answers of a suite on one index, and what could not be measured."""

    suite: str
    suite_digest: str
    collection: str
    generation: str
    fingerprint: Fingerprint | None
    top_k: int
    depth: int
    threshold: float
    measures: tuple[Measure, ...]
    answers: tuple[Answer, ...]
    unmeasured: tuple[Missing, ...]
    partial: tuple[Missing, ...]
    seconds: float
    mode: Mode = "hybrid"

    @property
    def judged(self) -> tuple[Answer, ...]:
        """The answers that passed or failed."""
        return tuple(answer for answer in self.answers if answer.passed is not None)

    @property
    def passed(self) -> int:
        """How many answers passed."""
        return sum(answer.passed is True for answer in self.answers)

    @property
    def share(self) -> float | None:
        """The share of judged answers that passed; None where there is nothing to judge."""
        return self.passed / len(self.judged) if self.judged else None

    def scores(self) -> dict[str, Estimate]:
        """Return each measure's mean over the questions that it applies to."""
        return _scores(self.measures, self.answers)

    def by_tag(self) -> dict[str, dict[str, Estimate]]:
        """Return the means of each tag's questions."""
        return self._grouped(lambda answer: answer.tags)

    def by_module(self) -> dict[str, dict[str, Estimate]]:
        """Return the means of each expected module's questions."""
        return self._grouped(lambda answer: answer.modules)

    def ranks(self) -> dict[str, int]:
        """Count how often the first target came at which rank; `none` is not within the depth."""
        counted = Counter(answer.rank for answer in self.answers if answer.targets)
        places = {str(rank): counted[rank] for rank in range(1, self.depth + 1)}
        return places | {"none": counted[None]}

    def confusion(self) -> dict[str, dict[str, int]]:
        """Count, for each expected module, which module the first result was from."""
        table: dict[str, Counter[str]] = {}
        for answer in self.answers:
            if answer.modules:
                actual = answer.found[0].module if answer.found else "(no results)"
                expected = actual if answer.module_right else answer.modules[0]
                table.setdefault(expected, Counter())[actual] += 1
        return {expected: dict(sorted(row.items())) for expected, row in sorted(table.items())}

    def worst(self, most: int = 10) -> tuple[Answer, ...]:
        """Return the answers in which the expected place came latest or not at all, failures first."""
        bad = [
            answer
            for answer in self.answers
            if answer.passed is False or (answer.targets and answer.rank != 1)
        ]
        return tuple(
            sorted(
                bad,
                key=lambda answer: (answer.passed is not False, -(answer.rank or self.depth + 1), answer.key),
            )[:most]
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        share = self.share
        return {
            "suite": self.suite,
            "suite_digest": self.suite_digest,
            "collection": self.collection,
            "mode": self.mode,
            "generation": self.generation,
            "fingerprint": self.fingerprint.to_dict() if self.fingerprint else None,
            "top_k": self.top_k,
            "depth": self.depth,
            "total": len(self.answers) + len({missing.key for missing in self.unmeasured}),
            "judged": len(self.judged),
            "passed": self.passed,
            "share": None if share is None else round(share, 6),
            "threshold": self.threshold,
            "scores": _plain(self.scores()),
            "by_tag": {tag: _plain(scores) for tag, scores in self.by_tag().items()},
            "by_module": {module: _plain(scores) for module, scores in self.by_module().items()},
            "ranks": self.ranks(),
            "confusion": self.confusion(),
            "worst": [answer.key for answer in self.worst()],
            "unmeasured": [missing.to_dict() for missing in self.unmeasured],
            "partial": [missing.to_dict() for missing in self.partial],
            "duration_s": round(self.seconds, 3),
            "queries": [answer.to_dict() for answer in self.answers],
        }

    def _grouped(self, names: Callable[[Answer], Iterable[str]]) -> dict[str, dict[str, Estimate]]:
        groups: dict[str, list[Answer]] = {}
        for answer in self.answers:
            for name in names(answer):
                groups.setdefault(name, []).append(answer)
        return {name: _scores(self.measures, groups[name]) for name in sorted(groups)}


def _scores(measures: Iterable[Measure], answers: Iterable[Answer]) -> dict[str, Estimate]:
    values = {
        str(measure): [answer.measures[str(measure)] for answer in answers if str(measure) in answer.measures]
        for measure in measures
    }
    return {name: found for name, numbers in values.items() if (found := estimate(numbers)) is not None}


def _plain(scores: dict[str, Estimate]) -> dict[str, Any]:
    return {name: score.to_dict() for name, score in scores.items()}


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
        return sum(verdict.page_rank is not None and verdict.page_rank <= within for verdict in asked) / len(
            asked
        )


def validate(
    retriever: Retriever, suite: Suite, progress: Progress | None = None, mode: Mode = "dense"
) -> ValidationReport:
    """Ask all questions of a suite, and look only at where the first passages are from; the query contract is dense."""
    if any(expectation.nothing for expectation in suite.expectations):
        raise InvalidArgument(
            'This report knows no questions that expect "nothing"',
            hint="Run them with `recto validate --suite`.",
        )
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
    noise_floor: float | None = None
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
    for numbers, responses in _asked(
        retriever, [question.expectation for question in asked], options.depth, options.mode
    ):
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
            yield (
                batch,
                retriever.search_batch(
                    [questions[number].query for number in batch], top_k, filters, mode=mode
                ),
            )


def _answer(bound: Bound, response: SearchResponse, options: Options) -> Answer:
    expectation = bound.expectation
    judged = bound.judge(hit.chunk for hit in response.hits)
    values = {
        str(measure): value for measure in options.measures if (value := measure.of(judged)) is not None
    }
    if expectation.nothing:
        passed = _covers_nothing(response, options.noise_floor)
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
    return None if response.noise_floor is None else _covers_nothing(response, response.noise_floor)


def _verdict(suite: Suite, expectation: Expectation, response: SearchResponse) -> Verdict:
    pages = tuple(map(suite.page, expectation.pages))
    ranks = [rank for rank, hit in enumerate(response.hits, 1) if _is_page(hit.chunk, pages)]
    page_rank = ranks[0] if ranks else None
    if expectation.modules:
        keys = set(filter_keys(expectation.modules))
        passed = bool(response.hits) and not keys.isdisjoint(response.hits[0].chunk.module_keys)
    elif expectation.passages:
        passed = bool(response.hits) and any(
            _dense(passage) in _dense(response.hits[0].chunk.text) for passage in expectation.passages
        )
    else:
        passed = page_rank == 1
    return Verdict(expectation, response, passed, page_rank)


def _dense(text: str) -> str:
    return "".join(text.split())


def _is_page(chunk: Chunk, pages: tuple[str, ...]) -> bool:
    """A page is named by its address or by its path in the book, without the extension."""
    names = {page_key(chunk.page_url), page_key(chunk.source)}
    return any(page_key(page.partition(HEADING_SEPARATOR)[0]) in names for page in pages)
