"""The one place that touches the engine: every failure of it becomes one of our errors here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recto._util.names import filter_keys, page_key
from recto.errors import ConfigurationError, IndexDamaged, RectoError, StorageError, StoreBusy, Unreachable
from recto.stores.candidates import LEXICAL, Limits
from recto.stores.edge.layout import copy_tree
from recto.types import Filters, IndexQuery, Payload, SparseVector, Vector

if TYPE_CHECKING:
    import qdrant_edge

GRAPH_FROM = 20_000  # chunks; below, comparing with every vector is about as fast, and misses nothing
QUANTIZE_FROM = (
    50_000  # chunks; from here the graph is walked on one byte a number, and the best are compared in full
)
VERY_LARGE_FROM = 500_000  # chunks; from here more of the graph is walked for the same share of what comparing with all would find
_HNSW_M, _CANDIDATES = 16, 100
_HNSW_EF, _WALKED_FAR = 200, 400
_FULL_SCAN_KB = 10_000  # vectors that a filter leaves: fewer than this are compared one by one
_OVERSAMPLING = 3.0
_QUANTILE = 0.99


def finished_config(chunks: int, dim: int) -> qdrant_edge.EdgeConfig | None:
    """Return the parameters that a large index gets when all its chunks are written, or None for one that is searched exactly."""
    if chunks < GRAPH_FROM:
        return None
    import qdrant_edge as edge

    mapped = (
        edge.Memory.Cold
    )  # read where it lies on disk, as far as searches touch it: nothing is copied, opening reads little
    large = chunks >= QUANTIZE_FROM
    codes = edge.ScalarQuantizationConfig(type=edge.ScalarType.Int8, quantile=_QUANTILE, memory=mapped)
    return edge.EdgeConfig(
        vectors=edge.EdgeVectorParams(
            size=dim, distance=edge.Distance.Cosine, memory=mapped if large else None
        ),
        sparse_vectors=sparse_params(mapped),
        hnsw_config=edge.HnswIndexConfig(
            m=_HNSW_M, ef_construct=_CANDIDATES, full_scan_threshold=_FULL_SCAN_KB, memory=mapped
        ),
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
    return {
        "module_keys": edge.KeywordIndexParams(memory=edge.Memory.Pinned),
        "module_name": listed,
        "page_key": listed,
    }


def search_params(chunks: int) -> qdrant_edge.SearchParams | None:
    """Return how an index is searched; scores are always those of the full vectors."""
    if chunks < QUANTIZE_FROM:
        return None
    import qdrant_edge as edge

    again = edge.QuantizationSearchParams(rescore=True, oversampling=_OVERSAMPLING)
    return edge.SearchParams(
        hnsw_ef=_WALKED_FAR if chunks >= VERY_LARGE_FROM else _HNSW_EF, quantization=again
    )


if TYPE_CHECKING:
    import qdrant_edge

_NOT_WRITABLE = re.compile(
    r"permission denied|read-only file system|no space left|quota exceeded|os error (13|28|30|122)\b",
    re.IGNORECASE,
)
_FULL = re.compile(r"no space left|quota exceeded|os error (28|122)\b|file too large", re.IGNORECASE)
_SCRATCH = ("", "/dev/shm")  # noqa: S108 - where a copy may go: the system's own choice, then memory


def engine_version() -> str:
    """Name the engine and its version."""
    from importlib.metadata import version

    return f"qdrant-edge-py {version('qdrant-edge-py')}"


@contextmanager
def engine_errors(doing: str) -> Iterator[None]:
    """Turn whatever the engine raises, its panics included, into our errors."""
    try:
        yield
    except RectoError:
        raise
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # the engine raises bare Exception, and BaseException when it panics
        raise translate(str(error), doing) from error


def translate(message: str, doing: str) -> RectoError:
    """Return our error for the engine's message."""
    if _FULL.search(message):
        return StorageError(
            f"The disk is full ({doing})",
            hint="Free some space, or set RECTO_HOME to another disk. The old index is untouched.",
        )
    if _NOT_WRITABLE.search(message):
        return StorageError(
            f"The index's directory cannot be written ({doing})",
            hint="Check its permissions, or set RECTO_HOME to a directory of your own.",
        )
    if "WouldBlock" in message:
        return StoreBusy(
            f"The index is held by another process ({doing})", hint="Wait until it has finished."
        )
    if "dimension error" in message:
        return ConfigurationError(
            f"The vectors do not fit the index: {message}", hint="Index the book again with `recto index`."
        )
    if doing == "opening":
        return IndexDamaged(f"The engine cannot open the index: {message}")
    return Unreachable(
        f"The embedded engine failed while {doing}: {message}",
        hint="Try again; if it stays, index the book again.",
    )


def create_shard(path: Path, dim: int) -> qdrant_edge.EdgeShard:
    """Create an empty shard with its payload indexes; without a log, as it is published only when it is whole."""
    import qdrant_edge as edge

    config = edge.EdgeConfig(
        vectors=edge.EdgeVectorParams(size=dim, distance=edge.Distance.Cosine),
        sparse_vectors=sparse_params(),
        wal_enabled=False,
    )
    shard = edge.EdgeShard.create(str(path), config)
    for field, params in field_indexes().items():
        shard.update(edge.UpdateOperation.create_field_index(field, params))
    return shard


def finish_shard(shard: qdrant_edge.EdgeShard, path: Path, chunks: int, dim: int) -> None:
    """Give a shard the shape that fits its size, write it to disk and close it."""
    import qdrant_edge as edge

    shard.flush()
    shard.close()
    if (config := finished_config(chunks, dim)) is not None:
        shard = edge.EdgeShard.load(str(path), config)
        shard.optimize()
        shard.flush()
        shard.close()


def load_shard(path: Path) -> qdrant_edge.EdgeShard:
    """Open a published shard to read. The engine wants to write even then: where it cannot, it opens a copy."""
    import qdrant_edge as edge

    try:
        return edge.EdgeShard.load(str(path))
    except Exception as error:
        if not _NOT_WRITABLE.search(str(error)):
            raise
        return _load_copy(path)


def upsert(
    shard: qdrant_edge.EdgeShard, points: Sequence[tuple[str, Vector, SparseVector | None, Payload]]
) -> None:
    """Write points."""
    import qdrant_edge as edge

    written = []
    for id, dense, lexical, payload in points:
        sparse = edge.SparseVector(list(lexical.indices), list(lexical.values)) if lexical else None
        written.append(
            edge.Point(id=id, vector={"": dense, LEXICAL: sparse} if sparse else dense, payload=payload)
        )
    shard.update(edge.UpdateOperation.upsert_points(written))


def candidate_requests(
    query: IndexQuery, limits: Limits, filters: Filters, params: qdrant_edge.SearchParams | None
) -> list[qdrant_edge.QueryRequest]:
    """Return the engine's requests for one query: the dense leg, the lexical leg, and the cosines of what the latter finds."""
    import qdrant_edge as edge

    condition = translate_filters(filters)
    requests = []
    if query.dense is not None:
        nearest = edge.Query.Nearest(query.dense)
        requests.append(
            edge.QueryRequest(
                limit=limits.dense, query=nearest, filter=condition, with_payload=False, params=params
            )
        )
    if query.lexical is not None and query.lexical.indices:
        terms = edge.Query.Nearest(
            edge.SparseVector(list(query.lexical.indices), list(query.lexical.values)), using=LEXICAL
        )
        requests.append(
            edge.QueryRequest(limit=limits.lexical, query=terms, filter=condition, with_payload=False)
        )
        if query.dense is not None:
            found = edge.Prefetch(limit=limits.rescored, query=terms, filter=condition)
            requests.append(
                edge.QueryRequest(
                    limit=limits.rescored, prefetches=[found], query=nearest, with_payload=False
                )
            )
    return requests


def request(
    vector: Vector,
    limit: int,
    filters: Filters,
    min_score: float | None,
    params: qdrant_edge.SearchParams | None = None,
) -> qdrant_edge.QueryRequest:
    """Make the engine's form of a search; it answers with ids and scores alone."""
    import qdrant_edge as edge

    return edge.QueryRequest(
        limit=limit,
        offset=0,
        query=edge.Query.Nearest(vector),
        filter=translate_filters(filters),
        with_payload=False,
        score_threshold=min_score,
        params=params,
    )


def translate_filters(filters: Filters) -> qdrant_edge.Filter | None:
    """Make the engine's form of a filter: any of the modules, and the page."""
    if not filters:
        return None
    import qdrant_edge as edge

    conditions: list[Any] = []
    if filters.modules:
        keys = filter_keys(filters.modules)
        match = (
            edge.MatchAny(keys) if len(keys) > 1 else edge.MatchValue(keys[0])
        )  # a set of one takes the engine ten times as long
        conditions.append(edge.FieldCondition(key="module_keys", match=match))
    if filters.page_url is not None:
        conditions.append(
            edge.FieldCondition(key="page_key", match=edge.MatchValue(page_key(filters.page_url)))
        )
    return edge.Filter(must=conditions)


def _load_copy(path: Path) -> qdrant_edge.EdgeShard:
    import shutil
    import tempfile

    import qdrant_edge as edge

    failure: Exception | None = None
    for place in _SCRATCH:
        if place and not Path(place).is_dir():
            continue
        scratch = tempfile.mkdtemp(prefix="recto-", dir=place or None)
        try:
            copy_tree(path, Path(scratch, "index"))
            return edge.EdgeShard.load(str(Path(scratch, "index")))
        except Exception as error:  # noqa: BLE001 - the next place may have room
            failure = error
        finally:
            shutil.rmtree(scratch, ignore_errors=True)  # an open shard lives on without its directory
    raise failure or OSError("no space left for a copy of the index")
