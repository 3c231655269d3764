"""The benchmark of readers' questions: sets, ranks, intervals, rare words, and a whole run of Recto on a tiny book."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import books, question_sets
from bench.question_sets import Answer, AnswerChunk, Book, Result, Scores, load_books, measure, score
from recto.evaluation.suites import Expectation


def test_the_docs_root_is_where_the_expected_pages_are(corpora: Path) -> None:
    (book,) = load_books(corpora / "questions", corpora / "books", [])
    assert (book.name, book.docs.relative_to(corpora).as_posix()) == ("tiny", "books/tiny/website/docs")
    assert [question.nothing for question in book.questions] == [False, False, False, True]
    with pytest.raises(SystemExit, match="has all expected pages"):
        question_sets.docs_root(corpora / "books" / "tiny", ["garden/seeds.md", "gone.md"])
    for questions, books_in, names, message in (
        ("questions", "books", ["other"], "no question set other"),
        ("questions", "questions", [], "needs the book"),
        ("", "books", [], "no question sets"),
    ):
        with pytest.raises(SystemExit, match=message):
            load_books(corpora / questions, corpora / books_in, names)


def test_the_best_chunk_of_a_page_or_section_ranks_it() -> None:
    question = Expectation("q", pages=("b.md > The `cname` {#c}", "c.mdx"), tags=("howto",), id="1")
    hits = (
        AnswerChunk("a.md", ("A", "x")),
        AnswerChunk("a.md", ("A", "x")),
        AnswerChunk("a.md", ("A", "y")),
        AnswerChunk("b.md", ("B", "Other")),
        AnswerChunk("b.md", ("B", "The cname", "Below")),
        AnswerChunk("c.mdx", ("C",), opening=True),
    )
    assert score(question, Answer(hits)) == Scores("1", "howto", 2, 2, 4)
    pages = Answer(tuple(AnswerChunk(hit.page) for hit in hits))
    assert score(question, pages) == Scores("1", "howto", 2, 2, None)
    assert score(question, Answer(hits[:3])) == Scores("1", "howto", 0, 0, 0)
    assert score(question, Answer(hits[5:])) == Scores("1", "howto", 1, 1, 1)
    assert score(question, Answer((AnswerChunk("c.mdx", ("C", "Late")),))).section == 0
    assert score(question, Answer(hits), needs_all=True) == Scores("1", "howto", 2, 3, 4)
    assert score(question, Answer(hits[:5]), needs_all=True).measures()["page hit@5"] == 0


def result(**ranks: list[int]) -> Result:
    def scores(ranks: list[int]) -> tuple[Scores, ...]:
        types = ("even", "odd") * len(ranks)
        return tuple(Scores(str(n), types[n], rank, rank, None) for n, rank in enumerate(ranks))

    return Result({book: scores(found) for book, found in ranks.items()}, {})


def test_books_weigh_the_same_whatever_their_number_of_queries() -> None:
    found = result(large=[1, 1, 1, 1], small=[0, 2])
    assert found.mean()["page MRR"] == pytest.approx((1 + 0.25) / 2)
    assert found.mean("odd")["page MRR"] == pytest.approx((1 + 0.5) / 2)
    assert found.types == ["even", "odd"]


def test_a_lead_is_paired_and_the_same_in_every_run() -> None:
    mine, theirs = result(a=[1, 1, 2, 1] * 10, b=[1, 3] * 10), result(a=[1, 2, 2, 2] * 10, b=[1, 3] * 10)
    gap = question_sets.lead(mine, theirs)
    assert gap == question_sets.lead(mine, theirs)
    assert gap.mean == pytest.approx(0.125)
    assert 0 < gap.low < gap.mean < gap.high < 0.25
    assert (question_sets.lead(mine, mine).low, question_sets.lead(mine, mine).high) == (0, 0)


def test_answerability_is_measured_where_every_answer_states_it() -> None:
    answered = (Expectation("a", pages=("a",)), Expectation("b", pages=("b",)))
    book = Book("tiny", Path(), (*answered, Expectation("c", nothing=True)))
    stated = [Answer((), 0.9), Answer((), 0.4), Answer((), 0.6)]
    assert measure([book], {"tiny": stated}).auroc == {"tiny": 0.5}
    assert measure([book], {"tiny": [*stated[:2], Answer(())]}).auroc == {}
    assert len(measure([book], {"tiny": stated}).scores["tiny"]) == 2


def test_a_whole_run(corpora: Path, shared_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = corpora / "figures.json"
    folders = [f"--{name}={corpora / name}" for name in ("questions", "books", "cache")]
    chosen = ["--systems=recto-dense", "--rare=5", "--threads=1"]
    books.main([*folders, *chosen, f"--home={shared_home}", f"--json={out}"])
    printed = capsys.readouterr()
    assert "recto-dense: tiny, 4 queries, 5 rare words" in printed.err
    assert "`uv run --group bench python -m bench.books --systems recto-dense --rare 5`" in printed.out
    figures = json.loads(out.read_text("utf-8"))
    dense = figures["systems"]["recto-dense"]
    assert dense["mean"]["page hit@5"] == 1
    assert [ranks["section"] for ranks in dense["ranks"]["tiny"]][:2] == [1, 1]
    assert figures["rare"]["recto-dense"]["tiny"]["exact"] > 0
    assert str(corpora) not in printed.out + out.read_text("utf-8")
