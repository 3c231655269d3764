"""Save the results of queries chunk by chunk, and compare later results with them, within a tolerance.

Use it where the same index must give the same results; `baseline` compares measures of any two indexes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recto.errors import InvalidArgument
from recto.evaluation.suites import parse_json, read_file

TOLERANCE = 0.04
"""How far a score may move: in the committed suite, int8 and fp32 differ by up to 0.014 (granite: 0.036)."""
FAILURES = ("argument", "api")
"""Why a query can have an error instead of results."""

Scores = Mapping[tuple[str, int], float]
"""The scores of chunks, by the URLs of their pages and their numbers."""


@dataclass(frozen=True, slots=True)
class QueryScores:
    """The scores of one query's results, or None if it failed because of `failure`."""

    query: str
    scores: Scores | None
    failure: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        if self.scores is None:
            return {"error": self.failure}
        results = [
            {"url": url, "chunk_index": chunk, "score": round(score, 4)}
            for (url, chunk), score in self.scores.items()
        ]
        return {"query": self.query, "results": results}

    @staticmethod
    def from_dict(data: Any) -> QueryScores:
        """Read the result of `to_dict`."""
        if data.get("error") in FAILURES:
            return QueryScores("", None, data["error"])
        scores = {(str(one["url"]), int(one["chunk_index"])): float(one["score"]) for one in data["results"]}
        return QueryScores(str(data["query"]), scores)


@dataclass(frozen=True, slots=True)
class ExpectedResults:
    """The results of a suite's queries, by their ids, and the model that they are from."""

    suite: str
    model: str
    queries: Mapping[str, QueryScores]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        queries = {id: scores.to_dict() for id, scores in self.queries.items()}
        return {"suite": self.suite, "model": self.model, "queries": queries}

    @staticmethod
    def load(path: Path, max_bytes: int, hint: str) -> ExpectedResults:
        """Read a file with the result of `to_dict`; `hint` says how to make one."""
        data = parse_json(read_file(path, max_bytes), str(path), hint=hint)
        queries = data.get("queries") if isinstance(data, dict) else None
        if not isinstance(queries, dict) or not isinstance(data.get("model"), str):
            raise InvalidArgument(f"{path}: it has no model and no queries", hint=hint)
        expected = {}
        for id, entry in queries.items():
            try:
                expected[id] = QueryScores.from_dict(entry)
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                message = f'{path}, query "{id}": it has neither results nor an error'
                raise InvalidArgument(message, hint=hint) from error
        return ExpectedResults(str(data.get("suite", "")), data["model"], expected)

    def differences(self, actual: ExpectedResults, hint: str) -> dict[str, list[str]]:
        """Return how the results of each query differ; raise if the model or the suite is another one."""
        if self.model != actual.model:
            message = (
                f"The expected results of {self.model} cannot be compared with results of {actual.model}"
            )
            raise InvalidArgument(message, hint=hint)
        if gone := sorted(set(self.queries) - set(actual.queries)):
            message = f'The expected results have a query "{gone[0]}" that is not in the suite'
            raise InvalidArgument(message, hint=hint)
        return {id: _differences(self.queries.get(id), now) for id, now in actual.queries.items()}


def _differences(expected: QueryScores | None, actual: QueryScores) -> list[str]:
    if expected is None:
        return ["the expected results do not have this query"]
    if expected.scores is None or actual.scores is None:
        both = expected.scores is actual.scores
        return [] if both else ["an error on one side, results on the other"]
    if expected.query != actual.query:
        return ["the expected results are for another query text"]
    if len(expected.scores) != len(actual.scores):
        return [f"{len(actual.scores)} results where {len(expected.scores)} were expected"]
    return [
        f"chunk {chunk} of {url} ({old:.4f}) is no longer found"
        if new is None
        else f"chunk {chunk} of {url} has {new:.4f}, expected {old:.4f}"
        for (url, chunk), old, new in _changed_scores(expected.scores, actual.scores)
    ]


def _changed_scores(
    before: Scores, now: Scores, tolerance: float = TOLERANCE
) -> Iterator[tuple[tuple[str, int], float, float | None]]:
    """Yield the chunks that are gone (None) or whose score moved by more than `tolerance`, with both scores.

    Chunks whose scores are within the tolerance of the last one may drop out: they nearly tie with it.
    """
    last = min(now.values(), default=0.0)
    for key, old in before.items():
        new = now.get(key)
        if (new is None and old > last + tolerance) or (new is not None and abs(new - old) > tolerance):
            yield key, old, new
