"""The file of section questions: what a line may be, and the section that it belongs to."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recto.book.chunking import DEFAULT_SIZE, EMBEDDED_QUESTIONS, chunk_page
from recto.book.parsing import read
from recto.book.questions import (
    MAX_CHARACTERS,
    MAX_QUESTIONS,
    QUESTION_FILE,
    PlacedQuestions,
    format_line,
    parse_line,
    place_questions,
    question_file,
    read_question_file,
    section_hash,
    write_question_file,
)
from recto.book.sources.tree import open_book
from recto.errors import InvalidArgument
from recto.types.book import Page, SectionQuestions

TEXT = """# Soil

Soil holds water and air.

## Compost

Compost feeds the soil.

## Tools

A spade turns it.

### Compost

A fork turns compost.
"""


def page_of(text: str) -> Page:
    return Page("soil.md", "local://soil", "Soil", "intro", (), text, "")


def line(heading: str, *questions: str, hash: str = "") -> SectionQuestions:
    return SectionQuestions("soil.md", heading, questions or (f"about {heading}?",), hash)


def place(text: str, *lines: SectionQuestions) -> PlacedQuestions:
    page = replace(page_of(text), questions=lines)
    return place_questions(page, read(page))


def placed_by_heading(placed: PlacedQuestions) -> dict[str, tuple[str, ...]]:
    return {" > ".join(section.headings): section.questions for section in placed.document.sections}


@pytest.mark.parametrize("heading", ["Compost", "Soil > Compost", "`compost`", "**Compost** {#c}"])
def test_a_heading_or_a_heading_path_names_a_section(heading: str) -> None:
    placed = place(TEXT, line(heading, "how do I feed my garden"))
    assert placed_by_heading(placed)["Soil > Compost"] == ("how do I feed my garden",)
    assert (placed.stale, placed.orphaned) == ((), ())


@pytest.mark.parametrize("heading", ["", "Soil"])
def test_the_title_names_the_beginning_of_a_page(heading: str) -> None:
    assert placed_by_heading(place(TEXT, line(heading, "why dirt")))["Soil"] == ("why dirt",)


def test_a_heading_may_have_the_markup_of_its_file() -> None:
    text = "# Soil\n\nHolds water.\n\n## <!-- md:flag x --> [Compost][1] &amp; *more* { #c data-toc-label='C' }\n\nFeeds.\n"
    heading = "<!-- md:flag x --> [Compost][1] &amp; *more* { #c data-toc-label='C' }"
    assert not place(text, line(heading)).orphaned


def test_equal_headings_take_lines_in_order_unless_a_hash_tells_them_apart() -> None:
    found = placed_by_heading(place(TEXT, line("Compost", "first"), line("Compost", "second")))
    assert (found["Soil > Compost"], found["Soil > Tools > Compost"]) == (("first",), ("second",))
    last = section_hash(read(page_of(TEXT)).sections[-1])
    found = placed_by_heading(place(TEXT, line("Compost", "fork", hash=last), line("Compost", "feed")))
    assert (found["Soil > Compost"], found["Soil > Tools > Compost"]) == (("feed",), ("fork",))


def test_stale_questions_are_used_and_reported_and_orphans_only_reported() -> None:
    stale, orphan = line("Compost", hash="0" * 16), line("Weeds")
    placed = place(TEXT, stale, orphan)
    assert (placed.stale, placed.orphaned) == ((stale,), (orphan,))
    assert placed_by_heading(placed)["Soil > Compost"] == stale.questions
    current = section_hash(read(page_of(TEXT)).sections[1])
    assert place(TEXT, line("Compost", hash=current)).stale == ()
    wrapped = TEXT.replace("Compost feeds", "Compost\n   feeds")
    assert place(wrapped, line("Compost", hash=current)).stale == (), "white space is not text"


def test_the_front_matter_of_a_page_has_questions_of_its_beginning() -> None:
    text = f"---\nquestions:\n  - why dirt\n  - what is  loam\n---\n\n{TEXT}"
    assert placed_by_heading(place(text, line("Soil", "more")))["Soil"] == (
        "why dirt",
        "what is loam",
        "more",
    )
    many = f"---\nquestions: {[f'question {number}' for number in range(MAX_QUESTIONS + 2)]}\n---\n\n{TEXT}"
    assert len(placed_by_heading(place(many))["Soil"]) == MAX_QUESTIONS
    others = f"---\nquestions: 5\n---\n\n{TEXT}"
    assert placed_by_heading(place(others))["Soil"] == (), "another tool's front matter"


def test_a_section_has_at_most_eight_questions_and_none_twice() -> None:
    questions = [f"question {number}" for number in range(MAX_QUESTIONS + 2)]
    found = placed_by_heading(place(TEXT, line("Compost", *questions, *questions[:2])))
    assert found["Soil > Compost"] == tuple(questions[:MAX_QUESTIONS])


def test_a_page_without_questions_is_read_as_before() -> None:
    document = read(page_of(TEXT))
    assert place_questions(page_of(TEXT), document).document is document


def test_the_first_questions_stand_between_heading_path_and_text() -> None:
    questions = tuple(f"question {number}" for number in range(EMBEDDED_QUESTIONS + 2))
    document = place(TEXT, line("Soil > Compost", *questions)).document
    count = 100

    def count_tokens(text: str) -> int:
        return len(text.split())

    planned = chunk_page(page_of(TEXT), document, "garden", count_tokens, count, DEFAULT_SIZE)[1]
    first = "\n".join(questions[:EMBEDDED_QUESTIONS])
    assert planned.embedded == f"Soil > Compost\n\n{first}\n\nCompost feeds the soil."
    assert planned.chunk.questions == questions
    assert planned.chunk.text == "Compost feeds the soil."


def test_a_model_that_reads_little_gets_the_questions_that_fit() -> None:
    questions = ("first question", "second question", "third question")
    document = place(TEXT, line("Soil", *questions)).document

    def count_tokens(text: str) -> int:
        return 6 * len(text.split())

    planned = chunk_page(page_of(TEXT), document, "garden", count_tokens, 60, DEFAULT_SIZE)[0]
    first = "\n".join(questions[:2])
    assert planned.embedded == f"Soil\n\n{first}\n\nSoil holds water and air."


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ([], "a line needs a page"),
        ({"heading": "Compost", "questions": []}, "a line needs a page"),
        ({"page": " ", "questions": []}, "a line needs a page"),
        ({"page": "soil.md", "heading": 5, "questions": []}, "must be text"),
        ({"page": "soil.md", "questions": "why"}, "must be a list"),
        ({"page": "soil.md", "questions": [1]}, "must be a list"),
        ({"page": "soil.md", "questions": [" "]}, "1 to 200 characters"),
        ({"page": "soil.md", "questions": ["x" * (MAX_CHARACTERS + 1)]}, "1 to 200 characters"),
        ({"page": "soil.md", "questions": ["a\x00b"]}, "control character"),
        ({"page": "soil.md\ud800", "questions": []}, "lone surrogates"),
    ],
)
def test_a_line_that_cannot_be_used_says_why(data: object, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "recto-questions.jsonl"
    path.write_text(f'{{"page": "soil.md", "questions": []}}\n\n{json.dumps(data)}\n', "utf-8")
    with pytest.raises(InvalidArgument, match=r"recto-questions.jsonl, line 3: .*" + reason) as caught:
        read_question_file(path)
    assert "recto questions check" in str(caught.value.hint)


@pytest.mark.parametrize("content", [b"\xff\xfe", b"{", b"[" * 100_000])
def test_a_file_that_is_not_json_lines_is_an_error(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "questions.jsonl"
    path.write_bytes(content)
    with pytest.raises(InvalidArgument, match=r"questions\.jsonl"):
        read_question_file(path)


def test_a_question_file_outside_the_repository_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "other.jsonl").write_text('{"page": "a.md", "questions": ["why"]}\n', "utf-8")
    book = tmp_path / "book"
    book.mkdir()
    (book / "a.md").write_text("# A\n\nText.\n", "utf-8")
    (book / QUESTION_FILE).symlink_to(tmp_path / "other.jsonl")
    with pytest.raises(InvalidArgument, match="symbolic link that leaves the book"):
        question_file(open_book(book))


def test_many_lines_of_a_page_are_placed_at_once(tmp_path: Path) -> None:
    """10 000 lines of 2 000 sections took minutes; the limit is for slow machines."""
    text = "# A\n\n" + "".join(f"## H\n\nText {number}.\n\n" for number in range(2_000))
    lines = [line(f"H{number % 5 or ''}", "why", hash="0") for number in range(10_000)]
    began = process_time()
    assert len(place(text, *lines).orphaned) == 8_000
    assert process_time() - began < 30
    path = tmp_path / QUESTION_FILE
    write_question_file(path, [*lines, lines[0]])
    with pytest.raises(InvalidArgument, match="more than 10000 lines"):
        read_question_file(path)


def test_a_line_may_come_from_another_system() -> None:
    data = {"page": ".\\guide\\soil.md", "heading": ["Soil", "Compost"], "questions": ["  why \n dirt "]}
    assert parse_line(data) == SectionQuestions("guide/soil.md", "Soil > Compost", ("why dirt",))


printable = st.text(st.characters(exclude_categories=("Cc", "Cs", "Co")), max_size=50)
questions = st.lists(printable.map(lambda text: " ".join(text.split())).filter(bool), max_size=8)


@given(
    st.builds(
        SectionQuestions,
        printable.map(str.strip).filter(lambda page: page and "\\" not in page and not page.startswith("./")),
        printable.map(str.strip),
        questions.map(tuple),
        st.sampled_from(("", "0123456789abcdef")),
        st.sampled_from(("", "a person")),
    )
)
def test_a_line_is_read_as_it_was_written(written: SectionQuestions) -> None:
    assert parse_line(json.loads(format_line(written))) == written


def test_a_written_file_is_read_with_its_line_numbers(tmp_path: Path) -> None:
    lines = (line("Compost", hash="ab"), line("Tools"))
    write_question_file(tmp_path / "file.jsonl", lines)
    assert read_question_file(tmp_path / "file.jsonl") == (
        replace(lines[0], line=1),
        replace(lines[1], line=2),
    )
