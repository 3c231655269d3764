"""Checks of what writers leave in an embedded store: locks that are held, drafts, journals, generations without a manifest."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path

from recto.errors import ErrorKind, RectoError, StoreBusy, install_command
from recto.evaluation.doctor.findings import DoctorContext, Finding, error, from_error, note, ok, warning
from recto.settings import BUILT_IN_MODEL, CLOUD_VARIABLES, find_dotenv, load_settings, read_dotenv
from recto.stores.edge.layout import CollectionDirectory, Home
from recto.stores.lock import WriterLock

_LITTLE = 256 << 20  # bytes
_TOO_LITTLE = 32 << 20
_PACKAGES = ("qdrant-edge-py", "onnxruntime", "tokenizers", "numpy", "markdown-it-py", "click")
_EXTRAS = {
    "cloud": ("cohere", "qdrant-client"),
    "crawl": ("httpcore", "selectolax"),
    "serve": ("fastapi", "uvicorn"),
    "mcp": ("mcp",),
}


def configuration(patient: DoctorContext) -> Iterator[Finding]:
    """Read the settings, and say which set-up they choose and why."""
    dotenv = find_dotenv(patient.directory)
    evidence = [f".env: {dotenv}" if dotenv else ".env: none found"]
    values = {**read_dotenv(patient.directory), **patient.environment}
    set_here = sorted(
        name
        for name, value in values.items()
        if value.strip() and name.startswith(("RECTO_", "QDRANT_", "COHERE_", "COLL"))
    )
    evidence.append(f"set: {', '.join(set_here) or 'nothing'}")
    settings = patient.settings = load_settings(patient.environment, patient.directory)
    parts = f"{settings.embedder} embedder ({settings.model}), {settings.store} store"
    yield ok("configuration", f"{parts}, because {_reason(values)}", *evidence)


def home(patient: DoctorContext) -> Iterator[Finding]:
    """Check that the home can be written, and that there is room."""
    if patient.settings is None:
        return
    place = patient.settings.home
    existing = next((folder for folder in (place, *place.parents) if folder.exists()), Path(place.anchor))
    if not existing.is_dir():
        raise NotADirectoryError(20, "it is not a directory", str(existing))
    if place.exists():
        with tempfile.NamedTemporaryFile(dir=place, prefix=".doctor-"):
            pass
        os.listdir(place)  # noqa: PTH208 - only whether it may be listed
    elif not os.access(existing, os.W_OK):
        raise PermissionError(13, "it cannot be created", str(place))
    free = shutil.disk_usage(existing).free
    room, repair = f"{free >> 20} MiB free", "Free some space, or set RECTO_HOME."
    if free < _TOO_LITTLE:
        yield error(
            "home", "full", f"The disk of {place} is full: {room}", repair=repair, kind=ErrorKind.STORAGE
        )
    elif free < _LITTLE:
        yield warning("home", "little_space", f"There is little room in {place}: {room}", repair=repair)
    elif not place.exists():
        yield note("home", "not_yet", f"{place} does not exist yet; the first index makes it")
    else:
        yield ok("home", f"{place} can be written, {room}")


def packages(patient: DoctorContext) -> Iterator[Finding]:
    """Check that what the set-up needs is installed."""
    found = {name: _version(name) for name in _PACKAGES}
    missing = [name for name, version in found.items() if not version]
    extras = [extra for extra, names in _EXTRAS.items() if all(map(_version, names))]
    evidence = [f"{name} {version}" for name, version in found.items() if version]
    evidence += [
        f"{name} {version}" for names in _EXTRAS.values() for name in names if (version := _version(name))
    ]
    if missing:
        yield error(
            "packages",
            "missing",
            f"Not installed: {', '.join(missing)}",
            *evidence,
            repair=install_command(),
            kind=ErrorKind.CONFIGURATION,
        )
    settings = patient.settings
    if settings and "cloud" not in extras and (settings.embedder == "cohere" or settings.store == "server"):
        yield error(
            "packages",
            "missing_extra",
            "The configured set-up needs the extra `cloud`",
            *evidence,
            repair=install_command("cloud"),
            kind=ErrorKind.CONFIGURATION,
        )
    if not missing:
        from recto import __version__

        yield ok("packages", f"Recto {__version__}, extras: {', '.join(extras) or 'none'}", *evidence)


def model(patient: DoctorContext) -> Iterator[Finding]:
    """Check the local model's file against its hash, and that it can be loaded."""
    settings = patient.settings
    if settings is None:
        return
    from recto.api import open_embedder

    embedder = open_embedder(settings, patient.told.append)
    if settings.embedder == "cohere":  # it is asked with the other service
        patient.embedder = embedder
        return
    evidence = []
    if settings.model in (BUILT_IN_MODEL, f"ibm-granite/{BUILT_IN_MODEL}"):
        from recto._util.files import sha256
        from recto.embedders.granite.model_pack import INSTALL, SHA256, find_pack

        pack = find_pack()
        if sha256(pack) != SHA256:
            yield error(
                "model",
                "damaged",
                "The local embedding model's file does not have the expected hash",
                str(pack),
                repair=INSTALL,
                kind=ErrorKind.CONFIGURATION,
            )
            return
        evidence.append(f"{pack.name}: SHA-256 as expected")
    embedder.warm_up()
    patient.embedder = embedder
    yield ok("model", f"{embedder.fingerprint} is loaded", *evidence)


def _reason(values: Mapping[str, str]) -> str:
    given = {name: value.strip() for name, value in values.items() if value.strip()}
    chosen = [f"{name}={given[name]}" for name in ("RECTO_EMBEDDER", "RECTO_STORE") if name in given]
    profile = given.get("RECTO_PROFILE", "auto").lower()
    cloud = [name for name in CLOUD_VARIABLES if name in given]
    if profile != "auto":
        reason = f"RECTO_PROFILE={profile}"
    elif cloud:
        reason = f"{' and '.join(cloud)} {'is' if len(cloud) == 1 else 'are'} set"
    else:
        reason = f"none of {', '.join(CLOUD_VARIABLES)} is set"
    return " and ".join([*chosen, reason])


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


_METADATA_SINCE = (1, 16)


def cohere(patient: DoctorContext) -> Iterator[Finding]:
    """Embed one word."""
    if patient.settings is None or patient.settings.embedder != "cohere" or patient.embedder is None:
        return
    try:
        patient.embedder.embed_query("book")
    except RectoError:
        patient.embedder.close()
        patient.embedder = None
        raise
    yield ok("cohere", f"Cohere answers: {patient.embedder.fingerprint}")


def engine(patient: DoctorContext) -> Iterator[Finding]:
    """Open the store; ask a server for its version and, with the key, for its collections."""
    if patient.settings is None:
        return
    from recto.api import open_store

    store = open_store(patient.settings, patient.told.append)
    yield from (note("engine", "told", line.removeprefix("[WARNING] ")) for line in patient.told)
    patient.told.clear()
    if patient.settings.store == "edge":
        from recto.stores.edge.engine import engine_version

        names = store.collections()
        patient.store = store
        yield ok(
            "engine", f"{engine_version()}, {len(names)} collection{'' if len(names) == 1 else 's'}", *names
        )
        return
    yield from _server(patient, store)


def _server(patient: DoctorContext, store: object) -> Iterator[Finding]:
    from recto.stores.qdrant.store import ServerStore

    if not isinstance(store, ServerStore):
        raise TypeError("the settings ask for a server")
    try:
        version = store.version()
        names = store.collections()
    except RectoError as failure:
        store.close()
        yield from_error("engine", failure)
        return
    patient.store = store
    if _numbers(version) < _METADATA_SINCE:
        yield warning(
            "engine",
            "old_server",
            f"Qdrant {version} keeps no metadata of collections, so the model of an index cannot be verified",
            repair="Update the server to 1.16 or later.",
        )
    else:
        yield ok("engine", f"Qdrant {version} answers and takes the key, {len(names)} collections", *names)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())


def leftovers(patient: DoctorContext) -> Iterator[Finding]:
    """Tell a writer at work from one that died, and say what is kept of it."""
    if patient.settings is None or not patient.settings.home.is_dir():
        return
    found = list(_journals(patient))
    for folder in sorted((patient.settings.home / "collections").glob("*")):
        if folder.is_dir():
            found += _collection(folder.name, Home(patient.settings.home).collection(folder.name))
    yield from found or [ok("leftovers", "No interrupted work")]


def _journals(patient: DoctorContext) -> Iterator[Finding]:
    home = patient.settings.home if patient.settings else None
    for path in sorted((home / "journal").glob("*.vectors")) if home else ():
        name, size = path.stem, path.stat().st_size
        message = f"An interrupted run of '{name}' has left {size >> 10} KiB of vectors; the next one goes on from there"
        yield note("leftovers", "journal", message, str(path), repair=f"recto index PATH --collection {name}")


def _collection(name: str, directory: CollectionDirectory) -> Iterator[Finding]:
    drafts = sorted(path.name for path in directory.path.glob("building-*"))
    orphans = [
        path.name
        for path in sorted(directory.path.glob("gen-*"))
        if path.is_dir() and not directory.manifest(path.name).exists()
    ]
    if directory.lock.exists():
        try:
            with WriterLock(directory.lock, f"Collection '{name}'"):
                pass
        except StoreBusy as busy:
            yield note(
                "leftovers", "at_work", f"{busy.message}; readers see the old index until it has finished"
            )
            return
    if drafts or orphans:
        message = f"A writer of '{name}' was killed; the next one clears up after it"
        yield note(
            "leftovers", "draft", message, *drafts, *orphans, repair=f"recto index PATH --collection {name}"
        )
