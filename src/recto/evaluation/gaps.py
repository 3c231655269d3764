"""Find what readers ask and the book does not answer: cluster queries by meaning, and rank the clusters.

Every query is searched for in the current index, so a cluster disappears as soon as the book answers it, even
if the log is old. A query counts as unanswered with the probability `1 - answerable`. Whether readers opened
a result is a signal of its own: they may leave without a click because the snippet was enough.
`questions_from` makes drafts of a suite's questions from the clusters.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

from recto._util.files import read_text
from recto._util.languages import ENGLISH
from recto._util.text import encodable, plural
from recto.book.questions import MAX_CHARACTERS, MAX_QUESTIONS, format_line
from recto.errors import InvalidArgument
from recto.evaluation.binding import section_name
from recto.evaluation.suites import JSON_LINES, MAX_BYTES, SUITE_FORMAT, parse_json
from recto.protocols import Index, Progress, Store
from recto.search.analyzer import STOP_WORDS, count_words, query_words, word_terms
from recto.search.lexical import Lexicon, analyzed_text, count_terms
from recto.search.pipeline import OpenIndex, PreparedQuery, search_index
from recto.search.query_log import normalize, read_query_log
from recto.search.response import NOT_COVERED_BELOW, answerable
from recto.search.retriever import Retriever
from recto.types.book import SectionQuestions
from recto.types.request import MAX_QUERY, SearchRequest
from recto.types.search import Chunk, Hit, Vector

MAX_DISTINCT = 2000
"""Distinct queries that are clustered, the most frequent ones: all pairs are compared at each step."""

_BATCH = 64
_SIMILARITY = 0.4  # of two clusters that are one; queries about two subjects of a book have about 0.2
_SAMPLE = 1000  # chunks that stand for the book; by id, which is a hash, so from all over the book
_GAP_SHARE = 0.5  # of a cluster's queries; less is within the error of `answerable`
_MIN_UNCLICKED = 3  # searches without a click; fewer say nothing
_NEAREST = 3
_EXAMPLES = 5
_WORDS = 6
_CLICKABLE = frozenset({"search", "related"})


@dataclass(slots=True)
class LoggedQuery:
    """How often a query was asked in each spelling, how many searches could report clicks, and the clicks."""

    forms: Counter[str] = field(default_factory=Counter)
    clickable: int = 0
    clicks: Counter[str] = field(default_factory=Counter)

    @property
    def count(self) -> int:
        """How often it was asked."""
        return self.forms.total()

    @property
    def text(self) -> str:
        """Its most frequent spelling."""
        return min(self.forms, key=lambda form: (-self.forms[form], form))


@dataclass(frozen=True, slots=True)
class LoggedQueries:
    """The queries about a book by their normal form, and how many were logged without their text.

    `skipped` counts the lines of the log that are no entries.
    """

    queries: dict[str, LoggedQuery]
    without_text: int = 0
    skipped: int = 0

    @property
    def has_clicks(self) -> bool:
        """Whether any reader's page reports clicks."""
        return any(query.clicks for query in self.queries.values())


@dataclass(frozen=True, slots=True)
class Cluster:
    """Queries with one meaning, the most frequent first.

    `unanswered` is the expected share of queries that the book does not answer, `not_covered` counts those
    that it most likely does not cover, and `below_noise` those whose best similarity is below the noise
    floor. `no_click` counts the searches after which no result was opened; None if clicks are not reported.
    `nearest` has the best hit of each near section. `unknown_words` are not in the book; `missing_words` are
    not in the nearest section.
    """

    label: str
    count: int
    unanswered: float
    not_covered: int
    below_noise: int
    no_click: int | None
    queries: tuple[tuple[str, int], ...]
    nearest: tuple[Hit, ...]
    unknown_words: tuple[str, ...]
    missing_words: tuple[str, ...]
    clicked: str = ""
    """The URL that was opened most often."""

    @property
    def score(self) -> float:
        """The expected number of unanswered queries, which ranks clusters."""
        return self.count * self.unanswered

    @property
    def is_gap(self) -> bool:
        """Whether the book seems to lack the subject."""
        return self.unanswered >= _GAP_SHARE

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "label": self.label,
            "count": self.count,
            "unanswered": round(self.unanswered, 4),
            "not_covered": self.not_covered,
            "below_noise": self.below_noise,
            "no_click": self.no_click,
            "queries": [{"query": query, "count": count} for query, count in self.queries[:_EXAMPLES]],
            "nearest": [
                {"url": hit.chunk.url, "title": hit.chunk.heading_path, "similarity": round(hit.score, 4)}
                for hit in self.nearest
            ],
            "unknown_words": list(self.unknown_words),
            "missing_words": list(self.missing_words),
        }


@dataclass(frozen=True, slots=True)
class Gaps:
    """All clusters of the queries about a book, those with most unanswered queries first."""

    collection: str
    generation: str
    clusters: tuple[Cluster, ...]
    distinct: int
    without_text: int
    left_out: int

    @property
    def total(self) -> int:
        """The number of queries."""
        return sum(cluster.count for cluster in self.clusters)

    @property
    def gaps(self) -> list[Cluster]:
        """The clusters that the book seems to lack, the largest gap first."""
        return [cluster for cluster in self.clusters if cluster.is_gap]

    @property
    def unclicked(self) -> list[Cluster]:
        """The clusters that the book seems to answer, but of which no result was opened."""
        unclicked = (cluster for cluster in self.answered if cluster.no_click == cluster.count)
        return [cluster for cluster in unclicked if cluster.count >= _MIN_UNCLICKED]

    @property
    def answered(self) -> list[Cluster]:
        """The clusters that the book seems to answer, the most frequent first."""
        answered = (cluster for cluster in self.clusters if not cluster.is_gap)
        return sorted(answered, key=lambda cluster: (-cluster.count, cluster.label))


def read_queries(path: Path) -> LoggedQueries:
    """Read queries from a file: one on each line, with a tab and a number if it was asked several times."""
    queries: dict[str, LoggedQuery] = defaultdict(LoggedQuery)
    for number, line in enumerate(read_text(path, MAX_BYTES).splitlines(), 1):
        text, _, count = line.partition("\t")
        if not (text := encodable(text).strip()[:MAX_QUERY]):
            continue
        if count and not (count.strip().isdecimal() and 0 < int(count) < 10**9):
            raise InvalidArgument(
                f"{path}, line {number}: {count.strip()[:40]!r} is not a number of queries",
                hint="A line is a query, or a query, a tab and how often it was asked.",
            )
        queries[normalize(text)].forms[text] += int(count or 1)
    return LoggedQueries(dict(queries))


def read_asked(log: Path, names: Iterable[str], since: datetime | None = None) -> LoggedQueries:
    """Read the queries about a collection, which may have several names, from a query log."""
    queries: dict[str, LoggedQuery] = defaultdict(LoggedQuery)
    accepted, without_text = frozenset(names), 0
    skipped: list[None] = []
    for entry in read_query_log(log, since, lambda: skipped.append(None)):
        if entry.get("collection") not in accepted:
            continue
        text = entry.get("query")
        if not isinstance(text, str) or not text.strip():
            without_text += "click" not in entry and "helpful" not in entry
            continue
        query = queries[normalize(text)]
        if "click" in entry:
            query.clicks[str(entry["click"])] += 1
        elif "helpful" not in entry:  # which is about the answer, not about the search
            query.forms[text] += 1
            query.clickable += entry.get("via") in _CLICKABLE
    searched = {key: query for key, query in queries.items() if query.forms}
    return LoggedQueries(searched, without_text, len(skipped))


def names_of(store: Store, collection: str) -> set[str]:
    """Return all names of a collection, which entries of a log can have."""
    aliases = store.aliases()
    target = aliases.get(collection, collection)
    return {collection, target, *(alias for alias, name in aliases.items() if name == target)}


def find_gaps(retriever: Retriever, logged: LoggedQueries, progress: Progress | None = None) -> Gaps:
    """Search for all queries, cluster them, and rank the clusters."""
    opened = retriever.open_index()
    index, info = opened.index, opened.index.info
    ordered = sorted(logged.queries.values(), key=lambda query: (-query.count, query.text))
    frequent = ordered[:MAX_DISTINCT]
    vectors: list[Vector] = []
    results: list[_Result] = []
    for start in range(0, len(frequent), _BATCH):
        batch = frequent[start : start + _BATCH]
        queries = opened.prepare([query.text for query in batch])
        results += _search(opened, batch, queries)
        vectors += [query.vector for query in queries]
        if progress:
            progress(len(vectors), len(frequent))
    sample = index.vectors([chunk.id for chunk in islice(index.scroll(), _SAMPLE)])
    groups = cluster(vectors, list(sample.values())) if vectors else []
    clusters = [
        _summary([results[number] for number in numbers], opened.lexicon, logged.has_clicks)
        for numbers in groups
    ]
    return Gaps(
        info.collection,
        info.generation,
        tuple(sorted(clusters, key=lambda cluster: (-cluster.score, -cluster.count, cluster.label))),
        len(ordered),
        logged.without_text,
        sum(query.count for query in ordered[MAX_DISTINCT:]),
    )


@dataclass(frozen=True, slots=True)
class _Result:
    """A query, its nearest chunks, and the probability that the book answers it."""

    query: LoggedQuery
    hits: Sequence[Hit]
    answerable: float
    is_below_noise: bool


def _search(
    opened: OpenIndex, batch: Sequence[LoggedQuery], queries: Sequence[PreparedQuery]
) -> Iterator[_Result]:
    """Yield the nearest chunks of each query, and the probability that the book answers it.

    If the probability is unknown, a query counts as answered if its nearest chunk is above the noise floor.
    """
    calibration, noise_floor = opened.index.info.calibration, opened.index.info.noise_floor
    nearest = search_index(opened.index, queries, SearchRequest(top_k=_NEAREST, mode="dense"))
    probabilities: list[float | None] = [None] * len(queries)
    if opened.lexicon is not None and calibration is not None:
        hybrid = search_index(opened.index, queries, SearchRequest(top_k=1))
        probabilities = [answerable(result.evidence, result.query.lexical, calibration) for result in hybrid]
    for query, result, probability in zip(batch, nearest, probabilities, strict=True):
        hits = result.hits
        below = noise_floor is not None and (not hits or hits[0].score < noise_floor)
        likely = float(bool(hits) and not below) if probability is None else probability
        yield _Result(query, hits, likely, below)


def cluster(vectors: Sequence[Vector], book: Sequence[Vector]) -> list[list[int]]:
    """Group the vectors of queries by average linkage.

    All queries about a book are similar, so only their differences from the mean of its chunks are compared.
    The two most similar groups are merged until none are similar. Equal inputs give equal groups.
    """
    import numpy as np

    matrix = np.asarray(vectors, np.float32)
    if book:
        matrix = matrix - np.asarray(book, np.float32).mean(axis=0)
    matrix /= np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), 1e-9)
    similarity = matrix @ matrix.T
    np.fill_diagonal(similarity, -np.inf)
    groups = {number: [number] for number in range(len(matrix))}
    while True:
        into, other = sorted(divmod(int(similarity.argmax()), len(matrix)))
        if similarity[into, other] < _SIMILARITY:
            return sorted(map(sorted, groups.values()))
        size, other_size = len(groups[into]), len(groups[other])
        merged = (size * similarity[into] + other_size * similarity[other]) / (size + other_size)
        merged[into] = -np.inf
        similarity[into] = similarity[:, into] = merged
        similarity[other] = similarity[:, other] = -np.inf
        groups[into] += groups.pop(other)


def _summary(results: Sequence[_Result], lexicon: Lexicon | None, has_clicks: bool) -> Cluster:
    count = sum(result.query.count for result in results)
    near = _nearest(results)
    unknown, missing = _missing_words(results, lexicon, near[0].chunk if near else None)
    clicks = sum((result.query.clicks for result in results), Counter[str]())
    clickable = sum(result.query.clickable for result in results)
    queries = sorted(
        ((result.query.text, result.query.count) for result in results), key=lambda item: (-item[1], item[0])
    )
    return Cluster(
        label=queries[0][0],
        count=count,
        unanswered=sum((1 - result.answerable) * result.query.count for result in results) / count,
        not_covered=sum(result.query.count for result in results if result.answerable < NOT_COVERED_BELOW),
        below_noise=sum(result.query.count for result in results if result.is_below_noise),
        no_click=max(0, clickable - clicks.total()) if has_clicks and clickable else None,
        queries=tuple(queries),
        nearest=tuple(near),
        unknown_words=unknown,
        missing_words=missing,
        clicked=min(clicks, key=lambda url: (-clicks[url], url)) if clicks else "",
    )


def _nearest(results: Sequence[_Result]) -> list[Hit]:
    """Return the best hits of the sections that are near to most queries."""
    weights: defaultdict[str, float] = defaultdict(float)
    best: dict[str, Hit] = {}
    for result in results:
        for hit in result.hits:
            url = hit.chunk.url
            weights[url] += hit.score * result.query.count
            if url not in best or hit.score > best[url].score:
                best[url] = hit
    return [best[url] for url in sorted(weights, key=lambda url: (-weights[url], url))[:_NEAREST]]


def _missing_words(
    results: Sequence[_Result], lexicon: Lexicon | None, section: Chunk | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the cluster's words that the book does not have, and those that its nearest section lacks.

    Misspelled words count as the words that they were corrected to.
    """
    spellings: dict[str, Counter[str]] = defaultdict(Counter)
    language = next(iter(lexicon.languages), ENGLISH) if lexicon else ENGLISH
    for result in results:
        for word in query_words(result.query.text, language):
            term = word_terms(word, language)[0]
            if len(term) > 2 and term not in STOP_WORDS and not term.isdecimal():
                spellings[term][word.lower()] += result.query.count
    section_words = count_words(analyzed_text(section), language) if section else Counter[str]()
    section_terms = set(count_terms(section_words, language)[0])
    unknown: list[str] = []
    missing: list[str] = []
    for term in sorted(spellings, key=lambda term: (-spellings[term].total(), term)):
        word = min(spellings[term], key=lambda spelling: (-spellings[term][spelling], spelling))
        analyzed = lexicon.analyze_word(word, language) if lexicon else None
        if analyzed is not None and not analyzed.known:
            unknown.append(word)
        elif term not in section_terms and not (analyzed and section_terms.intersection(analyzed.terms)):
            missing.append(word)
    return tuple(unknown[:_WORDS]), tuple(missing[:_WORDS])


def section_questions(gaps: Gaps, index: Index) -> list[str]:
    """Return lines of a question file: the queries of each cluster whose section readers opened."""
    chunks = {chunk.url: chunk for chunk in index.scroll()}
    queries: defaultdict[str, list[str]] = defaultdict(list)
    for cluster in gaps.clusters:
        if cluster.clicked in chunks:
            queries[cluster.clicked] += [
                query for query, _ in cluster.queries if len(query) <= MAX_CHARACTERS
            ]
    lines = []
    for url, texts in queries.items():
        chunk = chunks[url]
        new = tuple(query for query in texts if query not in chunk.questions)[:MAX_QUESTIONS]
        if new:
            lines.append(format_line(SectionQuestions(chunk.source, chunk.heading_path, new, by="readers")))
    return lines


def questions_from(gaps: Gaps, index: Index, existing: Iterable[str], count: int) -> list[dict[str, Any]]:
    """Return entries of a suite for the queries of readers; queries that the book does not answer come first.

    Each cluster gives one entry, unless one of its queries is among the existing ones. It expects the section
    that readers opened, or else the nearest one, or nothing if the book does not seem to answer it. All are
    drafts: a person decides.
    """
    already = {normalize(query) for query in existing}
    names = {chunk.url: section_name(chunk) for chunk in index.scroll()}
    entries: list[dict[str, Any]] = []
    for cluster in (*gaps.gaps, *gaps.answered):
        if len(entries) == count:
            break
        if already.isdisjoint(normalize(query) for query, _ in cluster.queries):
            entries.append(_question(cluster, names))
    return entries


def _question(cluster: Cluster, names: Mapping[str, str]) -> dict[str, Any]:
    times = f"Asked {plural(cluster.count, 'time')}"
    expect: dict[str, Any]
    nearest = next((names[hit.chunk.url] for hit in cluster.nearest if hit.chunk.url in names), "")
    if cluster.clicked in names:
        expect, note = {"page": names[cluster.clicked]}, f"{times}; readers opened this section most often."
    elif 2 * cluster.not_covered > cluster.count or not nearest:
        expect, note = {"nothing": True}, f"{times}; the book does not seem to answer it."
    else:
        expect, note = {"page": nearest}, f"{times}; this is the nearest section."
    return {"query": cluster.queries[0][0], "expect": expect, "tags": ["log"], "drafted": True, "note": note}


def extended(path: Path, entries: Sequence[Mapping[str, Any]], name: str) -> str:
    """Return the text of a suite's file with more entries; a file that does not exist is a new suite."""
    if path.suffix.lower() in JSON_LINES:
        text = read_text(path, MAX_BYTES) if path.exists() else ""
        lines = [json.dumps(entry, ensure_ascii=False) for entry in entries]
        return "\n".join((*filter(None, [text.rstrip("\n")]), *lines)) + "\n"
    data: dict[str, Any] = {"format": SUITE_FORMAT, "name": name, "queries": []}
    if path.exists():
        data = parse_json(read_text(path, MAX_BYTES), str(path))
    data["queries"] = [*data["queries"], *entries]
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"
