"""Document 003's test suites: parse a suite, run it, report it, and compare it with a baseline."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from recto._util.numbers import nearest_rank
from recto._util.retry import Notify
from recto.contracts.retrieval_test.contract import (
    DEFAULT_TOP_K,
    MAX_TOP_K,
    SCHEMA_VERSION,
    APIError,
    checked_query,
    error_document,
    kind_of,
)
from recto.contracts.retrieval_test.service import COMPONENTS, FormattedResponse
from recto.embedders.cohere import RateLimit, Throttle
from recto.errors import InvalidArgument, RectoError
from recto.evaluation.baseline import changed_scores
from recto.evaluation.binding import Target, bind_by_name, module_target, page_target, passage_target
from recto.evaluation.runs import Options, QueryResult
from recto.evaluation.runs import ask as run_questions
from recto.evaluation.suites import (
    NO_SUITE,
    SHAPE,
    Expectation,
    SuiteFile,
    check_id,
    check_keys,
    parse_json,
    parse_names,
    read_file,
    read_suite_file,
    suite_file,
)

QUERIES_PER_MINUTE = 10
"""The default rate of a suite's queries to Cohere; --delay overrides it."""

TARGETS_MS = {
    "embed": {"p95": 500, "p99": 1000},
    "search": {"p95": 300, "p99": 500},
    "total": {"p95": 2000, "p99": 3000},
}
"""The latency targets of document 003; a run reports them, but does not fail on them."""

TOLERANCE = 0.04
"""How far a score may move: in the committed suite, int8 and fp32 differ by up to 0.014 (granite: 0.036)."""

Ask = Callable[[str, int], FormattedResponse]

_CLI = logging.getLogger("recto.contracts.retrieval_test.cli")
_SHAPE = "Make it with --test-suite FILE --update-expected FILE."
MAX_BYTES = 5_000_000
_MAX_REPEATED = 1_000_000
_ENTRY_KEYS = ("id", "query", "query_repeat", "category", "tags", "top_k", "expect", "note")
_EXPECT_KEYS = ("page", "module", "text", "within", "min_results", "weaker_than", "error")
_ERRORS = ("argument", "api")


@dataclass(frozen=True, slots=True)
class Case(Expectation):
    """One query of a suite; all expectations must be met, empty ones do not apply.

    One of `pages`, one of `modules` and the passage must be among the first `within` results. The best score
    must be below the best score of each query in `weaker_than`. `given` is the expectation as written.
    """

    category: str = ""
    top_k: int | None = None
    within: int = DEFAULT_TOP_K
    min_results: int = 1
    weaker_than: tuple[str, ...] = ()
    error: str = ""
    given: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cases:
    """A suite's name and its queries in order."""

    name: str
    cases: tuple[Case, ...]


def load_cases(path: Path) -> Cases:
    """Read a suite's file."""
    return _parse(read_suite_file(path, MAX_BYTES))


def parse_cases(data: Any, origin: str) -> Cases:
    """Parse a suite's JSON value."""
    return _parse(suite_file(data, origin))


def _parse(raw: SuiteFile) -> Cases:
    cases: list[Case] = []
    ids: dict[str, str] = {}
    for number, (place, entry) in enumerate(raw.entries, 1):
        case = _case(entry, number, place)
        check_id(case.id, place, ids)
        cases.append(case)
    for case in cases:
        for other in case.weaker_than:
            if other not in ids or other == case.id:
                raise _error(
                    case.place, f'"weaker_than" names "{other}", which is not another query of the suite'
                )
    name = raw.header.get("name")
    return Cases(name if isinstance(name, str) and name.strip() else Path(raw.origin).stem, tuple(cases))


def _case(entry: Any, number: int, place: str) -> Case:
    if not isinstance(entry, dict):
        raise _error(place, "it is not an object")
    check_keys(entry, _ENTRY_KEYS, place)
    id = entry.get("id", f"query-{number}")
    if not isinstance(id, str) or not id.strip():
        raise _error(place, '"id" must be a non-empty string')
    top_k, expect = entry.get("top_k"), entry.get("expect", {})
    if not isinstance(expect, dict):
        raise _error(place, '"expect" must be an object')
    check_keys(expect, _EXPECT_KEYS, place, '"{key}" cannot be expected')
    error, text = expect.get("error", ""), _text(expect, place, "text")
    if error not in ("", *_ERRORS):
        raise _error(place, f'"error" must be one of {", ".join(_ERRORS)}')
    if error and len(expect) > 1:
        raise _error(place, 'with an "error", nothing else can be expected')
    return Case(
        _query(entry, place),
        modules=parse_names(expect.get("module"), place, "module"),
        pages=parse_names(expect.get("page"), place, "page"),
        passages=(text,) if text else (),
        id=id,
        tags=parse_names(entry.get("tags"), place, "tags"),
        place=place,
        category=_text(entry, place, "category"),
        top_k=None if top_k is None else _whole(top_k, place, "top_k", 1),
        within=_whole(expect.get("within", DEFAULT_TOP_K), place, "within", 1),
        min_results=_whole(expect.get("min_results", 1), place, "min_results", 0),
        weaker_than=parse_names(expect.get("weaker_than"), place, "weaker_than"),
        error=error,
        given=expect,
    )


def _query(entry: dict[str, Any], place: str) -> str:
    """Return the query; `query_repeat` writes a very long one as a text and a number of repetitions."""
    if ("query" in entry) == ("query_repeat" in entry):
        raise _error(place, 'it needs a "query" or a "query_repeat"')
    if "query" in entry:
        if not isinstance(entry["query"], str):
            raise _error(place, f'"query" must be a string, not {type(entry["query"]).__name__}')
        return entry["query"]
    repeat = entry["query_repeat"]
    if not isinstance(repeat, dict) or set(repeat) != {"text", "times"}:
        raise _error(place, '"query_repeat" must be an object with "text" and "times"')
    text, times = _text(repeat, place, "text"), repeat["times"]
    whole = isinstance(times, int) and not isinstance(times, bool)
    if not whole or not 1 <= times * max(1, len(text)) <= _MAX_REPEATED:
        raise _error(place, f'"times" must be a whole number that makes at most {_MAX_REPEATED} characters')
    return text * int(times)


def _text(entry: dict[str, Any], place: str, key: str) -> str:
    value = entry.get(key, "")
    if not isinstance(value, str):
        raise _error(place, f'"{key}" must be a string')
    return value


def _whole(value: Any, place: str, key: str, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MAX_TOP_K:
        raise _error(place, f'"{key}" must be a whole number from {least} to {MAX_TOP_K}')
    return value


def _error(place: str, problem: str) -> InvalidArgument:
    return InvalidArgument(f"{place}: {problem}", hint=f"{SHAPE} backend/README.md lists all expectations.")


@dataclass(frozen=True, slots=True)
class CaseResult:
    """The result of one query, and the expectations that it does not meet."""

    case: Case
    top_k: int
    result: QueryResult
    unmet: tuple[str, ...]

    @property
    def response(self) -> FormattedResponse | None:
        """The response, unless the query failed."""
        return self.result.response if isinstance(self.result.response, FormattedResponse) else None

    @property
    def passed(self) -> bool:
        """Whether all expectations are met."""
        return not self.unmet

    @property
    def failed_api(self) -> bool:
        """Whether an engine failed although no error is expected."""
        return isinstance(self.result.error, APIError) and not self.case.error

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "id": self.case.id,
            "category": self.case.category,
            "tags": list(self.case.tags),
            "passed": self.passed,
            "expected": dict(self.case.given),
            "unmet": list(self.unmet),
            "latency_ms": self.response.latency_ms if self.response else None,
            "response": self.response.document if self.response else self._error_document(),
        }

    def _error_document(self) -> dict[str, Any]:
        error = self.result.error
        if error is None:
            return {}
        document = error_document(str(error), error.hint, kind_of(error), getattr(error, "component", "CLI"))
        shown = self.case.query if len(self.case.query) <= 200 else f"{self.case.query[:200]}…"
        return {"schema_version": SCHEMA_VERSION, "query": shown, "top_k": self.top_k, **document}


def wait_between_queries(
    *,
    paid: bool,
    delay: float | None,
    notify: Notify,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Callable[[], None]:
    """Return a function to call before each query: it keeps `delay`, else ten queries a minute if `paid`."""
    if delay is not None:
        last: list[float] = []

        def pause() -> None:
            if last and (left := last.pop() + delay - clock()) > 0:
                sleep(left)
            last[:] = [clock()]

        return pause
    if not paid:
        return lambda: None
    throttle = Throttle(RateLimit(calls=QUERIES_PER_MINUTE), notify, clock, sleep)
    return lambda: throttle.wait(1, 0)


def run_cases(
    suite: Cases, ask: Ask, wait: Callable[[], None], top_k: int = DEFAULT_TOP_K
) -> list[CaseResult]:
    """Run all queries in order; a query that fails does not stop the others."""
    limits = {case.key: case.top_k or top_k for case in suite.cases}

    def search(batch: Sequence[Expectation]) -> Iterator[FormattedResponse | RectoError]:
        for question in batch:
            try:
                checked_query(question.query)  # an invalid query costs no call, so it does not wait
                wait()
                yield ask(question.query, limits[question.key])
            except (APIError, InvalidArgument) as error:
                _CLI.info("%s: %s", question.key, error)
                yield error

    questions = [bind_by_name(case) for case in suite.cases]
    found = run_questions(questions, search, Options(top_k, measures=(), keep_responses=True))
    results = [
        CaseResult(case, limits[case.key], result, ())
        for case, result in zip(suite.cases, found, strict=True)
    ]
    best = {
        one.case.id: one.response.results[0].score for one in results if one.response and one.response.results
    }
    return [replace(one, unmet=_unmet(one, best)) for one in results]


def _unmet(one: CaseResult, best: Mapping[str, float]) -> tuple[str, ...]:
    case, response = one.case, one.response
    if response is None:
        kind = "api" if isinstance(one.result.error, APIError) else "argument"
        return () if case.error == kind else (str(one.result.error),)
    count = len(response.results)
    if case.error:
        return (f"expected an error of kind {case.error}, got {count} results",)
    chunks = [hit.chunk for hit in response.hits[: case.within]]

    def missed(targets: Sequence[Target]) -> bool:
        return bool(targets) and not any(target.holds(chunk) for target in targets for chunk in chunks)

    none = f"none of the first {case.within} results"
    unmet = [f"expected at least {case.min_results} results, got {count}"] if count < case.min_results else []
    if missed([page_target(page, path_end=True) for page in case.pages]):
        unmet.append(f"{none} is from {' or '.join(case.pages)}")
    if missed([module_target(module) for module in case.modules]):
        unmet.append(f"{none} is from module {' or '.join(case.modules)}")
    if missed([passage_target(text) for text in case.passages]):
        unmet.append(f"{none} says {case.passages[0]!r}")
    unmet += [
        f"its best score is not below that of {other}"
        for other in case.weaker_than
        if case.id in best and not best[case.id] < best.get(other, 0.0)
    ]
    return tuple(unmet)


def batch_document(
    suite: Cases, collection: str, model: str, results: Sequence[CaseResult]
) -> dict[str, Any]:
    """Return the JSON of a suite's run."""
    return {
        "schema_version": SCHEMA_VERSION,
        "suite": suite.name,
        "collection": collection,
        "model": model,
        "summary": summary(results),
        "queries": [result.to_dict() for result in results],
    }


def summary(results: Sequence[CaseResult]) -> dict[str, Any]:
    """Return the metrics of a run; a query succeeds if it gets a response, or an error that is expected."""
    count, passed = len(results), sum(result.passed for result in results)
    succeeded = sum(
        result.response is not None or (result.passed and bool(result.case.error)) for result in results
    )
    latency = {name: _latency(results, name) for name in COMPONENTS}
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
            str(top_k): number for top_k, number in sorted(Counter(one.top_k for one in results).items())
        },
    }


def _latency(results: Sequence[CaseResult], component: str) -> dict[str, float]:
    values = [result.response.latency_ms[component] for result in results if result.response]
    if not values:
        return {"count": 0, "mean": 0.0, "p95": 0.0, "p99": 0.0, "max": 0.0}
    return {
        "count": len(values),
        "mean": round(sum(values) / len(values), 3),
        "p95": nearest_rank(values, 0.95),
        "p99": nearest_rank(values, 0.99),
        "max": max(values),
    }


def baseline_document(suite: Cases, model: str, results: Sequence[CaseResult]) -> dict[str, Any]:
    """Return the baseline of a run: the URL, chunk and score of each result, without texts and times."""
    return {
        "schema_version": SCHEMA_VERSION,
        "suite": suite.name,
        "model": model,
        "queries": {result.case.id: _kept(result) for result in results},
    }


def load_baseline(path: Path) -> Mapping[str, Any]:
    """Read a baseline's file."""
    data = parse_json(read_file(path, MAX_BYTES, NO_SUITE), str(path), hint=_SHAPE)
    queries = data.get("queries") if isinstance(data, dict) else None
    if not isinstance(queries, dict) or not isinstance(data.get("model"), str):
        raise InvalidArgument(f"{path}: it has no model and no queries", hint=_SHAPE)
    for id, kept in queries.items():
        if not _is_kept(kept):
            raise InvalidArgument(f'{path}, query "{id}": it has neither results nor an error', hint=_SHAPE)
    return {"model": data["model"], "queries": queries}


def compared(results: Sequence[CaseResult], baseline: Mapping[str, Any], model: str) -> list[CaseResult]:
    """Add every difference from a baseline to what is unmet."""
    if baseline["model"] != model:
        raise InvalidArgument(
            f"The expected results of {baseline['model']} cannot be compared with those of {model}",
            hint=_SHAPE,
        )
    queries = baseline["queries"]
    if gone := sorted(set(queries) - {result.case.id for result in results}):
        raise InvalidArgument(
            f'The expected results have a query "{gone[0]}" that is not in the suite', hint=_SHAPE
        )
    return [
        replace(result, unmet=(*result.unmet, *_differences(result, queries.get(result.case.id))))
        for result in results
    ]


def _kept(result: CaseResult) -> dict[str, Any]:
    if result.response is None:
        return {"error": "argument" if result.case.error == "argument" else "api"}
    return {
        "query": result.response.query,
        "results": [
            {"url": one.metadata.url, "chunk_index": one.metadata.chunk_index, "score": round(one.score, 4)}
            for one in result.response.results
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


def _differences(result: CaseResult, kept: Mapping[str, Any] | None) -> list[str]:
    response = result.response
    if kept is None:
        return ["the expected results do not have this query"]
    if "results" not in kept or response is None:
        same = ("results" not in kept) == (response is None)
        return [] if same else ["an error on one side, results on the other"]
    if kept.get("query") != response.query:
        return ["the expected results are those of another query text"]
    now = {(one.metadata.url, one.metadata.chunk_index): one.score for one in response.results}
    if len(now) != len(kept["results"]):
        return [f"{len(now)} results where {len(kept['results'])} were expected"]
    before = {(one["url"], one["chunk_index"]): float(one["score"]) for one in kept["results"]}
    return [
        f"chunk {chunk} of {url} ({old:.4f}) is no longer found"
        if new is None
        else f"chunk {chunk} of {url} has {new:.4f}, expected {old:.4f}"
        for (url, chunk), old, new in changed_scores(before, now, TOLERANCE)
    ]
