"""The embedded store: collections as directories of immutable generations, many readers, one writer each."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from recto.errors import CollectionMissing, IndexDamaged
from recto.settings import Settings, check_collection_name
from recto.stores.edge.engine import engine_version
from recto.stores.edge.index import EdgeIndex, open_generation
from recto.stores.edge.layout import (
    CollectionDirectory,
    FileState,
    Home,
    disk_error,
    disk_errors,
    file_state,
    is_whole,
    write_notes,
)
from recto.stores.lock import WriterLock
from recto.types import Calibration, EmbedderFingerprint, IndexInfo

if TYPE_CHECKING:
    from recto.stores.edge.build import EdgeBuild

_OPEN_TRIES = 5


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a name leads, as long as the aliases stay as they were."""

    aliases: FileState | None
    collection: str
    directory: CollectionDirectory
    pointer: str


@dataclass(frozen=True, slots=True)
class _Opened:
    """An open index, the pointer file that led to it, and what that said."""

    pointer: FileState | None
    pointed: str
    index: EdgeIndex


def open_edge(settings: Settings, _: Callable[[str], None]) -> EdgeStore:
    """Return the embedded store in RECTO_HOME."""
    return EdgeStore(settings.home, close_at_exit=settings.close_at_exit)


class EdgeStore:
    """Opens each generation once and notices when a new one was published; the `last` is closed when its process ends."""

    def __init__(self, home: Path, *, close_at_exit: bool = False) -> None:
        self._home = Home(home)
        self._close_at_exit = close_at_exit
        self._aliases_file = str(self._home.aliases_file)
        self._open: dict[str, _Opened] = {}
        self._places: dict[str, _Place] = {}
        self._opening = threading.Lock()
        self._process = os.getpid()
        self._abandoned: list[object] = []

    def collections(self) -> tuple[str, ...]:
        """Name the collections that exist."""
        with disk_errors(self._home.path):
            return self._home.collections()

    def aliases(self) -> Mapping[str, str]:
        """Return which further names lead to which collection."""
        with disk_errors(self._home.path):
            return self._home.aliases()

    def open(self, name: str) -> EdgeIndex:
        """Return the current generation of a collection or alias."""
        try:
            place = self._place(name)
            known = self._open.get(place.collection)
            if (
                known is not None
                and known.pointer == file_state(place.pointer)
                and self._process == os.getpid()
            ):
                return known.index
            return self._open_anew(place)
        except OSError as error:
            raise disk_error(error, self._home.path) from error

    def build(
        self,
        name: str,
        embedder: EmbedderFingerprint,
        *,
        analyzer: str = "",
        rebuild: bool = False,
        wait: Callable[[str], None] | None = None,
    ) -> EdgeBuild:
        """Begin a new generation of a collection; it is always a new one."""
        del analyzer, rebuild
        check_collection_name(name, "collection")
        from recto.stores.edge.build import EdgeBuild

        self.aliases()  # a damaged list is told before the work, not after it
        return EdgeBuild(name, self._home.collection(name), embedder.dim, wait, self._drop_alias)

    def set_aliases(self, aliases: Iterable[str], name: str) -> None:
        """Let aliases lead to a collection; a collection of an alias's own name keeps it."""
        with disk_errors(self._home.path), self._changing_aliases():
            free = [alias for alias in aliases if alias != name and not self._home.collection(alias).exists()]
            known = self._home.aliases()
            wanted = {**known, **dict.fromkeys(free, name)}
            if wanted != known:
                self._home.set_aliases(wanted)

    def save_calibration(self, info: IndexInfo, calibration: Calibration) -> None:
        """Write what was measured beside the generation; one that is gone by now needs no notes."""
        with disk_errors(self._home.path):
            directory = self._home.collection(info.collection)
            if directory.manifest(info.generation).exists():
                write_notes(directory.notes(info.generation), calibration)

    def rollback(self, name: str) -> IndexInfo:
        """Make the generation before the current one the current one again."""
        with disk_errors(self._home.path):
            collection = self._resolve(name)
            directory = self._home.collection(collection)
            with WriterLock(directory.lock, f"Collection '{collection}'"):
                names = directory.generations()
                newer = names.index(directory.pointed()) + 1 if directory.pointed() in names else 0
                older = [name for name in names[newer:] if is_whole(directory, name)]
                if not older:
                    raise CollectionMissing(
                        f"Collection '{collection}' has no earlier generation to go back to",
                        hint="One is kept after each `recto index`.",
                    )
                index = open_generation(directory, collection, older[0], ())
                directory.set_current(older[0])
                return index.info

    def version(self) -> str:
        """Return the name and version of the engine."""
        return engine_version()

    def close(self) -> None:
        """Let go of all open indexes; if the process ends with it, they stay open until then."""
        self._forget_after_fork()
        if self._close_at_exit:
            for opened in list(self._open.values()):
                opened.index.leak_on_exit()
        self._open.clear()

    def _place(self, name: str) -> _Place:
        """Find the collection behind a name; remembered until the aliases change, as every search asks for it."""
        aliases = file_state(self._aliases_file)
        known = self._places.get(name)
        if known is None or known.aliases != aliases:
            collection = self._resolve(name)
            directory = self._home.collection(collection)
            self._places[name] = known = _Place(aliases, collection, directory, str(directory.pointer))
        return known

    def _open_anew(self, place: _Place) -> EdgeIndex:
        """Open what the pointer names now, unless that is open already."""
        with self._opening:
            self._forget_after_fork()
            known = self._open.get(place.collection)
            pointer = file_state(
                place.pointer
            )  # before it is read: what changes in between is noticed by the next search
            if known is None or (known.pointer != pointer and known.pointed != place.directory.pointed()):
                # A replaced index is not closed: other threads may be asking it; it closes when they let go.
                pointed, index = self._load(place.collection, place.directory)
            else:
                pointed, index = known.pointed, known.index
            self._open[place.collection] = _Opened(pointer, pointed, index)
            return index

    def _resolve(self, name: str) -> str:
        check_collection_name(name, "collection")
        if self._home.collection(name).exists():
            return name
        target = self._home.aliases().get(name)
        if target is not None and self._home.collection(target).exists():
            return target
        known = ", ".join(sorted({*self._home.collections(), *self._home.aliases()}))
        raise CollectionMissing(
            f"Collection '{name}' does not exist",
            hint=f"Index a book with `recto index PATH --collection {name}`"
            + (f", or use one of: {known}." if known else "."),
        )

    def _load(self, collection: str, directory: CollectionDirectory) -> tuple[str, EdgeIndex]:
        """Open what the pointer names; if that is damaged, the newest whole generation, with a warning that says so."""
        tries = 0
        while True:
            pointed = directory.pointed()
            tries += 1
            try:
                return pointed, open_generation(directory, collection, directory.current(), ())
            except IndexDamaged as damage:
                # A generation that was pruned while it was being opened is not damaged: the pointer has moved on.
                if tries < _OPEN_TRIES and directory.pointed() != pointed:
                    continue
                return pointed, self._older(collection, directory, pointed, damage)

    def _older(
        self, collection: str, directory: CollectionDirectory, current: str, damage: IndexDamaged
    ) -> EdgeIndex:
        repair = f"Repair it with `recto index PATH --collection {collection}`."
        for name in directory.generations():
            if name == current:
                continue
            try:
                warning = f"The index of '{collection}' is damaged: {damage.message}. Answering from {name}. {repair}"
                return open_generation(directory, collection, name, (warning,))
            except IndexDamaged:
                continue
        raise IndexDamaged(
            f"The index of '{collection}' is damaged: {damage.message}", hint=repair
        ) from damage

    def _drop_alias(self, name: str) -> None:
        """A published collection answers to its own name, whatever alias had it before."""
        with self._changing_aliases():
            aliases = self._home.aliases()
            if aliases.pop(name, None):
                self._home.set_aliases(aliases)

    def _changing_aliases(self) -> WriterLock:
        self._home.path.mkdir(parents=True, exist_ok=True)
        return WriterLock(self._home.aliases_lock, "The list of aliases", wait=lambda _: None)

    def _forget_after_fork(self) -> None:
        """Leave a parent process's indexes alone: any call on them in the child, even closing, would hang."""
        if self._process != os.getpid():
            self._abandoned.append(self._open)
            self._open = {}
            self._process = os.getpid()
