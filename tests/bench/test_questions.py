import json
from pathlib import Path

import pytest

from bench.chunk_quality import BookQuestion, anchor_key, load_questions
from bench.chunks import BOOKS, QUESTIONS


@pytest.mark.parametrize("book", BOOKS)
def test_a_set_of_questions_is_whole(book: str) -> None:
    path = QUESTIONS / f"{book}.json"
    assert json.loads(path.read_text("utf-8"))["book"] == book
    questions = load_questions(path)
    assert len({question.text for question in questions}) == len(questions) == 60
    assert sum(question.held for question in questions) == 30
    assert all(
        question.expect and Path(target.partition("#")[0]).suffix in {".md", ".mdx"}
        for question in questions
        for target in question.expect
    )


def test_what_a_question_expects() -> None:
    asked = BookQuestion("?", ("a/b.md#some-part", "c.mdx"))
    assert asked.pages == {"a/b", "c"}
    assert asked.sections == {("a/b", "some-part")}
    assert asked.whole_pages == {"c"}


def test_anchors_of_two_generators_are_equal() -> None:
    assert anchor_key("lesson-42--the-gripper") == anchor_key("Lesson-42-the-gripper-")
    assert anchor_key("baseUrl") != anchor_key("base-url")
