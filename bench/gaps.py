"""Remove two chapters of a book, simulate 300 readers, and check that `recto gaps` names both subjects.

Run `uv run python -m bench.gaps --corpora PATH`; PATH has the folders `books` and `questions`. The readers
draw from the book's questions, and misspell, shorten and reword them, always in the same way for a seed.
Their queries are logged by the service's own log. `recto gaps` must name both missing subjects among its
first five clusters, and these clusters must not be gaps with the chapters back.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.question_sets import Book, load_books, places
from recto.api import open_embedder, open_store
from recto.book.sources.tree import open_book
from recto.evaluation.calibration import calibrate
from recto.evaluation.gaps import Cluster, Gaps, find_gaps, read_asked
from recto.evaluation.suites import Expectation
from recto.indexing.indexer import IndexJob, index_book
from recto.search.analyzer import query_words, stem
from recto.search.query_log import QueryLog, normalize
from recto.search.retriever import Retriever
from recto.settings import QueryLogOptions, Settings

BOOK = "gurupak-physical-ai"
CHAPTERS = ("ros2-fundamentals", "chapter-4-vla")
"""The removed chapters. The rest of the book uses ROS 2 and robots' eyes, but does not explain either."""

NAME = "gaps"
FIRST = 5
_TEMPLATES = ("how do I {}", "{} example", "explain {}", "{} not working", "where is {} described", "{}")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class SimulatedReader:
    """What a simulated reader types, and the chapter that has the answer; empty if it is not removed."""

    query: str
    chapter: str


def simulate(questions: tuple[Expectation, ...], count: int, seed: int) -> list[SimulatedReader]:
    """Return the queries of simulated readers."""
    chance = random.Random(seed)
    return [
        SimulatedReader(_typed(question.query, chance), chapter_of(question))
        for question in chance.choices(questions, k=count)
    ]


def chapter_of(question: Expectation) -> str:
    """Return the removed chapter that alone answers a question, or an empty text."""
    chapters = {page.partition("/")[0] for page, _ in places(question)}
    return next((name for name in CHAPTERS if chapters == {name}), "")


def _typed(question: str, chance: random.Random) -> str:
    """Return a question as it is, in lower case, misspelled, shortened, or reworded."""
    kind = chance.randrange(5)
    if kind == 0:
        return question
    if kind == 1:
        return question.lower().rstrip("?.!")
    if kind == 2:
        return _misspelled(question, chance)
    words = query_words(question)
    short = " ".join(words[: chance.randint(3, 6)])
    return short if kind == 3 else chance.choice(_TEMPLATES).format(short)


def _misspelled(question: str, chance: random.Random) -> str:
    words = question.split()
    long = [number for number, word in enumerate(words) if word.isalpha() and len(word) > 4]
    if not long:
        return question
    number = chance.choice(long)
    word = words[number]
    place = chance.randrange(1, len(word) - 1)
    words[number] = chance.choice(
        (
            word[:place] + word[place + 1 :],
            word[:place] + word[place + 1] + word[place] + word[place + 2 :],
            word[:place] + chance.choice(_LETTERS) + word[place:],
        )
    )
    return " ".join(words)


def log_queries(retriever: Retriever, readers: list[SimulatedReader], directory: Path) -> None:
    """Search for every query, and log it as the service does."""
    log = QueryLog(QueryLogOptions(directory))
    for reader in readers:
        log.add(retriever.search(reader.query), "search")
    log.close()


def chapter_of_cluster(cluster: Cluster, chapters: dict[str, str]) -> str:
    """Return the removed chapter that most queries of a cluster are about, or an empty text."""
    counts: Counter[str] = Counter()
    for query, count in cluster.queries:
        counts[chapters[normalize(query)]] += count
    chapter, most = counts.most_common(1)[0]
    return chapter if 2 * most > cluster.count else ""


def heading_words(chapter: Path) -> frozenset[str]:
    """Return the stems of the words in the headings of a chapter."""
    texts = (path.read_text("utf-8") for path in sorted(chapter.rglob("*.md*")))
    headings = (line for text in texts for line in text.split("\n") if line.startswith("#"))
    return frozenset(stem(word.lower()) for line in headings for word in query_words(line))


def name_chapters(
    found: Gaps, readers: list[SimulatedReader], words: dict[str, frozenset[str]]
) -> list[tuple[str, Cluster]]:
    """Return the gaps, each with the chapter that it names, or an empty text.

    A cluster names a chapter if most of its queries are about the chapter, and if its label or the words
    that are shown as missing have a word of the chapter's headings.
    """
    chapters = {normalize(reader.query): reader.chapter for reader in readers}
    named = []
    for cluster in found.gaps:
        chapter = chapter_of_cluster(cluster, chapters)
        shown = query_words(" ".join((cluster.label, *cluster.unknown_words, *cluster.missing_words)))
        is_named = chapter and not words[chapter].isdisjoint(stem(word.lower()) for word in shown)
        named.append((chapter if is_named else "", cluster))
    return named


def compare(removed: list[tuple[str, Cluster]], back: list[tuple[str, Cluster]]) -> dict[str, Any]:
    """Return the ranks of the missing chapters, and how much of their first clusters is still a gap."""
    ranks = {
        name: next((i for i, (one, _) in enumerate(removed, 1) if one == name), None) for name in CHAPTERS
    }
    named = [cluster for chapter, cluster in removed[:FIRST] if chapter]
    queries = {query: count for cluster in named for query, count in cluster.queries}
    still = {query for _, cluster in back for query, _ in cluster.queries}
    return {
        "ranks": ranks,
        "named among the first five (goal 2)": sum(
            rank is not None and rank <= FIRST for rank in ranks.values()
        ),
        "queries of these clusters": sum(queries.values()),
        "of them in a gap with the chapters back (goal 0)": sum(
            count for query, count in queries.items() if query in still
        ),
        "gaps without / with the chapters": [len(removed), len(back)],
    }


def index(book: Path, settings: Settings) -> None:
    """Index a book, and measure its noise floor."""
    embedder, store = open_embedder(settings, print), open_store(settings, print)
    index_book(IndexJob(open_book(book), embedder), store, NAME, journal=settings.home / "journal")
    current = store.open(NAME)
    store.save_calibration(current.info, calibrate(embedder, current))
    embedder.close()
    store.close()


def run(book: Book, folder: Path, count: int, seed: int) -> dict[str, Any]:
    """Index the book without and then with the chapters, and find the gaps of both."""
    readers = simulate(book.questions, count, seed)
    settings = Settings("local", "edge", folder / "home")
    site, log = folder / "site", folder / "log"
    shutil.copytree(book.docs.parent, site)
    docs = site / book.docs.name
    for name in CHAPTERS:
        shutil.move(docs / name, folder / name)
    words = {name: heading_words(book.docs / name) for name in CHAPTERS}
    gaps: dict[str, list[tuple[str, Cluster]]] = {}
    for state in ("removed", "back"):
        if state == "back":
            for name in CHAPTERS:
                shutil.move(folder / name, docs / name)
        index(site, settings)
        with Retriever(open_embedder(settings, print), open_store(settings, print), NAME) as retriever:
            if state == "removed":
                log_queries(retriever, readers, log)
            gaps[state] = name_chapters(find_gaps(retriever, read_asked(log, [NAME])), readers, words)
    first = {
        state: [{"names": chapter, **cluster.to_dict()} for chapter, cluster in found[:FIRST]]
        for state, found in gaps.items()
    }
    return {"queries": len(readers), "seed": seed, **compare(gaps["removed"], gaps["back"]), "first": first}


def main() -> None:
    """Run the demonstration and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpora", type=Path, required=True, help="folder with `books` and `questions`")
    parser.add_argument("--count", type=int, default=300, help="simulated readers (default 300)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the simulation (default 1)")
    options = parser.parse_args()
    (book,) = load_books(options.corpora / "questions", options.corpora / "books", [BOOK])
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(run(book, Path(folder), options.count, options.seed), indent=2, ensure_ascii=False))


if __name__ == "__main__":
    main()
