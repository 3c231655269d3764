"""Write a collection on a server: beside the old one and swapped by an alias, or in place."""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from recto.errors import IndexDamaged, RectoError
from recto.protocols import Index
from recto.settings import ServerOptions
from recto.stores.candidates import LEXICAL
from recto.stores.lock import WriterLock
from recto.stores.payload import INTEGER_FIELDS, KEYWORD_FIELDS, check_vectors, to_payload
from recto.stores.qdrant.connection import Connection
from recto.types import Chunk, EmbedderFingerprint, Fingerprint, IndexInfo, Payload, SparseVector, Vector

if TYPE_CHECKING:
    from qdrant_client import models

METADATA_KEY = "recto"
CALIBRATION_KEY = "calibration"
LEXICON_KEY = "recto_lexicon"
"""Beside the fingerprint, because a server merges metadata by their first level: a new calibration leaves it alone."""
LEXICON_TOO_LARGE = (
    "The vocabulary is too large to be stored on the server, so the collection is searched in dense mode. "
    "Split the book into several collections, or use the embedded store, for hybrid search."
)
_BATCH_POINTS = 128
_BATCH_BYTES = 8 << 20  # a server refuses requests above 32 MB; smaller ones fail and repeat more cheaply
_BYTES_PER_NUMBER = 12
_MAX_LEXICON = 2 << 20  # bytes; every reader of the collection gets it along with the configuration
_SAMPLES = 8
_PAGE = 1000
_NEAR_ONE = 0.999


@dataclass(frozen=True, slots=True)
class _Point:
    """A point as it is written."""

    id: Any
    payload: Payload
    dense: Vector
    lexical: SparseVector | None = None

    @property
    def weight(self) -> int:
        """About how many bytes it takes in a request."""
        numbers = len(self.dense) + (2 * len(self.lexical.indices) if self.lexical else 0)
        return len(json.dumps(self.payload)) + _BYTES_PER_NUMBER * numbers


class ServerBuild:
    """Writes points in batches that may be repeated; `target` is the physical collection that is written to."""

    def __init__(
        self,
        connection: Connection,
        name: str,
        target: str,
        embedder: EmbedderFingerprint,
        options: ServerOptions,
        lock: WriterLock,
        finish: Callable[[], None],
        *,
        in_place: bool,
    ) -> None:
        self._connection = connection
        self._name = name
        self._target = target
        self._embedder = embedder
        self._options = options
        self._lock = lock
        self._finish = finish
        self._in_place = in_place
        self._held = ExitStack()
        self._ids: set[str] = set()
        self._samples: list[tuple[str, Vector]] = []
        self._published = False

    def __enter__(self) -> Self:
        """Take the lock; make the collection with its payload indexes, before any point."""
        with ExitStack() as held:  # lets go of the lock if anything below fails
            held.enter_context(self._lock)
            if not self._in_place:
                self._connection.write(
                    lambda client: _create(client, self._target, self._embedder, self._options)
                )
            prepare_fields(self._connection, self._target, tenant=self._options.tenant)
            self._held = held.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Drop what was not published; what was written in place stays, the next run goes on from there."""
        with self._held:
            if not self._published and not self._in_place:
                with suppress(RectoError):
                    self._connection.read(lambda client: client.delete_collection(self._target))

    def add(
        self,
        chunks: Sequence[Chunk],
        vectors: Sequence[Vector],
        lexical: Sequence[SparseVector] | None = None,
    ) -> None:
        """Upsert chunks; each batch is on disk when this returns."""
        check_vectors(chunks, vectors, self._embedder.dim)
        terms: Sequence[SparseVector | None] = lexical if lexical is not None else [None] * len(chunks)
        rows = zip(chunks, vectors, terms, strict=True)
        for batch in _batches(
            [_Point(chunk.id, to_payload(chunk), dense, sparse) for chunk, dense, sparse in rows]
        ):
            self._upsert(batch)
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

    def _upsert(self, batch: Sequence[_Point]) -> None:
        points = _points(batch)
        self._connection.write(lambda client: client.upsert(self._target, points, wait=True))

    def publish(self, fingerprint: Fingerprint, lexicon: bytes = b"") -> IndexInfo:
        """Remove what is stale, check what is there, and let readers see it."""
        if self._in_place:
            self._delete_stale()
        counted = self._connection.read(lambda client: client.count(self._target, exact=True)).count
        if counted != len(self._ids):
            raise IndexDamaged(
                f"The collection holds {counted} chunks, {len(self._ids)} were written",
                hint="Run `recto index --rebuild`.",
            )
        self._check_samples()
        encoded = encode_lexicon(lexicon) if lexicon else None
        metadata = {
            METADATA_KEY: fingerprint.to_dict(),
            LEXICON_KEY: encoded,
        }  # None removes the one of the state before
        self._connection.write(lambda client: client.update_collection(self._target, metadata=metadata))
        self._finish()
        self._published = True
        warnings = (LEXICON_TOO_LARGE,) if encoded == "" else ()
        return IndexInfo(self._name, self._target, counted, fingerprint, warnings, self._embedder.dim)

    def _delete_stale(self) -> None:
        stale: list[Any] = []
        records, offset = self._ids_from(None)
        while True:
            stale += [record.id for record in records if str(record.id) not in self._ids]
            if offset is None:
                break
            records, offset = self._ids_from(offset)
        for start in range(0, len(stale), _BATCH_POINTS):
            self._delete(stale[start : start + _BATCH_POINTS])

    def _ids_from(self, offset: Any) -> tuple[list[Any], Any]:
        return self._connection.read(
            lambda client: client.scroll(self._target, limit=_PAGE, offset=offset, with_payload=False)
        )

    def _delete(self, ids: list[Any]) -> None:
        """Delete points, and their lexical vectors before: a server goes on counting the terms of points that had one until the end."""
        records = self._connection.read(
            lambda client: client.retrieve(self._target, ids, with_payload=True, with_vectors=[""])
        )
        for batch in _batches(
            [_Point(record.id, record.payload or {}, dense_vector(record.vector)) for record in records]
        ):
            self._upsert(batch)
        self._connection.write(lambda client: client.delete(self._target, points_selector=ids, wait=True))

    def _check_samples(self) -> None:
        """Search some chunks by their own vectors; a graph may miss one now and then, a comparison with all may not."""
        for id, vector in self._samples:
            if not self._finds(id, vector, exact=False) and not self._finds(id, vector, exact=True):
                raise IndexDamaged(
                    f"Chunk {id} is not found by its own vector", hint="Run `recto index --rebuild`."
                )

    def _finds(self, id: str, vector: Vector, *, exact: bool) -> bool:
        from qdrant_client.models import SearchParams

        params = SearchParams(exact=True) if exact else None
        found = self._connection.read(
            lambda client: client.query_points(self._target, query=vector, limit=10, search_params=params)
        ).points
        return any(str(point.id) == id for point in found) or bool(found and found[-1].score > _NEAR_ONE)


def encode_lexicon(lexicon: bytes) -> str:
    """Return the vocabulary as text, or nothing if it is too large to be stored with the collection."""
    encoded = b64encode(zlib.compress(lexicon, 9)).decode()
    return encoded if len(encoded) <= _MAX_LEXICON else ""


def decode_lexicon(encoded: str) -> bytes:
    """Read what `encode_lexicon` wrote; raises `ValueError` if it is something else."""
    try:
        return zlib.decompress(b64decode(encoded, validate=True))
    except zlib.error as error:
        raise ValueError("not a vocabulary") from error


def dense_vector(stored: Any, name: str | None = None) -> Vector:
    """Return the dense one of a point's vectors."""
    if isinstance(stored, dict):
        stored = stored.get(name or "", [])
    return [float(number) for number in stored or []]


def create_field_index(connection: Connection, collection: str, field: str, schema: Any) -> None:
    """Let the server filter by a field."""
    connection.write(lambda client: client.create_payload_index(collection, field, schema, wait=True))


def delete_collection(connection: Connection, name: str) -> None:
    """Remove a physical collection."""
    connection.write(lambda client: client.delete_collection(name))


def prepare_fields(connection: Connection, collection: str, *, tenant: bool = False) -> tuple[str, ...]:
    """Create the payload indexes that Recto's own fields need; those that exist stay."""
    from qdrant_client import models

    existing = connection.read(lambda client: client.get_collection(collection)).payload_schema or {}
    wanted: dict[str, Any] = dict.fromkeys(KEYWORD_FIELDS, models.PayloadSchemaType.KEYWORD)
    wanted |= dict.fromkeys(INTEGER_FIELDS, models.PayloadSchemaType.INTEGER)
    if tenant:
        wanted["book"] = models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True)
    missing = {field: schema for field, schema in wanted.items() if field not in existing}
    for field, schema in missing.items():
        create_field_index(connection, collection, field, schema)
    return tuple(missing)


def _create(client: Any, name: str, embedder: EmbedderFingerprint, options: ServerOptions) -> None:
    from qdrant_client import models

    if client.collection_exists(name):  # an earlier try may have succeeded without our hearing of it
        return
    client.create_collection(
        name,
        vectors_config=models.VectorParams(
            size=embedder.dim, distance=models.Distance.COSINE, on_disk=options.on_disk_vectors
        ),
        sparse_vectors_config={LEXICAL: models.SparseVectorParams(modifier=models.Modifier.IDF)},
        shard_number=options.shards,
        replication_factor=options.replication,
        write_consistency_factor=options.write_consistency,
        on_disk_payload=options.on_disk_payload,
        quantization_config=_quantization(options.quantization),
    )


def _quantization(name: str) -> models.ScalarQuantization | models.BinaryQuantization | None:
    from qdrant_client import models

    if name == "int8":
        return models.ScalarQuantization(
            scalar=models.ScalarQuantizationConfig(type=models.ScalarType.INT8, always_ram=True)
        )
    if name == "binary":
        return models.BinaryQuantization(binary=models.BinaryQuantizationConfig(always_ram=True))
    return None


def _points(batch: Sequence[_Point]) -> list[models.PointStruct]:
    from qdrant_client import models

    def vectors(point: _Point) -> Any:
        if point.lexical is None:
            return point.dense
        sparse = models.SparseVector(indices=list(point.lexical.indices), values=list(point.lexical.values))
        return {"": point.dense, LEXICAL: sparse}

    return [models.PointStruct(id=point.id, vector=vectors(point), payload=point.payload) for point in batch]


def _batches(points: Sequence[_Point]) -> Iterator[list[_Point]]:
    """Group points so that no request is too large."""
    held: list[_Point] = []
    size = 0
    for point in points:
        weight = point.weight
        if held and (len(held) >= _BATCH_POINTS or size + weight > _BATCH_BYTES):
            yield held
            held, size = [], 0
        held.append(point)
        size += weight
    if held:
        yield held
