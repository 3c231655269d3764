"""A run that is kept, and the differences of a later run from it."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from recto._util.names import filter_keys, page_key
from recto._util.retry import Notify
from recto.contracts.retrieval_test.contract import (
    DEFAULT_TOP_K,
    SCHEMA_VERSION,
    APIError,
    SearchResult,
    checked_query,
    error_document,
    kind_of,
)
from recto.contracts.retrieval_test.service import COMPONENTS, Answered
from recto.contracts.retrieval_test.suites import Case, Cases, read_json
from recto.embedders.cohere import Pace, Pacer
from recto.errors import InvalidArgument, RectoError

QUERIES_PER_MINUTE = 10
"""What a suite asks of Cohere at most, unless --delay says otherwise."""

Turn = Callable[[], None]
"""Waits until the next query may be sent."""

_CLI = logging.getLogger("recto.contracts.retrieval_test.cli")


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one query: an answer or an error, and the expectations that it does not meet."""

    case: Case
    top_k: int
    outcome: Answered | RectoError
    unmet: tuple[str, ...]

    @property
    def answered(self) -> Answered | None:
        """The answer, if there is one."""
        return self.outcome if isinstance(self.outcome, Answered) else None

    @property
    def passed(self) -> bool:
        """Whether all that was expected is so."""
        return not self.unmet

    @property
    def failed_api(self) -> bool:
        """Whether an engine failed where no error was expected."""
        return isinstance(self.outcome, APIError) and not self.case.expect.error

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "id": self.case.id,
            "category": self.case.category,
            "tags": list(self.case.tags),
            "passed": self.passed,
            "expected": dict(self.case.given),
            "unmet": list(self.unmet),
            "latency_ms": self.answered.latency_ms if self.answered else None,
            "response": self.outcome.response
            if isinstance(self.outcome, Answered)
            else self._refusal(self.outcome),
        }

    def _refusal(self, error: RectoError) -> dict[str, Any]:
        document = error_document(str(error), error.hint, kind_of(error), getattr(error, "component", "CLI"))
        shown = self.case.query if len(self.case.query) <= 200 else f"{self.case.query[:200]}…"
        return {"schema_version": SCHEMA_VERSION, "query": shown, "top_k": self.top_k, **document}


def turns(
    *,
    paid: bool,
    delay: float | None,
    notify: Notify,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Turn:
    """Return what waits before each query: the given delay between two, else ten a minute of a paid service, else nothing."""
    if delay is not None:
        last: list[float] = []

        def pause() -> None:
            if last and (left := last.pop() + delay - clock()) > 0:
                sleep(left)
            last[:] = [clock()]

        return pause
    if not paid:
        return lambda: None
    pacer = Pacer(Pace(calls=QUERIES_PER_MINUTE), notify, clock, sleep)
    return lambda: pacer.wait(1, 0)


def run_cases(
    suite: Cases, ask: Callable[[str, int], Answered], turn: Turn, top_k: int = DEFAULT_TOP_K
) -> list[Verdict]:
    """Ask all queries in their order; a query that fails does not stop the others."""
    asked: list[tuple[Case, int, Answered | RectoError]] = []
    for number, case in enumerate(suite.cases, 1):
        limit = case.top_k or top_k
        asked.append((case, limit, _asked(ask, turn, case, limit)))
        _CLI.debug("%d of %d: %s", number, len(suite.cases), case.id)
    best = {
        case.id: found.results[0].score
        for case, _, found in asked
        if isinstance(found, Answered) and found.results
    }
    return [Verdict(case, limit, outcome, _unmet(case, outcome, best)) for case, limit, outcome in asked]


def _asked(ask: Callable[[str, int], Answered], turn: Turn, case: Case, limit: int) -> Answered | RectoError:
    try:
        checked_query(case.query)  # what is refused here costs no call, so it waits for none
        turn()
        return ask(case.query, limit)
    except (APIError, InvalidArgument) as error:
        _CLI.info("%s: %s", case.id, error)
        return error


def _unmet(case: Case, outcome: Answered | RectoError, best: Mapping[str, float]) -> tuple[str, ...]:
    expect = case.expect
    if isinstance(outcome, RectoError):
        kind = "api" if isinstance(outcome, APIError) else "argument"
        return () if expect.error == kind else (str(outcome),)
    if expect.error:
        return (f"expected an error of kind {expect.error}, got {len(outcome.results)} results",)
    unmet: list[str] = []
    first = outcome.results[: expect.within]
    if len(outcome.results) < expect.min_results:
        unmet.append(f"expected at least {expect.min_results} results, got {len(outcome.results)}")
    if expect.pages and not _from_page(first, expect.pages):
        unmet.append(f"none of the first {expect.within} results is from {' or '.join(expect.pages)}")
    if expect.modules and not _from_module(first, expect.modules):
        unmet.append(
            f"none of the first {expect.within} results is from module {' or '.join(expect.modules)}"
        )
    if expect.text and not any(_flat(expect.text) in _flat(result.text) for result in first):
        unmet.append(f"none of the first {expect.within} results says {expect.text!r}")
    unmet += [
        f"its best score is not below that of {other}"
        for other in expect.weaker_than
        if case.id in best and not best[case.id] < best.get(other, 0.0)
    ]
    return tuple(unmet)


def _from_page(results: Sequence[SearchResult], pages: Sequence[str]) -> bool:
    """A page is named by its address, or by the end of its path without the extension."""
    wanted = [page_key(page) for page in pages]
    found = {
        key for result in results for key in (page_key(result.metadata.url), page_key(result.metadata.source))
    }
    return any(key == page or key.endswith(f"/{page.lstrip('/')}") for key in found for page in wanted)


def _from_module(results: Sequence[SearchResult], modules: Sequence[str]) -> bool:
    wanted = set(filter_keys(modules))
    return any(not wanted.isdisjoint(result.modules) for result in results)


def _flat(text: str) -> str:
    return " ".join(text.split()).casefold()


TARGETS_MS = {
    "embed": {"p95": 500, "p99": 1000},
    "search": {"p95": 300, "p99": 500},
    "total": {"p95": 2000, "p99": 3000},
}
"""The contract's targets; they are reported, they do not decide."""

_SUMMARY_CLI = logging.getLogger("recto.contracts.retrieval_test.cli")


def batch_document(suite: Cases, collection: str, model: str, verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Return what a suite's run prints."""
    return {
        "schema_version": SCHEMA_VERSION,
        "suite": suite.name,
        "collection": collection,
        "model": model,
        "summary": summary(verdicts),
        "queries": [verdict.to_dict() for verdict in verdicts],
    }


def summary(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """Return the metrics; success is a valid query that was answered, or one that was rightly refused."""
    passed = sum(verdict.passed for verdict in verdicts)
    succeeded = sum(
        verdict.answered is not None or (verdict.passed and bool(verdict.case.expect.error))
        for verdict in verdicts
    )
    latency = {name: _latency(verdicts, name) for name in COMPONENTS}
    figures = {
        "query_count": len(verdicts),
        "passed": passed,
        "failed": len(verdicts) - passed,
        "pass_rate": round(passed / len(verdicts), 4),
        "success_rate": round(succeeded / len(verdicts), 4),
        "failure_rate": round(1 - succeeded / len(verdicts), 4),
        "latency_ms": latency,
        "latency_targets_ms": TARGETS_MS,
        "within_targets": {
            name: all(latency[name][mark] < most for mark, most in targets.items())
            if latency[name]["count"]
            else None
            for name, targets in TARGETS_MS.items()
        },
        "top_k_distribution": {
            str(top_k): count
            for top_k, count in sorted(Counter(verdict.top_k for verdict in verdicts).items())
        },
    }
    total = latency["total"]
    _SUMMARY_CLI.info(
        "%d queries, %d passed, %d failed; total mean %.1f ms, p95 %.1f ms, p99 %.1f ms",
        *(len(verdicts), passed, len(verdicts) - passed, total["mean"], total["p95"], total["p99"]),
    )
    return figures


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that so large a share of all does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def _latency(verdicts: Sequence[Verdict], component: str) -> dict[str, float]:
    values = [verdict.answered.latency_ms[component] for verdict in verdicts if verdict.answered]
    if not values:
        return {"count": 0, "mean": 0.0, "p95": 0.0, "p99": 0.0, "max": 0.0}
    return {
        "count": len(values),
        "mean": round(sum(values) / len(values), 3),
        "p95": percentile(values, 0.95),
        "p99": percentile(values, 0.99),
        "max": max(values),
    }


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
            f"The expected results are of {baseline['model']}, but {model} is in use: they cannot be compared",
            hint=_SHAPE,
        )
    queries = baseline["queries"]
    if gone := sorted(set(queries) - {verdict.case.id for verdict in verdicts}):
        raise InvalidArgument(
            f'The expected results have a query "{gone[0]}" that is not in the suite', hint=_SHAPE
        )
    return [
        replace(verdict, unmet=(*verdict.unmet, *_differences(verdict, queries.get(verdict.case.id))))
        for verdict in verdicts
    ]


def _kept(verdict: Verdict) -> dict[str, Any]:
    if verdict.answered is None:
        return {"error": "argument" if verdict.case.expect.error == "argument" else "api"}
    return {
        "query": verdict.answered.response["query"],
        "results": [
            {
                "url": result.metadata.url,
                "chunk_index": result.metadata.chunk_index,
                "score": round(result.score, 4),
            }
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
    found = {
        (result.metadata.url, result.metadata.chunk_index): result.score
        for result in verdict.answered.results
    }
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
