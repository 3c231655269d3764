"""The server store: collections under aliases; a new generation is published by switching the alias."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from recto._util.files import WriterLock, make_private
from recto.errors import (
    CollectionMissing,
    ConfigurationError,
    InvalidArgument,
    RectoError,
)
from recto.protocols import Progress
from recto.settings import ServerOptions, Settings, check_collection_name
from recto.stores.archive import already_exists, open_archive
from recto.stores.points import INTEGER_FIELDS, KEYWORD_FIELDS, is_alias
from recto.stores.qdrant.build import (
    CALIBRATION_KEY,
    METADATA_KEY,
    ServerBuild,
    create_missing_indexes,
    missing_indexes,
    prepare_fields,
)
from recto.stores.qdrant.cluster import explain_replication, find_problems, set_replication
from recto.stores.qdrant.connection import Connection
from recto.stores.qdrant.dialects import RECTO, SAMPLE, Dialect, choose, load_dialect
from recto.stores.qdrant.filters import Stored, stored_modules
from recto.stores.qdrant.generations import Generations, base_name, is_generation, new_generation
from recto.stores.qdrant.index import CollectionSchema, ServerIndex
from recto.stores.qdrant.schema import (
    has_lexical_vectors,
    has_server_idf,
    read_fingerprint,
    read_lexical,
    read_vectors,
)
from recto.stores.qdrant.snapshots import KIND, restore_snapshot, write_snapshot
from recto.types import (
    Calibration,
    EmbedderFingerprint,
    GenerationInfo,
    IndexInfo,
    Payload,
    StoreProblem,
)

_FRESH_SECONDS = 10.0  # how long an open index is used before checking for a new generation
_FACET_LIMIT = 1000


def open_server(settings: Settings, notify: Callable[[str], None]) -> ServerStore:
    """Return the store on the configured Qdrant server."""
    connection = Connection(settings.qdrant_url, settings.qdrant_api_key, notify)
    dialect = load_dialect(settings.dialect) if settings.dialect else None
    return ServerStore(connection, settings.home, settings.server, dialect, settings.keep_generations)


class ServerStore:
    """Opens collections on a server, and checks every ten seconds whether a new generation was published."""

    def __init__(
        self,
        connection: Connection,
        home: Path,
        options: ServerOptions,
        dialect: Dialect | None,
        keep_generations: int = 1,
    ) -> None:
        self._connection = connection
        self._home = home
        self._options = options
        self._dialect = dialect
        self.physical = Generations(connection, keep_generations)
        self._notify = connection.notify
        self._open: dict[str, tuple[float, ServerIndex]] = {}
        self._opening = threading.Lock()

    @property
    def client(self) -> Any:
        """The client of the Qdrant SDK, for what Recto does not do."""
        return self._connection.client

    def collections(self) -> tuple[str, ...]:
        """Return the names of all collections; generations have the name of their collection."""
        own = {alias for alias, target in self.physical.aliases().items() if base_name(target) == alias}
        return tuple(sorted(own | {name for name in self.physical.names() if base_name(name) == name}))

    def aliases(self) -> Mapping[str, str]:
        """Return the aliases and the collections that they refer to."""
        aliases = {alias: base_name(target) for alias, target in self.physical.aliases().items()}
        return {alias: name for alias, name in aliases.items() if alias != name}

    def open(self, name: str) -> ServerIndex:
        """Return the current generation of a collection or alias."""
        check_collection_name(name, "collection")
        known = self._open.get(name)
        if known is not None and time.monotonic() < known[0]:
            return known[1]
        with self._opening:
            index = self._load(name)
            known = self._open.get(name)
            if known is not None and _is_same(known[1], index):
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
        """Start a new generation: in place if embedder and analyzer are the same, else a new collection."""
        check_collection_name(name, "collection")
        if base_name(name) != name:
            raise InvalidArgument(
                f"'{name}' ends like the internal name of a collection", hint="Choose another --collection."
            )
        self._replaced(name)  # raises an error before any work is done
        return ServerBuild(
            self,
            self._connection,
            name,
            embedder,
            self._options,
            analyzer,
            self._writer_lock(name, wait),
            rebuild=rebuild,
        )

    def choose_target(
        self, name: str, embedder: EmbedderFingerprint, analyzer: str, *, rebuild: bool
    ) -> tuple[str, str | None]:
        """Return the physical collection to write to, and the current one; the caller holds the lock."""
        before = self._replaced(name)
        if before is not None and not rebuild and self._is_compatible(before, embedder, analyzer):
            return before, before
        return new_generation(name), before

    def _replaced(self, name: str) -> str | None:
        """Return the current physical collection; raise an error if Recto did not make it."""
        physical = self.physical.current(name)
        if physical == name:
            raise ConfigurationError(
                f"Collection '{name}' was not made by Recto",
                hint="Choose another --collection; its vectors and payloads would be mixed with ours.",
            )
        return physical

    def delete(self, name: str) -> None:
        """Delete all generations and aliases of a collection that Recto made."""
        from qdrant_client import models

        check_collection_name(name, "collection")
        known, physical = self.physical.aliases(), self.physical.current(name)
        if physical is None and name in known:
            raise is_alias(name, base_name(known[name]))
        if physical is None:
            raise self._missing(name)
        if physical == name:
            raise ConfigurationError(
                f"Collection '{name}' was not made by Recto",
                hint="Delete it with the tool that made it, or in the Qdrant console.",
            )
        generations = [other for other in self.physical.names() if is_generation(other, name)]
        actions: list[Any] = [
            models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=alias))
            for alias, target in known.items()
            if target in generations
        ]
        with self._writer_lock(name, None):
            self._connection.write(lambda client: client.update_collection_aliases(actions))
            self._open.clear()
            for generation in generations:
                self._connection.write(
                    lambda client, generation=generation: client.delete_collection(generation)  # type: ignore[misc]
                )

    def generations(self, name: str) -> tuple[GenerationInfo, ...]:
        """Return the generations of a collection, newest first; `recto index --rebuild` makes a new one."""
        return self.physical.describe(self._own_collection(name))

    def rollback(self, name: str, generation: str | None = None) -> IndexInfo:
        """Point the collection to the generation before the last rebuild, or to the given one."""
        current = self._own_collection(name)
        collection = base_name(current)
        with self._writer_lock(collection, None):
            known = [one for one in self.generations(name) if one.created_at]  # others were not published
            names = [one.name for one in known]
            older = names[names.index(current) + 1 :] if current in names else names
            wanted = next(iter(older), None) if generation is None else generation
            if wanted not in names:
                what = f"generation '{generation}'" if generation else "earlier generation to go back to"
                raise CollectionMissing(
                    f"Collection '{collection}' has no {what}",
                    hint=f"`recto collections {collection}` lists its generations. On a server, most runs of "
                    "`recto index` update the current one in place; `--rebuild` keeps the one before.",
                )
            aliases = self.physical.aliases()
            moved = {collection, *(alias for alias, old in aliases.items() if old == current)}
            self.physical.switch_aliases(moved, wanted, aliases)
            self._open.clear()
        return self.open(collection).info

    def _own_collection(self, name: str) -> str:
        """Return the current physical collection of a name or alias, if Recto made it."""
        check_collection_name(name, "collection")
        target = self.physical.aliases().get(name, name)
        physical = self.physical.current(base_name(target))
        if physical is None:
            raise self._missing(name)
        if base_name(physical) == physical:
            raise ConfigurationError(
                f"Collection '{name}' was not made by Recto",
                hint="It has no generations. Use the snapshots of Qdrant.",
            )
        return physical

    def backup(self, name: str, file: Path, progress: Progress | None = None) -> GenerationInfo:
        """Write a snapshot of the current generation into an archive."""
        info = self.open(name).info
        if info.fingerprint is None:
            raise ConfigurationError(
                f"Collection '{name}' was not made by Recto", hint="Use the snapshots of Qdrant for it."
            )
        aliases = [alias for alias, target in self.aliases().items() if target == info.collection]
        lock = self._writer_lock(info.collection, None)
        return write_snapshot(self._connection, info, aliases, lock, file, progress)

    def restore(
        self,
        file: Path,
        name: str | None = None,
        *,
        replace: bool = False,
        progress: Progress | None = None,
        wait: Callable[[str], None] | None = None,
    ) -> IndexInfo:
        """Publish the snapshot in an archive as a new generation, and set its aliases that are not taken."""
        with open_archive(file, KIND) as archive:
            collection = name or archive.header.collection
            check_collection_name(collection, "collection")
            with self._writer_lock(collection, wait):
                before = self.physical.current(collection)
                if before == collection:
                    raise ConfigurationError(
                        f"Collection '{collection}' was not made by Recto", hint="Pass another --collection."
                    )
                if collection in self.physical.aliases() and not replace:
                    raise already_exists(collection)
                target = new_generation(collection)
                try:
                    restore_snapshot(self._connection, archive, target, progress)
                    if _schema_problem(self._connection.read(lambda client: client.get_collection(target))):
                        raise archive.damaged("the snapshot is not of a collection that Recto made")
                    self.publish(collection, target, before)
                except BaseException:
                    with suppress(RectoError):
                        self.physical.discard(target)
                    raise
                with suppress(RectoError):  # the next run deletes what is left
                    self.physical.prune(target, before)
            self.set_aliases(set(archive.header.aliases) - set(self.physical.aliases()), collection)
            self._open.clear()
            return self.open(collection).info

    def _writer_lock(self, name: str, wait: Callable[[str], None] | None) -> WriterLock:
        locks = self._home / "locks"
        make_private(locks)
        return WriterLock(locks / f"{name}.lock", f"Collection '{name}'", wait)

    def publish(self, name: str, target: str, before: str | None) -> None:
        """Make a new generation the current one."""
        self.physical.publish(name, target, before)
        self._open.clear()

    def set_aliases(self, aliases: Iterable[str], name: str) -> None:
        """Point aliases to a collection; skip those that are names of other collections."""
        known = self.physical.aliases()
        target = known.get(name, name)
        taken = {name, *self.physical.names()}
        free = [alias for alias in aliases if alias not in taken and base_name(known.get(alias, "")) != alias]
        self.physical.switch_aliases(free, target, known)

    def save_calibration(self, info: IndexInfo, calibration: Calibration) -> None:
        """Store the calibration of a generation in the collection's metadata, next to the fingerprint."""
        if info.fingerprint is None:
            raise ConfigurationError(
                f"Collection '{info.collection}' was not made by Recto",
                hint="Recto does not write to collections of other pipelines.",
            )
        metadata = {METADATA_KEY: {**info.fingerprint.to_dict(), CALIBRATION_KEY: calibration.to_dict()}}
        self._connection.write(lambda client: client.update_collection(info.generation, metadata=metadata))
        self._open.clear()

    def version(self) -> str:
        """Return the server's version."""
        return str(self._connection.read(lambda client: client.info()).version)

    def missing_fields(self, name: str) -> tuple[str, ...]:
        """Return the fields that filters use and that have no payload index."""
        schema = self.open(name).schema
        wanted = (*KEYWORD_FIELDS, *INTEGER_FIELDS) if schema.own else _foreign_fields(schema)
        return missing_indexes(self._connection, schema.collection, wanted)

    def prepare(self, name: str) -> tuple[str, ...]:
        """Create missing payload indexes and, in a collection of Recto, set the replication."""
        schema = self.open(name).schema
        if schema.own:
            fields = prepare_fields(self._connection, schema.collection)
            done = set_replication(self._connection, schema.collection, self._options, self._notify)
        else:
            from qdrant_client import models

            wanted = dict.fromkeys(_foreign_fields(schema), models.PayloadSchemaType.KEYWORD)
            fields, done = create_missing_indexes(self._connection, schema.collection, wanted), []
            self._open.clear()
        return (*([f"created payload indexes on {', '.join(fields)}"] if fields else []), *done)

    def redundancy(self, name: str) -> str:
        """Explain how many nodes the collection can lose."""
        return explain_replication(self._connection, self.open(name).schema.collection)

    def problems(self, name: str) -> tuple[StoreProblem, ...]:
        """Return what is wrong with the nodes of the server and the replicas of a collection."""
        check_collection_name(name, "collection")  # not `open`: a collection without a live shard cannot be
        return find_problems(self._connection, self.physical.aliases().get(name, name))

    def close(self) -> None:
        """Close the connections."""
        self._open.clear()
        self._connection.close()

    async def aclose(self) -> None:
        """Close the running event loop's connections."""
        await self._connection.aclose()

    def _load(self, name: str) -> ServerIndex:
        try:
            found = self._connection.read(lambda client: client.get_collection(name))
        except CollectionMissing as error:
            raise self._missing(name) from error
        physical = self.physical.aliases().get(name, name)
        vector_name, size, distance = read_vectors(found.config.params.vectors)
        if distance.lower() != "cosine":
            raise ConfigurationError(
                f"Collection '{name}' uses {distance} distance, but Recto needs cosine",
                hint="Index the book again with `recto index PATH`.",
            )
        fingerprint, calibration = read_fingerprint(found.config)
        own = fingerprint is not None
        sample = [] if own else self._sample(physical)
        dialect = choose(self._dialect, sample, own=own)
        has_facet = not own and dialect.module in (found.payload_schema or {})
        values = self._stored_values(physical, dialect.module) if has_facet else []
        lexical, lexicon, warning = read_lexical(found.config, fingerprint)
        schema = CollectionSchema(
            physical,
            vector_name,
            dialect,
            own and dialect is RECTO,
            stored_modules(dialect, sample, values),
            lexical,
            found.config.params.shard_number or 1,
            has_server_idf(found.config),
        )
        warnings = (warning,) if warning else ()
        info = IndexInfo(
            base_name(physical), physical, found.points_count or 0, fingerprint, warnings, size, calibration
        )
        return ServerIndex(self._connection, schema, info, lexicon)

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

    def _is_compatible(self, physical: str, embedder: EmbedderFingerprint, analyzer: str) -> bool:
        """Return whether new vectors can be added to a collection; one of Recto 0.1 is replaced."""
        config = self._connection.read(lambda client: client.get_collection(physical)).config
        fingerprint, _ = read_fingerprint(config)
        if fingerprint is None or fingerprint.analyzer != analyzer:
            return False
        has_vectors = (has_lexical_vectors(config) and not has_server_idf(config)) or not analyzer
        return has_vectors and fingerprint.embedder.is_compatible(embedder)


def _schema_problem(found: Any) -> bool:
    """Return whether a restored collection cannot be searched as one of Recto."""
    fingerprint, _ = read_fingerprint(found.config)
    return fingerprint is None or read_vectors(found.config.params.vectors)[2].lower() != "cosine"


def _foreign_fields(schema: CollectionSchema) -> list[str]:
    """Return the fields that filters use in a collection of another pipeline."""
    return [field for field in (schema.dialect.module, schema.dialect.page_url) if field]


def _is_same(before: ServerIndex, after: ServerIndex) -> bool:
    """Return whether two indexes differ in nothing but their warnings and counts."""
    return (
        replace(before.info, warnings=(), chunks=0) == replace(after.info, warnings=(), chunks=0)
        and before.schema == after.schema
    )
