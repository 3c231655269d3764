"""Search two indexes for the same queries in every mode, and list the differences."""

from __future__ import annotations

from dataclasses import dataclass

from recto.evaluation.suites import Suite
from recto.indexing.promotion import differs, search_index, shared_modes
from recto.protocols import Embedder, Index
from recto.types import Mode

_BATCH = 8  # queries; each is up to three searches in one request, which has a deadline


@dataclass(frozen=True, slots=True)
class Difference:
    """A query with different results in two indexes."""

    query: str
    what: str


def compare(
    embedder: Embedder, left: Index, right: Index, suite: Suite, top_k: int
) -> dict[Mode, list[Difference]]:
    """Search both indexes in each mode that both support, and return the differences in ids and scores."""
    found: dict[Mode, list[Difference]] = {mode: [] for mode in shared_modes(left, right)}
    for start in range(0, len(suite.expectations), _BATCH):
        queries = [expectation.query for expectation in suite.expectations[start : start + _BATCH]]
        vectors = embedder.embed_queries(queries)
        for mode, differences in found.items():
            answers = [search_index(index, mode, vectors, queries, top_k) for index in (left, right)]
            pairs = zip(queries, *answers, strict=True)
            differences += [
                Difference(query, what) for query, one, other in pairs if (what := differs(one, other))
            ]
    return found
