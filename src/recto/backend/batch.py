"""Run a suite: ask every query at a pace the services allow, and tell which expectations hold."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recto.addresses import page_key
from recto.backend.asking import Answered
from recto.backend.cases import Case, Cases
from recto.backend.checks import checked_query
from recto.backend.contract import DEFAULT_TOP_K, SCHEMA_VERSION, SearchResult
from recto.backend.errors import APIError, error_document, kind_of
from recto.embedders.pacing import Pace, Pacer
from recto.errors import InvalidArgument, RectoError
from recto.modules import filter_keys
from recto.remote import Tell

QUERIES_PER_MINUTE = 10
"""What a suite asks of Cohere at most, unless --delay says otherwise."""

Turn = Callable[[], None]
"""Waits until the next query may be sent."""

_CLI = logging.getLogger("recto.backend.cli")


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
            "response": self.outcome.response if isinstance(self.outcome, Answered) else self._refusal(self.outcome),
        }

    def _refusal(self, error: RectoError) -> dict[str, Any]:
        document = error_document(str(error), error.hint, kind_of(error), getattr(error, "component", "CLI"))
        shown = self.case.query if len(self.case.query) <= 200 else f"{self.case.query[:200]}…"
        return {"schema_version": SCHEMA_VERSION, "query": shown, "top_k": self.top_k, **document}


def turns(
    *,
    paid: bool,
    delay: float | None,
    tell: Tell,
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
    pacer = Pacer(Pace(calls=QUERIES_PER_MINUTE), tell, clock, sleep)
    return lambda: pacer.wait(1, 0)


def run_cases(suite: Cases, ask: Callable[[str, int], Answered], turn: Turn, top_k: int = DEFAULT_TOP_K) -> list[Verdict]:
    """Ask all queries in their order; a query that fails does not stop the others."""
    asked: list[tuple[Case, int, Answered | RectoError]] = []
    for number, case in enumerate(suite.cases, 1):
        limit = case.top_k or top_k
        asked.append((case, limit, _asked(ask, turn, case, limit)))
        _CLI.debug("%d of %d: %s", number, len(suite.cases), case.id)
    best = {case.id: found.results[0].score for case, _, found in asked if isinstance(found, Answered) and found.results}
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
        unmet.append(f"none of the first {expect.within} results is from module {' or '.join(expect.modules)}")
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
    found = {key for result in results for key in (page_key(result.metadata.url), page_key(result.metadata.source))}
    return any(key == page or key.endswith(f"/{page.lstrip('/')}") for key in found for page in wanted)


def _from_module(results: Sequence[SearchResult], modules: Sequence[str]) -> bool:
    wanted = set(filter_keys(modules))
    return any(not wanted.isdisjoint(result.modules) for result in results)


def _flat(text: str) -> str:
    return " ".join(text.split()).casefold()
