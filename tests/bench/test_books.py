"""The benchmarks with readers' questions: sets, ranks, intervals, and whole runs of Recto on a tiny book."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from bench import books, context, question_sets, static
from bench.peers.listing import load
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


def test_sets_in_several_languages_ask_the_same_of_one_book(tmp_path: Path) -> None:
    languages = Path(question_sets.__file__).parent / "questions" / "languages"
    german = [json.loads(line) for line in (languages / "de.jsonl").read_text("utf-8").splitlines()]
    for page in {place["page"] for question in german for place in question["expected"]}:
        path = tmp_path / "docs" / page
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    sets = load_books(languages, tmp_path / "none", [], tmp_path)
    assert len(sets) == 13
    for book in sets:
        assert book.docs == tmp_path / "docs"
        pages = [(question.id[3:], question.pages, question.tags) for question in book.questions]
        assert pages == [(question.id[3:], question.pages, question.tags) for question in sets[0].questions]
        assert len({question.query for question in book.questions}) == 40


def test_the_best_chunk_of_a_page_or_section_ranks_it() -> None:
    question = Expectation("q", pages=("b.md > The `cname` {#c}", "c.mdx"), id="1")
    hits = (
        AnswerChunk("a.md", ("A", "x")),
        AnswerChunk("a.md", ("A", "x")),
        AnswerChunk("a.md", ("A", "y")),
        AnswerChunk("b.md", ("B", "Other")),
        AnswerChunk("b.md", ("B", "The cname", "Below")),
        AnswerChunk("c.mdx", ("C",), opening=True),
    )
    assert score(question, Answer(hits)) == Scores("1", 2, 2, 4)
    pages = Answer(tuple(AnswerChunk(hit.page) for hit in hits))
    assert score(question, pages) == Scores("1", 2, 2, None)
    assert score(question, Answer(hits[:3])) == Scores("1", 0, 0, 0)
    assert score(question, Answer(hits[5:])) == Scores("1", 1, 1, 1)
    assert score(question, Answer((AnswerChunk("c.mdx", ("C", "Late")),))).section == 0
    assert score(question, Answer(hits), needs_all=True) == Scores("1", 2, 3, 4)
    assert score(question, Answer(hits[:5]), needs_all=True).measures()["page hit@5"] == 0


def result(**ranks: list[int]) -> Result:
    def scores(ranks: list[int]) -> tuple[Scores, ...]:
        return tuple(Scores(str(n), rank, rank, None) for n, rank in enumerate(ranks))

    return Result({book: scores(found) for book, found in ranks.items()}, {})


def test_books_weigh_the_same_whatever_their_number_of_queries() -> None:
    found = result(large=[1, 1, 1, 1], small=[0, 2])
    assert found.mean()["page MRR"] == pytest.approx((1 + 0.25) / 2)


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


def test_a_whole_run(corpora: Path, options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    out = corpora / "figures.json"
    books.main([*options, "--systems=recto-dense,recto-hybrid", f"--json={out}"])
    printed = capsys.readouterr()
    assert "recto-dense: tiny, 4 queries" in printed.err
    command = "uv run --group bench python -m bench.books --systems recto-dense,recto-hybrid"
    assert f"Made by `{command}`" in printed.out
    assert "- queries: tiny (4, of which the book answers 3)" in printed.out
    figures = json.loads(out.read_text("utf-8"))
    dense = figures["systems"]["recto-dense"]
    assert dense["mean"]["page hit@5"] == 1
    assert [ranks["section"] for ranks in dense["ranks"]["tiny"]][:2] == [1, 1]
    assert figures["systems"]["recto-hybrid"]["auroc"].keys() == {"tiny"}
    assert str(corpora) not in printed.out + out.read_text("utf-8")


def test_systems_are_chosen_with_or_without_their_mode(
    options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    systems = books.known_systems(load())
    assert books.choose(["recto", "haystack-hybrid"], systems) == [*systems[:3], "haystack-hybrid"]
    assert books.choose([], systems) == systems
    with pytest.raises(SystemExit, match="no system nobody"):
        books.choose(["nobody"], systems)
    with pytest.raises(SystemExit):
        books.main([*options, "--questions=nowhere"])
    assert "no directory nowhere" in capsys.readouterr().err


def test_contexts_are_measured(corpora: Path, options: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    out = corpora / "figures.json"
    context.main([*options, "--systems=recto", f"--json={out}"])
    found = json.loads(out.read_text("utf-8"))["systems"]["recto"]["tiny"]
    assert (found["3000"], found["over budget"], found["duplicated"], found["markup"]) == (1, 0, 0, 0)
    assert "| **recto** | mean | " in capsys.readouterr().out


def test_measures_of_a_context_by_hand() -> None:
    assert context.has_quote("Read [the **docs**](x.md) now", ["the docs now", "gone"], needs_all=False)
    assert not context.has_quote("Read the docs", ["the docs", "gone"], needs_all=True)
    run = "one two three four five six seven eight"
    assert context.duplicated(f"{run} nine") == 0
    assert context.duplicated(f"{run} {run}") == 0.5

    def count(text: str) -> int:
        return len(text.split())

    assert context.markup("<b> a `<i>` c", count) == 0.25
    assert context.markup("```\na b", count) == pytest.approx(1 / 3), "half a code block"
    assert context.filled(["a b", "c d e"], 4, count) == "a b\n\nc d"


def test_static_search_ranks_as_the_service(
    corpora: Path, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """For a tiny book, and for the readers' questions of RECTO_CORPORA."""
    given = os.environ.get("RECTO_CORPORA")
    for folder in (corpora, *([Path(given)] if given else [])):
        static.main([*options, f"--corpora={folder}"])
        rows = [line.split(" | ") for line in capsys.readouterr().out.split("\n\n")[1].splitlines()]
        for row in rows[2:]:
            words, first, five, gap = (float(cell.strip(" |")) for cell in row[-4:])
            # Rounding to int8 depends on the processor, so near chunks may change places.
            assert words == pytest.approx(1, abs=0.02), row[0]
            assert (first >= 0.99, five >= 0.95, gap <= 0.02) == (True, True, True), row
