"""Choose among indexes, modes and hybrid weights by the questions of a suite.

Every text is embedded once per index, and searched for once per mode; weights only change the ranking.

The test corrects for the number of configurations: the differences of all of them from the current one get
the same random sign for each question, and the largest standardised sum of each draw is the null distribution
(Westfall and Young's maximum statistic). The expected gain is measured on other questions: repeated
cross-validation chooses the best configuration on nine tenths of the questions, and measures it on the rest.
A configuration has no fitted parameters, so the inner loop of the nested cross-validation is the mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from recto._util.text import plural
from recto.errors import InvalidArgument
from recto.evaluation.binding import Bound, bind
from recto.evaluation.measures import Measure, ScoreEstimate, estimate
from recto.evaluation.runs import batches
from recto.evaluation.suites import Suite
from recto.search.pipeline import SearchOptions, index_queries, rank_queries, with_vectors
from recto.search.query import narrowed
from recto.search.retriever import Retriever
from recto.types.index import Candidates
from recto.types.search import Mode

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DEFAULT_MEASURE = Measure("nDCG", 10)
DEFAULT_WEIGHTS = (0.1, 0.15, 0.25, 0.4, 0.6)
LEVEL = 0.04
"""The level of the test, below 5 % so that chance recommends something in less than 5 % of all suites."""
INTERVAL = 0.9
MIN_GAIN = 0.01
"""A smaller expected gain is not worth a change."""
MIN_QUESTIONS = 30
"""Fewer questions show only gains that no configuration has."""
_MIN_DEPTH = 10
_FOLDS, _REPEATS = 10, 20
_DRAWS, _CELLS = 4000, 20_000_000
_POWER = 0.84  # standard errors above the critical value: a gain that is found with a probability of 80 %
_SEED = 20_260_201


@dataclass(frozen=True, slots=True)
class SearchConfiguration:
    """How to search: a collection, a mode, and the weight of the lexical score in hybrid mode."""

    collection: str
    mode: Mode
    weight: float | None = None

    @property
    def label(self) -> str:
        """The mode and the weight."""
        return self.mode if self.weight is None else f"{self.mode} {self.weight:g}"

    def __str__(self) -> str:
        """Return one line for a report."""
        return f"{self.collection}: {self.label}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {"collection": self.collection, "mode": self.mode, "lexical_weight": self.weight}


@dataclass(frozen=True, slots=True)
class Decision:
    """What the scores of several configurations show; the first configuration is the current one.

    `p_values` are corrected for the number of configurations. `gains` are the differences from the current
    configuration that each question has with the configuration that other questions choose. `detectable` is
    the gain that would be found with a probability of 80 %.
    """

    chosen: int
    p_values: tuple[float, ...]
    gains: tuple[float, ...]
    detectable: float


@dataclass(frozen=True, slots=True)
class ConfigurationScore:
    """The mean of a configuration, and its difference from the current one; None for the current one."""

    configuration: SearchConfiguration
    mean: float
    change: ScoreEstimate | None
    p_value: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return self.configuration.to_dict() | {
            "mean": round(self.mean, 6),
            "change": self.change and self.change.to_dict(),
            "p_value": None if self.p_value is None else round(self.p_value, 6),
        }


@dataclass(frozen=True, slots=True)
class Tuning:
    """The comparison of all configurations, the current one first; `left_out` questions were not compared."""

    suite: str
    measure: Measure
    questions: int
    left_out: int
    scores: tuple[ConfigurationScore, ...]
    recommended: SearchConfiguration | None
    expected_gain: ScoreEstimate
    detectable: float

    @property
    def current(self) -> SearchConfiguration:
        """The configuration that the others are compared with."""
        return self.scores[0].configuration

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "suite": self.suite,
            "measure": str(self.measure),
            "questions": self.questions,
            "left_out": self.left_out,
            "current": self.current.to_dict(),
            "recommended": self.recommended and self.recommended.to_dict(),
            "expected_gain": self.expected_gain.to_dict(),
            "detectable_gain": round(self.detectable, 6),
            "level": LEVEL,
            "configurations": [score.to_dict() for score in self.scores],
        }


@dataclass(frozen=True, slots=True)
class ScoreTable:
    """The value of a measure for each question (row) with each configuration (column)."""

    keys: tuple[str, ...]
    configurations: tuple[SearchConfiguration, ...]
    scores: NDArray[np.float64]


def tune(
    retrievers: Sequence[Retriever],
    suite: Suite,
    modes: Sequence[Mode],
    weights: Sequence[float],
    measure: Measure = DEFAULT_MEASURE,
) -> Tuning:
    """Compare the modes and weights on each index; the first index is the current one."""
    table = run_configurations(retrievers, suite, modes, weights, measure)
    decision = decide(table.scores)
    current, means = table.scores[:, 0], table.scores.mean(axis=0)
    scores = [ConfigurationScore(table.configurations[0], float(means[0]), None, None)]
    for column in range(1, len(table.configurations)):
        change, p_value = _interval(table.scores[:, column] - current), decision.p_values[column]
        scores.append(ConfigurationScore(table.configurations[column], float(means[column]), change, p_value))
    return Tuning(
        suite.name,
        measure,
        len(table.keys),
        len(suite.expectations) - len(table.keys),
        tuple(scores),
        table.configurations[decision.chosen] if decision.chosen else None,
        _interval(decision.gains),
        decision.detectable,
    )


def _interval(values: Iterable[float]) -> ScoreEstimate:
    """Return the mean with its 90 % interval."""
    return estimate(list(map(float, values)), INTERVAL) or ScoreEstimate(0.0, 0.0, 0.0, 0)


def run_configurations(
    retrievers: Sequence[Retriever],
    suite: Suite,
    modes: Sequence[Mode],
    weights: Sequence[float],
    measure: Measure,
) -> ScoreTable:
    """Ask all questions with each configuration.

    Questions that the measure does not apply to, or whose targets are not in all indexes, are left out.
    """
    import numpy as np

    bound = [{one.expectation.key: one for one in bind(suite, each.open())} for each in retrievers]
    keys = [
        key for key in bound[0] if all(each[key].measured and _applies(measure, each[key]) for each in bound)
    ]
    if not keys:
        raise InvalidArgument(
            f"No question of '{suite.name}' can be measured by {measure} on all indexes",
            hint="Check the suite with `recto suite lint FILE --collection NAME`.",
        )
    columns: dict[SearchConfiguration, list[float]] = {}
    for retriever, questions in zip(retrievers, bound, strict=True):
        chosen = configurations(retriever, modes, weights, with_current=retriever is retrievers[0])
        columns |= _scores(retriever, [questions[key] for key in keys], chosen, measure)
    return ScoreTable(tuple(keys), tuple(columns), np.array(list(columns.values()), dtype=np.float64).T)


def _applies(measure: Measure, bound: Bound) -> bool:
    return measure.of(bound.judge(())) is not None


def configurations(
    retriever: Retriever, modes: Sequence[Mode], weights: Sequence[float], *, with_current: bool
) -> list[SearchConfiguration]:
    """Return the configurations of an index, the current one first; one without lexical vectors is dense."""
    name = retriever.collection
    if retriever.analyze("lexical") is None:
        return [SearchConfiguration(name, "dense")]
    chosen = [SearchConfiguration(name, "hybrid", retriever.lexical_weight)] if with_current else []
    for mode in modes:
        mode_weights = weights if mode == "hybrid" else (None,)
        chosen += [SearchConfiguration(name, mode, weight) for weight in mode_weights]
    return list(dict.fromkeys(chosen))


def _scores(
    retriever: Retriever, questions: Sequence[Bound], chosen: Sequence[SearchConfiguration], measure: Measure
) -> dict[SearchConfiguration, list[float]]:
    """Return the value of each question with each configuration of an index."""
    depth, opened = max(_MIN_DEPTH, measure.cutoff or 1), retriever.open_index()
    is_embedded = any(configuration.mode != "lexical" for configuration in chosen)
    scores = {configuration: [0.0] * len(questions) for configuration in chosen}
    for numbers in batches([question.expectation for question in questions]):
        texts = [questions[number].expectation.query for number in numbers]
        filters = narrowed(questions[numbers[0]].expectation.filters, opened.fingerprint)
        vectors = opened.embedder.embed_queries(texts) if is_embedded else [[]] * len(texts)
        candidates: dict[Mode, Sequence[Candidates]] = {}
        for configuration in chosen:
            weighted = replace(opened, lexical_weight=configuration.weight or 0.0)
            queries = with_vectors(weighted.analyze(texts), vectors)
            options = SearchOptions(depth, configuration.mode, filters)
            if options.mode not in candidates:  # the weight changes only how they are ranked
                asked = index_queries(queries, options.mode)
                candidates[options.mode] = opened.index.candidates(asked, depth, filters)
            ranking = rank_queries(queries, candidates[options.mode], options)
            results = ranking.to_hits(opened.index.chunks(ranking.ids))
            for number, result in zip(numbers, results, strict=True):
                judged = questions[number].judge(hit.chunk for hit in result.hits)
                scores[configuration][number] = measure.of(judged) or 0.0
    return scores


def decide(scores: NDArray[np.float64]) -> Decision:
    """Decide by the scores of questions (rows) with configurations (columns), the current one first.

    A configuration is chosen if it is significantly better than the current one and the expected gain is at
    least `MIN_GAIN`; of several, the one with the largest mean.
    """
    import numpy as np

    deltas = np.round(scores - scores[:, :1], 9)
    p_values, critical = _corrected_p_values(deltas)
    gains = _nested_gains(deltas)
    means = deltas.mean(axis=0)
    better = [column for column in range(1, len(means)) if p_values[column] <= LEVEL]
    worth = bool(better) and float(gains.mean()) >= MIN_GAIN - 1e-9
    chosen = max(better, key=lambda column: (means[column], -column)) if worth else 0
    errors = np.sqrt((deltas**2).sum(axis=0)) / len(deltas)
    first = int(np.argmax(means[1:])) + 1 if len(means) > 1 else 0
    return Decision(
        chosen,
        tuple(map(float, p_values)),
        tuple(map(float, gains)),
        float((critical + _POWER) * errors[first]),
    )


def _corrected_p_values(deltas: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """Return one-sided p-values by the maximum statistic of sign flips, and the critical value."""
    import numpy as np

    changed = deltas[np.any(deltas != 0, axis=1)]
    rows, columns = changed.shape
    size = np.sqrt((changed**2).sum(axis=0))
    scaled = np.divide(changed, size, out=np.zeros_like(changed), where=size > 0)
    if rows == 0:
        return np.ones(columns), 0.0
    observed, single = scaled.sum(axis=0), scaled.astype(np.float32)
    generator = np.random.default_rng(_SEED)
    draws = max(400, min(_DRAWS, _CELLS // rows))
    signs = generator.integers(0, 2, size=(draws, rows), dtype=np.int8).astype(np.float32)
    null = np.sort((2 * (signs @ single) - observed).max(axis=1))
    above = draws - np.searchsorted(null, observed - 1e-5)  # ties count, whatever the rounding
    p_values = np.where(size > 0, (1 + above) / (1 + draws), 1.0)
    return p_values, float(np.quantile(null, 1 - LEVEL))


def _nested_gains(deltas: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the gain of each question with the configuration that is best on the other folds, by repeats."""
    import numpy as np

    count = len(deltas)
    folds = min(_FOLDS, count)
    if folds < 2:
        return np.zeros(count)
    generator = np.random.default_rng(_SEED)
    total, gains = deltas.sum(axis=0), np.zeros(count)
    for _ in range(_REPEATS):
        fold = generator.permutation(np.arange(count) % folds)
        held_out = (fold == np.arange(folds)[:, None]).astype(np.float64) @ deltas
        best = np.argmax(np.round(total - held_out, 9), axis=1)  # of ties the first: the current one
        gains += deltas[np.arange(count), best[fold]]
    return gains / _REPEATS


def advice(tuning: Tuning) -> list[str]:
    """Return how to apply the recommendation, in sentences."""
    new, current = tuning.recommended, tuning.current
    if new is None:
        return []
    name, mode = new.collection, new.mode
    steps = []
    if name != current.collection:
        steps.append(f"Search '{name}': set COLLECTION_NAME={name}, or pass --collection.")
    if mode != "hybrid":
        steps.append(f'Search in {mode} mode: pass --mode {mode}, or mode="{mode}" in requests.')
    elif new.weight != current.weight or current.mode != "hybrid":
        steps.append(f"Set RECTO_LEXICAL_WEIGHT={new.weight:g} in the environment or in .env.")
    return steps


def verdict(tuning: Tuning) -> str:
    """Return the recommendation as one sentence."""
    if (new := tuning.recommended) is not None:
        return f"Recommended: {new.label if new.collection == tuning.current.collection else new}."
    if tuning.questions < MIN_QUESTIONS:
        return (
            f"Keep what you have: {plural(tuning.questions, 'question')} are too few to choose by; use at "
            f"least {MIN_QUESTIONS}."
        )
    if all(score.mean <= tuning.scores[0].mean for score in tuning.scores):
        return "Keep what you have: no other configuration has a better mean."
    return "Keep what you have: no other configuration is significantly better."
