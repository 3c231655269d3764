"""The files of TREC: suites and runs that other tools read and write."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import pytest

from recto.errors import InvalidArgument
from recto.evaluation.binding import bind
from recto.evaluation.measures import Measure, parse_measure
from recto.evaluation.runs import Options, run_suite
from recto.evaluation.suite_tools import export_suite, import_suite, run_text
from recto.evaluation.suites import Expectation, Suite, load_suite
from recto.search.retriever import Retriever
from tests.running import ROOT

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # an escape that is none, in a package that ir-measures loads
    import ir_measures

HELD_OUT = load_suite(ROOT / "tests" / "evaluation" / "heldout.json")
DDS = "module-1-ros2/04-dds-and-qos"
GRADED = Suite(
    "graded",
    (
        Expectation(
            "What is DDS in ROS 2?",
            pages=(f"{DDS}#what-is-dds", DDS),
            grades=((f"{DDS}#what-is-dds", 2), (DDS, 1), ("intro", 0)),
        ),
        Expectation("What is a digital twin?", pages=("module-2-simulation/05-digital-twins",), id="twin"),
    ),
)
THEIRS = {
    "nDCG@10": "nDCG@10",
    "Recall@5": "R@5",
    "Hit@1": "Success@1",
    "MRR@10": "RR@10",
    "Precision@5": "P@5",
}


def files(directory: Path, suite: Suite) -> tuple[Path, Path]:
    exported = export_suite(suite)
    qrels, queries = directory / f"{suite.name}.txt", directory / "queries.tsv"
    qrels.write_text(exported.qrels, "utf-8")
    queries.write_text(exported.queries, "utf-8")
    return qrels, queries


SUITES = [
    GRADED,
    Suite(
        "names",
        (
            Expectation(
                "Two words?", pages=("my page.md > A heading", "https://x.org/my%20page > Two words")
            ),
            Expectation("100 % of it", pages=("a%2Fb", "c#d"), id="percent"),
        ),
    ),
]


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
def test_a_suite_reads_back(tmp_path: Path, suite: Suite) -> None:
    imported = import_suite(*files(tmp_path, suite))
    assert (imported.suite, imported.left_out) == (suite, 0)


def test_what_is_not_a_page_has_no_judgments(tmp_path: Path) -> None:
    page = Expectation("a", pages=("p",))
    others = (Expectation("b", ("ros2",)), Expectation("c", passages=("q",)), Expectation("d", nothing=True))
    suite = Suite("some", (page, *others))
    assert export_suite(suite).left_out == 3
    imported = import_suite(*files(tmp_path, suite))
    assert imported.suite.expectations == (page,)
    assert imported.left_out == 3


@pytest.mark.parametrize("suite", [GRADED, HELD_OUT], ids=lambda suite: suite.name)
@pytest.mark.parametrize("mode", ["hybrid", "lexical"])
def test_other_tools_compute_the_same_measures(
    retriever: Retriever, tmp_path: Path, suite: Suite, mode: str
) -> None:
    measures = tuple(map(parse_measure, THEIRS))
    run = run_suite(retriever, suite, Options(measures=measures, mode=mode))  # type: ignore[arg-type]
    path = tmp_path / "run.txt"
    path.write_text(run_text(run), "utf-8")
    tool: Any = ir_measures
    qrels = list(tool.read_trec_qrels(str(files(tmp_path, suite)[0])))
    found = list(tool.read_trec_run(str(path)))
    assert len({(one.query_id, one.doc_id) for one in found}) == len(found) == 10 * len(suite.expectations)
    scores = run.scores()
    compared = []
    for mine, name in THEIRS.items():
        their = ir_measures.parse_measure(name)
        if any(one.is_available() and one.supports(their) for one in ir_measures.DefaultPipeline.providers):
            theirs = ir_measures.calc_aggregate([their], qrels, found)[their]
            assert scores[mine].mean == pytest.approx(theirs, abs=1e-6), mine
            compared.append(mine)
    assert {"MRR@10", "Precision@5"} <= set(compared)
    assert scores["nDCG@10"].mean == pytest.approx(ndcg(qrels, found), abs=1e-6)


def ndcg(qrels: list[Any], run: list[Any]) -> float:
    """Return the mean nDCG@10 of the files, computed as trec_eval does: by score, gains are grades."""
    values: list[float] = []
    for query in {one.query_id for one in qrels}:
        grades = {one.doc_id: one.relevance for one in qrels if one.query_id == query}
        ranked = sorted((-one.score, one.doc_id) for one in run if one.query_id == query)
        gains = [grades.get(document, 0) for _, document in ranked[:10]]
        ideal = sorted(grades.values(), reverse=True)[:10]
        dcg, best = (
            sum(gain / math.log2(rank + 1) for rank, gain in enumerate(one, 1)) for one in (gains, ideal)
        )
        values.append(float(dcg / best))
    return sum(values) / len(values)


def test_judged_results_and_holes(retriever: Retriever) -> None:
    run = run_suite(retriever, GRADED, Options(measures=(Measure("Judged", 5), Measure("nDCG", 10))))
    graded, plain = run.answers
    assert "Judged@5" not in plain.measures, "a question without grades has no holes"
    holes = run.unjudged()
    assert {hole["id"] for hole in holes} <= {graded.key}
    assert graded.measures["Judged@5"] == pytest.approx(1 - len(holes) / 5)
    assert all(not graded.places[hole["rank"] - 1] for hole in holes)
    assert run.to_dict()["unjudged"] == holes


def test_a_result_gains_the_grade_of_its_best_place(retriever: Retriever) -> None:
    (question, _) = bind(GRADED, retriever.open()).questions
    chunks = [chunk for chunk in retriever.open().scroll() if chunk.source.removesuffix(".md").endswith(DDS)]
    section = next(chunk for chunk in chunks if chunk.anchor == "what-is-dds")
    other = next(chunk for chunk in chunks if chunk.anchor != "what-is-dds")
    assert question.judge([section, other]).gains == (2, 1)
    assert question.judge([other, other, section]).gains == (1, 0, 2)
    assert question.judge([]).ideal == (2, 1)


@pytest.mark.parametrize(
    ("qrels", "queries", "words"),
    [
        ("1 0 page 1", "2\tquery", "there is no query '1'"),
        ("1 0 page", "1\tquery", "line 1: it is not a judgment"),
        ("1 0 page 7", "1\tquery", "the grade is 7"),
        ("1 0 page x", "1\tquery", "line 1: it is not a judgment"),
        ("1 0 page 1", "1 query", "line 1: it is not a query"),
        ("1 0 page 1", "1\ta\n1\tb", "line 2: the id '1' is there twice"),
        ("1 0 page 1", "1\t ", "line 1: "),
        ("1 0 page -2", "1\tquery", "has no relevant page"),
        ("", "1\tquery", "has no relevant page"),
    ],
)
def test_files_that_cannot_be_imported(tmp_path: Path, qrels: str, queries: str, words: str) -> None:
    (tmp_path / "qrels").write_text(qrels)
    (tmp_path / "queries").write_text(queries)
    with pytest.raises(InvalidArgument, match=words) as caught:
        import_suite(tmp_path / "qrels", tmp_path / "queries")
    assert caught.value.hint
