"""The server store: collections under aliases; a new generation is published by switching the alias."""

from __future__ import annotations

import os
import re
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
    FormatMismatch,
    InvalidArgument,
    RectoError,
    other_format,
)
from recto.protocols import Progress
from recto.settings import ServerOptions, Settings, check_collection_name
from recto.stores.archive import already_exists, open_archive
from recto.stores.points import INTEGER_FIELDS, KEYWORD_FIELDS, LEXICAL, is_alias
from recto.stores.qdrant.build import (
    CALIBRATION_KEY,
    LEXICON_KEY,
    LEXICON_TOO_LARGE,
    METADATA_KEY,
    ServerBuild,
    create_missing_indexes,
    missing_indexes,
    prepare_fields,
)
from recto.stores.qdrant.cluster import explain_replication, find_problems, set_replication
from recto.stores.qdrant.connection import Connection
from recto.stores.qdrant.dialects import RECTO, SAMPLE, Dialect, detect, load_dialect
from recto.stores.qdrant.filters import Stored, stored_modules
from recto.stores.qdrant.index import REINDEX, CollectionSchema, ServerIndex
from recto.stores.qdrant.snapshots import KIND, restore_snapshot, write_snapshot
from recto.types import (
    Calibration,
    EmbedderFingerprint,
    Fingerprint,
    GenerationInfo,
    IndexInfo,
    Payload,
    StoreProblem,
)

_FRESH_SECONDS = 10.0  # how long an open index is used before checking for a new generation
_FACET_LIMIT = 1000
METADATA_FORMAT = 1
"""Of the metadata of a collection; if it has no `format`, it is this one."""
_DRAFT_SECONDS = 24 * 3600.0
_OLD_SUFFIX = 8  # hexadecimal digits after the name of a collection, which were random in Recto 0.1
_GENERATION_NAME = re.compile(r"(.+)--([0-9a-f]{8,16})")
_GENERATION = "--"  # separates the name of a collection from the id of its generation


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
        self._keep_generations = keep_generations
        self._notify = connection.notify
        self._open: dict[str, tuple[float, ServerIndex]] = {}
        self._opening = threading.Lock()

    @property
    def client(self) -> Any:
        """The client of the Qdrant SDK, for what Recto does not do."""
        return self._connection.client

    def collections(self) -> tuple[str, ...]:
        """Return the names of all collections; generations have the name of their collection."""
        own = {alias for alias, target in self._raw_aliases().items() if _base_name(target) == alias}
        return tuple(sorted(own | {name for name in self._physical_names() if _base_name(name) == name}))

    def aliases(self) -> Mapping[str, str]:
        """Return the aliases and the collections that they refer to."""
        aliases = {alias: _base_name(target) for alias, target in self._raw_aliases().items()}
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
        if _base_name(name) != name:
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
        return _new_generation(name), before

    def _replaced(self, name: str) -> str | None:
        """Return the current physical collection; raise an error if Recto did not make it."""
        physical = self._physical(name)
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
        known, physical = self._raw_aliases(), self._physical(name)
        if physical is None and name in known:
            raise is_alias(name, _base_name(known[name]))
        if physical is None:
            raise self._missing(name)
        if physical == name:
            raise ConfigurationError(
                f"Collection '{name}' was not made by Recto",
                hint="Delete it with the tool that made it, or in the Qdrant console.",
            )
        generations = [other for other in self._physical_names() if _is_generation(other, name)]
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
        current = self._own_collection(name)
        names = [one for one in self._physical_names() if _is_generation(one, _base_name(current))]
        found = [self._describe(one, current=one == current) for one in names]
        return tuple(sorted(found, key=lambda one: (_started_at(one.name), one.created_at), reverse=True))

    def rollback(self, name: str, generation: str | None = None) -> IndexInfo:
        """Point the collection to the generation before the last rebuild, or to the given one."""
        current = self._own_collection(name)
        collection = _base_name(current)
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
            aliases = self._raw_aliases()
            moved = {collection, *(alias for alias, old in aliases.items() if old == current)}
            self._switch_aliases(moved, wanted, aliases)
            self._open.clear()
        return self.open(collection).info

    def _own_collection(self, name: str) -> str:
        """Return the current physical collection of a name or alias, if Recto made it."""
        check_collection_name(name, "collection")
        target = self._raw_aliases().get(name, name)
        physical = self._physical(_base_name(target))
        if physical is None:
            raise self._missing(name)
        if _base_name(physical) == physical:
            raise ConfigurationError(
                f"Collection '{name}' was not made by Recto",
                hint="It has no generations. Use the snapshots of Qdrant.",
            )
        return physical

    def _describe(self, physical: str, *, current: bool) -> GenerationInfo:
        """Describe a generation; it has no date if it was not published, or if it cannot be read."""
        try:
            found = self._connection.read(lambda client: client.get_collection(physical))
            fingerprint, _ = _fingerprint(found.config)
        except FormatMismatch as error:
            return GenerationInfo(physical, "", 0, None, current, error.message)
        created = fingerprint.created_at if fingerprint else ""
        return GenerationInfo(physical, created, found.points_count or 0, None, current)

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
                before = self._physical(collection)
                if before == collection:
                    raise ConfigurationError(
                        f"Collection '{collection}' was not made by Recto", hint="Pass another --collection."
                    )
                if collection in self._raw_aliases() and not replace:
                    raise already_exists(collection)
                target = _new_generation(collection)
                try:
                    restore_snapshot(self._connection, archive, target, progress)
                    if _schema_problem(self._connection.read(lambda client: client.get_collection(target))):
                        raise archive.damaged("the snapshot is not of a collection that Recto made")
                    self.publish(collection, target, before)
                except BaseException:
                    with suppress(RectoError):
                        self.discard(target)
                    raise
                with suppress(RectoError):  # the next run deletes what is left
                    self.prune(collection, target, before)
            self.set_aliases(set(archive.header.aliases) - set(self._raw_aliases()), collection)
            self._open.clear()
            return self.open(collection).info

    def _writer_lock(self, name: str, wait: Callable[[str], None] | None) -> WriterLock:
        locks = self._home / "locks"
        make_private(locks)
        return WriterLock(locks / f"{name}.lock", f"Collection '{name}'", wait)

    def set_aliases(self, aliases: Iterable[str], name: str) -> None:
        """Point aliases to a collection; skip those that are names of other collections."""
        known = self._raw_aliases()
        target = known.get(name, name)
        taken = {name, *self._physical_names()}
        free = [
            alias for alias in aliases if alias not in taken and _base_name(known.get(alias, "")) != alias
        ]
        self._switch_aliases(free, target, known)

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
        return find_problems(self._connection, self._raw_aliases().get(name, name))

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
        physical = self._raw_aliases().get(name, name)
        vector_name, size, distance = _vectors(found.config.params.vectors)
        if distance.lower() != "cosine":
            raise ConfigurationError(
                f"Collection '{name}' uses {distance} distance, but Recto needs cosine",
                hint="Index the book again with `recto index PATH`.",
            )
        fingerprint, calibration = _fingerprint(found.config)
        own = fingerprint is not None
        sample = [] if own else self._sample(physical)
        dialect = self._dialect or (RECTO if own else detect(sample))
        has_facet = not own and dialect.module in (found.payload_schema or {})
        values = self._stored_values(physical, dialect.module) if has_facet else []
        lexical, lexicon, warning = _lexical(found.config, fingerprint)
        schema = CollectionSchema(
            physical,
            vector_name,
            dialect,
            own and dialect is RECTO,
            stored_modules(dialect, sample, values),
            lexical,
            found.config.params.shard_number or 1,
            _has_server_idf(found.config),
        )
        warnings = (warning,) if warning else ()
        info = IndexInfo(
            _base_name(physical), physical, found.points_count or 0, fingerprint, warnings, size, calibration
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
        fingerprint, _ = _fingerprint(config)
        if fingerprint is None or fingerprint.analyzer != analyzer:
            return False
        has_vectors = (_has_lexical_vectors(config) and not _has_server_idf(config)) or not analyzer
        return has_vectors and fingerprint.embedder.is_compatible(embedder)

    def _physical(self, name: str) -> str | None:
        """Return the physical collection of a name; None if it does not exist or the name is an alias."""
        target = self._raw_aliases().get(name)
        if target is not None:
            return target if _base_name(target) == name else None
        return name if self._connection.read(lambda client: client.collection_exists(name)) else None

    def publish(self, name: str, target: str, before: str | None) -> None:
        """Point the name and all aliases of the old generation to the new one."""
        known = self._raw_aliases()
        moved = {name, *(alias for alias, old in known.items() if before is not None and old == before)}
        self._switch_aliases(moved, target, known)
        self._open.clear()

    def prune(self, name: str, target: str, before: str | None) -> None:
        """Delete generations that are not to be kept; the caller holds the lock.

        Other processes search the old generation for some seconds more, so at least one is kept. What a
        rollback went back from is newer than `before`, and is deleted. Drafts may belong to a run on another
        machine, so they are deleted after a day.
        """
        found = self.generations(name)
        names = [one.name for one in found if one.created_at]
        older = [one for one in names[names.index(before) if before in names else 0 :] if one != target]
        used = {target, before, *older[: self._keep_generations], *self._raw_aliases().values()}
        yesterday = (time.time() - _DRAFT_SECONDS) * 1000
        for one in found:
            is_young_draft = not one.created_at and _started_at(one.name) > yesterday
            if one.name not in used and not one.problem and not is_young_draft:
                self._connection.write(
                    lambda client, one=one: client.delete_collection(one.name)  # type: ignore[misc]
                )

    def discard(self, target: str) -> None:
        """Delete a new collection that was not published; its alias may be set although a call failed."""
        if target not in self._raw_aliases().values():
            self._connection.read(lambda client: client.delete_collection(target))

    def _switch_aliases(self, aliases: Iterable[str], target: str, known: Mapping[str, str]) -> None:
        """Point aliases to a physical collection, in one request."""
        from qdrant_client import models

        actions: list[Any] = []
        for alias in sorted(aliases):
            if known.get(alias) == target:
                continue
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

    def _physical_names(self) -> list[str]:
        answer = self._connection.read(lambda client: client.get_collections())
        return [entry.name for entry in answer.collections]


def _schema_problem(found: Any) -> bool:
    """Return whether a restored collection cannot be searched as one of Recto."""
    fingerprint, _ = _fingerprint(found.config)
    return fingerprint is None or _vectors(found.config.params.vectors)[2].lower() != "cosine"


def _new_generation(name: str) -> str:
    """Return the name of a new physical collection; later ones are sorted after earlier ones."""
    return f"{name}{_GENERATION}{int(time.time() * 1000):x}{os.urandom(2).hex()}"


def _base_name(physical: str) -> str:
    """Return the name of the collection that a physical collection is a generation of."""
    found = _GENERATION_NAME.fullmatch(physical)
    return found[1] if found else physical


def _is_generation(physical: str, name: str) -> bool:
    return physical != name and _base_name(physical) == name


def _started_at(physical: str) -> int:
    """Return when a generation was started, in milliseconds; 0 for the random names of Recto 0.1."""
    found = _GENERATION_NAME.fullmatch(physical)
    return int(found[2][:-4], 16) if found and len(found[2]) > _OLD_SUFFIX else 0


def _foreign_fields(schema: CollectionSchema) -> list[str]:
    """Return the fields that filters use in a collection of another pipeline."""
    return [field for field in (schema.dialect.module, schema.dialect.page_url) if field]


def _is_same(before: ServerIndex, after: ServerIndex) -> bool:
    """Return whether two indexes differ in nothing but their warnings and counts."""
    return (
        replace(before.info, warnings=(), chunks=0) == replace(after.info, warnings=(), chunks=0)
        and before.schema == after.schema
    )


def _vectors(params: Any) -> tuple[str | None, int, str]:
    """Return name, size and distance of the dense vectors; if there are several, of the first."""
    name = None
    if isinstance(params, dict):
        if not params:
            raise ConfigurationError("The collection has no dense vectors", hint="Choose another collection.")
        name = min(params)  # the unnamed vector has the name ""
        params = params[name]
    return name or None, int(params.size), str(getattr(params.distance, "value", params.distance))


def _fingerprint(config: Any) -> tuple[Fingerprint | None, Calibration | None]:
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


def _lexical(config: Any, fingerprint: Fingerprint | None) -> tuple[bool, str, str]:
    """Return whether there are lexical vectors, the encoded vocabulary, and a warning if one is missing."""
    if fingerprint is None or not fingerprint.analyzer:
        return False, "", ""
    lost = "The collection has lost its {}, so it is searched in dense mode. " + REINDEX
    if not _has_lexical_vectors(config):
        return False, "", lost.format("lexical vectors")
    lexicon = (getattr(config, "metadata", None) or {}).get(LEXICON_KEY)
    if lexicon == "":
        return True, "", LEXICON_TOO_LARGE
    if not isinstance(lexicon, str):
        return True, "", lost.format("vocabulary")
    return True, lexicon, ""


def _has_lexical_vectors(config: Any) -> bool:
    return LEXICAL in (config.params.sparse_vectors or {})


def _has_server_idf(config: Any) -> bool:
    params = (config.params.sparse_vectors or {}).get(LEXICAL)
    return getattr(params, "modifier", None) == "idf"
