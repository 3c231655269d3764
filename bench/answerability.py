"""Fit answerability to readers' questions, one book left out: `python -m bench.answerability`.

Answerability is a logistic function of two numbers: how far the best sum of cosine similarity and lexical
score is above the noise floor of the index, and the share of the query's words that the book has. Each book
is scored with the coefficients that the other books give. Both classes have the same weight in the fit.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from bench.peers.environments import ROOT
from bench.peers.runners.embedding import cached
from bench.peers.runners.recto import Counted
from bench.question_sets import Book, load_books
from recto.book.sources.tree import open_book
from recto.evaluation.calibration import auroc, calibrate
from recto.indexing.indexer import IndexJob, index_book
from recto.search.lexical import analyze_query, read_lexicon
from recto.search.pipeline import best_evidence
from recto.search.response import COVERED_FROM, NOT_COVERED_BELOW, SPREAD
from recto.stores.edge import EdgeStore
from recto.types.index import IndexQuery

_STEPS = 30  # of Newton's method, which needs fewer than ten
_RIDGE = 1e-2


def features(book: Book, store: EdgeStore, embedder: Any, home: Path) -> tuple[Any, Any]:
    """Return the two numbers of each query of a book, and whether the book answers it."""
    index_book(
        IndexJob(open_book(book.docs, book=book.name), embedder), store, book.name, journal=home / "journal"
    )
    index = store.open(book.name)
    calibration, lexicon = calibrate(embedder, index), read_lexicon(index)
    assert lexicon is not None
    queries = [question.query for question in book.questions]
    analyzed = [analyze_query(query, lexicon) for query in queries]
    vectors = embedder.embed_queries(queries)
    both = [IndexQuery(vector, query.vector) for vector, query in zip(vectors, analyzed, strict=True)]
    evidence = [best_evidence(found) or 0.0 for found in index.candidates(both, 1)]
    unit = SPREAD / (calibration.spread or SPREAD)
    rows = [
        ((best - calibration.noise_floor) * unit, query.known)
        for best, query in zip(evidence, analyzed, strict=True)
    ]
    return np.array(rows), np.array([not question.nothing for question in book.questions])


def fit(rows: Any, answered: Any) -> Any:
    """Return the coefficients and the offset of a logistic regression with balanced classes."""
    design = np.c_[rows, np.ones(len(rows))]
    weights = np.where(answered, 0.5 / answered.mean(), 0.5 / (1 - answered.mean()))
    coefficients = np.zeros(design.shape[1])
    for _ in range(_STEPS):
        likely = 1 / (1 + np.exp(-design @ coefficients))
        gradient = design.T @ (weights * (answered - likely)) - _RIDGE * coefficients
        curvature = (design.T * (weights * likely * (1 - likely))) @ design
        curvature += _RIDGE * np.eye(len(coefficients))
        coefficients = coefficients + np.linalg.solve(curvature, gradient)
    return coefficients


def main() -> None:
    """Fit, leave one book out, and print the table and the coefficients of all books."""
    corpora = Path(os.environ.get("RECTO_CORPORA") or ROOT.parent / "shared" / "corpora")
    home = Path(os.environ.get("RECTO_HOME", "~/.recto")).expanduser()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--questions", type=Path, default=corpora / "questions", help="folder of the sets")
    parser.add_argument("--books", type=Path, default=corpora / "books", help="folder of the books")
    parser.add_argument("--sets", default="", help="some of the sets, separated by commas")
    parser.add_argument("--home", type=Path, help="folder that keeps the indexes (default: a temporary one)")
    parser.add_argument("--cache", type=Path, default=home / "bench", help="folder that keeps vectors")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="threads of the model")
    options = parser.parse_args()
    books = load_books(options.questions, options.books, [name for name in options.sets.split(",") if name])
    data: dict[str, tuple[Any, Any]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.home or Path(scratch)
        embedder = Counted(cached(options.cache, folder, options.threads))
        with closing(EdgeStore(folder)) as store:
            for book in books:
                data[book.name] = features(book, store, embedder, folder)
    print("| book left out | AUROC | answered, called not covered | others, called covered |")
    print("| --- | --- | --- | --- |")
    totals = []
    for name, (rows, answered) in data.items():
        others = [pair for other, pair in data.items() if other != name]
        found = fit(np.concatenate([one for one, _ in others]), np.concatenate([one for _, one in others]))
        likely = 1 / (1 + np.exp(-np.c_[rows, np.ones(len(rows))] @ found))
        area = auroc(list(likely[answered]), list(likely[~answered]))
        rejected = float(np.mean(likely[answered] < NOT_COVERED_BELOW))
        accepted = float(np.mean(likely[~answered] >= COVERED_FROM))
        totals.append((area, rejected, accepted))
        print(f"| {name} | {area:.3f} | {rejected:.3f} | {accepted:.3f} |")
    print("| **mean** | " + " | ".join(f"{mean:.3f}" for mean in np.mean(totals, axis=0)) + " |")
    every = fit(*(np.concatenate(column) for column in zip(*data.values(), strict=True)))
    above, known, offset = every
    print(f"\nAll books: above the noise floor {above:.2f}, known words {known:.2f}, offset {offset:.2f}")


if __name__ == "__main__":
    main()
