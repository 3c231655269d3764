"""How the engine keeps and searches an index of a given size; the figures behind it are made by `python -m bench.scale`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recto.stores.legs import LEXICAL

if TYPE_CHECKING:
    import qdrant_edge

GRAPH_FROM = 20_000  # chunks; below, comparing with every vector is about as fast, and misses nothing
SMALL_CODES_FROM = 50_000  # chunks; from here the graph is walked on one byte a number, and the best are compared in full
VERY_LARGE_FROM = 500_000  # chunks; from here more of the graph is walked for the same share of what comparing with all would find
_EDGES, _CANDIDATES = 16, 100
_WALKED, _WALKED_FAR = 200, 400
_FULL_SCAN_KB = 10_000  # vectors that a filter leaves: fewer than this are compared one by one
_OVERSAMPLING = 3.0
_QUANTILE = 0.99


def finished_config(chunks: int, dim: int) -> qdrant_edge.EdgeConfig | None:
    """Return the parameters that a large index gets when all its chunks are written, or None for one that is searched exactly."""
    if chunks < GRAPH_FROM:
        return None
    import qdrant_edge as edge

    mapped = edge.Memory.Cold  # read where it lies on disk, as far as searches touch it: nothing is copied, opening reads little
    large = chunks >= SMALL_CODES_FROM
    codes = edge.ScalarQuantizationConfig(type=edge.ScalarType.Int8, quantile=_QUANTILE, memory=mapped)
    return edge.EdgeConfig(
        vectors=edge.EdgeVectorParams(size=dim, distance=edge.Distance.Cosine, memory=mapped if large else None),
        sparse_vectors=sparse_params(mapped),
        hnsw_config=edge.HnswIndexConfig(m=_EDGES, ef_construct=_CANDIDATES, full_scan_threshold=_FULL_SCAN_KB, memory=mapped),
        quantization_config=codes if large else None,
        wal_enabled=False,
    )


def sparse_params(memory: qdrant_edge.Memory | None = None) -> dict[str, qdrant_edge.EdgeSparseVectorParams]:
    """Return the lexical vectors' parameters; the engine multiplies their values by the inverse document frequency."""
    import qdrant_edge as edge

    return {LEXICAL: edge.EdgeSparseVectorParams(modifier=edge.Modifier.Idf, memory=memory)}


def field_indexes() -> dict[str, qdrant_edge.KeywordIndexParams]:
    """Return the fields that filters and counts use.

    Only that of the modules is searched along with the graph, and held in memory for it: a page's few chunks are compared one by one.
    """
    import qdrant_edge as edge

    listed = edge.KeywordIndexParams(enable_hnsw=False, memory=edge.Memory.Cold)
    return {"module_keys": edge.KeywordIndexParams(memory=edge.Memory.Pinned), "module_name": listed, "page_key": listed}


def search_params(chunks: int) -> qdrant_edge.SearchParams | None:
    """Return how an index is searched; scores are always those of the full vectors."""
    if chunks < SMALL_CODES_FROM:
        return None
    import qdrant_edge as edge

    again = edge.QuantizationSearchParams(rescore=True, oversampling=_OVERSAMPLING)
    return edge.SearchParams(hnsw_ef=_WALKED_FAR if chunks >= VERY_LARGE_FROM else _WALKED, quantization=again)
