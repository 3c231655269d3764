"""Section questions of a book: which sections lack them, which lines of the file have problems, new ones."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from recto._util.languages import ENGLISH, detect_language
from recto._util.text import plural
from recto.book.chunking import page_language
from recto.book.parsing import read
from recto.book.questions import (
    MAX_CHARACTERS,
    MAX_QUESTIONS,
    QUESTION_FILE,
    front_matter_questions,
    is_stale,
    joined,
    match_lines,
    parse_line,
    problem_of,
    question_file,
    read_question_file,
    section_finder,
    section_hash,
    write_question_file,
)
from recto.errors import RectoError
from recto.protocols import Source
from recto.search.query_log import normalize
from recto.types.book import Failure, Page, SectionQuestions
from recto.types.search import HEADING_SEPARATOR

if TYPE_CHECKING:
    from recto.search.retriever import Retriever

AGENT_GUIDE = Path(__file__).with_name("question_guide.md")
"""What an agent has to do to write the section questions of a book."""
BRIEF = Path(__file__).with_name("question_brief.md")
"""What a writer of section questions has to know, a person or a language model."""
_MIN_WORDS = 8  # outside links; a section with fewer has nothing to ask about
_COPIED_WORDS = 8  # of the book in a row; a question with as many is copied, not asked
_FOUND_WITHIN = 5
_LINK = re.compile(r"!?\[[^\[\]\n]*\]\([^()\n]*\)|<?https?://\S+|:\w+:`[^`\n]+`|\[\[[^\[\]\n]+\]\]")
_WORD = re.compile(r"\w+")
_MARKUP = re.compile(r"```|</?[a-zA-Z][^<>\n]*>|\]\(|^\s*(?:#{1,6}|[-*>]|\d+[.)])\s|\*\*|\{\{|:::|https?://")


@dataclass(frozen=True, slots=True)
class BookSection:
    """A section of a book, with the questions of its line in the question file and of the front matter.

    `line` is None if the file has no line for it; `stale` is true if its text changed since.
    """

    page: str
    headings: tuple[str, ...]
    text: str
    hash: str
    language: str
    line: SectionQuestions | None = None
    stale: bool = False
    front_matter: tuple[str, ...] = ()

    @property
    def heading(self) -> str:
        """Its heading path, as a question file has it."""
        return HEADING_SEPARATOR.join(self.headings)

    @property
    def has_content(self) -> bool:
        """Whether there is something to ask about: more than headings and links."""
        return len(_WORD.findall(_LINK.sub(" ", self.text))) >= _MIN_WORDS

    @property
    def is_missing(self) -> bool:
        """Whether nobody wrote questions for it, although there is something to ask about."""
        return self.line is None and not self.front_matter and self.has_content

    @property
    def questions(self) -> tuple[str, ...]:
        """All of its questions."""
        return joined(self.front_matter, self.line.questions if self.line else ())


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem of the question file; only an error fails a check. `line` is 0 if no line has it."""

    kind: str
    line: int
    message: str
    is_error: bool = True


@dataclass(slots=True)
class QuestionBook:
    """The sections of a book in reading order, and its question file, which `save` writes in that order."""

    source: Source
    path: Path
    sections: list[BookSection] = field(default_factory=list)
    orphaned: list[SectionQuestions] = field(default_factory=list)
    failed: list[Failure] = field(default_factory=list)
    pages: dict[str, Page] = field(default_factory=dict)

    @classmethod
    def open(cls, source: Source, path: Path | None = None) -> QuestionBook:
        """Read a book and its question file, by default the one that its index uses; it need not exist."""
        file = question_file(source) if path is None else path if path.exists() else None
        lines: defaultdict[str, list[SectionQuestions]] = defaultdict(list)
        for line in read_question_file(file) if file else ():
            lines[line.page].append(line)
        root = Path(source.location)
        book = cls(source, path or file or (root if root.is_dir() else root.parent) / QUESTION_FILE)
        for page in source.pages():
            try:
                document = read(page)
            except RectoError as error:
                book.failed.append(Failure(page.path, error.message))
                continue
            except Exception as error:  # noqa: BLE001 - as in an index run, one page does not stop the others
                book.failed.append(Failure(page.path, f"{type(error).__name__}: {error}"))
                continue
            book.pages[page.path] = replace(page, text="")
            language = page_language(page, document)
            stated = front_matter_questions(document)
            matched: dict[int, SectionQuestions] = {}
            for line, found in match_lines(page, document.sections, lines.pop(page.path, [])):
                if found is None:
                    book.orphaned.append(line)
                else:
                    before = matched[found].questions if found in matched else ()
                    matched[found] = replace(line, questions=joined(before, line.questions))
            for number, section in enumerate(document.sections):
                written = matched.get(number)
                book.sections.append(
                    BookSection(
                        page.path,
                        section.headings,
                        "\n\n".join(block.text for block in section.blocks),
                        section_hash(section),
                        language,
                        written,
                        stale=written is not None and is_stale(written, section),
                        front_matter=stated if number == 0 else (),
                    )
                )
        book.orphaned += [line for each in lines.values() for line in each]
        return book

    @property
    def needed(self) -> list[BookSection]:
        """The sections whose questions are missing or stale."""
        return [section for section in self.sections if section.is_missing or section.stale]

    def summary(self) -> dict[str, int]:
        """Count the sections by what their questions need."""
        written = [section for section in self.sections if section.questions]
        return {
            "sections": len(self.sections),
            "with_questions": len(written),
            "questions": sum(len(section.questions) for section in written),
            "missing": sum(section.is_missing for section in self.sections),
            "stale": sum(section.stale for section in self.sections),
            "orphaned": len(self.orphaned),
        }

    def find(self, page: str, heading: str) -> BookSection | None:
        """Return the section that a page and a heading name; a page may lack its first directories."""
        if page not in self.pages:
            ends = [known for known in self.pages if known.endswith(f"/{page}") or page.endswith(f"/{known}")]
            if len(ends) != 1:
                return None
            (page,) = ends
        sections = [section for section in self.sections if section.page == page]
        numbers = section_finder(self.pages[page], [section.headings for section in sections])(heading)
        return next((sections[number] for number in numbers if sections[number].line is None), None) or (
            sections[numbers[0]] if numbers else None
        )

    def set(self, section: BookSection, questions: Sequence[str], by: str) -> None:
        """Replace the line of a section."""
        line = SectionQuestions(section.page, section.heading, tuple(questions), section.hash, by)
        number = next(number for number, other in enumerate(self.sections) if _is_same(other, section))
        self.sections[number] = replace(self.sections[number], line=line, stale=False)

    def save(self) -> None:
        """Write the file: the lines in the order of the book, then those that have no section."""
        lines = (
            replace(section.line, page=section.page, heading=section.heading)
            for section in self.sections
            if section.line
        )
        write_question_file(self.path, (*lines, *self.orphaned))


def _is_same(section: BookSection, other: BookSection) -> bool:
    return (section.page, section.headings, section.hash) == (other.page, other.headings, other.hash)


class Validator:
    """Checks new questions against the book: their form, their language, and those that it has already."""

    def __init__(self, book: QuestionBook) -> None:
        self._owners = {
            normalize(question): section for section in book.sections for question in section.questions
        }
        self._book = book

    @cached_property
    def _text(self) -> str:
        words = (word for section in self._book.sections for word in _words(section.text))
        return f" {' '.join(words)} "

    def check(self, section: BookSection, questions: Sequence[str]) -> tuple[list[str], list[str]]:
        """Return the questions that a section can have, and why the others are refused."""
        accepted: list[str] = []
        refused: list[str] = []
        for question in map(" ".join, map(str.split, questions)):
            if reason := self._reason(section, question, accepted):
                refused.append(f"{question[:80]!r}: {reason}")
            else:
                accepted.append(question)
        language = detect_language("\n".join(accepted))
        if language and section.language and language != section.language:
            reason = f"they are in '{language}', the page is in '{section.language}'"
            return [], [*refused, *(f"{question[:80]!r}: {reason}" for question in accepted)]
        self._owners |= {normalize(question): section for question in accepted}
        return accepted, refused

    def _reason(self, section: BookSection, question: str, accepted: Sequence[str]) -> str:
        """Return why a question is refused, or ""."""
        owner = self._owners.get(normalize(question))
        starts = range(max(0, len(words := _words(question)) - _COPIED_WORDS + 1))
        copied = (" ".join(words[start : start + _COPIED_WORDS]) for start in starts)
        faults = {
            f"a question is a line of 1 to {MAX_CHARACTERS} characters": not words
            or len(question) > MAX_CHARACTERS
            or not question.isprintable(),
            "it has markup or an address": _MARKUP.search(question),
            f"a section has at most {MAX_QUESTIONS} questions": len(accepted) >= MAX_QUESTIONS,
            "it is there twice": normalize(question) in map(normalize, accepted),
            f"{owner.page if owner else ''} has it already": owner and not _is_same(owner, section),
            "it is copied from the book": any(f" {part} " in self._text for part in copied),
        }
        return next((reason for reason, is_at_fault in faults.items() if is_at_fault), "")


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())


@dataclass(slots=True)
class Added:
    """What was added to a question file: sections, questions, and what was refused and why."""

    sections: int = 0
    questions: int = 0
    refused: list[str] = field(default_factory=list)


def add_questions(book: QuestionBook, text: str, origin: str) -> Added:
    """Add the lines of a text (JSON Lines) to a book; a new line of a section replaces its stale one."""
    result, validator = Added(), Validator(book)
    for number, raw in enumerate(text.split("\n"), 1):
        if not raw.strip():
            continue
        place = f"{origin}, line {number}"
        try:
            line = parse_line(json.loads(raw), number)
        except (ValueError, RecursionError) as error:
            result.refused.append(f"{place}: {problem_of(error)}")
            continue
        section = book.find(line.page, line.heading)
        if section is None:
            result.refused.append(f"{place}: there is no section {line.heading!r} on page {line.page!r}")
            continue
        accepted, refused = validator.check(section, line.questions)
        result.refused += [f"{place}: {reason}" for reason in refused]
        if line.questions and not accepted:
            continue
        kept = section.line.questions if section.line and not section.stale else ()
        stated = len(section.front_matter)
        merged = joined((*section.front_matter, *kept), accepted)[stated:]
        if stated + len(merged) < len({*section.front_matter, *kept, *accepted}):
            result.refused.append(f"{place}: a section has at most {MAX_QUESTIONS} questions")
        book.set(section, merged, line.by or (section.line.by if section.line else ""))
        result.sections += 1
        result.questions += len(set(merged) - set(kept))
    return result


def check_questions(book: QuestionBook, retriever: Retriever | None) -> Iterator[Problem]:
    """Yield the problems of a question file; with an index, also questions that do not find their page."""
    for line in book.orphaned:
        message = f"there is no section {line.heading!r} on page {line.page!r}"
        yield Problem("orphaned", line.line, message)
    owners: defaultdict[str, list[BookSection]] = defaultdict(list)
    for section in book.sections:
        for question in section.questions:
            owners[normalize(question)].append(section)
    for section in book.sections:
        number = section.line.line if section.line else 0
        name = f"{section.page} > {section.heading}"
        if section.stale:
            yield Problem("stale", number, f"the text of {name} has changed since")
        if section.is_missing:
            yield Problem("missing", 0, f"{name} has no questions", is_error=False)
        for question in section.questions:
            if _MARKUP.search(question):
                yield Problem("markup", number, f"{question!r} has markup or an address")
            claims = owners[normalize(question)]
            if len(claims) > 1 and claims[0] is section:
                others = ", ".join(
                    f"line {other.line.line}" if other.line else "front matter" for other in claims
                )
                yield Problem("claimed_twice", number, f"{question!r} belongs to several sections: {others}")
    if retriever is not None:
        yield from _unfound(book, retriever)


def _unfound(book: QuestionBook, retriever: Retriever) -> Iterator[Problem]:
    """Yield the questions whose page is not among the first results."""
    asked = [(section, question) for section in book.sections for question in section.questions]
    responses = retriever.search_batch([question for _, question in asked], top_k=20)
    for (section, question), response in zip(asked, responses, strict=True):
        pages = list(dict.fromkeys(hit.chunk.source for hit in response.hits))[:_FOUND_WITHIN]
        if section.page not in pages:
            number = section.line.line if section.line else 0
            first = pages[0] if pages else "nothing"
            message = f"{question!r} does not find {section.page} among {_FOUND_WITHIN} pages, but {first}"
            yield Problem("not_found", number, message, is_error=False)


def near_questions(queries: Iterable[str], known: Iterable[str]) -> list[str]:
    """Return the queries that are one of the known questions, or nearly: the same words in any order."""
    by_word: defaultdict[str, set[frozenset[str]]] = defaultdict(set)
    for question in known:
        words = frozenset(_terms(question))
        for word in words:
            by_word[word].add(words)
    near = []
    for query in queries:
        mine = frozenset(_terms(query))
        candidates = set[frozenset[str]]().union(*(by_word.get(word, ()) for word in mine))
        if any(len(mine & words) >= _NEAR * len(mine | words) for words in candidates):
            near.append(query)
    return near


_NEAR = 0.75  # shared words of two questions that are nearly the same, of all their words


def _terms(text: str) -> Iterator[str]:
    """Yield the stems of a question's words that carry its meaning."""
    from recto.search.analyzer import is_stop_word, query_words, word_terms

    for word in query_words(text):
        if not is_stop_word(word, ENGLISH):
            yield word_terms(word)[0]


def sections_text(sections: Sequence[BookSection]) -> str:
    """Return sections for a writer: where each one is, the line to write, and its text."""
    parts = []
    for number, section in enumerate(sections, 1):
        line = json.dumps({"page": section.page, "heading": section.heading}, ensure_ascii=False)
        parts.append(f"=== section {number} of {len(sections)}: {line}\n\n{section.text.strip()}\n")
    return "\n".join(parts)


def needs_text(summary: dict[str, int]) -> str:
    """Return one line about what the question file of a book lacks."""
    needless = summary["sections"] - summary["with_questions"] - summary["missing"]
    return (
        f"{plural(summary['sections'], 'section')}: {summary['with_questions']} with questions, "
        f"{summary['missing']} without, {needless} that need none, {summary['stale']} stale; "
        f"{plural(summary['orphaned'], 'line')} without a section."
    )
