"""Tell what a faster form of the built-in model costs on SciFact: `uv run python -m bench.scifact --corpora DIRECTORY --cache DIRECTORY`.

Every form ranks all abstracts exactly, without an engine, so only the vectors differ. Vectors are kept in the cache: an interrupted run
goes on where it stopped.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from bench.peers.works.scifact import load
from bench.vectors import Vectors
from recto.embedders.granite import VARIANTS, granite_embedder
from recto.evaluation.measures import Measure
from recto.evaluation.statistics import estimate
from recto.settings import Precision

MEASURE = Measure("nDCG", 10)


def main() -> None:
    """Measure each form and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpora", type=Path, default=os.environ.get("RECTO_CORPORA"), help="where eval/scifact is (RECTO_CORPORA)")
    parser.add_argument("--cache", type=Path, required=True, help="where vectors and weights are kept")
    parser.add_argument("--forms", nargs="+", choices=VARIANTS, default=["int8"], help="what is compared with fp32 (default int8)")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="threads of the model (default: all cores)")
    options = parser.parse_args()
    if not options.corpora:
        parser.error("--corpora is missing")
    texts, claims = load(options.corpora / "eval" / "scifact")
    forms: list[Precision] = ["fp32", *(form for form in options.forms if form != "fp32")]
    scores = {form: judged(form, texts, claims, options.cache, options.threads) for form in forms}
    print(f"{len(texts)} abstracts, {len(claims)} claims\n\n| | {MEASURE} | against fp32 |\n|---|---|---|")
    for form, values in scores.items():
        change = estimate([mine - plain for mine, plain in zip(values, scores["fp32"], strict=True)])
        against = f"{change.mean:+.4f} ({change.low:+.4f} to {change.high:+.4f})" if change and form != "fp32" else ""
        print(f"| {form} | {sum(values) / len(values):.4f} | {against} |")


def judged(form: Precision, texts: dict[str, str], claims: dict[str, set[str]], cache: Path, threads: int) -> list[float]:
    """Return a value for each claim; an abstract beyond the model's limit is read up to it."""
    with Vectors(granite_embedder(cache, threads, form), cache) as vectors:
        passages = vectors.questions(list(texts.values()), f"{form}, abstracts")
        questions = vectors.questions(list(claims), f"{form}, claims")
    return ndcg(passages, questions, list(texts), list(claims.values()))


def ndcg(passages: Any, questions: Any, ids: list[str], answers: list[set[str]]) -> list[float]:
    """Rank all passages for each question."""
    import numpy as np

    top = np.argsort(-(questions @ passages.T), axis=1, kind="stable")[:, : MEASURE.cutoff]
    gains = {str(number): [float(ids[place] in wanted) for place in top[number]] for number, wanted in enumerate(answers)}
    ideal = {str(number): [1.0] * len(wanted) for number, wanted in enumerate(answers)}
    return list(MEASURE.per_query(ideal, gains).values())


if __name__ == "__main__":
    main()
