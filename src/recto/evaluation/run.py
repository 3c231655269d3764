"""What a run of a suite shows: per question first, means with their intervals after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from sys import intern
from typing import Any

from recto.evaluation.binding import Missing
from recto.evaluation.measures import Measure
from recto.evaluation.statistics import Estimate, estimate
from recto.types import Fingerprint, Hit, Mode


@dataclass(frozen=True, slots=True)
class Found:
    """One result: where it is from, and how near it was."""

    page: str
    anchor: str
    module: str
    score: float
    chunk_id: str
    cosine: float | None = None

    @staticmethod
    def of(hit: Hit) -> Found:
        """Take from a hit what a report needs; its text is let go."""
        chunk = hit.chunk
        # Interned: a large suite meets the same places over and over.
        place = intern(chunk.page_url), intern(chunk.anchor), intern(chunk.module_name)
        return Found(*place, hit.score, intern(chunk.id), hit.dense)

    @property
    def place(self) -> str:
        """The address that opens it."""
        return f"{self.page}#{self.anchor}" if self.anchor else self.page

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {"place": self.place, "module": self.module, "score": round(self.score, 6), "chunk_id": self.chunk_id}


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
        bad = [answer for answer in self.answers if answer.passed is False or (answer.targets and answer.rank != 1)]
        return tuple(sorted(bad, key=lambda answer: (answer.passed is not False, -(answer.rank or self.depth + 1), answer.key))[:most])

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
        str(measure): [answer.measures[str(measure)] for answer in answers if str(measure) in answer.measures] for measure in measures
    }
    return {name: found for name, numbers in values.items() if (found := estimate(numbers)) is not None}


def _plain(scores: dict[str, Estimate]) -> dict[str, Any]:
    return {name: score.to_dict() for name, score in scores.items()}
