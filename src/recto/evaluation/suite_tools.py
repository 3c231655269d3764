"""Lint a suite: list its errors and what makes it weak."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recto._util.text import plural
from recto.evaluation.binding import bind
from recto.evaluation.suites import Suite, survey
from recto.protocols import Index


@dataclass(frozen=True, slots=True)
class Lint:
    """The result of linting: `problems` fail the suite, `warnings` weaken it."""

    questions: int
    problems: tuple[str, ...]
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {"questions": self.questions, "problems": list(self.problems), "warnings": list(self.warnings)}


def lint(path: Path, index: Index | None = None) -> Lint:
    """Check a suite's file, and look up its targets if there is an index."""
    suite, problems = survey(path)
    warnings = []
    if drafted := sum(expectation.drafted for expectation in suite.expectations):
        total = len(suite.expectations)
        warnings.append(f'Drafts: {drafted} of {plural(total, "question")}; review them and remove "drafted"')
    if index is not None and suite.expectations:
        for question in bind(suite, index).questions:
            place = question.expectation.place
            if question.measured:
                warnings += [
                    f"{place}: {one}; its other targets still measure it" for one in question.missing
                ]
            else:
                problems += [f"{place}: UNMEASURED: {one}" for one in question.missing]
        warnings += _too_easy(suite, index)
    return Lint(len(suite.expectations), tuple(problems), tuple(warnings))


def _too_easy(suite: Suite, index: Index) -> list[str]:
    """Name the questions that are literally a heading of the book: they prove little."""
    asked = {_words(expectation.query): expectation for expectation in suite.expectations}
    copied = {
        words
        for chunk in index.scroll()
        for heading in (*chunk.headings, *re.findall(r"^#+ (.+)$", chunk.text, re.MULTILINE))
        if (words := _words(heading)) in asked
    }
    return [
        f"{expectation.place}: {expectation.query!r} is literally a heading of the book: ask as a reader"
        for words, expectation in asked.items()
        if words in copied
    ]


def _words(text: str) -> str:
    return " ".join(text.casefold().strip(" ?!.:`").split())
