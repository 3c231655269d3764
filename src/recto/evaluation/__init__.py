"""Evaluation: suites, measures, runs, baselines, coverage and reports."""

from __future__ import annotations

_EXPORTS = {
    "recto.evaluation.binding": "Missing",
    "recto.evaluation.measures": "Judged Measure ScoreEstimate",
    "recto.evaluation.runs": "QueryResult Run",
    "recto.evaluation.suites": "Expectation Suite load_suite",
}
"""The public names by module. `scripts/make_stubs.py` writes `__init__.pyi` from it, for type checkers."""

__all__ = sorted(" ".join(_EXPORTS.values()).split())  # noqa: PLE0605 - the stub has the names


def __getattr__(name: str) -> object:
    """Load a public name when it is first used: the indexer needs only a part of this package."""
    from importlib import import_module

    for module, names in _EXPORTS.items():
        if name in names.split():
            return getattr(import_module(module), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
