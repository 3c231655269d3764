"""Measure how often `recto tune` is right: `python -m bench.tune`.

Every question about the books, and of the public sets SciFact and Chroma's chunking evaluation, is asked once
with each configuration. Then the decision is repeated on resamples of the questions:

- equal: the scores of two configurations are swapped at random for each question, so that neither is better;
- planted: the same, and the current configuration is made worse, so that the other is better by 5 points.
  Either some questions lose half of their score, as if an answer fell from the first rank to the third, or
  fewer questions lose all of it.

The pairs differ in how many questions they answer differently, which is the noise of the comparison.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from time import process_time
from typing import TYPE_CHECKING, Any

from bench import chroma
from bench.peers.environments import ROOT
from bench.peers.table import table
from bench.peers.workloads import scifact
from bench.question_sets import Book, load_books
from recto.api import open_embedder
from recto.book.sources.tree import open_book
from recto.evaluation.measures import ScoreEstimate, estimate
from recto.evaluation.suites import Expectation, Suite
from recto.evaluation.tune import DEFAULT_MEASURE, DEFAULT_WEIGHTS, INTERVAL, decide, run_configurations
from recto.indexing.indexer import IndexJob, index_book
from recto.search.retriever import Retriever
from recto.settings import load_settings
from recto.stores.edge import EdgeStore
from recto.types.search import MODES

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

PLANTED = 0.05
PAIRS = {
    "the same results": ("hybrid 0.25", "hybrid 0.25"),
    "the next weight": ("hybrid 0.25", "hybrid 0.4"),
    "dense and hybrid": ("dense", "hybrid 0.25"),
    "dense and lexical": ("dense", "lexical"),
}
"""The configurations that are compared, from no noise to the most."""
LOST = (0.5, 1.0)
"""The share of its score that a question loses in the planted case."""
_SEED = 20_260_301
_COVERED = 100  # resamples whose intervals are checked: an interval takes longer than a decision


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure or read the outcomes, and print the tables."""
    options = parse(arguments)
    if options.outcomes and options.outcomes.is_file():
        outcomes = json.loads(options.outcomes.read_text("utf-8"))
    else:
        outcomes = measure(options)
        if options.outcomes:
            options.outcomes.write_text(json.dumps(outcomes) + "\n", "utf-8")
    import numpy as np

    books = {name: np.array(rows) for name, rows in outcomes["scores"].items()}
    names = outcomes["configurations"]
    everything = np.concatenate(list(books.values()))
    print(f"Mean {DEFAULT_MEASURE} of each configuration, and what `recto tune` recommends:\n")
    print(_means(names, books | {"all": everything}))
    sizes = [(name, len(rows), rows) for name, rows in books.items()]
    sizes += [("all", count, everything) for count in options.sizes or (len(everything),)]
    rows = []
    for book, count, scores in sizes:
        for title, pair in PAIRS.items():
            rows.append(_row(book, count, title, scores[:, [names.index(name) for name in pair]], options))
    print(f"\nShare of {options.resamples} resamples, planted difference {PLANTED}:\n")
    head = ["questions of", "number", "pair", "standard deviation of the differences"]
    head += ["better one recommended: halves lost", "better one recommended: answers lost"]
    print(table([*head, "something recommended: equal", "interval contains the gain, if recommended"], rows))
    wrong = _all_equal(everything, options.resamples)
    print(f"\nAll {len(names)} configurations equal: something is recommended in {wrong:.1%}.")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    corpora = Path(os.environ.get("RECTO_CORPORA") or ROOT.parent / "shared" / "corpora")
    parser = argparse.ArgumentParser(
        prog="python -m bench.tune", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--questions", type=Path, default=corpora / "questions", help="folder of the sets")
    parser.add_argument("--books", type=Path, default=corpora / "books", help="folder of the books")
    parser.add_argument("--public", type=Path, default=corpora / "eval", help="folder of the public sets")
    parser.add_argument("--home", type=Path, help="folder that keeps the indexes (default: a temporary one)")
    parser.add_argument("--outcomes", type=Path, help="file that keeps the scores of each question")
    parser.add_argument("--resamples", type=int, default=2000, help="default %(default)s")
    parser.add_argument("--sizes", type=lambda text: [int(part) for part in text.split(",")], default=[])
    return parser.parse_args(arguments)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Index the books, and ask every question with each configuration."""
    settings = load_settings()
    embedder = open_embedder(settings, print)
    scores, names = {}, []
    with tempfile.TemporaryDirectory(prefix="recto-tune-") as scratch:
        home = options.home or Path(scratch)
        books = load_books(options.questions, options.books, [])
        books += public_sets(options.public, Path(scratch, "public"))
        with closing(EdgeStore(home)) as store:
            for book in books:
                job = IndexJob(open_book(book.docs, book=book.name), embedder)
                index_book(job, store, book.name, journal=home / "journal")
                began = process_time()
                suite, retriever = Suite(book.name, book.questions), Retriever(embedder, store, book.name)
                found = run_configurations([retriever], suite, MODES, DEFAULT_WEIGHTS, DEFAULT_MEASURE)
                spent = process_time() - began
                print(f"{book.name}: {len(found.keys)} questions, {spent:.1f} s of CPU time", flush=True)
                names = [one.label for one in found.configurations]
                scores[book.name] = found.scores.round(9).tolist()
    return {"configurations": names, "scores": scores}


def public_sets(folder: Path, pages: Path) -> list[Book]:
    """Write the texts of the public sets as pages, and return them as books."""
    texts, claims = scifact.load(folder / "scifact")
    _write(pages / "scifact", {id: f"# Abstract\n\n{text}" for id, text in texts.items()})
    found = [
        Expectation(claim, pages=tuple(sorted(f"{id}.md" for id in ids))) for claim, ids in claims.items()
    ]
    corpora = chroma.load(folder / "chroma_chunking")
    _write(pages / "chroma", {corpus.name: corpus.text for corpus in corpora})
    asked = [
        Expectation(
            question.text,
            passages=tuple(corpus.text[start:end].strip() for start, end in question.references),
            id=f"{corpus.name} {number}",
        )
        for corpus in corpora
        for number, question in enumerate(corpus.questions)
    ]
    return [
        Book("scifact", pages / "scifact", tuple(found)),
        Book("chroma", pages / "chroma", tuple(asked)),
    ]


def _write(folder: Path, texts: dict[str, str]) -> None:
    folder.mkdir(parents=True)
    for name, text in texts.items():
        (folder / f"{name}.md").write_text(text, "utf-8")


def _means(names: Sequence[str], books: dict[str, NDArray[np.float64]]) -> str:
    rows = []
    for book, scores in books.items():
        decision = decide(scores)
        gain = estimate(decision.gains, INTERVAL)
        assert gain is not None
        rows.append(
            [
                f"{book} ({len(scores)})",
                *(f"{mean:.3f}" for mean in scores.mean(axis=0)),
                names[decision.chosen] if decision.chosen else "keep",
                f"{gain.mean:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}]",
            ]
        )
    return table(["book", *names, "recommended", "expected gain"], rows)


def _row(
    book: str, count: int, title: str, pair: NDArray[np.float64], options: argparse.Namespace
) -> list[str]:
    import numpy as np

    generator = np.random.default_rng(_SEED)
    equal, found = 0, dict.fromkeys(LOST, 0)
    recommended: list[ScoreEstimate | None] = []
    for _ in range(options.resamples):
        drawn = _swapped(pair[generator.integers(0, len(pair), count)], generator)
        equal += decide(drawn).chosen > 0
        for share in LOST:
            worse = drawn.copy()
            worse[generator.random(count) < PLANTED / share / pair.mean(), 0] *= 1 - share
            decision = decide(worse)
            found[share] += decision.chosen == 1
            if decision.chosen and len(recommended) < _COVERED:
                recommended.append(estimate(decision.gains, INTERVAL))
    covered = sum(one is not None and one.low <= PLANTED <= one.high for one in recommended)
    shares = [*(right / options.resamples for right in found.values()), equal / options.resamples]
    shares.append(covered / max(1, len(recommended)))
    deviation = float((pair[:, 0] - pair[:, 1]).std())
    return [book, str(count), title, f"{deviation:.2f}", *(f"{share:.1%}" for share in shares)]


def _swapped(pairs: NDArray[np.float64], generator: np.random.Generator) -> NDArray[np.float64]:
    """Swap the two scores of each question at random."""
    import numpy as np

    swap = generator.random(len(pairs)) < 0.5
    return np.where(swap[:, None], pairs[:, ::-1], pairs)


def _all_equal(scores: NDArray[np.float64], resamples: int) -> float:
    """Return how often something is recommended if configurations differ from the current one by chance."""
    import numpy as np

    generator = np.random.default_rng(_SEED)
    chosen = 0
    for _ in range(resamples):
        drawn = scores[generator.integers(0, len(scores), len(scores))]
        signs = generator.choice([-1.0, 1.0], len(drawn))
        chosen += decide(drawn[:, :1] + signs[:, None] * (drawn - drawn[:, :1])).chosen > 0
    return chosen / resamples


if __name__ == "__main__":
    main()
