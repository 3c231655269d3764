"""Document 003's test suites: parse a suite, run it, report it, and compare it with a baseline."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from recto._util import distribution
from recto._util.files import read_text
from recto.contracts.retrieval_test import (
    COMPONENTS,
    MAX_TOP_K,
    SCHEMA_VERSION,
    APIError,
    FormattedResponse,
    checked_query,
    error_document,
)
from recto.embedders.cohere import RateLimit, Throttle
from recto.errors import InvalidArgument, RectoError
from recto.evaluation import suites
from recto.evaluation.binding import Target, module_target, page_target, passage_target
from recto.evaluation.suites import Expectation
from recto.plugins import Notify
from recto.types.request import DEFAULT_TOP_K

QUERIES_PER_MINUTE = 10
"""The default rate of a suite's queries to Cohere; --delay overrides it."""

TARGETS_MS = {
    "embed": {"p95": 500, "p99": 1000},
    "search": {"p95": 300, "p99": 500},
    "total": {"p95": 2000, "p99": 3000},
}
"""The latency targets of document 003; a run reports them, but does not fail on them."""

MAX_BYTES = 5_000_000
_MAX_REPEATED = 1_000_000  # characters
_SHOWN = 200  # characters of a query that failed
_HINT = f"{suites.SHAPE} backend/README.md lists all expectations."
EXPECTED_HINT = "Make it with --test-suite FILE --update-expected FILE."
_CLI = logging.getLogger("recto.contracts.retrieval_test.cli")


TOLERANCE = 0.04
"""How far a score may move: in the committed suite, int8 and fp32 differ by up to 0.014 (granite: 0.036)."""
FAILURES = ("argument", "api")
"""Why a query can have an error instead of results."""

_Scores = Mapping[tuple[str, int], float]
"""The scores of chunks, by the URLs of their pages and their numbers."""
Results = dict[str, Any]
"""The content of a file: `suite`, `model`, and `queries` with the entry of each query by its id."""


@dataclass(frozen=True, slots=True)
class Cases:
    """A suite's name and its queries in order."""

    name: str
    cases: tuple[Expectation, ...]


def load_cases(path: Path) -> Cases:
    """Read a suite's file."""
    return _parse(suites.read_suite_file(path, MAX_BYTES))


def parse_cases(data: Any, origin: str) -> Cases:
    """Parse a suite's JSON value."""
    return _parse(suites.suite_file(data, origin))


def _parse(raw: suites.SuiteFile) -> Cases:
    cases = suites.parse_entries(raw, _case)
    ids = {case.id for case in cases}
    for case in cases:
        for other in _weaker_than(case):
            if other not in ids - {case.id}:
                problem = f'"weaker_than" names "{other}", which is not another query of the suite'
                raise suites.invalid(case.position, problem, _HINT)
    return Cases(raw.name, cases)


_ENTRY: Mapping[str, suites.Rule] = {
    **dict.fromkeys(("id", "query", "category"), suites.TEXT),
    **dict.fromkeys(("query_repeat", "expect"), suites.OBJECT),
    **dict.fromkeys(("tags", "note"), suites.ANY),
    "top_k": suites.whole_number(1, MAX_TOP_K),
}
_EXPECT: Mapping[str, suites.Rule] = {
    **dict.fromkeys(("page", "module", "weaker_than"), suites.ANY),
    "text": suites.TEXT,
    "within": suites.whole_number(1, MAX_TOP_K),
    "min_results": suites.whole_number(0, MAX_TOP_K),
    "error": (lambda value: value in FAILURES, f"one of {', '.join(FAILURES)}"),
}
_REPEAT: Mapping[str, suites.Rule] = {"text": suites.TEXT, "times": suites.whole_number(1, _MAX_REPEATED)}


def _case(entry: Any, position: str, number: int) -> Expectation:
    if not isinstance(entry, dict):
        raise suites.invalid(position, "it is not an object", _HINT)
    suites.check_values(entry, _ENTRY, position, hint=_HINT)
    expect, repeat = entry.get("expect", {}), entry.get("query_repeat", {})
    suites.check_values(expect, _EXPECT, position, '"{key}" cannot be expected', _HINT)
    suites.check_values(repeat, _REPEAT, position, '"query_repeat" must not have "{key}"', _HINT)
    if ("query" in entry) == ("query_repeat" in entry):
        raise suites.invalid(position, 'it needs a "query" or a "query_repeat"', _HINT)
    if "query_repeat" in entry and len(repeat) < len(_REPEAT):
        raise suites.invalid(position, '"query_repeat" must be an object with "text" and "times"', _HINT)
    if len(repeat.get("text", "")) * repeat.get("times", 0) > _MAX_REPEATED:
        raise suites.invalid(position, f'"times" must make at most {_MAX_REPEATED} characters', _HINT)
    if "error" in expect and len(expect) > 1:
        raise suites.invalid(position, 'with an "error", nothing else can be expected', _HINT)
    case = Expectation(
        entry.get("query", repeat.get("text", "") * repeat.get("times", 0)),
        modules=suites.parse_names(expect.get("module"), position, "module"),
        pages=suites.parse_names(expect.get("page"), position, "page"),
        id=entry.get("id", "").strip() or f"query-{number}",
        tags=suites.parse_names(entry.get("tags"), position, "tags"),
        category=entry.get("category", ""),
        top_k=entry.get("top_k"),
        conditions=expect,
        position=position,
    )
    _weaker_than(case)
    return case


def _weaker_than(case: Expectation) -> tuple[str, ...]:
    """Return the queries whose best scores must be above the best score of this one."""
    return suites.parse_names(case.conditions.get("weaker_than"), case.position, "weaker_than")


@dataclass(frozen=True, slots=True)
class CaseResult:
    """The response to one query, or its error, and the expectations that it does not meet."""

    case: Expectation
    top_k: int
    response: FormattedResponse | None
    error: RectoError | None
    unmet: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether all expectations are met."""
        return not self.unmet

    @property
    def failed_api(self) -> bool:
        """Whether an engine failed although no error is expected."""
        return isinstance(self.error, APIError) and not self.case.conditions.get("error")

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        if self.response is not None:
            response = self.response.document
        else:
            query = self.case.query if len(self.case.query) <= _SHOWN else f"{self.case.query[:_SHOWN]}…"
            response = {"schema_version": SCHEMA_VERSION, "query": query, "top_k": self.top_k}
            response |= error_document(self.error) if self.error else {}
        return {
            "id": self.case.id,
            "category": self.case.category,
            "tags": list(self.case.tags),
            "passed": self.passed,
            "expected": dict(self.case.conditions),
            "unmet": list(self.unmet),
            "latency_ms": self.response.latency_ms if self.response else None,
            "response": response,
        }


def wait_between_queries(
    *,
    paid: bool,
    delay: float | None,
    notify: Notify,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Callable[[], None]:
    """Return a function to call before each query: it keeps `delay`, else ten queries a minute if `paid`."""
    limit = RateLimit(calls=QUERIES_PER_MINUTE) if paid else RateLimit()
    if delay is not None:  # the user asked for these waits, so they are not reported
        limit, notify = RateLimit(calls=1, seconds=delay), lambda _: None
    throttle = Throttle(limit, notify, clock, sleep)
    return lambda: throttle.wait(1, 0)


def run_cases(
    suite: Cases,
    ask: Callable[[str, int], FormattedResponse],
    wait: Callable[[], None],
    top_k: int = DEFAULT_TOP_K,
) -> list[CaseResult]:
    """Run all queries in order; a query that fails does not stop the others."""
    results = []
    for case in suite.cases:
        limit, response, failure = case.top_k or top_k, None, None
        try:
            checked_query(case.query)  # an invalid query costs no call, so it does not wait
            wait()
            response = ask(case.query, limit)
        except (APIError, InvalidArgument) as error:
            _CLI.info("%s: %s", case.id, error)
            failure = error
        results.append(CaseResult(case, limit, response, failure))
    best = {
        result.case.id: result.response.results[0].score
        for result in results
        if result.response and result.response.results
    }
    return [replace(result, unmet=tuple(_unmet(result, best))) for result in results]


def _unmet(result: CaseResult, best: Mapping[str, float]) -> list[str]:
    case, conditions, response = result.case, result.case.conditions, result.response
    if response is None:
        kind = "api" if isinstance(result.error, APIError) else "argument"
        return [] if conditions.get("error") == kind else [str(result.error)]
    least, within = conditions.get("min_results", 1), conditions.get("within", 5)
    count = len(response.results)
    if "error" in conditions:
        return [f"expected an error of kind {conditions['error']}, got {count} results"]
    none = f"none of the first {within} results"
    text = conditions.get("text", "")
    targets: dict[str, list[Target]] = {
        f"is from {' or '.join(case.pages)}": [page_target(page, path_end=True) for page in case.pages],
        f"is from module {' or '.join(case.modules)}": [*map(module_target, case.modules)],
        f"says {text!r}": [passage_target(text)] if text else [],
    }
    unmet = [f"expected at least {least} results, got {count}"] if count < least else []
    for expectation, accepted in targets.items():
        hits = response.hits[:within]
        if accepted and not any(target.holds(hit.chunk) for target in accepted for hit in hits):
            unmet.append(f"{none} {expectation}")
    return unmet + [
        f"its best score is not below the best score of {other}"
        for other in _weaker_than(case)
        if case.id in best and best[case.id] >= best.get(other, 0.0)
    ]


def summary(results: Sequence[CaseResult]) -> dict[str, Any]:
    """Return the metrics of a run; a query succeeds if it gets a response, or an error that is expected."""
    count, passed = len(results), sum(result.passed for result in results)
    succeeded = sum(result.response is not None or result.passed for result in results)
    latency = {
        name: distribution([result.response.latency_ms[name] for result in results if result.response])
        for name in COMPONENTS
    }
    total = latency["total"]
    _CLI.info(
        "%d queries, %d passed, %d failed; total mean %.1f ms, p95 %.1f ms, p99 %.1f ms",
        *(count, passed, count - passed, total["mean"], total["p95"], total["p99"]),
    )
    return {
        "query_count": count,
        "passed": passed,
        "failed": count - passed,
        "pass_rate": round(passed / count, 4),
        "success_rate": round(succeeded / count, 4),
        "failure_rate": round(1 - succeeded / count, 4),
        "latency_ms": latency,
        "latency_targets_ms": TARGETS_MS,
        "within_targets": {
            name: all(latency[name][mark] < most for mark, most in targets.items())
            if latency[name]["count"]
            else None
            for name, targets in TARGETS_MS.items()
        },
        "top_k_distribution": {
            str(top_k): number
            for top_k, number in sorted(Counter(result.top_k for result in results).items())
        },
    }


def scores_of(suite: Cases, model: str, results: Sequence[CaseResult]) -> Results:
    """Return the URL, chunk and score of each result, without texts and times."""
    return {
        "suite": suite.name,
        "model": model,
        "queries": {result.case.id: _scores(result) for result in results},
    }


def _scores(result: CaseResult) -> dict[str, Any]:
    if result.response is None:
        return {"error": "argument" if result.case.conditions.get("error") == "argument" else "api"}
    return {
        "query": result.response.query,
        "results": [
            {
                "url": found.metadata.url,
                "chunk_index": found.metadata.chunk_index,
                "score": round(found.score, 4),
            }
            for found in result.response.results
        ],
    }


def _entry_scores(entry: dict[str, Any]) -> _Scores | None:
    """Return the scores of an entry, None for an error; raise if it has neither."""
    if entry.get("error") in FAILURES:
        return None
    return {
        (str(found["url"]), int(found["chunk_index"])): float(found["score"]) for found in entry["results"]
    }


def load_results(path: Path) -> Results:
    """Read a file of expected results."""
    data: Results = suites.parse_json(read_text(path, MAX_BYTES), str(path), hint=EXPECTED_HINT)
    queries = data.get("queries") if isinstance(data, dict) else None
    if not isinstance(queries, dict) or not isinstance(data.get("model"), str):
        raise InvalidArgument(f"{path}: it has no model and no queries", hint=EXPECTED_HINT)
    for id, entry in queries.items():
        try:
            _entry_scores(entry)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            message = f'{path}, query "{id}": it has neither results nor an error'
            raise InvalidArgument(message, hint=EXPECTED_HINT) from error
    return data


def differences(expected: Results, actual: Results) -> dict[str, list[str]]:
    """Return how the results of each query differ; raise if the model or the suite is another one."""
    if expected["model"] != actual["model"]:
        message = (
            f"The expected results of {expected['model']} "
            f"cannot be compared with results of {actual['model']}"
        )
        raise InvalidArgument(message, hint=EXPECTED_HINT)
    if gone := sorted(set(expected["queries"]) - set(actual["queries"])):
        message = f'The expected results have a query "{gone[0]}" that is not in the suite'
        raise InvalidArgument(message, hint=EXPECTED_HINT)
    return {
        id: list(_differences(expected["queries"].get(id), entry)) for id, entry in actual["queries"].items()
    }


def _differences(expected: dict[str, Any] | None, actual: dict[str, Any]) -> Iterator[str]:
    if expected is None:
        yield "the expected results do not have this query"
        return
    before, now = _entry_scores(expected), _entry_scores(actual)
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
