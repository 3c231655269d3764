"""Make a synthetic book of any size: vectors, texts, queries and the results of exact search.

Vectors are mixtures of two vectors of the sample book with noise, so that they are distributed like real
ones. A text has half of the words of the chunk that its vector resembles, and as many generated words. They
are drawn so that the vocabulary grows as in real documentation: the English pages of the Kubernetes
documentation have 44 000 terms in a million words, and 1.54 times as many in twice as many words.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import islice
from typing import Any

from recto.api import connect
from recto.search.analyzer import query_words
from recto.search.lexical import LexicalQuery, Lexicon, analyze_query
from recto.types.index import SparseVector
from recto.types.search import Chunk

QUESTIONS = 200
TOP = 10
PAGE = 20
"""Chunks of a page."""
MODULES = 5
_BATCH = 1_000
_NOISE = 0.035
_COMMON_WORDS = 10_000  # their frequencies follow Zipf's law; rarer words decrease faster
_RARE_SHARE = 0.085  # of the generated words that are not among the common ones
_HEAPS = 0.6245  # the exponent of the growth of the vocabulary
_GENERATED = (16, 50)  # generated words of a chunk, from and to
_SYLLABLES = tuple(consonant + vowel for consonant in "bcdfghklmnprstvz" for vowel in "aeiou")
_SHORT = 3  # letters of words that are not used in queries


def sample_book() -> tuple[Any, list[Chunk]]:
    """Return the vectors and the chunks of the sample book."""
    import numpy as np

    with connect() as retriever:
        index = retriever.open()
        texts = list(index.scroll())
        found = index.vectors([chunk.id for chunk in texts])
        return np.asarray([found[chunk.id] for chunk in texts], np.float32), texts


def vectors(base: Any, count: int, seed: int) -> Any:
    """Return vectors between two real ones, with noise."""
    import numpy as np

    random = np.random.default_rng(seed)
    main, other = (base[random.integers(0, len(base), count)] for _ in range(2))
    share = random.random((count, 1), np.float32) * 0.5 + 0.5
    mixed = (
        main * share
        + other * (1 - share)
        + random.standard_normal((count, base.shape[1]), np.float32) * _NOISE
    )
    return mixed / np.linalg.norm(mixed, axis=1, keepdims=True)


def batches(base: Any, count: int) -> Iterator[Any]:
    """Yield the rows of an index in batches; the same in every run."""
    for start in range(0, count, _BATCH):
        yield start, vectors(base, min(_BATCH, count - start), start + 1)


def chunk_id(number: int) -> str:
    """Return the id of the chunk with a number."""
    return f"00000000-0000-5000-8000-{number:012d}"


def numbered_chunk(chunk: Chunk, text: str, number: int) -> Chunk:
    """Return a copy of a chunk with another text, in the place that a number gives it in the book."""
    page, module = f"https://example.org/page-{number // PAGE}", f"module-{number // PAGE % MODULES}"
    return replace(
        chunk,
        id=chunk_id(number),
        text=text,
        page_url=page,
        module=module,
        module_keys=(module,),
        chunk_index=number % PAGE,
        total_chunks=PAGE,
    )


def mixed_chunks(texts: list[Chunk], start: int, count: int) -> list[Chunk]:
    """Return chunks with half of the words of the chunk that the vector resembles, and generated words."""
    import numpy as np

    random = np.random.default_rng((start, 1))
    topics = np.random.default_rng(start + 1).integers(0, len(texts), count)  # the first draw of `vectors`
    sizes = random.integers(*_GENERATED, count)
    total = int(sizes.sum())
    ranks = _COMMON_WORDS ** random.random(total)
    rare = random.random(total) < _RARE_SHARE
    ranks[rare] = _COMMON_WORDS * (1 - random.random(int(rare.sum()))) ** (-_HEAPS / (1 - _HEAPS))
    words = iter(map(generated_word, np.minimum(ranks, 1e12).astype(np.int64).tolist()))
    places = random.random(count).tolist()
    chunks = []
    for number, (topic, size, place) in enumerate(zip(topics, sizes.tolist(), places, strict=True), start):
        chunk = texts[topic]
        original = chunk.text.split(" ")
        first = int(place * (len(original) // 2 + 1))
        text = " ".join((*original[first : first + (len(original) + 1) // 2], *islice(words, size)))
        chunks.append(numbered_chunk(chunk, text, number))
    return chunks


@lru_cache(maxsize=_COMMON_WORDS)
def generated_word(rank: int) -> str:
    """Return the word with a rank; frequent words are shorter."""
    syllables: list[str] = []
    while rank or not syllables:
        rank, syllable = divmod(rank, len(_SYLLABLES))
        syllables.append(_SYLLABLES[syllable])
    return "".join(syllables)


def make_questions(base: Any, texts: list[Chunk], count: int) -> tuple[Any, list[str]]:
    """Return vectors and texts of queries: each resembles a chunk, and has words of it.

    Two of three queries have the length of a short question, the others are two keywords.
    """
    import numpy as np

    random = np.random.default_rng(10**9)
    numbers = sorted(random.integers(0, count, QUESTIONS).tolist())
    found, queries = [], []
    for place, number in enumerate(numbers):
        start = number // _BATCH * _BATCH
        size = min(_BATCH, count - start)
        if place == 0 or start != numbers[place - 1] // _BATCH * _BATCH:
            rows, chunks = vectors(base, size, start + 1), mixed_chunks(texts, start, size)
        found.append(rows[number - start])
        words = query_words(chunks[number - start].text)
        words = [word for word in words if len(word) > _SHORT] or words
        queries.append(" ".join(random.choice(words, min(len(words), 6 if place % 3 else 2), replace=False)))
    noise = random.standard_normal((QUESTIONS, base.shape[1]), np.float32) * _NOISE
    mixed = np.asarray(found, np.float32) + noise
    return mixed / np.linalg.norm(mixed, axis=1, keepdims=True), queries


def truth(base: Any, count: int, questions: Any, lexical: Any = None) -> list[list[str]]:
    """Return the ids of the best chunks of each query, found by exact search over all chunks.

    `lexical` has what each chunk's hybrid score has in addition to the cosine similarity.
    """
    import numpy as np

    best = np.full((len(questions), TOP), -2.0, np.float32)
    ids = np.zeros((len(questions), TOP), np.int64)
    for start, rows in batches(base, count):
        found = questions @ rows.T.astype(np.float32)
        if lexical is not None:
            found += lexical[:, start : start + len(rows)]
        scores = np.hstack([best, found])
        places = np.hstack([ids, np.tile(np.arange(start, start + len(rows)), (len(questions), 1))])
        order = np.argsort(-scores, axis=1)[:, :TOP]
        best, ids = np.take_along_axis(scores, order, 1), np.take_along_axis(places, order, 1)
    return [[chunk_id(number) for number in row] for row in ids]


def known_results(
    base: Any, texts: list[Chunk], postings: Postings, lexicon: bytes, count: int
) -> dict[str, Any]:
    """Return queries and the ids of their best chunks in dense and in hybrid mode."""
    questions, queries = make_questions(base, texts, count)
    vocabulary = Lexicon(lexicon)
    analyzed = [analyze_query(query, vocabulary) for query in queries]
    lexical = postings.scores(analyzed)
    for row, query in enumerate(analyzed):
        lexical[row] *= query.weight / max(lexical[row].max(), 1e-9)
    return {
        "questions": questions.tolist(),
        "texts": queries,
        "dense": truth(base, count, questions),
        "hybrid": truth(base, count, questions, lexical),
    }


class Postings:
    """The lexical vectors of all chunks, for exact search."""

    def __init__(self) -> None:
        self._ids, self._values, self._sizes = array("I"), array("f"), array("I")

    def add(self, vectors: Iterable[SparseVector]) -> None:
        """Append the vectors of the next chunks."""
        for vector in vectors:
            self._ids.extend(vector.indices)
            self._values.extend(vector.values)
            self._sizes.append(len(vector.indices))

    def scores(self, queries: Sequence[LexicalQuery]) -> Any:
        """Return the BM25 score of every chunk for every query."""
        import numpy as np

        ids, values = np.asarray(self._ids), np.asarray(self._values)
        wanted = np.isin(ids, [id for query in queries for id in query.vector.indices])
        rows = np.repeat(np.arange(len(self._sizes), dtype=np.uint32), np.asarray(self._sizes))[wanted]
        ids, values = ids[wanted], values[wanted]
        order = np.argsort(ids, kind="stable")
        ids, values, rows = ids[order], values[order], rows[order]
        scores = np.zeros((len(queries), len(self._sizes)), np.float32)
        for query, found in zip(queries, scores, strict=True):
            terms = query.vector
            for id, weight, idf in zip(terms.indices, terms.values, terms.idf, strict=True):
                first, end = np.searchsorted(ids, (id, id + 1))
                found[rows[first:end]] += values[first:end] * np.float32(weight * idf)
        return scores
