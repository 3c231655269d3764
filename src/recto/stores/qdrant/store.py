"""The server store: collections under aliases, read by anyone, published by swapping an alias."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from recto.errors import CollectionMissing, ConfigurationError
from recto.settings import ServerOptions, Settings, check_collection_name
from recto.stores.candidates import LEXICAL
from recto.stores.lock import WriterLock
from recto.stores.payload import INTEGER_FIELDS, KEYWORD_FIELDS
from recto.stores.qdrant.build import (
    CALIBRATION_KEY,
    LEXICON_KEY,
    LEXICON_TOO_LARGE,
    METADATA_KEY,
    ServerBuild,
    create_field_index,
    delete_collection,
    prepare_fields,
)
from recto.stores.qdrant.connection import Connection
from recto.stores.qdrant.dialects import RECTO, SAMPLE, Dialect, detect, load_dialect
from recto.stores.qdrant.filters import Stored, stored_modules
from recto.stores.qdrant.index import REPAIR, CollectionSchema, ServerIndex
from recto.types import Calibration, EmbedderFingerprint, Fingerprint, IndexInfo, Payload

_FRESH_SECONDS = 10.0
_FACET_LIMIT = 1000
_GENERATION = "--"


def open_server(settings: Settings, notify: Callable[[str], None]) -> ServerStore:
    """Return the store of the Qdrant server that the settings name."""
    connection = Connection(settings.qdrant_url, settings.qdrant_api_key, notify)
    dialect = load_dialect(settings.dialect) if settings.dialect else None
    return ServerStore(connection, settings.home, settings.server, dialect)


class ServerStore:
    """Opens collections and looks again after a while whether something new was published."""

    def __init__(
        self, connection: Connection, home: Path, options: ServerOptions, dialect: Dialect | None
    ) -> None:
        self._connection = connection
        self._home = home
        self._options = options
        self._dialect = dialect
        self._open: dict[str, tuple[float, ServerIndex]] = {}
        self._opening = threading.Lock()

    @property
    def client(self) -> Any:
        """The official client, for what Recto does not do."""
        return self._connection.client

    def collections(self) -> tuple[str, ...]:
        """Name the collections; one that was published by an alias goes by the alias's name."""
        aliases = self._raw_aliases()
        listed = self._connection.read(lambda client: client.get_collections()).collections
        own = {alias for alias, target in aliases.items() if _base(target) == alias}
        return tuple(sorted(own | {entry.name for entry in listed if _GENERATION not in entry.name}))

    def aliases(self) -> Mapping[str, str]:
        """Return which further names lead to which collection."""
        return {
            alias: _base(target) for alias, target in self._raw_aliases().items() if _base(target) != alias
        }

    def open(self, name: str) -> ServerIndex:
        """Return the current state of a collection or alias."""
        check_collection_name(name, "collection")
        known = self._open.get(name)
        if known is not None and time.monotonic() < known[0]:
            return known[1]
        with self._opening:
            index = self._load(name)
            known = self._open.get(name)
            if known is not None and _same(known[1], index):
                index = known[1]
            self._open[name] = (time.monotonic() + _FRESH_SECONDS, index)
            return index

    def build(
        self,
        name: str,
        embedder: EmbedderFingerprint,
        *,
        analyzer: str = "",
        rebuild: bool = False,
        wait: Callable[[str], None] | None = None,
    ) -> ServerBuild:
        """Begin a new state: in place if there is one and it may stay, else beside it under a new physical name."""
        check_collection_name(name, "collection")
        physical = self._physical(name)
        if physical == name:
            raise ConfigurationError(
                f"Collection '{name}' was not made by Recto",
                hint="Choose another --collection; its vectors and payloads would be mixed with ours.",
            )
        locks = self._home / "locks"
        locks.mkdir(parents=True, exist_ok=True)
        lock = WriterLock(locks / f"{name}.lock", f"Collection '{name}'", wait)
        in_place = physical is not None and not rebuild and self._fits(physical, embedder, analyzer)
        target = physical if in_place and physical else f"{name}{_GENERATION}{os.urandom(4).hex()}"
        return ServerBuild(
            self._connection,
            name,
            target,
            embedder,
            self._options,
            lock,
            lambda: self._swap(name, target, physical),
            in_place=in_place,
        )

    def set_aliases(self, aliases: Iterable[str], name: str) -> None:
        """Let aliases lead to a collection; a collection of an alias's own name keeps it."""
        known = self._raw_aliases()
        target = known.get(name, name)
        taken = {
            entry.name for entry in self._connection.read(lambda client: client.get_collections()).collections
        }
        free = [
            alias
            for alias in aliases
            if alias != name and alias not in taken and _base(known.get(alias, "")) != alias
        ]
        self._point({alias: target for alias in free if known.get(alias) != target}, known)

    def save_calibration(self, info: IndexInfo, calibration: Calibration) -> None:
        """Write what was measured into the collection's metadata, with the fingerprint: the next one that is published replaces both."""
        if info.fingerprint is None:
            raise ConfigurationError(
                f"Collection '{info.collection}' was not made by Recto",
                hint="Nothing is written to it; its noise is measured on demand.",
            )
        metadata = {METADATA_KEY: {**info.fingerprint.to_dict(), CALIBRATION_KEY: calibration.to_dict()}}
        self._connection.write(lambda client: client.update_collection(info.generation, metadata=metadata))
        self._open.clear()

    def missing_fields(self, name: str) -> tuple[str, ...]:
        """Name the fields that filters on a collection need and that have no payload index."""
        shape = self.open(name).shape
        existing = (
            self._connection.read(lambda client: client.get_collection(shape.collection)).payload_schema or {}
        )
        wanted = (
            (*KEYWORD_FIELDS, *INTEGER_FIELDS)
            if shape.own
            else (shape.dialect.module, shape.dialect.page_url)
        )
        return tuple(field for field in wanted if field and field not in existing)

    def version(self) -> str:
        """Ask the server for its version; it is the lightest question that needs an answer of Qdrant itself."""
        return str(self._connection.read(lambda client: client.info()).version)

    def prepare(self, name: str) -> tuple[str, ...]:
        """Create the payload indexes that filters on a collection need, and return their fields."""
        index = self.open(name)
        shape = index.shape
        if shape.own:
            return prepare_fields(self._connection, shape.collection)
        from qdrant_client import models

        existing = (
            self._connection.read(lambda client: client.get_collection(shape.collection)).payload_schema or {}
        )
        fields = [
            field
            for field in (shape.dialect.module, shape.dialect.page_url)
            if field and field not in existing
        ]
        for field in fields:
            create_field_index(self._connection, shape.collection, field, models.PayloadSchemaType.KEYWORD)
        self._open.clear()
        return tuple(fields)

    def close(self) -> None:
        """Let go of the connections."""
        self._open.clear()
        self._connection.close()

    async def aclose(self) -> None:
        """Let go of the running event loop's connections."""
        await self._connection.aclose()

    def _load(self, name: str) -> ServerIndex:
        try:
            found = self._connection.read(lambda client: client.get_collection(name))
        except CollectionMissing as error:
            raise self._missing(name) from error
        physical = self._raw_aliases().get(name, name)
        vector_name, size, distance = _vectors(found.config.params.vectors)
        if distance.lower() != "cosine":
            raise ConfigurationError(
                f"Collection '{name}' compares by {distance}, not by cosine",
                hint="Index the book again with `recto index PATH`.",
            )
        fingerprint, calibration = _fingerprint(found.config)
        own = fingerprint is not None
        sample = [] if own else self._sample(physical)
        dialect = self._dialect or (RECTO if own else detect(sample))
        values = (
            self._stored_values(physical, dialect.module)
            if not own and dialect.module in (found.payload_schema or {})
            else []
        )
        lexical, lexicon, warning = _lexical(found.config, fingerprint)
        modules = stored_modules(dialect, sample, values)
        shape = CollectionSchema(
            physical,
            vector_name,
            dialect,
            own and dialect is RECTO,
            modules,
            lexical,
            found.config.params.shard_number or 1,
        )
        warnings = (warning,) if warning else ()
        info = IndexInfo(
            _base(physical), physical, found.points_count or 0, fingerprint, warnings, size, calibration
        )
        return ServerIndex(self._connection, shape, info, lexicon)

    def _sample(self, collection: str) -> list[Payload]:
        records, _ = self._connection.read(
            lambda client: client.scroll(collection, limit=SAMPLE, with_payload=True)
        )
        return [record.payload or {} for record in records]

    def _stored_values(self, collection: str, field: str) -> list[Stored]:
        answer = self._connection.read(lambda client: client.facet(collection, key=field, limit=_FACET_LIMIT))
        return [hit.value for hit in answer.hits]

    def _missing(self, name: str) -> CollectionMissing:
        known = ", ".join(sorted({*self.collections(), *self.aliases()}))
        return CollectionMissing(
            f"Collection '{name}' does not exist at {self._connection.url}",
            hint=f"Index a book with `recto index PATH --collection {name}`"
            + (f", or use one of: {known}." if known else "."),
        )

    def _fits(self, physical: str, embedder: EmbedderFingerprint, analyzer: str) -> bool:
        """Whether new vectors may stand beside the old ones."""
        found = self._connection.read(lambda client: client.get_collection(physical))
        fingerprint, _ = _fingerprint(found.config)
        if (
            fingerprint is None
            or not fingerprint.embedder.is_compatible(embedder)
            or fingerprint.analyzer != analyzer
        ):
            return False
        return _has_lexical_vectors(found.config) or not analyzer

    def _physical(self, name: str) -> str | None:
        """Return the collection that a name leads to, if it is the name's own."""
        target = self._raw_aliases().get(name)
        if target is not None:
            return target if _base(target) == name else None
        return name if self._connection.read(lambda client: client.collection_exists(name)) else None

    def _swap(self, name: str, target: str, before: str | None) -> None:
        """Let the name, and every alias of what it was before, lead to the new collection at once; keep the one before."""
        known = self._raw_aliases()
        following = [alias for alias, old in known.items() if before is not None and old == before]
        moved = {alias: target for alias in {name, *following} if known.get(alias) != target}
        self._point(moved, known)
        self._open.clear()
        listed = self._connection.read(lambda client: client.get_collections()).collections
        for entry in listed:
            if _base(entry.name) == name and _GENERATION in entry.name and entry.name not in (target, before):
                delete_collection(self._connection, entry.name)

    def _point(self, wanted: Mapping[str, str], known: Mapping[str, str]) -> None:
        from qdrant_client import models

        actions: list[Any] = []
        for alias, target in sorted(wanted.items()):
            if alias in known:
                actions.append(models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=alias)))
            actions.append(
                models.CreateAliasOperation(
                    create_alias=models.CreateAlias(collection_name=target, alias_name=alias)
                )
            )
        if actions:
            self._connection.write(lambda client: client.update_collection_aliases(actions))

    def _raw_aliases(self) -> dict[str, str]:
        answer = self._connection.read(lambda client: client.get_aliases())
        return {entry.alias_name: entry.collection_name for entry in answer.aliases}


def _base(physical: str) -> str:
    """The name that a physical collection was made for."""
    return physical.partition(_GENERATION)[0]


def _same(before: ServerIndex, after: ServerIndex) -> bool:
    """Whether nothing that a reader could notice has changed."""
    return (
        replace(before.info, warnings=(), chunks=0) == replace(after.info, warnings=(), chunks=0)
        and before.shape == after.shape
    )


def _vectors(params: Any) -> tuple[str | None, int, str]:
    """Return name, size and distance of a collection's vectors, unnamed or the first of the named ones."""
    if isinstance(params, dict):
        if not params:
            raise ConfigurationError("The collection has no dense vectors", hint="Choose another collection.")
        name = min(params)  # unnamed before named
        params, vector_name = params[name], name or None
    else:
        vector_name = None
    return vector_name, int(params.size), str(getattr(params.distance, "value", params.distance))


def _fingerprint(config: Any) -> tuple[Fingerprint | None, Calibration | None]:
    """Read what Recto wrote into a collection's metadata: how it was made, and what was measured of it since."""
    data = (getattr(config, "metadata", None) or {}).get(METADATA_KEY)
    if not isinstance(data, dict):
        return None, None
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


def _lexical(config: Any, fingerprint: Fingerprint | None) -> tuple[bool, str, str]:
    """Return whether a collection has lexical vectors, its encoded vocabulary, and what is wrong if it should have both."""
    if fingerprint is None or not fingerprint.analyzer:
        return False, "", ""
    if not _has_lexical_vectors(config):
        return (
            False,
            "",
            f"The collection has lost its lexical vectors, so it is searched in dense mode. {REPAIR}",
        )
    lexicon = (getattr(config, "metadata", None) or {}).get(LEXICON_KEY)
    if lexicon == "":
        return True, "", LEXICON_TOO_LARGE
    if not isinstance(lexicon, str):
        return True, "", f"The collection has lost its vocabulary, so it is searched in dense mode. {REPAIR}"
    return True, lexicon, ""


def _has_lexical_vectors(config: Any) -> bool:
    return LEXICAL in (config.params.sparse_vectors or {})
