"""Ask two indexes the same questions and list where they differ."""

from __future__ import annotations

from dataclasses import dataclass

from recto.evaluation.suite import Suite
from recto.promotion import differs
from recto.protocols import Embedder, Index

_BATCH = 32


@dataclass(frozen=True, slots=True)
class Difference:
    """A question that two indexes answer differently, and how."""

    query: str
    what: str


def compare(embedder: Embedder, left: Index, right: Index, suite: Suite, top_k: int) -> list[Difference]:
    """Embed every question once, search both, and return the differences in ids and scores."""
    found: list[Difference] = []
    for start in range(0, len(suite.expectations), _BATCH):
        queries = [expectation.query for expectation in suite.expectations[start : start + _BATCH]]
        vectors = embedder.embed_queries(queries)
        pairs = zip(queries, left.query_batch(vectors, top_k), right.query_batch(vectors, top_k), strict=True)
        found += [Difference(query, what) for query, one, other in pairs if (what := differs(one, other))]
    return found
