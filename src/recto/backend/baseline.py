"""A run that is kept, and the differences of a later run from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from recto.backend.batch import Verdict
from recto.backend.cases import Cases, read_json
from recto.backend.contract import SCHEMA_VERSION
from recto.errors import InvalidArgument

TOLERANCE = 0.04
"""How far a score may move: int8 and fp32 of the same model differ by up to 0.036 in the committed suite."""

_SHAPE = "Make it with --test-suite FILE --update-expected FILE."


def baseline_document(suite: Cases, model: str, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Return what is kept of a run: where each result is from and its score, no text and no times."""
    return {
        "schema_version": SCHEMA_VERSION,
        "suite": suite.name,
        "model": model,
        "queries": {verdict.case.id: _kept(verdict) for verdict in verdicts},
    }


def load_baseline(path: Path) -> Mapping[str, Any]:
    """Read a kept run."""
    data = read_json(path, "--expected", _SHAPE)
    queries = data.get("queries") if isinstance(data, dict) else None
    if not isinstance(queries, dict) or not isinstance(data.get("model"), str):
        raise InvalidArgument(f"{path}: it has no model and no queries", hint=_SHAPE)
    for id, kept in queries.items():
        if not _is_kept(kept):
            raise InvalidArgument(f'{path}, query "{id}": it has neither results nor an error', hint=_SHAPE)
    return {"model": data["model"], "queries": queries}


def compared(verdicts: Sequence[Verdict], baseline: Mapping[str, Any], model: str) -> list[Verdict]:
    """Return the verdicts with every difference from a kept run among what is unmet."""
    if baseline["model"] != model:
        raise InvalidArgument(
            f"The expected results are of {baseline['model']}, but {model} is in use: they cannot be compared", hint=_SHAPE
        )
    queries = baseline["queries"]
    if gone := sorted(set(queries) - {verdict.case.id for verdict in verdicts}):
        raise InvalidArgument(f'The expected results have a query "{gone[0]}" that is not in the suite', hint=_SHAPE)
    return [replace(verdict, unmet=(*verdict.unmet, *_differences(verdict, queries.get(verdict.case.id)))) for verdict in verdicts]


def _kept(verdict: Verdict) -> dict[str, Any]:
    if verdict.answered is None:
        return {"error": "argument" if verdict.case.expect.error == "argument" else "api"}
    return {
        "query": verdict.answered.response["query"],
        "results": [
            {"url": result.metadata.url, "chunk_index": result.metadata.chunk_index, "score": round(result.score, 4)}
            for result in verdict.answered.results
        ],
    }


def _is_kept(kept: Any) -> bool:
    if not isinstance(kept, dict):
        return False
    results = kept.get("results")
    if results is None:
        return kept.get("error") in ("argument", "api")
    return isinstance(results, list) and all(
        isinstance(result, dict)
        and isinstance(result.get("url"), str)
        and isinstance(result.get("chunk_index"), int)
        and isinstance(result.get("score"), int | float)
        for result in results
    )


def _differences(verdict: Verdict, kept: Mapping[str, Any] | None) -> list[str]:
    """Compare by places in the book; two passages whose scores nearly tie may change places, or the last of them fall out."""
    if kept is None:
        return ["the expected results do not have this query"]
    if "results" not in kept or verdict.answered is None:
        same = ("results" not in kept) == (verdict.answered is None)
        return [] if same else ["an error on one side, results on the other"]
    if kept.get("query") != verdict.answered.response["query"]:
        return ["the expected results are those of another query text"]
    found = {(result.metadata.url, result.metadata.chunk_index): result.score for result in verdict.answered.results}
    if len(found) != len(kept["results"]):
        return [f"{len(found)} results where {len(kept['results'])} were expected"]
    last = min(found.values(), default=0.0)
    differences = []
    for result in kept["results"]:
        place, score = (result["url"], result["chunk_index"]), result["score"]
        if place not in found and score > last + TOLERANCE:
            differences.append(f"chunk {place[1]} of {place[0]} ({score:.4f}) is no longer found")
        elif place in found and abs(found[place] - score) > TOLERANCE:
            differences.append(f"chunk {place[1]} of {place[0]} has {found[place]:.4f}, expected {score:.4f}")
    return differences
