"""A collection on a server: create it with payload indexes, and read what it is from its configuration."""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable
from typing import Any

from qdrant_client import QdrantClient, models

from recto.errors import ConfigurationError, other_format
from recto.settings import ServerOptions
from recto.stores.points import INTEGER_FIELDS, KEYWORD_FIELDS, LEXICAL
from recto.stores.qdrant.connection import Connection
from recto.types.index import Calibration, EmbedderFingerprint, Fingerprint

METADATA_KEY = "recto"
CALIBRATION_KEY = "calibration"
LEXICON_KEY = "recto_lexicon"
"""Not inside `METADATA_KEY`: servers merge metadata at the first level, so calibrations keep it."""
METADATA_FORMAT = 1
"""Of the metadata of a collection; if it has no `format`, it is this one."""
REINDEX = "Index the book again with `recto index PATH --collection NAME`."
LEXICON_TOO_LARGE = (
    "The vocabulary is too large to be stored on the server, so the collection is searched in dense mode. "
    "Split the book into several collections, or use the embedded store, for hybrid search."
)
MAX_LEXICON = 2 << 20
"""Bytes of an encoded vocabulary; every reader loads it with the collection's configuration."""


def create_collection(
    client: QdrantClient, name: str, embedder: EmbedderFingerprint, options: ServerOptions
) -> None:
    """Create a physical collection, unless it exists."""
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
    if name == "int8":
        return models.ScalarQuantization(
            scalar=models.ScalarQuantizationConfig(type=models.ScalarType.INT8, always_ram=True)
        )
    if name == "binary":
        return models.BinaryQuantization(binary=models.BinaryQuantizationConfig(always_ram=True))
    return None


def prepare_fields(connection: Connection, collection: str, *, tenant: bool = False) -> tuple[str, ...]:
    """Create the missing payload indexes of Recto's own fields."""
    fields: dict[str, Any] = dict.fromkeys(KEYWORD_FIELDS, models.PayloadSchemaType.KEYWORD)
    fields |= dict.fromkeys(INTEGER_FIELDS, models.PayloadSchemaType.INTEGER)
    if tenant:
        fields["book"] = models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True)
    return create_missing_indexes(connection, collection, fields)


def create_missing_indexes(
    connection: Connection, collection: str, fields: dict[str, Any]
) -> tuple[str, ...]:
    """Create the payload indexes that a collection does not have yet, and return their fields."""
    missing = missing_indexes(connection, collection, fields)
    for field in missing:
        connection.write(
            lambda client, field=field: client.create_payload_index(  # type: ignore[misc]
                collection, field, fields[field], wait=True
            )
        )
    return missing


def missing_indexes(connection: Connection, collection: str, fields: Iterable[str]) -> tuple[str, ...]:
    """Return the fields of a collection that have no payload index."""
    existing = connection.read(lambda client: client.get_collection(collection)).payload_schema or {}
    return tuple(field for field in fields if field not in existing)


def read_vectors(params: Any) -> tuple[str | None, int, str]:
    """Return name, size and distance of the dense vectors; if there are several, of the first."""
    name = None
    if isinstance(params, dict):
        if not params:
            raise ConfigurationError("The collection has no dense vectors", hint="Choose another collection.")
        name = min(params)  # the unnamed vector has the name ""
        params = params[name]
    return name or None, int(params.size), str(getattr(params.distance, "value", params.distance))


def read_fingerprint(config: Any) -> tuple[Fingerprint | None, Calibration | None]:
    """Read the fingerprint and the calibration from a collection's metadata."""
    data = (getattr(config, "metadata", None) or {}).get(METADATA_KEY)
    if not isinstance(data, dict):
        return None, None
    if isinstance(format := data.get("format", METADATA_FORMAT), int) and format != METADATA_FORMAT:
        raise other_format("The collection on the server", format, METADATA_FORMAT, REINDEX)
    measured = data.get(CALIBRATION_KEY)
    try:
        fingerprint = Fingerprint.from_dict(
            {name: value for name, value in data.items() if name != CALIBRATION_KEY}
        )
    except (TypeError, KeyError):
        return None, None
    try:
        return fingerprint, Calibration.from_dict(measured) if measured is not None else None
    except (TypeError, KeyError, ValueError):
        return fingerprint, None


def read_lexical(config: Any, fingerprint: Fingerprint | None) -> tuple[bool, str, str]:
    """Return whether there are lexical vectors, the encoded vocabulary, and a warning if one is missing."""
    if fingerprint is None or not fingerprint.analyzer:
        return False, "", ""
    lost = "The collection has lost its {}, so it is searched in dense mode. " + REINDEX
    if not has_lexical_vectors(config):
        return False, "", lost.format("lexical vectors")
    lexicon = (getattr(config, "metadata", None) or {}).get(LEXICON_KEY)
    if lexicon == "":
        return True, "", LEXICON_TOO_LARGE
    if not isinstance(lexicon, str):
        return True, "", lost.format("vocabulary")
    return True, lexicon, ""


def has_lexical_vectors(config: Any) -> bool:
    """Return whether the points have lexical vectors."""
    return LEXICAL in (config.params.sparse_vectors or {})


def has_server_idf(config: Any) -> bool:
    """Return whether the server multiplies lexical terms by their IDF, as in Recto 0.1."""
    params = (config.params.sparse_vectors or {}).get(LEXICAL)
    return getattr(params, "modifier", None) == "idf"


def is_compatible(config: Any, embedder: EmbedderFingerprint, analyzer: str) -> bool:
    """Return whether new points can be added to a collection; one of Recto 0.1 must be replaced."""
    fingerprint, _ = read_fingerprint(config)
    if fingerprint is None or fingerprint.analyzer != analyzer:
        return False
    has_vectors = (has_lexical_vectors(config) and not has_server_idf(config)) or not analyzer
    return has_vectors and fingerprint.embedder.is_compatible(embedder)


def encode_lexicon(lexicon: bytes) -> str:
    """Return the vocabulary as text, or an empty text if it is too large for the collection's metadata."""
    encoded = b64encode(zlib.compress(lexicon, 9)).decode()
    return encoded if len(encoded) <= MAX_LEXICON else ""


def decode_lexicon(encoded: str) -> bytes:
    """Read the result of `encode_lexicon`; raise `ValueError` if it is something else."""
    try:
        return zlib.decompress(b64decode(encoded, validate=True))
    except zlib.error as error:
        raise ValueError("not a vocabulary") from error
