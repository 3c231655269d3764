"""Write a collection on a server: in place, or as a new collection that an alias then points to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any, Self

from qdrant_client import QdrantClient, models

from recto._util.files import WriterLock
from recto.errors import IndexDamaged, RectoError
from recto.protocols import Index
from recto.settings import ServerOptions
from recto.stores import LEXICAL, check_vectors, to_payload
from recto.stores.qdrant.collections import (
    LEXICON_KEY,
    LEXICON_TOO_LARGE,
    METADATA_KEY,
    Generations,
    create_collection,
    encode_lexicon,
    prepare_fields,
)
from recto.stores.qdrant.connection import ServerConnection
from recto.types.index import EmbedderFingerprint, Fingerprint, IndexInfo, SparseVector
from recto.types.search import Chunk, Payload, Vector

_BATCH_POINTS = 128  # a small request can be sent again
_BATCH_BYTES = 8 << 20  # servers reject requests above 32 MB, and retries of smaller ones are cheaper
_SAMPLES = 8  # chunks that are searched for by their own vectors
_PAGE = 1000  # ids that one call lists
_SAME_SCORE = 0.999  # cosine similarity of copies; a server may quantize vectors


@dataclass(slots=True)
class ServerBuild:
    """Writes points in batches that can be retried; `target` is the physical collection."""

    connection: ServerConnection
    generations: Generations
    name: str
    embedder: EmbedderFingerprint
    options: ServerOptions
    analyzer: str
    lock: WriterLock
    on_publish: Callable[[], None]
    rebuild: bool
    target: str = ""
    _before: str | None = None
    _resources: ExitStack = field(default_factory=ExitStack)
    _ids: set[str] = field(default_factory=set)
    _samples: list[tuple[str, Vector]] = field(default_factory=list)
    _published: bool = False

    @property
    def _in_place(self) -> bool:
        return self.target == self._before

    def __enter__(self) -> Self:
        """Take the lock, and create the collection with its payload indexes."""
        with ExitStack() as resources:  # releases the lock if anything below fails
            resources.enter_context(self.lock)
            self.target, self._before = self.generations.choose_target(
                self.name, self.embedder, self.analyzer, rebuild=self.rebuild
            )
            if not self._in_place:
                self.connection.write(create_collection, self.target, self.embedder, self.options)
            prepare_fields(self.connection, self.target, tenant=self.options.tenant)
            self._resources = resources.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """Delete an unpublished new collection; what was written in place stays for the next run."""
        with self._resources:
            if not self._published and not self._in_place:
                with suppress(RectoError):
                    self.generations.discard(self.target)

    def add(
        self,
        chunks: Sequence[Chunk],
        vectors: Sequence[Vector],
        lexical: Sequence[SparseVector] | None = None,
    ) -> None:
        """Upsert chunks, and wait until the server has written them."""
        check_vectors(chunks, vectors, self.embedder.dim)
        terms: Sequence[SparseVector | None] = lexical if lexical is not None else [None] * len(chunks)
        rows = zip(chunks, vectors, terms, strict=True)
        points = [_point(chunk.id, to_payload(chunk), dense, sparse) for chunk, dense, sparse in rows]
        for batch in _batches(points):
            self.connection.write(QdrantClient.upsert, self.target, batch, wait=True)
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
        counted = self.connection.read(QdrantClient.count, self.target, exact=True).count
        if counted != len(self._ids):
            raise IndexDamaged(
                f"The collection has {counted} chunks, but {len(self._ids)} were written",
                hint="Run `recto index --rebuild`.",
            )
        self._check_samples()
        encoded = encode_lexicon(lexicon) if lexicon else None
        # None deletes the vocabulary of a generation that is updated in place.
        metadata = {METADATA_KEY: fingerprint.to_dict(), LEXICON_KEY: encoded}
        self.connection.write(QdrantClient.update_collection, self.target, metadata=metadata)
        self.generations.publish(self.name, self.target, self._before)
        self.on_publish()
        self._published = True
        warnings = (LEXICON_TOO_LARGE,) if encoded == "" else ()
        try:
            self.generations.prune(self.target, self._before)
        except RectoError as error:
            leftover = f"Old generations were not deleted ({error.message}); the next run does it."
            warnings = (*warnings, leftover)
        return IndexInfo(self.name, self.target, counted, fingerprint, warnings, self.embedder.dim)

    def _delete_stale(self) -> None:
        """Delete the chunks that were neither added nor kept."""
        records = self.connection.scroll(self.target, _PAGE, with_payload=False)
        stale = [record.id for record in records if str(record.id) not in self._ids]
        for start in range(0, len(stale), _BATCH_POINTS):
            ids = stale[start : start + _BATCH_POINTS]
            self.connection.write(QdrantClient.delete, self.target, points_selector=ids, wait=True)

    def _check_samples(self) -> None:
        """Search for some chunks by their own vectors; HNSW may miss one, exact search must find it."""
        for id, vector in self._samples:
            if not self._finds(id, vector, exact=False) and not self._finds(id, vector, exact=True):
                raise IndexDamaged(
                    f"Chunk {id} is not found by its own vector", hint="Run `recto index --rebuild`."
                )

    def _finds(self, id: str, vector: Vector, *, exact: bool) -> bool:
        params = models.SearchParams(exact=True) if exact else None
        nearest = self.connection.read(
            QdrantClient.query_points, self.target, query=vector, limit=10, search_params=params
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
