"""Write a collection on a server: in place, or as a new collection that an alias then points to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import Any, Self

from qdrant_client import QdrantClient, models

from recto._util.files import WriterLock
from recto.errors import IndexDamaged, RectoError
from recto.protocols import Index
from recto.settings import ServerOptions
from recto.stores.points import LEXICAL, check_vectors, to_payload
from recto.stores.qdrant.collections import (
    LEXICON_KEY,
    LEXICON_TOO_LARGE,
    METADATA_KEY,
    Generations,
    create_collection,
    encode_lexicon,
    prepare_fields,
)
from recto.stores.qdrant.connection import Connection
from recto.types.index import EmbedderFingerprint, Fingerprint, IndexInfo, SparseVector
from recto.types.search import Chunk, Payload, Vector

_BATCH_POINTS = 128
_BATCH_BYTES = 8 << 20  # servers reject requests above 32 MB, and retries of smaller ones are cheaper
_SAMPLES = 8
_PAGE = 1000
_SAME_SCORE = 0.999


class ServerBuild:
    """Writes points in batches that can be retried; `target` is the physical collection."""

    def __init__(
        self,
        connection: Connection,
        generations: Generations,
        name: str,
        embedder: EmbedderFingerprint,
        options: ServerOptions,
        analyzer: str,
        lock: WriterLock,
        on_publish: Callable[[], None],
        *,
        rebuild: bool,
    ) -> None:
        self._connection = connection
        self._generations = generations
        self._name = name
        self._embedder = embedder
        self._options = options
        self._analyzer = analyzer
        self._rebuild = rebuild
        self._lock = lock
        self._on_publish = on_publish
        self._target = ""
        self._before: str | None = None
        self._resources = ExitStack()
        self._ids: set[str] = set()
        self._samples: list[tuple[str, Vector]] = []
        self._published = False

    @property
    def _in_place(self) -> bool:
        return self._target == self._before

    def __enter__(self) -> Self:
        """Take the lock, and create the collection with its payload indexes."""
        with ExitStack() as resources:  # releases the lock if anything below fails
            resources.enter_context(self._lock)
            self._target, self._before = self._generations.choose_target(
                self._name, self._embedder, self._analyzer, rebuild=self._rebuild
            )
            if not self._in_place:
                self._connection.write(create_collection, self._target, self._embedder, self._options)
            prepare_fields(self._connection, self._target, tenant=self._options.tenant)
            self._resources = resources.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Delete an unpublished new collection; what was written in place stays for the next run."""
        with self._resources:
            if not self._published and not self._in_place:
                with suppress(RectoError):
                    self._generations.discard(self._target)

    def add(
        self,
        chunks: Sequence[Chunk],
        vectors: Sequence[Vector],
        lexical: Sequence[SparseVector] | None = None,
    ) -> None:
        """Upsert chunks, and wait until the server has written them."""
        check_vectors(chunks, vectors, self._embedder.dim)
        terms: Sequence[SparseVector | None] = lexical if lexical is not None else [None] * len(chunks)
        rows = zip(chunks, vectors, terms, strict=True)
        self._upsert([_point(chunk.id, to_payload(chunk), dense, sparse) for chunk, dense, sparse in rows])
        self._ids.update(chunk.id for chunk in chunks)
        if chunks and len(self._samples) < _SAMPLES:
            self._samples.append((chunks[0].id, vectors[0]))

    def keep(
        self, chunks: Sequence[Chunk], current: Index, lexical: Sequence[SparseVector] | None = None
    ) -> None:
        """Leave chunks where they are, or copy them to the new collection."""
        if self._in_place:
            self._ids.update(chunk.id for chunk in chunks)
            return
        vectors = current.vectors([chunk.id for chunk in chunks])
        self.add(chunks, [vectors[chunk.id] for chunk in chunks], lexical)

    def publish(self, fingerprint: Fingerprint, lexicon: bytes = b"") -> IndexInfo:
        """Delete old chunks, check the collection, and make it the current one."""
        if self._in_place:
            self._delete_stale()
        counted = self._connection.read(QdrantClient.count, self._target, exact=True).count
        if counted != len(self._ids):
            raise IndexDamaged(
                f"The collection has {counted} chunks, but {len(self._ids)} were written",
                hint="Run `recto index --rebuild`.",
            )
        self._check_samples()
        encoded = encode_lexicon(lexicon) if lexicon else None
        # None deletes the vocabulary of a generation that is updated in place.
        metadata = {METADATA_KEY: fingerprint.to_dict(), LEXICON_KEY: encoded}
        self._connection.write(QdrantClient.update_collection, self._target, metadata=metadata)
        self._generations.publish(self._name, self._target, self._before)
        self._on_publish()
        self._published = True
        warnings = (LEXICON_TOO_LARGE,) if encoded == "" else ()
        try:
            self._generations.prune(self._target, self._before)
        except RectoError as error:
            leftover = f"Old generations were not deleted ({error.message}); the next run does it."
            warnings = (*warnings, leftover)
        return IndexInfo(self._name, self._target, counted, fingerprint, warnings, self._embedder.dim)

    def _upsert(self, points: Sequence[models.PointStruct]) -> None:
        for batch in _batches(points):
            self._connection.write(QdrantClient.upsert, self._target, batch, wait=True)

    def _delete_stale(self) -> None:
        """Delete the chunks that were neither added nor kept."""
        records = self._connection.scroll(self._target, _PAGE, with_payload=False)
        stale = [record.id for record in records if str(record.id) not in self._ids]
        for start in range(0, len(stale), _BATCH_POINTS):
            ids = stale[start : start + _BATCH_POINTS]
            self._connection.write(QdrantClient.delete, self._target, points_selector=ids, wait=True)

    def _check_samples(self) -> None:
        """Search for some chunks by their own vectors; HNSW may miss one, exact search must find it."""
        for id, vector in self._samples:
            if not self._finds(id, vector, exact=False) and not self._finds(id, vector, exact=True):
                raise IndexDamaged(
                    f"Chunk {id} is not found by its own vector", hint="Run `recto index --rebuild`."
                )

    def _finds(self, id: str, vector: Vector, *, exact: bool) -> bool:
        params = models.SearchParams(exact=True) if exact else None
        nearest = self._connection.read(
            QdrantClient.query_points, self._target, query=vector, limit=10, search_params=params
        ).points
        # A book can have many copies of a chunk: then the ten nearest may all be others.
        return any(str(point.id) == id for point in nearest) or bool(
            nearest and nearest[-1].score > _SAME_SCORE
        )


def _point(
    id: Any, payload: Payload, dense: Vector, lexical: SparseVector | None = None
) -> models.PointStruct:
    vector: Any = dense
    if lexical is not None:
        sparse = models.SparseVector(indices=list(lexical.indices), values=list(lexical.values))
        vector = {"": dense, LEXICAL: sparse}
    return models.PointStruct(id=id, vector=vector, payload=payload)


def _batches(points: Sequence[models.PointStruct]) -> Iterator[list[models.PointStruct]]:
    """Group points so that no request is too large."""
    batch: list[models.PointStruct] = []
    total = 0
    for point in points:
        size = len(point.model_dump_json())
        if batch and (len(batch) >= _BATCH_POINTS or total + size > _BATCH_BYTES):
            yield batch
            batch, total = [], 0
        batch.append(point)
        total += size
    if batch:
        yield batch
