"""The embedded store, Qdrant Edge in this process: a directory per collection, many readers, one writer."""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from weakref import ref

from recto._util.files import WriterLock, disk_error, disk_errors, make_private, read_limited, replace_text
from recto.errors import FormatMismatch, IndexDamaged, InvalidArgument, RectoError, StoreBusy
from recto.plugins import Notify
from recto.protocols import Progress
from recto.settings import Settings, check_collection_name
from recto.stores import choose_generation, is_alias, missing_collection
from recto.stores.edge.layout import CollectionDirectory, FileState, file_state, write_calibration
from recto.types.index import Calibration, EmbedderFingerprint, GenerationInfo, IndexInfo

# The engine is imported where it is needed: a missing collection is reported without it.
if TYPE_CHECKING:
    from recto.stores.edge.build import EdgeBuild
    from recto.stores.edge.index import EdgeIndex

_DELETED = ".deleted-"
_LARGEST_ALIASES = 1 << 20  # bytes
_VERIFY_PAUSE = 300.0  # seconds between two looks at whether an index is due


class _AliasFile(NamedTuple):
    """The aliases of all collections, in one file."""

    path: Path

    def read(self) -> dict[str, str]:
        """Return the aliases and the collections that they refer to."""
        try:
            aliases = json.loads(read_limited(self.path, _LARGEST_ALIASES))
        except FileNotFoundError:
            return {}
        except ValueError:
            aliases = None
        if not isinstance(aliases, dict):
            raise IndexDamaged(
                f"{self.path} is damaged", hint="Remove the file; the next `recto index` writes it again."
            )
        return {str(alias): str(name) for alias, name in aliases.items()}

    def change(self, change: Callable[[dict[str, str]], dict[str, str]]) -> None:
        """Replace the aliases by what a function returns for them; other processes wait until it is done."""
        make_private(self.path.parent)
        with WriterLock(self.path.with_suffix(".lock"), "The list of aliases", wait=lambda _: None):
            before = self.read()
            if (after := change(before)) != before:
                replace_text(self.path, json.dumps(after, indent=1, sort_keys=True) + "\n")

    def remove(self, name: str) -> None:
        """Remove an alias that has the name of a new collection."""
        self.change(lambda aliases: {alias: target for alias, target in aliases.items() if alias != name})


@dataclass(frozen=True, slots=True)
class _OpenGeneration:
    """An open index, the pointer file, and its state and content when the index was opened."""

    path: str
    pointer: FileState | None
    name: str
    index: EdgeIndex


def open_edge(settings: Settings, _: Notify) -> EdgeStore:
    """Return the embedded store in RECTO_HOME."""
    return EdgeStore(
        settings.home,
        close_at_exit=settings.close_at_exit,
        verify_later=not settings.single_query,
        keep_generations=settings.keep_generations,
    )


def _keep_verifying(store: ref[EdgeStore]) -> None:
    """Verify the open indexes of a store until the store is deleted."""
    while True:
        from random import random

        time.sleep(_VERIFY_PAUSE * (0.5 + random()))  # noqa: S311 - so that not all workers verify at once
        alive = store()
        if alive is None:
            return
        alive.verify_open()
        del alive  # a reference would keep the store alive during the next pause


class EdgeStore:
    """Opens each generation once, and notices when a new one is published.

    With `close_at_exit`, `close` keeps indexes open until the process ends. With `verify_later`, a thread
    digests the files of large indexes once a day. `keep_generations` earlier generations are kept.
    """

    is_local = True

    def __init__(
        self,
        home: Path,
        *,
        close_at_exit: bool = False,
        verify_later: bool = False,
        keep_generations: int = 1,
    ) -> None:
        self._home = home
        self._close_at_exit = close_at_exit
        self._verify_later = verify_later
        self._keep_generations = keep_generations
        self._verifying: threading.Thread | None = None
        self._aliases = _AliasFile(home / "aliases.json")
        self._aliases_path = str(self._aliases.path)  # a string is faster to stat, at every search
        self._open: dict[str, _OpenGeneration] = {}
        self._names: dict[str, tuple[FileState | None, str]] = {}
        self._opening = threading.Lock()
        self._process = os.getpid()
        self._parents_indexes: list[object] = []

    def collections(self) -> tuple[str, ...]:
        """Return the names of all collections, without aliases."""
        root = self._home / "collections"
        with disk_errors(self._home):
            if not root.exists():
                return ()
            return tuple(sorted(path.name for path in root.iterdir() if CollectionDirectory(path).exists()))

    def aliases(self) -> Mapping[str, str]:
        """Return the aliases and the collections that they refer to."""
        with disk_errors(self._home):
            return self._aliases.read()

    def open(self, name: str) -> EdgeIndex:
        """Return the current generation of a collection or alias."""
        try:
            collection = self._resolve(name)
            opened = self._open.get(collection)
            if opened and opened.pointer == file_state(opened.path) and self._process == os.getpid():
                return opened.index
            return self._reopen(collection)
        except OSError as error:
            raise disk_error(error, self._home) from error

    def build(
        self,
        name: str,
        embedder: EmbedderFingerprint,
        *,
        analyzer: str = "",
        rebuild: bool = False,
        wait: Callable[[str], None] | None = None,
    ) -> EdgeBuild:
        """Start a new generation of a collection; nothing is ever updated in place."""
        del analyzer, rebuild
        check_collection_name(name, "collection")
        from recto.stores.edge.build import EdgeBuild

        self.aliases()  # raises an error if the file is damaged, before any work is done
        directory, keep = self._directory(name), self._keep_generations
        return EdgeBuild(name, directory, embedder.dim, wait, self._aliases.remove, keep)

    def set_aliases(self, aliases: Iterable[str], name: str) -> None:
        """Point aliases to a collection; skip those that are names of other collections."""
        with disk_errors(self._home):
            free = [alias for alias in aliases if alias != name and not self._directory(alias).exists()]
            self._aliases.change(lambda current: {**current, **dict.fromkeys(free, name)})

    def save_calibration(self, info: IndexInfo, calibration: Calibration) -> None:
        """Store the calibration of a generation, unless the generation was removed."""
        with disk_errors(self._home):
            directory = self._directory(info.collection)
            if directory.manifest(info.generation).exists():
                write_calibration(directory.calibration(info.generation), calibration)

    def generations(self, name: str) -> tuple[GenerationInfo, ...]:
        """Return the generations of a collection, newest first."""
        with disk_errors(self._home):
            directory = self._directory(self._collection(name))
            current = directory.read_pointer()
            return tuple(
                directory.describe(name, current=name == current) for name in directory.generations()
            )

    def rollback(self, name: str, generation: str | None = None) -> IndexInfo:
        """Make a generation the current one again: the one before the current one if none is given."""
        from recto.stores.edge.index import open_generation

        with disk_errors(self._home):
            collection = self._collection(name)
            directory = self._directory(collection)
            with WriterLock(directory.lock, f"Collection '{collection}'"):
                names, current = directory.generations(), directory.read_pointer()
                if generation is None:
                    names = [name for name in names if name == current or directory.is_intact(name)]
                hint = "RECTO_KEEP_GENERATIONS sets how many earlier ones `recto index` keeps."
                target = choose_generation(collection, names, current, generation, hint)
                index = open_generation(directory, collection, target)
                directory.set_current(target)
                return index.info

    def backup(self, name: str, file: Path, progress: Progress | None = None) -> GenerationInfo:
        """Write the current generation with its aliases into an archive, while others search and publish."""
        from recto.stores.edge.backup import write_backup

        with disk_errors(self._home):
            collection = self._collection(name)
            aliases = [alias for alias, target in self._aliases.read().items() if target == collection]
            return write_backup(lambda: self._directory(self._collection(name)), aliases, file, progress)

    def restore(
        self,
        file: Path,
        name: str | None = None,
        *,
        replace: bool = False,
        progress: Progress | None = None,
        wait: Callable[[str], None] | None = None,
    ) -> IndexInfo:
        """Publish an archive as a new generation, and set its aliases that are not taken."""
        from recto.stores.edge.backup import open_archive, restore_archive

        with disk_errors(self._home), open_archive(file) as archive:
            collection = name or archive.collection
            check_collection_name(collection, "collection")
            aliases = self._aliases.read()
            directory = self._directory(collection)
            make_private(directory.path)
            with WriterLock(directory.lock, f"Collection '{collection}'", wait):
                if (directory.exists() or collection in aliases) and not replace:
                    raise InvalidArgument(
                        f"Collection '{collection}' exists already",
                        hint="Pass --replace to publish the archive as its new generation, "
                        "or --collection NAME.",
                    )
                info = restore_archive(archive, directory, self._keep_generations, progress)
            self._aliases.remove(collection)
            self.set_aliases(set(archive.aliases) - set(self._aliases.read()), collection)
            return info

    def delete(self, name: str) -> None:
        """Delete a collection and its aliases; a search that is running finishes."""
        with disk_errors(self._home):
            if (collection := self._collection(name)) != name:
                raise is_alias(name, collection)
            directory = self._directory(name)
            with WriterLock(directory.lock, f"Collection '{name}'"):
                # Renaming is atomic: a killed process leaves the whole collection, or none of it.
                os.replace(directory.path, self._home / f"{_DELETED}{name}-{os.urandom(4).hex()}")
            self._open.pop(name, None)
            for path in self._home.glob(f"{_DELETED}*"):  # also what killed processes left
                shutil.rmtree(path, ignore_errors=True)
            # On a full disk, there is room for this only now.
            self._aliases.change(
                lambda aliases: {alias: target for alias, target in aliases.items() if target != name}
            )

    def verify(self, name: str) -> None:
        """Digest every file of the current generation; raise `IndexDamaged` if one does not match."""
        with disk_errors(self._home):
            collection = self._collection(name)
            directory = self._directory(collection)
            try:
                directory.verify(directory.current(), everything=True)
            except IndexDamaged:
                self._open.pop(collection, None)  # the next search opens an older generation
                raise

    def verify_open(self) -> None:
        """Verify the open generations whose verification is due."""
        for collection, opened in list(self._open.items()):
            if self._directory(collection).verification_is_due(opened.name):
                with suppress(RectoError, OSError):  # the next search reports the damage
                    self.verify(collection)

    def version(self) -> str:
        """Return the name and version of the engine."""
        from recto.stores.edge.engine import engine_version

        return engine_version()

    def close(self) -> None:
        """Close all open indexes, or keep them open until the process ends with `close_at_exit`."""
        self._discard_after_fork()
        if self._close_at_exit:
            for opened in list(self._open.values()):
                opened.index.leak_on_exit()
        self._open.clear()

    def _directory(self, collection: str) -> CollectionDirectory:
        return CollectionDirectory(self._home / "collections" / collection)

    def _resolve(self, name: str) -> str:
        """Return the collection behind a name; cached until the aliases change, for fast searches."""
        aliases = file_state(self._aliases_path)
        cached = self._names.get(name)
        if cached is None or cached[0] != aliases:
            cached = self._names[name] = (aliases, self._collection(name))
        return cached[1]

    def _collection(self, name: str) -> str:
        """Return the name of the collection that a name or alias refers to."""
        check_collection_name(name, "collection")
        if self._directory(name).exists():
            return name
        target = self._aliases.read().get(name)
        if target is not None and self._directory(target).exists():
            return target
        raise missing_collection(name, "", {*self.collections(), *self._aliases.read()})

    def _reopen(self, collection: str) -> EdgeIndex:
        """Open the generation that the pointer names, unless it is open already."""
        directory = self._directory(collection)
        path = str(directory.pointer)
        with self._opening:
            self._discard_after_fork()
            opened = self._open.get(collection)
            # The state is taken before reading, so that the next search notices a change in between.
            pointer = file_state(path)
            if opened is None or (opened.pointer != pointer and opened.name != directory.read_pointer()):
                # The old index is not closed here: other threads may use it. It closes when they release it.
                name, index = self._load(collection, directory)
            else:
                name, index = opened.name, opened.index
            self._open[collection] = _OpenGeneration(path, pointer, name, index)
            if self._verify_later and not self._verifying and directory.verified(name).exists():
                thread = threading.Thread(target=_keep_verifying, args=(ref(self),), daemon=True)
                self._verifying = thread
                thread.start()
            return index

    def _load(self, collection: str, directory: CollectionDirectory) -> tuple[str, EdgeIndex]:
        """Open the current generation, or the newest intact one with a warning if it is damaged."""
        from recto.stores.edge.index import open_generation

        current = directory.read_pointer()
        try:
            return current, open_generation(directory, collection, directory.current())
        except IndexDamaged as damage:
            # If the pointer has changed, the generation was not damaged, but pruned while it was opened.
            if directory.read_pointer() != current:
                return self._load(collection, directory)
            completed = False
            if directory.unpublished.exists():  # a busy writer is about to publish
                with suppress(StoreBusy, OSError), WriterLock(directory.lock, f"Collection '{collection}'"):
                    completed = directory.complete()
            if completed:
                return self._load(collection, directory)
            message = f"The index of '{collection}' is damaged: {damage.message}"
            repair = f"Repair it with `recto index PATH --collection {collection}`."
            for name in directory.generations():
                if name != current:
                    with suppress(IndexDamaged, FormatMismatch):
                        warning = f"{message}. Using {name} instead. {repair}"
                        return current, open_generation(directory, collection, name, (warning,))
            raise IndexDamaged(message, hint=repair) from damage

    def _discard_after_fork(self) -> None:
        """Put the indexes of a parent process aside: any call on them, even closing, would hang."""
        if self._process != os.getpid():
            self._parents_indexes.append(self._open)
            self._open = {}
            self._process = os.getpid()
