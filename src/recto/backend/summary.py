"""The figures of a suite's run: how many passed, how long each step took, how many results were asked for."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from recto.backend.asking import COMPONENTS
from recto.backend.batch import Verdict
from recto.backend.cases import Cases
from recto.backend.contract import SCHEMA_VERSION

TARGETS_MS = {"embed": {"p95": 500, "p99": 1000}, "search": {"p95": 300, "p99": 500}, "total": {"p95": 2000, "p99": 3000}}
"""The contract's targets; they are reported, they do not decide."""

_CLI = logging.getLogger("recto.backend.cli")


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
    succeeded = sum(verdict.answered is not None or (verdict.passed and bool(verdict.case.expect.error)) for verdict in verdicts)
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
            name: all(latency[name][mark] < most for mark, most in targets.items()) if latency[name]["count"] else None
            for name, targets in TARGETS_MS.items()
        },
        "top_k_distribution": {str(top_k): count for top_k, count in sorted(Counter(verdict.top_k for verdict in verdicts).items())},
    }
    total = latency["total"]
    _CLI.info(
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
