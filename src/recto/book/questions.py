"""Section questions: what readers ask that a section answers, in a file beside the book or in front matter.

They are embedded and searched with the section's text, and never shown as text of the book.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from recto._util.files import read_text, replace_text
from recto._util.markdown import heading_key
from recto.book.sources.options import is_inside, repository_of
from recto.errors import InvalidArgument
from recto.protocols import Source
from recto.types.book import Document, Page, Section, SectionQuestions
from recto.types.search import HEADING_SEPARATOR

QUESTION_FILE = "recto-questions.jsonl"
MAX_QUESTIONS = 8
MAX_CHARACTERS = 200
"""Of a question; a longer one is a paragraph, not what somebody types into a search box."""
_MOST_LINES = 10_000  # of a page; each is compared with the sections that have its heading
LARGEST_FILE = 64 << 20  # bytes; a book of 100 000 sections has half of it
_HASH_DIGITS = 16
_MARKDOWN = frozenset(("markdown", "mdx", "myst", "d2l", "qmd"))
_FILLER = "Text."  # a section without text is left out


@dataclass(frozen=True, slots=True)
class PlacedQuestions:
    """A page whose sections have their questions, and the lines of the file that do not fit the page.

    The text of the section changed after a `stale` line was written; an `orphaned` one has no section.
    """

    document: Document
    stale: tuple[SectionQuestions, ...] = ()
    orphaned: tuple[SectionQuestions, ...] = ()


def question_file(source: Source) -> Path | None:
    """Return the question file of a book: the one that its options name, else the one in its root, if any."""
    if stated := dict(source.info.options).get("questions"):
        path = Path(str(stated))
        if not path.is_file():
            raise InvalidArgument(
                f"The question file {path} does not exist",
                hint="Give the path of a file with --questions, or --questions '' for the one in the book.",
            )
        return path
    path = Path(getattr(source, "root", source.location)) / QUESTION_FILE
    if not path.is_file():
        return None
    if not is_inside(path, repository_of(path.parent)):
        raise InvalidArgument(
            f"{path} is a symbolic link that leaves the book",
            hint="Give its path with --questions, or remove it.",
        )
    return path


def read_question_file(path: Path) -> tuple[SectionQuestions, ...]:
    """Read a question file; raise an error that names the line if one cannot be used."""
    text = read_text(path, LARGEST_FILE, "It must be JSON Lines in UTF-8.")
    lines, of_page = list[SectionQuestions](), Counter[str]()
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                lines.append(parse_line(json.loads(line), number))
                of_page[lines[-1].page] += 1
                if of_page[lines[-1].page] > _MOST_LINES:
                    raise ValueError(f"a page has more than {_MOST_LINES} lines")
            except (ValueError, RecursionError) as error:
                raise InvalidArgument(
                    f"{path}, line {number}: {problem_of(error)}",
                    hint='A line is like {"page": "guide/intro.md", "heading": "Installation", '
                    '"questions": ["how do I set it up"]}. `recto questions check` finds all such lines.',
                ) from error
    return tuple(lines)


def problem_of(error: Exception) -> str:
    """Return what is wrong with a line of a question file."""
    return f"not JSON ({error.msg})" if isinstance(error, json.JSONDecodeError) else str(error)


def parse_line(data: Any, number: int = 0) -> SectionQuestions:
    """Read a line of a question file; raise `ValueError` if it cannot be used."""
    if not isinstance(data, dict) or not isinstance(data.get("page"), str) or not data["page"].strip():
        raise ValueError("a line needs a page")
    heading = data.get("heading", "")
    if isinstance(heading, list) and all(isinstance(part, str) for part in heading):
        heading = HEADING_SEPARATOR.join(heading)
    texts = (heading, data.get("hash", ""), data.get("by", ""))
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("heading, hash and by must be text")
    questions = clean_questions(data.get("questions"))
    if any("\ud800" <= character <= "\udfff" for text in (data["page"], *texts) for character in text):
        raise ValueError("page, heading, hash and by must not have lone surrogates")
    page = data["page"].strip().replace("\\", "/").removeprefix("./")
    return SectionQuestions(page, heading.strip(), questions, texts[1], texts[2], number)


def clean_questions(value: Any) -> tuple[str, ...]:
    """Return the questions of a line without needless white space; raise `ValueError` for other values."""
    if not isinstance(value, list) or not all(isinstance(question, str) for question in value):
        raise ValueError("questions must be a list of texts")
    questions = tuple(" ".join(question.split()) for question in value)
    for question in questions:
        if not question or len(question) > MAX_CHARACTERS:
            raise ValueError(f"a question must have 1 to {MAX_CHARACTERS} characters: {question[:60]!r}")
        if any(unicodedata.category(character) in ("Cc", "Cs", "Co") for character in question):
            raise ValueError(f"a question has a control character: {question[:60]!r}")
    return questions


def section_hash(section: Section) -> str:
    """Return the hash of a section's text; it does not depend on white space."""
    text = " ".join(word for block in section.blocks for word in block.text.split())
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_HASH_DIGITS]


def place_questions(page: Page, document: Document) -> PlacedQuestions:
    """Give the sections of a page their questions: of its front matter, then of the file."""
    sections = document.sections
    questions: dict[int, tuple[str, ...]] = {}
    if sections and (stated := front_matter_questions(document)):
        questions[0] = stated
    stale, orphaned = [], []
    for line, number in match_lines(page, sections, page.questions):
        if number is None:
            orphaned.append(line)
            continue
        questions[number] = joined(questions.get(number, ()), line.questions)
        if is_stale(line, sections[number]):
            stale.append(line)
    if questions:
        placed = (
            replace(section, questions=questions.get(number, ())) for number, section in enumerate(sections)
        )
        document = replace(document, sections=tuple(placed))
    return PlacedQuestions(document, tuple(stale), tuple(orphaned))


def match_lines(
    page: Page, sections: Sequence[Section], lines: Iterable[SectionQuestions]
) -> Iterator[tuple[SectionQuestions, int | None]]:
    """Yield each line with the number of the section that it belongs to, or None if there is none.

    A line names a section by its heading or its heading path. Several lines with the same heading belong to
    the sections with that heading in their order, unless the hash of the text tells them apart.
    """
    taken: set[int] = set()
    find = section_finder(page, [section.headings for section in sections])
    hashes: dict[int, str] = {}

    def rank(number: int) -> tuple[bool, bool, int]:
        if line.hash and number not in hashes:
            hashes[number] = section_hash(sections[number])
        return number in taken, bool(line.hash) and line.hash != hashes[number], number

    for line in lines:
        found = min(find(line.heading), key=rank, default=None)
        taken.update(() if found is None else (found,))
        yield line, found


def is_stale(line: SectionQuestions, section: Section) -> bool:
    """Return whether the text of a section is another one than when its questions were written."""
    return bool(line.hash) and line.hash != section_hash(section)


def joined(questions: Sequence[str], more: Sequence[str]) -> tuple[str, ...]:
    """Return the questions of a section with more of them, as many as a section can have."""
    return tuple(dict.fromkeys((*questions, *more)))[:MAX_QUESTIONS]


def front_matter_questions(document: Document) -> tuple[str, ...]:
    """Return the questions in the front matter of a page, as many as a section can have.

    A list of anything else is another tool's.
    """
    try:
        return joined((), clean_questions(document.front_matter.get("questions", [])))
    except ValueError:
        return ()


def section_finder(page: Page, sections: Sequence[Sequence[str]]) -> Callable[[str], Sequence[int]]:
    """Return a function for the numbers of the sections that a heading or heading path names.

    `sections` are the heading paths of the page; the title names the first one. A heading may also be as the
    file has it, with its markup.
    """
    paths: defaultdict[str, list[int]] = defaultdict(list)
    ends: defaultdict[str, list[int]] = defaultdict(list)
    for number, headings in enumerate(sections):
        paths[heading_key(HEADING_SEPARATOR.join(headings))].append(number)
        ends[heading_key(headings[-1]) if headings else ""].append(number)
    titles = ("", *(heading_key(headings[0]) for headings in sections[:1] if headings))

    def find(heading: str) -> Sequence[int]:
        key = heading_key(heading)
        if key in titles:
            return [0] if sections else []
        return paths.get(key) or ends.get(key) or ends.get(heading_key(_as_read(page, heading))) or ()

    return find


def _as_read(page: Page, heading: str) -> str:
    """Return the text of a heading with markup, as the reader of its page has it."""
    from recto.book.parsing import read

    if page.format not in _MARKDOWN:
        return heading
    sections = read(replace(page, text=f"# {heading}\n\n{_FILLER}\n", lines=(), questions=())).sections
    return next((section.headings[-1] for section in sections if section.headings), heading)


def write_question_file(path: Path, lines: Iterable[SectionQuestions]) -> None:
    """Replace a question file; an interruption leaves the old one."""
    replace_text(path, "".join(f"{format_line(line)}\n" for line in lines), private=False)


def format_line(line: SectionQuestions) -> str:
    """Return a line of a question file."""
    data: dict[str, Any] = {"page": line.page, "heading": line.heading}
    if line.hash:
        data["hash"] = line.hash
    data["questions"] = list(line.questions)
    if line.by:
        data["by"] = line.by
    return json.dumps(data, ensure_ascii=False)
