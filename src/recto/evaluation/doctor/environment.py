"""Check the environment: settings, home, packages, model, Cohere, the engine, and interrupted work."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path

from recto._util.files import WriterLock
from recto.errors import ErrorKind, RectoError, StoreBusy, install_command
from recto.evaluation.doctor.findings import DoctorContext, Finding, error, from_error, note, ok, warning
from recto.protocols import Preparable, Versioned
from recto.settings import BUILT_IN_MODEL, CLOUD_VARIABLES, find_dotenv, load_settings, read_dotenv
from recto.stores.edge.layout import CollectionDirectory

_LOW_BYTES = 256 << 20
_FULL_BYTES = 32 << 20
_PACKAGES = ("qdrant-edge-py", "onnxruntime", "tokenizers", "numpy", "markdown-it-py", "click")
_EXTRAS = {
    "cloud": ("cohere", "qdrant-client"),
    "crawl": ("httpcore", "selectolax"),
    "serve": ("fastapi", "uvicorn"),
    "mcp": ("mcp",),
}

_METADATA_SINCE = (1, 16)


def configuration(context: DoctorContext) -> Iterator[Finding]:
    """Load the settings, and say which parts they choose and why."""
    dotenv = find_dotenv(context.directory)
    evidence = [f".env: {dotenv}" if dotenv else ".env: none found"]
    values = {**read_dotenv(context.directory), **context.environment}
    set_here = sorted(
        name
        for name, value in values.items()
        if value.strip() and name.startswith(("RECTO_", "QDRANT_", "COHERE_", "COLL"))
    )
    evidence.append(f"set: {', '.join(set_here) or 'nothing'}")
    settings = context.settings = load_settings(context.environment, context.directory)
    parts = f"{settings.embedder} embedder ({settings.model}), {settings.store} store"
    yield ok("configuration", f"{parts}, because {_reason(values)}", *evidence)


def home(context: DoctorContext) -> Iterator[Finding]:
    """Check that the home directory is writable and has space."""
    if context.settings is None:
        return
    place = context.settings.home
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
    if free < _FULL_BYTES:
        yield error(
            "home", "full", f"The disk of {place} is full: {room}", repair=repair, kind=ErrorKind.STORAGE
        )
    elif free < _LOW_BYTES:
        yield warning("home", "little_space", f"{place} has little space: {room}", repair=repair)
    elif not place.exists():
        yield note("home", "not_yet", f"{place} does not exist yet; the first index creates it")
    else:
        yield ok("home", f"{place} is writable, {room}")


def packages(context: DoctorContext) -> Iterator[Finding]:
    """Check that the packages of the configured profile are installed."""
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
    settings = context.settings
    if settings and not set(settings.extras) <= set(extras):
        yield error(
            "packages",
            "missing_extra",
            "The configured profile needs the extra `cloud`",
            *evidence,
            repair=install_command("cloud"),
            kind=ErrorKind.CONFIGURATION,
        )
    if not missing:
        from recto import __version__

        yield ok("packages", f"Recto {__version__}, extras: {', '.join(extras) or 'none'}", *evidence)


def model(context: DoctorContext) -> Iterator[Finding]:
    """Check the hash of the local model's file, and load the model."""
    settings = context.settings
    if settings is None:
        return
    from recto.api import open_embedder

    embedder = open_embedder(settings, context.messages.append)
    if settings.embedder == "cohere":  # checked by `cohere`
        context.embedder = embedder
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
    context.embedder = embedder
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


def cohere(context: DoctorContext) -> Iterator[Finding]:
    """Embed one word with Cohere."""
    if context.settings is None or context.settings.embedder != "cohere" or context.embedder is None:
        return
    try:
        context.embedder.embed_query("book")
    except RectoError:
        context.embedder.close()
        context.embedder = None
        raise
    yield ok("cohere", f"Cohere answers: {context.embedder.fingerprint}")


def engine(context: DoctorContext) -> Iterator[Finding]:
    """Open the store, and ask for its version and collections."""
    if context.settings is None:
        return
    from recto.api import open_store

    store = open_store(context.settings, context.messages.append)
    yield from (note("engine", "warning", line.removeprefix("[WARNING] ")) for line in context.messages)
    context.messages.clear()
    try:
        version = store.version() if isinstance(store, Versioned) else type(store).__name__
        names = store.collections()
    except RectoError as failure:
        store.close()
        yield from_error("engine", failure)
        return
    context.store = store
    if not isinstance(store, Preparable):
        yield ok("engine", f"{version}, {len(names)} collection{'' if len(names) == 1 else 's'}", *names)
    elif _numbers(version) < _METADATA_SINCE:
        yield warning(
            "engine",
            "old_server",
            f"Qdrant {version} stores no collection metadata, so the model of an index cannot be verified",
            repair="Update the server to 1.16 or later.",
        )
    else:
        yield ok("engine", f"Qdrant {version} answers and accepts the key, {len(names)} collections", *names)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())


def leftovers(context: DoctorContext) -> Iterator[Finding]:
    """Report running and interrupted writers, and what they left behind."""
    if context.settings is None or not context.settings.home.is_dir():
        return
    found = list(_journals(context))
    for folder in sorted((context.settings.home / "collections").glob("*")):
        if folder.is_dir():
            found += _collection(folder.name, CollectionDirectory(folder))
    yield from found or [ok("leftovers", "No interrupted work")]


def _journals(context: DoctorContext) -> Iterator[Finding]:
    home = context.settings.home if context.settings else None
    for path in sorted((home / "journal").glob("*.vectors")) if home else ():
        name, size = path.stem, path.stat().st_size
        message = f"An interrupted run of '{name}' left {size >> 10} KiB of vectors; the next run reuses them"
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
            yield note("leftovers", "at_work", f"{busy.message}; readers see the old index until it finishes")
            return
    if drafts or orphans:
        message = f"A writer of '{name}' was killed; the next one removes what it left"
        yield note(
            "leftovers", "draft", message, *drafts, *orphans, repair=f"recto index PATH --collection {name}"
        )
