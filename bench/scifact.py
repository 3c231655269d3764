"""Measure each precision of the built-in models on SciFact, dense and hybrid.

Run `python -m bench.scifact --corpora DIRECTORY --cache DIRECTORY`. All abstracts are ranked by exact
search, with the scores that the engine would give. Vectors are cached: an interrupted run continues where it
stopped.
"""

from __future__ import annotations

import argparse
import os
from collections import defaultdict
from pathlib import Path
from typing import Any

from bench.peers.workloads.scifact import load
from bench.vectors import Vectors
from recto.embedders.granite.embedder import MODELS, VARIANTS, built_in_embedder
from recto.embedders.onnx import LocalEmbedder
from recto.evaluation.measures import Judged, Measure, estimate
from recto.search.lexical import Lexicon, LexiconBuilder, analyze_query
from recto.types.search import Chunk

MEASURE = Measure("nDCG", 10)


def main() -> None:
    """Measure each precision and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--corpora",
        type=Path,
        default=os.environ.get("RECTO_CORPORA"),
        help="directory with eval/scifact (RECTO_CORPORA)",
    )
    parser.add_argument("--cache", type=Path, required=True, help="directory that caches vectors and weights")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=[*MODELS], help="default: all")
    parser.add_argument(
        "--forms",
        nargs="+",
        choices=VARIANTS,
        default=[*VARIANTS],
        help="precisions (default: all)",
    )
    parser.add_argument(
        "--threads", type=int, default=os.cpu_count() or 1, help="threads of the model (default: all cores)"
    )
    options = parser.parse_args()
    if not options.corpora:
        parser.error("--corpora is missing")
    texts, claims = load(options.corpora / "eval" / "scifact")
    lexical, weights = lexical_scores(list(texts.values()), list(claims))
    dense: dict[str, list[float]] = {}
    hybrid: dict[str, list[float]] = {}
    names = {f"{model}, {form}": (model, form) for model in options.models for form in options.forms}
    for name, (model, form) in names.items():
        embedder = built_in_embedder(options.cache, options.threads, form, model=model)
        cosines = similarities(embedder, name, texts, claims, options.cache)
        dense[name] = ndcg(cosines, list(texts), list(claims.values()))
        hybrid[name] = ndcg(cosines + weights * lexical, list(texts), list(claims.values()))
    print(f"{len(texts)} abstracts, {len(claims)} claims\n")
    print(f"| | dense {MEASURE} | against fp32 | hybrid {MEASURE} | against dense |\n|---|---|---|---|---|")
    for name, (model, form) in names.items():
        full = dense.get(f"{model}, fp32")
        against = _difference(dense[name], full) if full and form != "fp32" else ""
        print(
            f"| {name} | {_mean(dense[name]):.4f} | {against} | {_mean(hybrid[name]):.4f} "
            f"| {_difference(hybrid[name], dense[name])} |"
        )


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _difference(values: list[float], others: list[float]) -> str:
    change = estimate([mine - other for mine, other in zip(values, others, strict=True)])
    return f"{change.mean:+.4f} ({change.low:+.4f} to {change.high:+.4f})" if change else ""


def similarities(
    embedder: LocalEmbedder, name: str, texts: dict[str, str], claims: dict[str, set[str]], cache: Path
) -> Any:
    """Return the cosine similarity of each claim to each abstract; long abstracts are cut."""
    with Vectors(embedder, cache) as vectors:
        documents = vectors.questions(list(texts.values()), f"{name}, abstracts")
        questions = vectors.questions(list(claims), f"{name}, claims")
    return questions @ documents.T


def lexical_scores(texts: list[str], claims: list[str]) -> tuple[Any, Any]:
    """Return each claim's normalised BM25 scores, and their weight in the hybrid score."""
    import numpy as np

    builder = LexiconBuilder()
    vectors = builder.vectors(_chunk(text) for text in texts)
    lexicon = Lexicon(builder.to_bytes())
    postings: defaultdict[int, list[tuple[int, float]]] = defaultdict(list)
    for number, vector in enumerate(vectors):
        for term, value in zip(vector.indices, vector.values, strict=True):
            postings[term].append((number, value))
    scores, weights = np.zeros((len(claims), len(texts))), np.zeros((len(claims), 1))
    for row, claim in enumerate(claims):
        query = analyze_query(claim, lexicon)
        weights[row] = query.weight
        vector = query.vector
        for term, weight, idf in zip(vector.indices, vector.values, vector.idf, strict=True):
            if term not in postings:
                continue
            places, values = zip(*postings[term], strict=True)
            scores[row, list(places)] += weight * idf * np.array(values)
    return scores, weights


def _chunk(text: str) -> Chunk:
    return Chunk("", text, "", "", "", (), (), "", 0, 1, 1, 1, "", "")


def ndcg(scores: Any, ids: list[str], answers: list[set[str]]) -> list[float]:
    """Rank all abstracts for each claim."""
    import numpy as np

    top = np.argsort(-scores, axis=1, kind="stable")[:, : MEASURE.cutoff]
    judged = (
        Judged(tuple(float(ids[place] in wanted) for place in row), (1.0,) * len(wanted))
        for row, wanted in zip(top, answers, strict=True)
    )
    return [MEASURE.of(one) or 0.0 for one in judged]


if __name__ == "__main__":
    main()
