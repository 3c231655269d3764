"""Run a suite: ask its questions in batches, judge the results, and aggregate them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

from recto.errors import InvalidArgument
from recto.evaluation.binding import Bound, Missing, bind, bind_by_name
from recto.evaluation.measures import DEFAULT_MEASURES, Measure, ScoreEstimate, estimate
from recto.evaluation.questions import near_questions
from recto.evaluation.suites import DEFAULT_THRESHOLD, Expectation, Suite
from recto.protocols import Index
from recto.search.retriever import Retriever
from recto.types.index import Fingerprint
from recto.types.request import DEFAULT_TOP_K, MAX_TOP_K
from recto.types.search import Filters, Hit, Mode, SearchResponse

_BATCH = 32


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The outcome of one question.

    `ranks` are the ranks of results that reach a target. `passed` is None if the question cannot be judged.
    """

    key: str
    query: str
    targets: tuple[str, ...]
    expected: str
    modules: tuple[str, ...]
    tags: tuple[str, ...]
    found: tuple[Hit, ...]
    ranks: tuple[int, ...]
    passed: bool | None
    measures: dict[str, float]
    ms: float
    nothing: bool = False
    module_right: bool | None = None
    expects_page: bool = False

    @property
    def rank(self) -> int | None:
        """The rank of the first result that reaches a target."""
        return self.ranks[0] if self.ranks else None

    @property
    def outcome(self) -> str:
        """One word for a report."""
        return "not judged" if self.passed is None else "passed" if self.passed else "failed"

    @property
    def actual(self) -> str:
        """The module of the first result if a module is expected, else its page."""
        if not self.found:
            return "(no results)"
        first = self.found[0].chunk
        return first.module if self.modules else first.page_url

    @property
    def score(self) -> float:
        """The score of the first result."""
        return self.found[0].score if self.found else 0.0

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
            "found": [_result(hit) for hit in self.found],
            "ms": round(self.ms, 3),
        }


def _result(hit: Hit) -> dict[str, Any]:
    chunk, score = hit.chunk, round(hit.score, 6)
    return {"place": chunk.url, "module": chunk.module, "score": score, "chunk_id": chunk.id}


@dataclass(frozen=True, slots=True)
class Run:
    """The results of a suite on one index, and what could not be measured."""

    suite: str
    suite_digest: str
    collection: str
    generation: str
    fingerprint: Fingerprint | None
    top_k: int
    depth: int
    threshold: float
    measures: tuple[Measure, ...]
    answers: tuple[QueryResult, ...]
    unmeasured: tuple[Missing, ...]
    partial: tuple[Missing, ...]
    seconds: float
    mode: Mode = "hybrid"
    near: frozenset[str] = frozenset()
    """The keys of questions that are a section question of the index, or nearly."""

    @property
    def judged(self) -> tuple[QueryResult, ...]:
        """The answers that passed or failed."""
        return tuple(answer for answer in self.answers if answer.passed is not None)

    @property
    def passed(self) -> int:
        """How many answers passed."""
        return sum(answer.passed is True for answer in self.answers)

    @property
    def total(self) -> int:
        """How many questions the suite has, including the unmeasured ones."""
        return len(self.answers) + len({missing.key for missing in self.unmeasured})

    @property
    def share(self) -> float | None:
        """The share of judged answers that passed; None where there is nothing to judge."""
        return self.passed / len(self.judged) if self.judged else None

    @property
    def sufficient(self) -> bool:
        """Whether enough answers passed for the suite's threshold."""
        return self.share is not None and self.share >= self.threshold - 1e-9

    def page_hits(self, within: int) -> float | None:
        """Return the share of questions whose page is in the first results; None if none expects a page."""
        ranks = [answer.rank for answer in self.answers if answer.expects_page]
        return sum(rank is not None and rank <= within for rank in ranks) / len(ranks) if ranks else None

    def scores(self) -> dict[str, ScoreEstimate]:
        """Return each measure's mean over the questions that it applies to."""
        return _scores(self.measures, self.answers)

    def scores_without_near(self) -> dict[str, ScoreEstimate]:
        """Return the means without the questions that are nearly a section question."""
        return _scores(self.measures, [answer for answer in self.answers if answer.key not in self.near])

    def by_tag(self) -> dict[str, dict[str, ScoreEstimate]]:
        """Return the means of each tag's questions."""
        return self._grouped(lambda answer: answer.tags)

    def by_module(self) -> dict[str, dict[str, ScoreEstimate]]:
        """Return the means of each expected module's questions."""
        return self._grouped(lambda answer: answer.modules)

    def ranks(self) -> dict[str, int]:
        """Count the questions by the rank of their first target; `none` is beyond the depth."""
        counts = Counter(answer.rank for answer in self.answers if answer.targets)
        return {str(rank or "none"): counts[rank] for rank in (*range(1, self.depth + 1), None)}

    def confusion(self) -> dict[str, dict[str, int]]:
        """Count, for each expected module, the modules of the first results."""
        table: dict[str, Counter[str]] = defaultdict(Counter)
        for answer in self.answers:
            if answer.modules:
                actual = answer.found[0].chunk.module if answer.found else "(no results)"
                expected = actual if answer.module_right else answer.modules[0]
                table[expected][actual] += 1
        return {expected: dict(sorted(row.items())) for expected, row in sorted(table.items())}

    def worst(self, most: int = 10) -> tuple[QueryResult, ...]:
        """Return the questions whose target ranks lowest or is not found, failures first."""

        def key(answer: QueryResult) -> tuple[bool, int, str]:
            return answer.passed is not False, -(answer.rank or self.depth + 1), answer.key

        imperfect = (
            answer
            for answer in self.answers
            if answer.passed is False or (answer.targets and answer.rank != 1)
        )
        return tuple(sorted(imperfect, key=key)[:most])

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "suite": self.suite,
            "suite_digest": self.suite_digest,
            "collection": self.collection,
            "mode": self.mode,
            "generation": self.generation,
            "fingerprint": self.fingerprint.summary() if self.fingerprint else None,
            "top_k": self.top_k,
            "depth": self.depth,
            "total": self.total,
            "judged": len(self.judged),
            "passed": self.passed,
            "share": None if self.share is None else round(self.share, 6),
            "threshold": self.threshold,
            "scores": _plain(self.scores()),
            "by_tag": {tag: _plain(scores) for tag, scores in self.by_tag().items()},
            "by_module": {module: _plain(scores) for module, scores in self.by_module().items()},
            "near_section_questions": sorted(self.near),
            "scores_without_near": _plain(self.scores_without_near()) if self.near else {},
            "ranks": self.ranks(),
            "confusion": self.confusion(),
            "worst": [answer.key for answer in self.worst()],
            "unmeasured": [missing.to_dict() for missing in self.unmeasured],
            "partial": [missing.to_dict() for missing in self.partial],
            "duration_s": round(self.seconds, 3),
            "queries": [answer.to_dict() for answer in self.answers],
        }

    def _grouped(self, names: Callable[[QueryResult], Iterable[str]]) -> dict[str, dict[str, ScoreEstimate]]:
        groups: dict[str, list[QueryResult]] = defaultdict(list)
        for answer in self.answers:
            for name in names(answer):
                groups[name].append(answer)
        return {name: _scores(self.measures, groups[name]) for name in sorted(groups)}


def _scores(measures: Iterable[Measure], answers: Iterable[QueryResult]) -> dict[str, ScoreEstimate]:
    values = {
        str(measure): [answer.measures[str(measure)] for answer in answers if str(measure) in answer.measures]
        for measure in measures
    }
    return {name: score for name, numbers in values.items() if (score := estimate(numbers)) is not None}


def _plain(scores: dict[str, ScoreEstimate]) -> dict[str, Any]:
    return {name: score.to_dict() for name, score in scores.items()}


@dataclass(frozen=True, slots=True)
class Options:
    """How to run a suite."""

    top_k: int = DEFAULT_TOP_K
    measures: tuple[Measure, ...] = DEFAULT_MEASURES
    mode: Mode = "hybrid"

    @property
    def depth(self) -> int:
        """How many results to request: enough to show, and enough for the deepest measure."""
        return min(MAX_TOP_K, max(self.top_k, *(measure.cutoff or 1 for measure in self.measures), 1))


DEFAULT_OPTIONS = Options()
_CONTRACT_MEASURES = (Measure("ModuleAccuracy"), Measure("Hit", 1), Measure("Hit", 5))


def run_suite(
    retriever: Retriever,
    suite: Suite,
    options: Options = DEFAULT_OPTIONS,
    questions: Sequence[Bound] | None = None,
) -> Run:
    """Ask the questions whose targets exist, in batches, and measure the results.

    `questions` are the bound questions of the suite; without them, their targets are looked up in the index.
    """
    began = perf_counter()
    index = retriever.open()
    bound = bind(suite, index) if questions is None else questions
    measured = [question for question in bound if question.measured]
    answers: dict[int, QueryResult] = {}
    for numbers in batches([question.expectation for question in measured]):
        batch = [measured[number] for number in numbers]
        queries, filters = [question.expectation.query for question in batch], batch[0].expectation.filters
        responses = retriever.search_batch(queries, top_k=options.depth, filters=filters, mode=options.mode)
        judged = (
            _judge(question, response, options) for question, response in zip(batch, responses, strict=True)
        )
        answers |= zip(numbers, judged, strict=True)
    near = frozenset[str]() if questions is not None else _near(answers.values(), index)
    return Run(
        suite=suite.name,
        suite_digest=suite.digest,
        collection=retriever.collection,
        generation=index.info.generation,
        fingerprint=index.info.fingerprint,
        top_k=options.top_k,
        depth=options.depth,
        threshold=suite.threshold,
        measures=options.measures,
        answers=tuple(answers[number] for number in range(len(measured))),
        unmeasured=tuple(
            missing for question in bound if not question.measured for missing in question.missing
        ),
        partial=tuple(missing for question in measured for missing in question.missing),
        seconds=perf_counter() - began,
        mode=options.mode,
        near=near,
    )


def _near(answers: Iterable[QueryResult], index: Index) -> frozenset[str]:
    """Return the keys of the questions that are a section question of the index, or nearly."""
    known = {question for chunk in index.scroll() for question in chunk.questions}
    near = set(near_questions([answer.query for answer in answers], known)) if known else ()
    return frozenset(answer.key for answer in answers if answer.query in near)


def validate(retriever: Retriever, suite: Suite) -> Run:
    """Run a suite as document 000 has it: dense, 80 % must pass, and what is not in the index fails."""
    if any(expectation.nothing for expectation in suite.expectations):
        raise InvalidArgument(
            'This report does not support questions that expect "nothing"',
            hint="Run them with `recto validate --suite`.",
        )
    questions = [bind_by_name(expectation) for expectation in suite.expectations]
    options = Options(measures=_CONTRACT_MEASURES, mode="dense")
    return run_suite(retriever, replace(suite, threshold=DEFAULT_THRESHOLD), options, questions)


def batches(expectations: Sequence[Expectation]) -> Iterator[list[int]]:
    """Yield the positions of questions that can be searched together: they have the same filters."""
    groups: dict[Filters, list[int]] = defaultdict(list)
    for number, expectation in enumerate(expectations):
        groups[expectation.filters].append(number)
    for numbers in groups.values():
        yield from (numbers[start : start + _BATCH] for start in range(0, len(numbers), _BATCH))


def _judge(bound: Bound, response: SearchResponse, options: Options) -> QueryResult:
    expectation = bound.expectation
    judged = bound.judge(hit.chunk for hit in response.hits)
    passed: bool | None = any(gain > 0 for gain in judged.gains[:1])
    if expectation.nothing:
        passed = _covers_nothing(response)
    elif judged.module is not None:
        passed = judged.module
    measured = {str(measure): measure.of(judged) for measure in options.measures}
    return QueryResult(
        key=expectation.key,
        query=expectation.query,
        targets=tuple(target.name for target in bound.targets),
        expected=expectation.expected,
        modules=tuple(sorted(bound.modules)),
        tags=expectation.tags,
        found=response.hits,
        ranks=tuple(rank for rank, gain in enumerate(judged.gains, 1) if gain > 0),
        passed=passed,
        measures={name: value for name, value in measured.items() if value is not None},
        ms=response.timings.total_ms,
        nothing=expectation.nothing,
        module_right=judged.module,
        expects_page=bool(expectation.pages),
    )


def _covers_nothing(response: SearchResponse) -> bool | None:
    """Return whether the book does not cover the query; None if the response does not show it."""
    if response.coverage is not None:
        return response.coverage == "not covered"
    if response.mode == "lexical" or response.noise_floor is None:
        return None  # lexical scores do not show whether a book covers a query
    cosines = [hit.score if hit.dense is None else hit.dense for hit in response.hits]
    return max(cosines, default=-1.0) < response.noise_floor
