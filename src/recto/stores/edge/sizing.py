"""How the engine keeps and searches an index of a given size; the figures behind it are made by `python -m bench.scale`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import qdrant_edge

GRAPH_FROM = 20_000  # chunks; below, comparing with every vector is about as fast, and misses nothing
SMALL_CODES_FROM = 50_000  # chunks; from here the graph is walked on one byte a number, and the best are compared in full
_EDGES, _CANDIDATES = 16, 100
_FULL_SCAN_KB = 10_000  # vectors that a filter leaves: fewer than this are compared one by one
_OVERSAMPLING = 2.0
_QUANTILE = 0.99


def finished_config(chunks: int, dim: int) -> qdrant_edge.EdgeConfig | None:
    """Return the parameters that a large index gets when all its chunks are written, or None for one that is searched exactly."""
    if chunks < GRAPH_FROM:
        return None
    import qdrant_edge as edge

    codes = edge.ScalarQuantizationConfig(type=edge.ScalarType.Int8, quantile=_QUANTILE) if chunks >= SMALL_CODES_FROM else None
    return edge.EdgeConfig(
        vectors=edge.EdgeVectorParams(size=dim, distance=edge.Distance.Cosine),
        hnsw_config=edge.HnswIndexConfig(m=_EDGES, ef_construct=_CANDIDATES, full_scan_threshold=_FULL_SCAN_KB),
        quantization_config=codes,
        wal_enabled=False,
    )


def search_params(chunks: int) -> qdrant_edge.SearchParams | None:
    """Return how an index is searched; scores are always those of the full vectors."""
    if chunks < SMALL_CODES_FROM:
        return None
    import qdrant_edge as edge

    return edge.SearchParams(quantization=edge.QuantizationSearchParams(rescore=True, oversampling=_OVERSAMPLING))
