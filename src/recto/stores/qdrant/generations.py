"""The physical collections on a server: one per generation, and the aliases that refer to them."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Mapping
from typing import Any

from qdrant_client import models

from recto.errors import ConfigurationError, FormatMismatch
from recto.stores.qdrant.connection import Connection
from recto.stores.qdrant.schema import is_compatible, read_fingerprint
from recto.types.index import EmbedderFingerprint, GenerationInfo

_DRAFT_SECONDS = 24 * 3600.0
_OLD_SUFFIX = 8  # hexadecimal digits after the name of a collection, which were random in Recto 0.1
_GENERATION_NAME = re.compile(r"(.+)--([0-9a-f]{8,16})")
_GENERATION = "--"  # separates the name of a collection from the id of its generation
MIXED = "Choose another --collection; its vectors and payloads would be mixed with ours."


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
    """Return when a generation was started, in milliseconds; 0 for the random names of Recto 0.1."""
    match = _GENERATION_NAME.fullmatch(physical)
    return int(match[2][:-4], 16) if match and len(match[2]) > _OLD_SUFFIX else 0


def not_ours(name: str, hint: str) -> ConfigurationError:
    """Return the error for changing a collection of another pipeline."""
    return ConfigurationError(f"Collection '{name}' was not made by Recto", hint=hint)


class Generations:
    """Lists, publishes and deletes the generations of all collections of a server."""

    def __init__(self, connection: Connection, keep: int) -> None:
        self._connection = connection
        self._keep = keep

    def aliases(self) -> dict[str, str]:
        """Return all aliases, and the physical collections that they refer to."""
        answer = self._connection.read(lambda client: client.get_aliases())
        return {entry.alias_name: entry.collection_name for entry in answer.aliases}

    def names(self) -> list[str]:
        """Return the names of all physical collections."""
        answer = self._connection.read(lambda client: client.get_collections())
        return [entry.name for entry in answer.collections]

    def current(self, name: str) -> str | None:
        """Return the physical collection of a name; None if it does not exist or the name is an alias."""
        target = self.aliases().get(name)
        if target is not None:
            return target if base_name(target) == name else None
        return name if self._connection.read(lambda client: client.collection_exists(name)) else None

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
            config = self._connection.read(lambda client: client.get_collection(before)).config
            if is_compatible(config, embedder, analyzer):
                return before, before
        return new_generation(name), before

    def describe(self, current: str) -> tuple[GenerationInfo, ...]:
        """Return the generations of a collection, newest first; its name refers to `current`."""
        names = [one for one in self.names() if is_generation(one, base_name(current))]
        generations = [self._describe(one, current=one == current) for one in names]
        generations.sort(key=lambda one: (_started_at(one.name), one.created_at), reverse=True)
        return tuple(generations)

    def _describe(self, physical: str, *, current: bool) -> GenerationInfo:
        """Describe a generation; it has no date if it was not published, or if it cannot be read."""
        try:
            collection = self._connection.read(lambda client: client.get_collection(physical))
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
        names = [one.name for one in generations if one.created_at]
        older = [one for one in names[names.index(before) if before in names else 0 :] if one != target]
        used = {target, before, *older[: self._keep], *self.aliases().values()}
        yesterday = (time.time() - _DRAFT_SECONDS) * 1000
        for one in generations:
            is_young_draft = not one.created_at and _started_at(one.name) > yesterday
            if one.name not in used and not one.problem and not is_young_draft:
                self._connection.write(
                    lambda client, one=one: client.delete_collection(one.name)  # type: ignore[misc]
                )

    def discard(self, target: str) -> None:
        """Delete a new collection that was not published; its alias may be set although a call failed."""
        if target not in self.aliases().values():
            self._connection.read(lambda client: client.delete_collection(target))

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
            self._connection.write(lambda client: client.update_collection_aliases(actions))
