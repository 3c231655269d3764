"""Write a collection on a server: in place, or as a new collection that an alias then points to."""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from recto._util.files import WriterLock
from recto.errors import IndexDamaged, RectoError
from recto.protocols import Index
from recto.settings import ServerOptions
from recto.stores.points import (
    INTEGER_FIELDS,
    KEYWORD_FIELDS,
    LEXICAL,
    check_vectors,
    to_payload,
)
from recto.stores.qdrant.connection import Connection
from recto.types import Chunk, EmbedderFingerprint, Fingerprint, IndexInfo, Payload, SparseVector, Vector

if TYPE_CHECKING:
    from qdrant_client import models

    from recto.stores.qdrant.store import ServerStore

METADATA_KEY = "recto"
CALIBRATION_KEY = "calibration"
LEXICON_KEY = "recto_lexicon"
"""Not inside `METADATA_KEY`: servers merge metadata at the first level, so calibrations keep it."""
LEXICON_TOO_LARGE = (
    "The vocabulary is too large to be stored on the server, so the collection is searched in dense mode. "
    "Split the book into several collections, or use the embedded store, for hybrid search."
)
_BATCH_POINTS = 128
_BATCH_BYTES = 8 << 20  # servers reject requests above 32 MB, and retries of smaller ones are cheaper
_MAX_LEXICON = 2 << 20  # bytes; every reader loads it with the collection's configuration
_SAMPLES = 8
_PAGE = 1000
_SAME_SCORE = 0.999


class ServerBuild:
    """Writes points in batches that can be retried; `target` is the physical collection."""

    def __init__(
        self,
        store: ServerStore,
        connection: Connection,
        name: str,
        embedder: EmbedderFingerprint,
        options: ServerOptions,
        analyzer: str,
        lock: WriterLock,
        *,
        rebuild: bool,
    ) -> None:
        self._store = store
        self._connection = connection
        self._name = name
        self._embedder = embedder
        self._options = options
        self._analyzer = analyzer
        self._rebuild = rebuild
        self._lock = lock
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
            self._target, self._before = self._store.choose_target(
                self._name, self._embedder, self._analyzer, rebuild=self._rebuild
            )
            if not self._in_place:
                self._connection.write(
                    lambda client: _create(client, self._target, self._embedder, self._options)
                )
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
                    self._store.physical.discard(self._target)

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
        counted = self._connection.read(lambda client: client.count(self._target, exact=True)).count
        if counted != len(self._ids):
            raise IndexDamaged(
                f"The collection has {counted} chunks, but {len(self._ids)} were written",
                hint="Run `recto index --rebuild`.",
            )
        self._check_samples()
        encoded = encode_lexicon(lexicon) if lexicon else None
        # A vocabulary of None deletes that of the generation before.
        metadata = {METADATA_KEY: fingerprint.to_dict(), LEXICON_KEY: encoded}
        self._connection.write(lambda client: client.update_collection(self._target, metadata=metadata))
        self._store.publish(self._name, self._target, self._before)
        self._published = True
        warnings = (LEXICON_TOO_LARGE,) if encoded == "" else ()
        try:
            self._store.physical.prune(self._target, self._before)
        except RectoError as error:
            warnings = (
                *warnings,
                f"Old generations were not deleted ({error.message}); the next run does it.",
            )
        return IndexInfo(self._name, self._target, counted, fingerprint, warnings, self._embedder.dim)

    def _upsert(self, points: Sequence[models.PointStruct]) -> None:
        for batch in _batches(points):
            self._connection.write(
                lambda client, batch=batch: client.upsert(self._target, batch, wait=True)  # type: ignore[misc]
            )

    def _delete_stale(self) -> None:
        """Delete the chunks that were neither added nor kept."""
        stale: list[Any] = []
        offset: Any = None
        while True:
            records, offset = self._scroll_ids(offset)
            stale += [record.id for record in records if str(record.id) not in self._ids]
            if offset is None:
                break
        for start in range(0, len(stale), _BATCH_POINTS):
            self._delete(stale[start : start + _BATCH_POINTS])

    def _delete(self, ids: list[Any]) -> None:
        self._connection.write(lambda client: client.delete(self._target, points_selector=ids, wait=True))

    def _scroll_ids(self, offset: Any) -> tuple[list[Any], Any]:
        return self._connection.read(
            lambda client: client.scroll(self._target, limit=_PAGE, offset=offset, with_payload=False)
        )

    def _check_samples(self) -> None:
        """Search for some chunks by their own vectors; HNSW may miss one, exact search must find it."""
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
        return any(str(point.id) == id for point in found) or bool(found and found[-1].score > _SAME_SCORE)


def encode_lexicon(lexicon: bytes) -> str:
    """Return the vocabulary as text, or an empty text if it is too large for the collection's metadata."""
    encoded = b64encode(zlib.compress(lexicon, 9)).decode()
    return encoded if len(encoded) <= _MAX_LEXICON else ""


def decode_lexicon(encoded: str) -> bytes:
    """Read the result of `encode_lexicon`; raise `ValueError` if it is something else."""
    try:
        return zlib.decompress(b64decode(encoded, validate=True))
    except zlib.error as error:
        raise ValueError("not a vocabulary") from error


def prepare_fields(connection: Connection, collection: str, *, tenant: bool = False) -> tuple[str, ...]:
    """Create the missing payload indexes of Recto's own fields."""
    from qdrant_client import models

    wanted: dict[str, Any] = dict.fromkeys(KEYWORD_FIELDS, models.PayloadSchemaType.KEYWORD)
    wanted |= dict.fromkeys(INTEGER_FIELDS, models.PayloadSchemaType.INTEGER)
    if tenant:
        wanted["book"] = models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True)
    return create_missing_indexes(connection, collection, wanted)


def create_missing_indexes(
    connection: Connection, collection: str, wanted: dict[str, Any]
) -> tuple[str, ...]:
    """Create the payload indexes that a collection does not have yet, and return their fields."""
    missing = missing_indexes(connection, collection, wanted)
    for field in missing:
        connection.write(
            lambda client, field=field: client.create_payload_index(  # type: ignore[misc]
                collection, field, wanted[field], wait=True
            )
        )
    return missing


def missing_indexes(connection: Connection, collection: str, wanted: Iterable[str]) -> tuple[str, ...]:
    """Return the fields of a collection that have no payload index."""
    existing = connection.read(lambda client: client.get_collection(collection)).payload_schema or {}
    return tuple(field for field in wanted if field not in existing)


def _create(client: Any, name: str, embedder: EmbedderFingerprint, options: ServerOptions) -> None:
    from qdrant_client import models

    if client.collection_exists(name):  # an earlier try may have succeeded although its response was lost
        return
    client.create_collection(
        name,
        vectors_config=models.VectorParams(
            size=embedder.dim, distance=models.Distance.COSINE, on_disk=options.on_disk_vectors
        ),
        # Without the modifier IDF: a server counts terms for each shard, and counts deleted points, too.
        sparse_vectors_config={LEXICAL: models.SparseVectorParams()},
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


def _point(
    id: Any, payload: Payload, dense: Vector, lexical: SparseVector | None = None
) -> models.PointStruct:
    from qdrant_client import models

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
