# scripts/make_stubs.py writes this file.
from recto.evaluation.binding import Missing
from recto.evaluation.measures import Judged, Measure, ScoreEstimate
from recto.evaluation.runs import QueryResult, Run
from recto.evaluation.suites import Expectation, Suite, load_suite

__all__ = [
    "Expectation",
    "Judged",
    "Measure",
    "Missing",
    "QueryResult",
    "Run",
    "ScoreEstimate",
    "Suite",
    "load_suite",
]
