"""Checks of what writers leave in an embedded store: locks that are held, drafts, journals, generations without a manifest."""

from __future__ import annotations

from collections.abc import Iterator

from recto.doctor.findings import Finding, note, ok
from recto.doctor.patient import Patient
from recto.errors import StoreBusy
from recto.stores.edge.layout import CollectionDirectory, Home
from recto.stores.lock import WriterLock


def leftovers(patient: Patient) -> Iterator[Finding]:
    """Tell a writer at work from one that died, and say what is kept of it."""
    if patient.settings is None or not patient.settings.home.is_dir():
        return
    found = list(_journals(patient))
    for folder in sorted((patient.settings.home / "collections").glob("*")):
        if folder.is_dir():
            found += _collection(folder.name, Home(patient.settings.home).collection(folder.name))
    yield from found or [ok("leftovers", "No interrupted work")]


def _journals(patient: Patient) -> Iterator[Finding]:
    home = patient.settings.home if patient.settings else None
    for path in sorted((home / "journal").glob("*.vectors")) if home else ():
        name, size = path.stem, path.stat().st_size
        message = f"An interrupted run of '{name}' has left {size >> 10} KiB of vectors; the next one goes on from there"
        yield note("leftovers", "journal", message, str(path), repair=f"recto index PATH --collection {name}")


def _collection(name: str, directory: CollectionDirectory) -> Iterator[Finding]:
    drafts = sorted(path.name for path in directory.path.glob("building-*"))
    orphans = [path.name for path in sorted(directory.path.glob("gen-*")) if path.is_dir() and not directory.manifest(path.name).exists()]
    if directory.lock.exists():
        try:
            with WriterLock(directory.lock, f"Collection '{name}'"):
                pass
        except StoreBusy as busy:
            yield note("leftovers", "at_work", f"{busy.message}; readers see the old index until it has finished")
            return
    if drafts or orphans:
        message = f"A writer of '{name}' was killed; the next one clears up after it"
        yield note("leftovers", "draft", message, *drafts, *orphans, repair=f"recto index PATH --collection {name}")
