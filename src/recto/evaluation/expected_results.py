"""Compare the results of queries with earlier ones, chunk by chunk, within a tolerance.

Use it where the same index must give the same results; `baseline` compares measures of any two indexes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
Results = dict[str, Any]
"""The content of a file: `suite`, `model`, and `queries` with the entry of each query by its id."""


def entry_of(query: str, scores: Scores) -> dict[str, Any]:
    """Return the entry of a query; a query that failed has {"error": one of `FAILURES`} instead."""
    results = [
        {"url": url, "chunk_index": chunk, "score": round(score, 4)} for (url, chunk), score in scores.items()
    ]
    return {"query": query, "results": results}


def _scores(entry: dict[str, Any]) -> Scores | None:
    """Return the scores of an entry, None for an error; raise if it has neither."""
    if entry.get("error") in FAILURES:
        return None
    return {(str(one["url"]), int(one["chunk_index"])): float(one["score"]) for one in entry["results"]}


def load_results(path: Path, max_bytes: int, hint: str) -> Results:
    """Read a file of results; `hint` says how to make one."""
    data: Results = parse_json(read_file(path, max_bytes), str(path), hint=hint)
    queries = data.get("queries") if isinstance(data, dict) else None
    if not isinstance(queries, dict) or not isinstance(data.get("model"), str):
        raise InvalidArgument(f"{path}: it has no model and no queries", hint=hint)
    for id, entry in queries.items():
        try:
            _scores(entry)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            message = f'{path}, query "{id}": it has neither results nor an error'
            raise InvalidArgument(message, hint=hint) from error
    return data


def differences(expected: Results, actual: Results, hint: str) -> dict[str, list[str]]:
    """Return how the results of each query differ; raise if the model or the suite is another one."""
    if expected["model"] != actual["model"]:
        message = (
            f"The expected results of {expected['model']} "
            f"cannot be compared with results of {actual['model']}"
        )
        raise InvalidArgument(message, hint=hint)
    if gone := sorted(set(expected["queries"]) - set(actual["queries"])):
        message = f'The expected results have a query "{gone[0]}" that is not in the suite'
        raise InvalidArgument(message, hint=hint)
    return {
        id: list(_differences(expected["queries"].get(id), entry)) for id, entry in actual["queries"].items()
    }


def _differences(expected: dict[str, Any] | None, actual: dict[str, Any]) -> Iterator[str]:
    if expected is None:
        yield "the expected results do not have this query"
        return
    before, now = _scores(expected), _scores(actual)
    if before is None or now is None:
        if before is not now:
            yield "an error on one side, results on the other"
    elif expected.get("query") != actual["query"]:
        yield "the expected results are for another query text"
    elif len(before) != len(now):
        yield f"{len(now)} results where {len(before)} were expected"
    else:
        last = min(now.values(), default=0.0)
        for (url, chunk), old in before.items():
            new = now.get((url, chunk))
            # Chunks whose scores are within the tolerance of the last one may drop out: they nearly tie.
            if new is None and old > last + TOLERANCE:
                yield f"chunk {chunk} of {url} ({old:.4f}) is no longer found"
            elif new is not None and abs(new - old) > TOLERANCE:
                yield f"chunk {chunk} of {url} has {new:.4f}, expected {old:.4f}"
