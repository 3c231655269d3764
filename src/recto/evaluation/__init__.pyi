# scripts/make_stubs.py writes this file.
from recto.evaluation.binding import Missing as Missing
from recto.evaluation.measures import Judged as Judged
from recto.evaluation.measures import Measure as Measure
from recto.evaluation.measures import ScoreEstimate as ScoreEstimate
from recto.evaluation.runs import FoundChunk as FoundChunk
from recto.evaluation.runs import QueryResult as QueryResult
from recto.evaluation.runs import Run as Run
from recto.evaluation.suites import Expectation as Expectation
from recto.evaluation.suites import Suite as Suite
from recto.evaluation.suites import load_suite as load_suite
