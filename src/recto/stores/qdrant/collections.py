"""Collections on a server: create them, read their metadata, and publish generations under aliases.

A generation is a physical collection, and the name of the collection is an alias of the current one.
"""

from __future__ import annotations

import os
import re
import time
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from typing import Any

from qdrant_client import QdrantClient, models

from recto.errors import ConfigurationError, FormatMismatch, other_format
from recto.settings import ServerOptions
from recto.stores import INTEGER_FIELDS, KEYWORD_FIELDS, LEXICAL
from recto.stores.qdrant.connection import ServerConnection
from recto.types.index import Calibration, EmbedderFingerprint, Fingerprint, GenerationInfo

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
_DRAFT_SECONDS = 24 * 3600.0  # longer than an index run takes
_GENERATION_NAME = re.compile(r"(.+)--([0-9a-f]{11})[0-9a-f]{4}")
_GENERATION = "--"  # separates the name of a collection from the id of its generation
MIXED = "Choose another --collection; its vectors and payloads would be mixed with ours."


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


def prepare_fields(connection: ServerConnection, collection: str, *, tenant: bool = False) -> tuple[str, ...]:
    """Create the missing payload indexes of Recto's own fields."""
    fields: dict[str, Any] = dict.fromkeys(KEYWORD_FIELDS, models.PayloadSchemaType.KEYWORD)
    fields |= dict.fromkeys(INTEGER_FIELDS, models.PayloadSchemaType.INTEGER)
    if tenant:
        fields["book"] = models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True)
    return create_missing_indexes(connection, collection, fields)


def create_missing_indexes(
    connection: ServerConnection, collection: str, fields: dict[str, Any]
) -> tuple[str, ...]:
    """Create the payload indexes that a collection does not have yet, and return their fields."""
    missing = missing_indexes(connection, collection, fields)
    for field in missing:
        connection.write(QdrantClient.create_payload_index, collection, field, fields[field], wait=True)
    return missing


def missing_indexes(connection: ServerConnection, collection: str, fields: Iterable[str]) -> tuple[str, ...]:
    """Return the fields of a collection that have no payload index."""
    existing = connection.read(QdrantClient.get_collection, collection).payload_schema or {}
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


def is_compatible(config: Any, embedder: EmbedderFingerprint, analyzer: str) -> bool:
    """Return whether new points can be added to a collection."""
    fingerprint, _ = read_fingerprint(config)
    return (
        fingerprint is not None
        and fingerprint.analyzer == analyzer
        and (has_lexical_vectors(config) or not analyzer)
        and fingerprint.embedder.is_compatible(embedder)
    )


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


def new_generation(name: str) -> str:
    """Return the name of a new physical collection; later ones are sorted after earlier ones."""
    return f"{name}{_GENERATION}{int(time.time() * 1000):x}{os.urandom(2).hex()}"


def base_name(physical: str) -> str:
    """Return the name of the collection that a physical collection is a generation of."""
    match = _GENERATION_NAME.fullmatch(physical)
    return match[1] if match else physical


def is_generation(physical: str, name: str) -> bool:
    """Return whether a physical collection is a generation of a collection."""
    return physical != name and base_name(physical) == name


def _started_at(physical: str) -> int:
    """Return when a generation was started, in milliseconds."""
    match = _GENERATION_NAME.fullmatch(physical)
    return int(match[2], 16) if match else 0


def not_ours(name: str, hint: str) -> ConfigurationError:
    """Return the error for changing a collection of another pipeline."""
    return ConfigurationError(f"Collection '{name}' was not made by Recto", hint=hint)


class Generations:
    """Lists, publishes and deletes the generations of all collections of a server."""

    def __init__(self, connection: ServerConnection, keep: int) -> None:
        self._connection = connection
        self._keep = keep

    def aliases(self) -> dict[str, str]:
        """Return all aliases, and the physical collections that they refer to."""
        answer = self._connection.read(QdrantClient.get_aliases)
        return {entry.alias_name: entry.collection_name for entry in answer.aliases}

    def names(self) -> list[str]:
        """Return the names of all physical collections."""
        answer = self._connection.read(QdrantClient.get_collections)
        return [entry.name for entry in answer.collections]

    def current(self, name: str) -> str | None:
        """Return the physical collection of a name; None if it does not exist or the name is an alias."""
        target = self.aliases().get(name)
        if target is not None:
            return target if base_name(target) == name else None
        return name if self._connection.read(QdrantClient.collection_exists, name) else None

    def own(self, name: str, hint: str) -> str | None:
        """Return the physical collection of a name; raise an error if Recto did not make it."""
        if (physical := self.current(name)) == name:
            raise not_ours(name, hint)
        return physical

    def choose_target(
        self, name: str, embedder: EmbedderFingerprint, analyzer: str, *, rebuild: bool
    ) -> tuple[str, str | None]:
        """Return the physical collection to write to, and the current one; the caller holds the lock."""
        before = self.own(name, MIXED)
        if before is not None and not rebuild:
            config = self._connection.read(QdrantClient.get_collection, before).config
            if is_compatible(config, embedder, analyzer):
                return before, before
        return new_generation(name), before

    def describe(self, current: str) -> tuple[GenerationInfo, ...]:
        """Return the generations of a collection, newest first; its name refers to `current`."""
        names = [name for name in self.names() if is_generation(name, base_name(current))]
        generations = [self._describe(name, current=name == current) for name in names]
        return tuple(sorted(generations, key=lambda generation: _started_at(generation.name), reverse=True))

    def _describe(self, physical: str, *, current: bool) -> GenerationInfo:
        """Describe a generation; it has no date if it was not published, or if it cannot be read."""
        try:
            collection = self._connection.read(QdrantClient.get_collection, physical)
            fingerprint, _ = read_fingerprint(collection.config)
        except FormatMismatch as error:
            return GenerationInfo(physical, "", 0, None, current, error.message)
        created = fingerprint.created_at if fingerprint else ""
        return GenerationInfo(physical, created, collection.points_count or 0, None, current)

    def publish(self, name: str, target: str, before: str | None) -> None:
        """Point the name and all aliases of the old generation to the new one."""
        aliases = self.aliases()
        moved = {name, *(alias for alias, old in aliases.items() if before is not None and old == before)}
        self.switch_aliases(moved, target, aliases)

    def prune(self, target: str, before: str | None) -> None:
        """Delete generations that are not to be kept; the caller holds the lock.

        Other processes search the old generation for some seconds more, so at least one is kept. What a
        rollback went back from is newer than `before`, and is deleted. Drafts may belong to a run on another
        machine, so they are deleted after a day.
        """
        generations = self.describe(target)
        names = [generation.name for generation in generations if generation.created_at]
        older = [name for name in names[names.index(before) if before in names else 0 :] if name != target]
        used = {target, before, *older[: self._keep], *self.aliases().values()}
        yesterday = (time.time() - _DRAFT_SECONDS) * 1000
        for name, created_at, *_, problem in generations:
            is_young_draft = not created_at and _started_at(name) > yesterday
            if name not in used and not problem and not is_young_draft:
                self._connection.write(QdrantClient.delete_collection, name)

    def discard(self, target: str) -> None:
        """Delete a new collection that was not published; its alias may be set although a call failed."""
        if target not in self.aliases().values():
            self._connection.read(QdrantClient.delete_collection, target)

    def switch_aliases(self, aliases: Iterable[str], target: str, current: Mapping[str, str]) -> None:
        """Point aliases to a physical collection, in one request."""
        actions: list[Any] = []
        for alias in sorted(aliases):
            if current.get(alias) == target:
                continue
            if alias in current:
                actions.append(models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=alias)))
            actions.append(
                models.CreateAliasOperation(
                    create_alias=models.CreateAlias(collection_name=target, alias_name=alias)
                )
            )
        if actions:
            self._connection.write(QdrantClient.update_collection_aliases, actions)
