"""The benchmarks of chunks and of the model's forms: their questions, and measures by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from bench.chunk_quality import load_questions
from bench.chunks import BOOKS, QUESTIONS
from bench.measures import overlap
from bench.scifact import ndcg


@pytest.mark.parametrize("book", BOOKS)
def test_a_set_of_questions_is_whole(book: str) -> None:
    path = QUESTIONS / f"{book}.json"
    assert json.loads(path.read_text("utf-8"))["book"] == book
    questions = load_questions(path)
    assert len({question.text for question in questions}) == len(questions) == 60
    assert sum(question.held for question in questions) == 30
    targets = [target.partition("#")[0] for question in questions for target in question.expect]
    assert {Path(target).suffix for target in targets} <= {".md", ".mdx"}
    assert all(question.expect for question in questions)


def test_overlap_by_hand() -> None:
    """What is retrieved twice must be read twice."""
    for found, expected in (
        (overlap([(0, 10), (20, 30)], [(5, 15)]), (0.5, 0.25, 0.2)),
        (overlap([(0, 10)], [(0, 10)]), (1, 1, 1)),
        (overlap([(0, 10), (0, 10)], [(0, 10)]), (1, 0.5, 0.5)),
    ):
        assert (found.recall, found.precision, found.iou) == pytest.approx(expected)


def test_each_claim_is_judged_by_the_order_of_all_abstracts() -> None:
    ids = [f"p{number}" for number in range(12)]
    scores = np.array([np.arange(12, 0, -1), np.arange(12)], np.float32)  # p0 first, p11 first
    assert ndcg(scores[:1], ids, [{"p0"}]) == [1.0]
    assert ndcg(scores[:1], ids, [{"p1"}]) == pytest.approx([1 / math.log2(3)])
    assert ndcg(scores, ids, [{"p0", "p1"}, {"p1", "p0"}]) == pytest.approx([1.0, 0.0])
