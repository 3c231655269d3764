"""The store on a Qdrant server, Qdrant Cloud or a cluster: a new generation is published under an alias."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

try:
    from qdrant_client import QdrantClient, models
except ImportError as error:  # this package is imported when the store is opened
    from recto.errors import missing_extra

    raise missing_extra("A Qdrant server", "cloud") from error

from recto._util.files import WriterLock, make_private
from recto.errors import CollectionMissing, InvalidArgument
from recto.plugins import Notify
from recto.settings import ServerOptions, Settings, check_collection_name
from recto.stores import INTEGER_FIELDS, KEYWORD_FIELDS, choose_generation, is_alias, missing_collection
from recto.stores.qdrant.build import ServerBuild
from recto.stores.qdrant.cluster import explain_replication, find_problems
from recto.stores.qdrant.collections import (
    CALIBRATION_KEY,
    METADATA_KEY,
    MIXED,
    Generations,
    base_name,
    create_missing_indexes,
    is_generation,
    missing_indexes,
    not_ours,
    prepare_fields,
)
from recto.stores.qdrant.connection import ServerConnection
from recto.stores.qdrant.dialects import Dialect, load_dialect
from recto.stores.qdrant.index import CollectionSchema, ServerIndex, open_index, payload_schema
from recto.types.index import (
    Calibration,
    EmbedderFingerprint,
    GenerationInfo,
    IndexInfo,
    PayloadSchema,
    StoreProblem,
)

_FRESH_SECONDS = 10.0  # how long an open index is used before checking for a new generation


@dataclass(eq=False)
class ServerStore:
    """Opens collections on a server, and checks every ten seconds whether a new generation was published."""

    is_local: ClassVar[bool] = False

    connection: ServerConnection
    home: Path
    options: ServerOptions
    dialect: Dialect | None
    keep_generations: int = 1

    def __post_init__(self) -> None:
        """Open nothing yet."""
        self._generations = Generations(self.connection, self.keep_generations)
        self._open: dict[str, tuple[float, ServerIndex]] = {}
        self._opening = threading.Lock()

    @property
    def client(self) -> Any:
        """The client of the Qdrant SDK, for what Recto does not do."""
        return self.connection.client

    def collections(self) -> tuple[str, ...]:
        """Return the names of all collections, without aliases and without the names of generations."""
        other_pipelines = {name for name in self._generations.names() if base_name(name) == name}
        return tuple(sorted(_published_names(self._generations.aliases()) | other_pipelines))

    def aliases(self) -> Mapping[str, str]:
        """Return the aliases and the collections that they refer to."""
        aliases = {alias: base_name(target) for alias, target in self._generations.aliases().items()}
        return {alias: name for alias, name in aliases.items() if alias != name}

    def open(self, name: str) -> ServerIndex:
        """Return the current generation of a collection or alias."""
        check_collection_name(name, "collection")
        opened = self._open.get(name)
        if opened is not None and time.monotonic() < opened[0]:
            return opened[1]
        with self._opening:
            physical = self._generations.aliases().get(name, name)
            try:
                index = open_index(self.connection, name, physical, self.dialect)
            except CollectionMissing as error:
                raise self._missing(name) from error
            opened = self._open.get(name)
            if opened is not None and _is_same(opened[1], index):
                index = opened[1]
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
        """Start a new generation: in place if embedder and analyzer are the same, else a new collection."""
        check_collection_name(name, "collection")
        if base_name(name) != name:
            raise InvalidArgument(
                f"'{name}' ends like the internal name of a collection", hint="Choose another --collection."
            )
        self._generations.own(name, MIXED)  # raises an error before any work is done
        return ServerBuild(
            self.connection,
            self._generations,
            name,
            embedder,
            self.options,
            analyzer,
            self._writer_lock(name, wait),
            self._open.clear,
            rebuild,
        )

    def delete(self, name: str) -> None:
        """Delete all generations and aliases of a collection that Recto made."""
        check_collection_name(name, "collection")
        aliases = self._generations.aliases()
        hint = "Delete it with the tool that made it, or in the Qdrant console."
        if self._generations.own(name, hint) is None:
            raise is_alias(name, base_name(aliases[name])) if name in aliases else self._missing(name)
        generations = [other for other in self._generations.names() if is_generation(other, name)]
        actions: list[Any] = [
            models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=alias))
            for alias, target in aliases.items()
            if target in generations
        ]
        with self._writer_lock(name, None):
            self.connection.write(QdrantClient.update_collection_aliases, actions)
            self._open.clear()
            for generation in generations:
                self.connection.write(QdrantClient.delete_collection, generation)

    def generations(self, name: str) -> tuple[GenerationInfo, ...]:
        """Return the generations of a collection, newest first; `recto index --rebuild` makes a new one."""
        return self._generations.describe(self._own_collection(name))

    def rollback(self, name: str, generation: str | None = None) -> IndexInfo:
        """Point the collection to the generation before the last rebuild, or to the given one."""
        current = self._own_collection(name)
        collection = base_name(current)
        with self._writer_lock(collection, None):
            published = [generation for generation in self.generations(name) if generation.created_at]
            names = [generation.name for generation in published]
            hint = (
                "On a server, most runs of `recto index` update the current one in place; "
                "`--rebuild` keeps the one before."
            )
            target = choose_generation(collection, names, current, generation, hint)
            aliases = self._generations.aliases()
            moved = {collection, *(alias for alias, old in aliases.items() if old == current)}
            self._generations.switch_aliases(moved, target, aliases)
            self._open.clear()
        return self.open(collection).info

    def _own_collection(self, name: str) -> str:
        """Return the current physical collection of a name or alias, if Recto made it."""
        check_collection_name(name, "collection")
        target = self._generations.aliases().get(name, name)
        physical = self._generations.current(base_name(target))
        if physical is None:
            raise self._missing(name)
        if base_name(physical) == physical:
            raise not_ours(name, "It has no generations. Use the snapshots of Qdrant.")
        return physical

    def _writer_lock(self, name: str, wait: Callable[[str], None] | None) -> WriterLock:
        locks = self.home / "locks"
        make_private(locks)
        return WriterLock(locks / f"{name}.lock", f"Collection '{name}'", wait)

    def set_aliases(self, aliases: Iterable[str], name: str) -> None:
        """Point aliases to a collection; skip those that are names of other collections."""
        current = self._generations.aliases()
        taken = {name, *_published_names(current), *self._generations.names()}
        free = [alias for alias in aliases if alias not in taken]
        self._generations.switch_aliases(free, current.get(name, name), current)

    def save_calibration(self, info: IndexInfo, calibration: Calibration) -> None:
        """Store the calibration of a generation in the collection's metadata, next to the fingerprint."""
        if info.fingerprint is None:
            raise not_ours(info.collection, "Recto does not write to collections of other pipelines.")
        metadata = {METADATA_KEY: {**info.fingerprint.to_dict(), CALIBRATION_KEY: calibration.to_dict()}}
        self.connection.write(QdrantClient.update_collection, info.generation, metadata=metadata)
        self._open.clear()

    def version(self) -> str:
        """Return the server's version."""
        return str(self.connection.read(QdrantClient.info).version)

    def payload_schema(self, name: str) -> PayloadSchema:
        """Return how the payloads of a collection are read."""
        return payload_schema(self.open(name).schema)

    def missing_fields(self, name: str) -> tuple[str, ...]:
        """Return the fields that filters use and that have no payload index."""
        schema = self.open(name).schema
        fields = (*KEYWORD_FIELDS, *INTEGER_FIELDS) if schema.is_own else _foreign_fields(schema)
        return missing_indexes(self.connection, schema.collection, fields)

    def prepare(self, name: str) -> tuple[str, ...]:
        """Create the missing payload indexes, and return their fields."""
        schema = self.open(name).schema
        if schema.is_own:
            return prepare_fields(self.connection, schema.collection)
        kinds = dict.fromkeys(_foreign_fields(schema), models.PayloadSchemaType.KEYWORD)
        fields = create_missing_indexes(self.connection, schema.collection, kinds)
        self._open.clear()
        return fields

    def redundancy(self, name: str) -> str:
        """Explain how many nodes the collection can lose."""
        return explain_replication(self.connection, self.open(name).schema.collection)

    def problems(self, name: str) -> tuple[StoreProblem, ...]:
        """Return what is wrong with the nodes of the server and the replicas of a collection."""
        check_collection_name(name, "collection")  # not `open`: a collection without a live shard cannot be
        return find_problems(self.connection, self._generations.aliases().get(name, name))

    def close(self) -> None:
        """Close the connections."""
        self._open.clear()
        self.connection.close()

    async def aclose(self) -> None:
        """Close the running event loop's connections."""
        await self.connection.aclose()

    def _missing(self, name: str) -> CollectionMissing:
        return missing_collection(name, f" at {self.connection.url}", {*self.collections(), *self.aliases()})


def _published_names(aliases: Mapping[str, str]) -> set[str]:
    """Return the aliases that are the names of collections of Recto: each refers to a generation."""
    return {alias for alias, target in aliases.items() if base_name(target) == alias}


def _foreign_fields(schema: CollectionSchema) -> list[str]:
    """Return the fields that filters use in a collection of another pipeline."""
    return [field for field in (schema.dialect.module, schema.dialect.page_url) if field]


def _is_same(before: ServerIndex, after: ServerIndex) -> bool:
    """Return whether two indexes differ in nothing but their warnings and counts."""
    return (
        replace(before.info, warnings=(), chunks=0) == replace(after.info, warnings=(), chunks=0)
        and before.schema == after.schema
    )


def open_server(settings: Settings, notify: Notify) -> ServerStore:
    """Return the store on the configured Qdrant server."""
    connection = ServerConnection(settings.qdrant_url, settings.qdrant_api_key, notify)
    dialect = load_dialect(Path(settings.dialect)) if settings.dialect else None
    return ServerStore(connection, settings.home, settings.server, dialect, settings.keep_generations)
