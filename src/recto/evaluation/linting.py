"""Look a suite over: what is wrong with it, and what is only doubtful."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recto.evaluation.binding import bind
from recto.evaluation.suite import Suite, survey
from recto.protocols import Index
from recto.types import Chunk


@dataclass(frozen=True, slots=True)
class Lint:
    """What was found; `problems` make the suite fail, `warnings` make it weaker than it looks."""

    questions: int
    problems: tuple[str, ...]
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {"questions": self.questions, "problems": list(self.problems), "warnings": list(self.warnings)}


def lint(path: Path, index: Index | None = None) -> Lint:
    """Read a suite's file, and look up its places if there is an index."""
    suite, problems = survey(path)
    warnings = []
    if drafted := sum(expectation.drafted for expectation in suite.expectations):
        warnings.append(f'{drafted} of {len(suite.expectations)} questions are drafts: go through them and remove "drafted"')
    if index is not None and suite.expectations:
        bound = bind(suite, index)
        places = {question.expectation.key: question.expectation.place for question in bound.questions}
        problems += [f"{places[missing.key]}: UNMEASURED: {missing}" for question in bound.unmeasured for missing in question.missing]
        warnings += [f"{places[missing.key]}: {missing}; the other places still measure it" for missing in bound.partial]
        warnings += _too_easy(suite, index)
    return Lint(len(suite.expectations), tuple(problems), tuple(warnings))


def _too_easy(suite: Suite, index: Index) -> list[str]:
    """Name the questions that are a heading of the book, word for word: they prove little."""
    asked = {_words(expectation.query): expectation for expectation in suite.expectations}
    copied = {words for chunk in index.scroll() for heading in _headings(chunk) if (words := _words(heading)) in asked}
    return [
        f"{expectation.place}: {expectation.query!r} is a heading of the book, word for word; ask as a reader would"
        for words, expectation in asked.items()
        if words in copied
    ]


def _headings(chunk: Chunk) -> list[str]:
    """A chunk's headings, and those of the sections that were joined to it."""
    return [*chunk.headings, *re.findall(r"^#+ (.+)$", chunk.text, re.MULTILINE)]


def _words(text: str) -> str:
    return " ".join(text.casefold().strip(" ?!.:`").split())
