"""Calls of Qdrant Edge: shards, requests, filters, and `RectoError`s for the errors of the engine."""

from __future__ import annotations

import errno
import os
import re
import shutil
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import qdrant_edge as edge

from recto.errors import ConfigurationError, IndexDamaged, RectoError, StorageError, StoreBusy, Unreachable
from recto.stores import LEXICAL, filter_values
from recto.stores.edge.layout import copy_tree
from recto.types.index import SparseVector
from recto.types.search import NO_FILTERS, Filters, Payload, Vector

# Sizes in chunks. From MAPPED_FROM on, the files are memory-mapped, so opening reads little, and the vectors
# are quantized. Below HNSW_FROM, all quantized vectors are compared and the best are rescored: full recall,
# about 4 ms of CPU time at most (measured once), and no graph to build. From HIGH_EF_FROM on, a larger ef
# keeps the recall.
MAPPED_FROM, HNSW_FROM, HIGH_EF_FROM = 20_000, 50_000, 500_000
_HNSW_M, _HNSW_EF_CONSTRUCT = 16, 100  # the defaults of Qdrant
_HNSW_EF, _HNSW_HIGH_EF = 200, 400  # more than the default, for a recall of 0.95 and more
_FULL_SCAN_KB = 10_000  # if a filter leaves fewer vectors than this, they are searched exactly
_OVERSAMPLING = 3.0  # so many times the limit is rescored, which makes up for int8
_SEGMENTS = 8  # more than an index without a graph has, so that they are not merged, which takes memory
_QUANTILE = 0.99  # of the numbers: int8 does not represent the largest ones

_NOT_WRITABLE = re.compile(
    r"permission denied|read-only file system|no space left|quota exceeded|os error (13|28|30|122)\b",
    re.IGNORECASE,
)
_FULL = re.compile(r"no space left|quota exceeded|os error (28|122)\b|file too large", re.IGNORECASE)
_NOT_ENGINE_ERRORS = (RectoError, MemoryError, KeyboardInterrupt, SystemExit, GeneratorExit)
_LARGEST_HOLES = 1 << 30  # bytes; the files of an index have fewer
_COPY_DIRECTORIES = (None, "/dev/shm")  # noqa: S108 - the system's default for temporary files, then memory


def engine_version() -> str:
    """Return the name and version of the engine."""
    from importlib.metadata import version

    return f"qdrant-edge-py {version('qdrant-edge-py')}"


class engine_errors:  # noqa: N801 - a context manager; faster than a generator, which matters in searches
    """Turn whatever the engine raises, panics included, into a `RectoError`."""

    def __init__(self, doing: str) -> None:
        self._doing = doing

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """Raise the error; the engine raises bare Exception, and BaseException when it panics."""
        if error is not None and not isinstance(error, _NOT_ENGINE_ERRORS):
            raise to_recto_error(str(error), self._doing) from error


def to_recto_error(message: str, doing: str) -> RectoError:
    """Return the error for a message of the engine."""
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
        hint="Try again. If it happens again, index the book again.",
    )


def create_shard(path: Path, dim: int) -> edge.EdgeShard:
    """Create an empty shard without a WAL, which is not needed because only complete shards are published."""
    config = edge.EdgeConfig(
        vectors=edge.EdgeVectorParams(size=dim, distance=edge.Distance.Cosine),
        sparse_vectors=_sparse_params(),
        wal_enabled=False,
    )
    shard = edge.EdgeShard.create(str(path), config)
    for field, params in payload_indexes().items():
        shard.update(edge.UpdateOperation.create_field_index(field, params))
    return shard


def payload_indexes() -> dict[str, edge.KeywordIndexParams]:
    """Return the payload indexes of the fields that filters and counts use.

    Only the modules are part of the HNSW graph, and in memory for it: the few chunks of a page are searched
    exactly.
    """
    on_disk = _on_disk()
    return {
        "module_keys": edge.KeywordIndexParams(memory=edge.Memory.Pinned),
        "module_name": on_disk,
        "page_key": on_disk,
        "language": on_disk,
    }


def index_editions(shard: edge.EdgeShard) -> None:
    """Add the payload indexes of versions and locales, for a book that has several.

    Each takes 4 MiB, which would be digested at every start of a small index.
    """
    for field in ("version", "locales"):
        shard.update(edge.UpdateOperation.create_field_index(field, _on_disk()))


def _on_disk() -> edge.KeywordIndexParams:
    return edge.KeywordIndexParams(enable_hnsw=False, memory=edge.Memory.Cold)


def upsert(shard: edge.EdgeShard, points: Sequence[tuple[str, Vector, SparseVector | None, Payload]]) -> None:
    """Write points."""

    def vectors(dense: Vector, lexical: SparseVector | None) -> Any:
        return {"": dense, LEXICAL: _sparse(lexical)} if lexical else dense

    written = [
        edge.Point(id=id, vector=vectors(dense, lexical), payload=payload)
        for id, dense, lexical, payload in points
    ]
    shard.update(edge.UpdateOperation.upsert_points(written))


def map_segment(shard: edge.EdgeShard, path: Path, dim: int) -> edge.EdgeShard:
    """Optimize what was written so far, and open the shard again, which frees the memory of writing it."""
    finish_shard(shard, path, MAPPED_FROM, dim)
    return edge.EdgeShard.load(str(path))


def finish_shard(shard: edge.EdgeShard, path: Path, chunks: int, dim: int) -> None:
    """Write a shard to disk and close it; optimize a large one, with an HNSW graph if it needs one."""
    shard.flush()
    shard.close()
    if (config := large_config(chunks, dim)) is not None:
        shard = edge.EdgeShard.load(str(path), config)
        shard.optimize()
        shard.flush()
        shard.close()


def large_config(chunks: int, dim: int) -> edge.EdgeConfig | None:
    """Return the configuration to optimize a large index, or None for one that stays as it is written."""
    if chunks < MAPPED_FROM:
        return None
    has_graph = chunks >= HNSW_FROM
    on_disk = edge.Memory.Cold  # memory-mapped: opening the index reads little
    int8 = edge.ScalarQuantizationConfig(type=edge.ScalarType.Int8, quantile=_QUANTILE, memory=on_disk)
    return edge.EdgeConfig(
        vectors=edge.EdgeVectorParams(size=dim, distance=edge.Distance.Cosine, memory=on_disk),
        sparse_vectors=_sparse_params(on_disk),
        hnsw_config=edge.HnswIndexConfig(
            m=_HNSW_M if has_graph else 0,
            ef_construct=_HNSW_EF_CONSTRUCT,
            full_scan_threshold=_FULL_SCAN_KB,
            memory=on_disk,
        ),
        quantization_config=int8,  # also halves the time to build the graph
        optimizers=edge.EdgeOptimizersConfig(default_segment_number=1 if has_graph else _SEGMENTS),
        wal_enabled=False,
    )


def _sparse_params(memory: edge.Memory | None = None) -> dict[str, edge.EdgeSparseVectorParams]:
    return {LEXICAL: edge.EdgeSparseVectorParams(modifier=edge.Modifier.Idf, memory=memory)}


_opening = threading.RLock()  # an index may be deleted while another one is opened


@contextmanager
def private_files() -> Iterator[None]:
    """Let the engine, which writes files whenever it opens or closes an index, write for this user only."""
    with _opening:  # the mask belongs to the process
        mask = os.umask(0o077)
        try:
            yield
        finally:
            os.umask(mask)


def load_shard(path: Path) -> edge.EdgeShard:
    """Open a published shard for reading; open a copy if the engine cannot write to the directory."""
    try:
        _check_memory(path)
        with private_files():
            return edge.EdgeShard.load(str(path))
    except Exception as error:
        if not _NOT_WRITABLE.search(str(error)):
            raise
        return _load_copy(path)


def _check_memory(path: Path) -> None:
    """Raise `OSError` if the files have no room on a file system in memory.

    There, mapping a file fills its holes, and a process that maps more than fits is killed by SIGBUS.
    """
    free = shutil.disk_usage(path).free
    if free > _LARGEST_HOLES:
        return
    files = [file.stat() for file in path.rglob("*") if file.is_file()]
    holes = sum(max(0, file.st_size - 512 * getattr(file, "st_blocks", file.st_size)) for file in files)
    device = path.stat().st_dev
    mounts = Path("/proc/self/mountinfo")
    if holes > free and mounts.exists():
        number = f"{os.major(device)}:{os.minor(device)}"
        for line in mounts.read_text("utf-8", "replace").splitlines():
            mount, _, file_system = line.partition(" - ")
            if mount.split()[2] == number and file_system.startswith(("tmpfs ", "ramfs ")):
                raise OSError(errno.ENOSPC, "No space left on device", str(path))


def _load_copy(path: Path) -> edge.EdgeShard:
    import tempfile

    failure: Exception | None = None
    for parent in _COPY_DIRECTORIES:
        if parent and not Path(parent).is_dir():
            continue
        copy = tempfile.mkdtemp(prefix="recto-", dir=parent)
        try:
            copy_tree(path, Path(copy, "index"))
            _check_memory(Path(copy, "index"))
            return edge.EdgeShard.load(str(Path(copy, "index")))
        except Exception as error:  # noqa: BLE001 - the next directory may have room
            failure = error
        finally:
            shutil.rmtree(copy, ignore_errors=True)  # an open shard does not need its directory
    raise failure or OSError("no space left for a copy of the index")


def search_params(chunks: int) -> edge.SearchParams | None:
    """Return the search parameters for the size of an index; the scores always come from the full vectors."""
    if chunks < MAPPED_FROM:
        return None
    return edge.SearchParams(  # without a graph, ef has no effect
        hnsw_ef=_HNSW_HIGH_EF if chunks >= HIGH_EF_FROM else _HNSW_EF,
        quantization=edge.QuantizationSearchParams(rescore=True, oversampling=_OVERSAMPLING),
    )


def query_request(
    vector: Vector | SparseVector,
    limit: int,
    filters: Filters = NO_FILTERS,
    *,
    ids: Collection[Any] = (),
    params: edge.SearchParams | None = None,
) -> edge.QueryRequest:
    """Return the request for a dense or lexical search of all chunks or of some; it has no payloads."""
    query = (
        edge.Query.Nearest(_sparse(vector), using=LEXICAL)
        if isinstance(vector, SparseVector)
        else edge.Query.Nearest(vector)
    )
    among = edge.Filter(must=[edge.HasIdCondition(set(ids))]) if ids else to_edge_filter(filters)
    return edge.QueryRequest(limit=limit, query=query, filter=among, with_payload=False, params=params)


def _sparse(vector: SparseVector) -> edge.SparseVector:
    return edge.SparseVector(list(vector.indices), list(vector.values))


def to_edge_filter(filters: Filters) -> edge.Filter | None:
    """Return the engine's filter: each field has any of its values."""
    if not filters:
        return None
    conditions: list[Any] = []
    for field, values in filter_values(filters).items():
        # MatchAny with a single value is ten times as slow as MatchValue.
        match = edge.MatchAny(values) if len(values) > 1 else edge.MatchValue(values[0])
        conditions.append(edge.FieldCondition(key=field, match=match))
    return edge.Filter(must=conditions)
