"""Calibrate an index: compare the scores of off-topic queries with the scores of queries about the book.

A cosine means nothing by itself: one model gives 0.7 to any two English sentences, another 0.3 to an answer.
Off-topic queries are a fixed list, without the queries whose subject is in the book. In-book queries are
headings and first sentences of sampled chunks, each scored against its own chunk.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from importlib.resources import files
from itertools import islice
from typing import TypeVar

from recto._util import cosine, percentile
from recto.errors import CollectionEmpty, EmbeddingError
from recto.protocols import Embedder, Index
from recto.search.lexical import read_lexicon
from recto.search.markdown import first_sentence
from recto.search.pipeline import OpenIndex, search_index
from recto.search.response import answerable
from recto.types.index import Calibration
from recto.types.request import MAX_QUERY, SearchRequest
from recto.types.search import Chunk

_QUESTIONS = 32  # with the in-book ones, a single call to a service that takes 96 texts
_IN_BOOK = 16
_BATCH = 8
_FEWEST = 8  # with fewer, a 95th percentile means nothing
_SAMPLE = 2000  # chunks to check for the subjects; by id, which is a hash, so from all over the book
_PERCENTILE = 0.95
_LEAST_SPREAD = 0.01
Item = TypeVar("Item")
_WORD = re.compile(r"[a-z]+")


def heading_question(chunk: Chunk) -> str:
    """Return the heading path of a chunk, or its page's title if it has none."""
    return (chunk.heading_path or chunk.title)[:MAX_QUERY].strip()


def calibrate(embedder: Embedder, index: Index) -> Calibration:
    """Measure the noise floor of an index, with one call to the model."""
    sample = list(islice(index.scroll(), _SAMPLE))
    if not sample:
        raise CollectionEmpty(f"Collection '{index.info.collection}' is empty", hint="Index a book first.")
    off_topic = off_topic_queries(sample)
    in_book = _in_book(sample)
    if len(off_topic) < _FEWEST or not in_book:
        raise EmbeddingError(
            "Too few off-topic queries are left: the book covers most of their subjects",
            hint="Search works without a noise floor.",
        )
    opened, split = OpenIndex(index, embedder, read_lexicon(index)), len(off_topic)
    queries = opened.prepare([*off_topic, *(query for query, _ in in_book)])
    nearest = search_index(index, queries[:split], SearchRequest(top_k=1, mode="dense"))
    noise = sorted(result.hits[0].score for result in nearest if result.hits)
    stored = index.vectors([chunk.id for _, chunk in in_book])
    about_book = zip(in_book, queries[split:], strict=True)
    signal = [
        cosine(query.vector, stored[chunk.id]) for (_, chunk), query in about_book if chunk.id in stored
    ]
    floor, mean = percentile(noise, _PERCENTILE), sum(noise) / len(noise)
    measured = Calibration(
        round(floor, 4),
        round(auroc(signal, noise), 4),
        len(noise),
        len(signal),
        round(max(floor - mean, _LEAST_SPREAD), 4),
    )
    if opened.lexicon is None:
        return measured
    likely = [
        answerable(result.evidence, result.query.lexical, measured) or 0.0
        for start in range(0, len(queries), _BATCH)  # each hybrid query is four requests to a server
        for result in search_index(index, queries[start : start + _BATCH], SearchRequest(top_k=1))
    ]
    return measured._replace(answerability=round(auroc(likely[split:], likely[:split]), 4))


def off_topic_queries(sample: Sequence[Chunk]) -> list[str]:
    """Return off-topic queries whose subjects are not in the book, spread over the whole list."""
    words = {word for chunk in sample for word in _WORD.findall(f"{chunk.heading_path} {chunk.text}".lower())}
    return spread([query for query, subject in all_probes().items() if subject.isdisjoint(words)], _QUESTIONS)


def all_probes() -> dict[str, frozenset[str]]:
    """Read the off-topic queries, with the words that a book about the subject of each would have."""
    data = json.loads(files("recto.evaluation").joinpath("off_topic.json").read_text("utf-8"))
    return {entry["ask"]: frozenset(entry["subject"]) for entry in data["probes"]}


def auroc(signal: Sequence[float], noise: Sequence[float]) -> float:
    """Return the area under the ROC curve: how often a signal is above a noise, a tie counting half."""
    wins = sum((score > other) + (score == other) / 2 for score in signal for other in noise)
    return wins / (len(signal) * len(noise)) if signal and noise else 0.0


def _in_book(sample: Sequence[Chunk]) -> list[tuple[str, Chunk]]:
    """Return queries for sampled chunks: headings and first sentences in turn."""
    chosen = spread([chunk for chunk in sample if chunk.text.strip()], _IN_BOOK)
    queries = (
        (heading_question(chunk) if number % 2 else first_sentence(chunk.text), chunk)
        for number, chunk in enumerate(chosen)
    )
    return [(query, chunk) for query, chunk in queries if query.strip()]


def spread(items: Sequence[Item], most: int) -> list[Item]:
    """Take items evenly from the whole list."""
    count = min(len(items), most)
    return [items[number * len(items) // count] for number in range(count)]
