"""Measure chunking with Chroma's token-wise measures: how much relevant text is retrieved, and how much else.

The five corpora and their questions come from Chroma's report "Evaluating Chunking Strategies for Retrieval".
As in its code, ranges of characters are compared and the five nearest chunks are retrieved. Unlike there,
only chunks of the question's own corpus are candidates.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.measures import Mean, Range, best_precision, mean, overlap, shared
from bench.splitters import recursive, windows
from bench.variations import EmbeddedChunk, Variation, chunk_pages
from bench.vectors import Vectors
from recto.book.chunking import ChunkSize
from recto.types.book import Page

TOP = 5
BUDGET = 1600  # tokens of retrieved text, for every chunk size


@dataclass(frozen=True, slots=True)
class Question:
    """A question and the ranges of its corpus that answer it."""

    text: str
    references: tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class Corpus:
    """A text with questions."""

    name: str
    text: str
    questions: tuple[Question, ...]


@dataclass(frozen=True, slots=True)
class Span:
    """A chunk: its range in the text, the embedded text, and its number of tokens."""

    place: Range
    embedded: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Result:
    """The measures over some questions.

    `lost` is the share of chunks that were not located in the text, `covered` the share of the text in
    chunks.
    """

    name: str
    questions: int
    chunks: int
    tokens: float
    recall: Mean
    precision: Mean
    iou: Mean
    omega: Mean
    budget_recall: Mean
    lost: float
    covered: float


Splitter = Callable[[Corpus], tuple[list[Span], int]]
"""Returns the chunks of a corpus, and how many of them could not be located in it."""


def load(folder: Path, extract: int = 0) -> list[Corpus]:
    """Read the corpora.

    Unless `extract` is 0, read about that many characters of each, with the questions that they answer.
    """
    rows: dict[str, list[Question]] = {}
    with (folder / "questions_df.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            places = tuple(
                (int(found["start_index"]), int(found["end_index"]))
                for found in json.loads(row["references"])
            )
            rows.setdefault(row["corpus_id"], []).append(Question(row["question"], places))
    corpora = []
    for name, questions in rows.items():
        text = (folder / "corpora" / f"{name}.md").read_text("utf-8")
        if extract and len(text) > extract:
            text = text[: text.rfind("\n", 0, extract) + 1]
        corpora.append(
            Corpus(
                name,
                text,
                tuple(each for each in questions if max(end for _, end in each.references) <= len(text)),
            )
        )
    return corpora


def recto(chunk_size: ChunkSize, vectors: Vectors, variation: Variation = "default") -> Splitter:
    """Split with Recto's chunker: the corpus is a Markdown page."""

    def split(corpus: Corpus) -> tuple[list[Span], int]:
        page = Page(
            f"{corpus.name}.md", f"local://{corpus.name}", corpus.name, "intro", ("intro",), corpus.text, ""
        )
        lines = [0, *(found.end() for found in re.finditer("\n", corpus.text)), len(corpus.text)]
        spans, lost, before = [], 0, 0
        for one in chunk_pages([page], corpus.name, chunk_size, vectors, variation):
            around = lines[one.chunk.start_line - 1], lines[min(one.chunk.end_line, len(lines) - 1)]
            place = locate(corpus.text, one.chunk.text, around, before)
            lost += place is None
            start, end = place or around
            before = end
            spans.append(_span(corpus.text, one, start, end, vectors))
        return spans, lost

    return split


def _span(text: str, one: EmbeddedChunk, start: int, end: int, vectors: Vectors) -> Span:
    """Return a chunk; with overlap, its range begins at the repeated sentence."""
    if one.repeated:
        found = text.rfind(one.repeated, max(0, start - 2 * len(one.repeated)), start)
        start = found if found >= 0 else start
    return Span((start, end), one.embedded, vectors.count(f"{one.repeated}{one.chunk.text}"))


def fixed(tokens: int, step: int, vectors: Vectors) -> Splitter:
    """Split into windows of tokens."""

    def split(corpus: Corpus) -> tuple[list[Span], int]:
        return _plain(corpus, windows(vectors.offsets(corpus.text), tokens, step), vectors), 0

    return split


def by_characters(largest: int, vectors: Vectors) -> Splitter:
    """Split at paragraphs, then lines, sentences, words."""

    def split(corpus: Corpus) -> tuple[list[Span], int]:
        return _plain(corpus, recursive(corpus.text, largest), vectors), 0

    return split


def _plain(corpus: Corpus, ranges: Sequence[Range], vectors: Vectors) -> list[Span]:
    texts = [corpus.text[start:end] for start, end in ranges]
    return [Span(place, text, vectors.count(text)) for place, text in zip(ranges, texts, strict=True)]


def baselines(vectors: Vectors) -> dict[str, Splitter]:
    """Return the splitters to compare with, by name."""
    found: dict[str, Splitter] = {}
    for tokens in (200, 400):
        found[f"window of {tokens} tokens"] = fixed(tokens, tokens, vectors)
        found[f"window of {tokens} tokens, half overlapping"] = fixed(tokens, tokens // 2, vectors)
    for characters in (200, 400, 800):
        found[f"recursive, {characters} characters"] = by_characters(characters, vectors)
    return found


def locate(text: str, wanted: str, around: Range, before: int = 0) -> Range | None:
    """Find a chunk in some lines of a text: exactly, then ignoring white space, then line by line.

    If it occurs more than once, return the first occurrence after `before`.
    """
    for start in (max(before, around[0]), around[0]):
        if (found := text.find(wanted, start, around[1])) >= 0:
            return found, found + len(wanted)
    places = [place for place in range(*around) if not text[place].isspace()]
    bare = "".join(text[place] for place in places)
    if (found := bare.find(_bare(wanted))) >= 0:
        return places[found], places[found + len(_bare(wanted)) - 1] + 1
    # The header of a split table is repeated, and some syntax of a page is not text: most lines must be there
    # in order, or all at the end.
    lines = [line for line in map(_bare, wanted.split("\n")) if line]
    first, last, cursor, seen = -1, -1, 0, 0
    for line in lines:
        if (found := bare.find(line, cursor)) >= 0:
            first = found if first < 0 else first
            cursor = last = found + len(line)
            seen += len(line)
    complete = first >= 0 and (2 * seen > len(_bare(wanted)) or _bare(wanted).endswith(bare[first:last]))
    return (places[first], places[last - 1] + 1) if complete else None


def _bare(text: str) -> str:
    return "".join(text.split())


def measure(corpora: Sequence[Corpus], split: Splitter, vectors: Vectors, what: str) -> list[Result]:
    """Return the measures of each corpus, and of all questions under the name `all`."""
    results, everything = [], []
    chunks = tokens = lost = covered = length = 0
    for corpus in corpora:
        spans, missing = split(corpus)
        scores = _scores(corpus, spans, vectors, what)
        inside = shared([span.place for span in spans], [(0, len(corpus.text))])
        words = sum(span.tokens for span in spans)
        results.append(_result(corpus.name, scores, len(spans), words, missing, inside / len(corpus.text)))
        everything += scores
        chunks, tokens, lost = chunks + len(spans), tokens + words, lost + missing
        covered, length = covered + inside, length + len(corpus.text)
    return [*results, _result("all", everything, chunks, tokens, lost, covered / length)]


_Score = tuple[float, float, float, float, float]


def _scores(corpus: Corpus, spans: Sequence[Span], vectors: Vectors, what: str) -> list[_Score]:
    found = vectors.documents([span.embedded for span in spans], f"{what}, {corpus.name}")
    asked = vectors.questions([question.text for question in corpus.questions], f"questions, {corpus.name}")
    order = (-(asked @ found.T)).argsort(axis=1, kind="stable")
    scores = []
    for question, ranking in zip(corpus.questions, order, strict=True):
        ranked = [spans[index] for index in ranking]
        top = overlap([span.place for span in ranked[:TOP]], question.references)
        omega = best_precision([span.place for span in spans], question.references)
        read = overlap(within_budget(ranked), question.references)
        scores.append((top.recall, top.precision, top.iou, omega, read.recall))
    return scores


def within_budget(ranked: Sequence[Span], budget: int = BUDGET) -> list[Range]:
    """Take chunks in order until the budget is used up; the last one is cut."""
    taken: list[Range] = []
    for span in ranked:
        start, end = span.place
        if span.tokens >= budget:
            return [*taken, (start, start + (end - start) * budget // span.tokens)]
        taken.append(span.place)
        budget -= span.tokens
    return taken


def _result(
    name: str, scores: Sequence[_Score], chunks: int, tokens: int, lost: int, covered: float
) -> Result:
    recall, precision, iou, omega, read = (mean(values) for values in zip(*scores, strict=True))
    return Result(
        name,
        len(scores),
        chunks,
        tokens / chunks,
        recall,
        precision,
        iou,
        omega,
        read,
        lost / chunks,
        covered,
    )


def measure_size(
    corpora: Sequence[Corpus], chunk_size: ChunkSize, vectors: Vectors, variation: Variation = "default"
) -> list[Result]:
    """Return the measures of Recto's chunks of one size, for each corpus and for all."""
    return measure(
        corpora,
        recto(chunk_size, vectors, variation),
        vectors,
        f"chroma {chunk_size.max_tokens}, {variation}",
    )
