"""Findings of the doctor, the parts that its checks share, and the checks of the environment.

The environment is the settings, the home, packages, the model, the engine, and interrupted work.
"""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Literal

from recto._util.files import lock_holder
from recto._util.text import plural
from recto.errors import ConfigurationError, ErrorKind, RectoError, install_command
from recto.indexing.planner import Plan
from recto.plugins import open_embedder, open_store
from recto.protocols import (
    Embedder,
    Index,
    Source,
    Store,
    StoreAbilities,
    embedder_abilities,
    store_abilities,
)
from recto.settings import (
    BUILT_IN_MODEL,
    CLOUD_VARIABLES,
    Settings,
    index_command,
    load_settings,
    read_variables,
)

_LOW_BYTES = 256 << 20
_FULL_BYTES = 32 << 20
_PACKAGES = ("qdrant-edge-py", "onnxruntime", "tokenizers", "numpy", "markdown-it-py", "click")
_EXTRAS = {
    "cloud": ("cohere", "qdrant-client"),
    "crawl": ("httpcore", "protego", "selectolax"),
    "epub": ("selectolax",),
    "pdf": ("pypdfium2",),
    "serve": ("fastapi", "uvicorn"),
    "mcp": ("mcp",),
    "openai": ("httpx",),
}
_METADATA_SINCE = (1, 16)
Severity = Literal["ok", "note", "warning", "error"]
"""How bad a finding is: an error breaks search, a warning makes it worse, a note is harmless."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding of a check.

    `name` identifies it among the check's findings. `kind` is set for errors. `examine` sets `check`.
    """

    check: str
    name: str
    severity: Severity
    message: str
    evidence: tuple[str, ...] = ()
    repair: str = ""
    kind: ErrorKind | None = None


def ok(message: str, *evidence: str) -> Finding:
    """Return the finding of a check that passed."""
    return Finding("", "ok", "ok", message, evidence)


def note(name: str, message: str, *evidence: str, repair: str = "") -> Finding:
    """Return a harmless finding."""
    return Finding("", name, "note", message, evidence, repair)


def warning(name: str, message: str, *evidence: str, repair: str) -> Finding:
    """Return a finding that makes search worse."""
    return Finding("", name, "warning", message, evidence, repair)


def error(
    name: str, message: str, *evidence: str, repair: str, kind: ErrorKind = ErrorKind.CONFIGURATION
) -> Finding:
    """Return a finding that breaks search."""
    return Finding("", name, "error", message, evidence, repair, kind)


def from_error(failure: RectoError) -> Finding:
    """Return the finding for an error."""
    return error(failure.kind.value, failure.message, repair=failure.hint, kind=failure.kind)


@dataclass(slots=True)
class DoctorContext:
    """The parts that earlier checks opened; None if they could not."""

    environment: Mapping[str, str]
    directory: Path | None
    collection: str
    """The name of the collection to check; empty until it is known."""
    everything: bool = False
    settings: Settings | None = None
    embedder: Embedder | None = None
    store: Store | None = None
    index: Index | None = None
    source: Source | None = None
    plan: Plan | None = None
    writers: dict[str, str] = field(default_factory=dict)
    """The collections that are being indexed now, with the ids of the processes."""
    messages: list[str] = field(default_factory=list)

    @property
    def abilities(self) -> StoreAbilities:
        """The abilities of the store; none if it could not be opened."""
        return store_abilities(self.store) if self.store else StoreAbilities()

    @property
    def name(self) -> str:
        """The name of the collection itself, if an alias was given."""
        return self.index.info.collection if self.index else self.collection

    def index_command(self, *, rebuild: bool = False) -> str:
        """Return the command that indexes the book again; with `rebuild`, from scratch."""
        if self.name in self.writers:
            return "Wait until the run has finished, then run `recto doctor` again."
        recorded = self.index.info.fingerprint if self.index else None
        source, options = (recorded.source, recorded.options) if recorded else ("", ())
        return index_command(self.name, source, options=options, rebuild=rebuild)


def settings_files(context: DoctorContext) -> Iterator[Finding]:
    """Say which files the settings are read from, and what they cannot set."""
    try:
        variables = read_variables(context.environment, context.directory)
    except ConfigurationError:  # reported by `configuration`
        return
    prefixes = ("RECTO_", "QDRANT_", "COHERE_", "COLL")
    evidence = []
    for source in variables.sources:
        names = ", ".join(sorted(name for name in source.values if name.startswith(prefixes)))
        evidence.append(f"{source.name}: {names or 'nothing'}")
    yield ok(f"Read from {' and '.join(source.name for source in variables.sources)}", *evidence)
    for message in variables.warnings:
        yield warning("ignored", message, repair=f"Remove the line from {variables.files[-1]}.")


def configuration(context: DoctorContext) -> Iterator[Finding]:
    """Load the settings, and say which parts they choose and why."""
    settings = context.settings = load_settings(context.environment, context.directory)
    model = f" ({settings.model})" if settings.model else ""
    yield ok(
        f"{settings.embedder} embedder{model}, {settings.store} store, because {_reason(settings.variables)}"
    )


def _reason(variables: Mapping[str, str]) -> str:
    chosen = [f"{name}={variables[name]}" for name in ("RECTO_EMBEDDER", "RECTO_STORE") if name in variables]
    profile = variables.get("RECTO_PROFILE", "auto").lower()
    cloud = [name for name in CLOUD_VARIABLES if name in variables]
    if profile != "auto":
        reason = f"RECTO_PROFILE={profile}"
    elif cloud:
        reason = f"{' and '.join(cloud)} {'is' if len(cloud) == 1 else 'are'} set"
    else:
        reason = f"none of {', '.join(CLOUD_VARIABLES)} is set"
    return " and ".join([*chosen, reason])


def home(_context: DoctorContext, settings: Settings) -> Iterator[Finding]:
    """Check that the home directory is writable and has space."""
    place = settings.home
    existing = next((folder for folder in (place, *place.parents) if folder.exists()), Path(place.anchor))
    with tempfile.TemporaryFile(dir=existing):  # raises an error if it is not a directory, or read-only
        os.listdir(existing)  # noqa: PTH208 - only whether it may be listed
    free = shutil.disk_usage(existing).free
    room, repair = f"{free >> 20} MiB free", "Free some space, or set RECTO_HOME."
    if free < _FULL_BYTES:
        message = f"The disk of {place} is full: {room}"
        yield error("full", message, repair=repair, kind=ErrorKind.STORAGE)
    elif free < _LOW_BYTES:
        yield warning("little_space", f"{place} has little space: {room}", repair=repair)
    elif not place.exists():
        yield note("not_yet", f"{place} does not exist yet; the first index creates it")
    else:
        yield ok(f"{place} is writable, {room}")
        if os.name == "posix" and place.stat().st_mode & 0o077:
            message = f"Other users of this machine can read {place}"
            yield note("readable", message, repair=f"chmod 700 {shlex.quote(str(place))}")


def packages(context: DoctorContext) -> Iterator[Finding]:
    """Check that the packages of the configured profile are installed."""
    names = (*_PACKAGES, *(name for extra in _EXTRAS.values() for name in extra))
    versions = {name: version for name in names if (version := _version(name))}
    missing = [name for name in _PACKAGES if name not in versions]
    extras = [extra for extra, needed in _EXTRAS.items() if versions.keys() >= set(needed)]
    evidence = [f"{name} {version}" for name, version in versions.items()]
    if missing:
        message = f"Not installed: {', '.join(missing)}"
        yield error("missing", message, *evidence, repair=install_command())
    settings = context.settings
    for extra in settings.extras if settings else ():
        if extra not in extras:
            message = f"The configured profile needs the extra `{extra}`"
            yield error("missing_extra", message, *evidence, repair=install_command(extra))
    if not missing:
        from recto import __version__

        yield ok(f"Recto {__version__}, extras: {', '.join(extras) or 'none'}", *evidence)


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def model(context: DoctorContext, settings: Settings) -> Iterator[Finding]:
    """Check the hash of the local model's file, and embed one word."""
    embedder = open_embedder(settings, context.messages.append)
    evidence, repaired = [], []
    if settings.embedder == "local" and settings.model == BUILT_IN_MODEL:
        from recto._util.files import sha256
        from recto.embedders.granite.embedder import remove_damaged_weights
        from recto.embedders.granite.weights import MODEL, MODEL_SHA256

        if not MODEL.is_file() or sha256(MODEL) != MODEL_SHA256:
            message = "A file of the local embedding model does not have the expected hash"
            yield error("damaged", message, str(MODEL), repair=install_command(again=True))
            return
        evidence.append(f"{MODEL.name}: SHA-256 as expected")
        repaired = remove_damaged_weights(settings.home / "cache")
    try:
        embedder.embed_query("book")
    except RectoError:
        embedder.close()
        raise
    context.embedder = embedder
    for name in repaired:
        path = settings.home / "cache" / name
        yield note("repaired", f"The weights in {path} were damaged, and have been made again")
    yield ok(f"{embedder.fingerprint} embeds queries", *evidence)
    if describe := embedder_abilities(embedder).describe:
        yield from map(ok, describe())


def engine(context: DoctorContext, settings: Settings) -> Iterator[Finding]:
    """Open the store, and ask for its version and collections."""
    store = open_store(settings, context.messages.append)
    yield from (note("warning", line.removeprefix("[WARNING] ")) for line in context.messages)
    context.messages.clear()
    try:
        read_version = store_abilities(store).version
        version = read_version() if read_version else type(store).__name__
        names = store.collections()
    except RectoError as failure:
        store.close()
        yield from_error(failure)
        return
    context.store = store
    if store.is_local:
        yield ok(f"{version}, {plural(len(names), 'collection')}", *names)
    elif tuple(int(part) for part in version.split(".")[:2] if part.isdecimal()) < _METADATA_SINCE:
        message = (
            f"Qdrant {version} stores no collection metadata, so the model of an index cannot be verified"
        )
        yield warning("old_server", message, repair="Update the server to 1.16 or later.")
    else:
        yield ok(f"Qdrant {version} answers and accepts the key, {plural(len(names), 'collection')}", *names)


def leftovers(context: DoctorContext, settings: Settings) -> Iterator[Finding]:
    """Report running writers, and what interrupted ones left for the next run."""
    if not settings.home.is_dir():
        return
    place = settings.home
    locks = {lock.parent.name: lock for lock in sorted((place / "collections").glob("*/LOCK"))}
    locks |= {lock.stem: lock for lock in sorted((place / "locks").glob("*.lock"))}  # of servers
    context.writers = {name: process for name, lock in locks.items() if (process := lock_holder(lock))}
    findings = [
        note("at_work", f"'{name}' is being indexed now, by process {process}")
        for name, process in context.writers.items()
    ]
    for path in sorted((place / "journal").glob("*.vectors")):
        name, size = path.stem, path.stat().st_size >> 10
        if name not in context.writers:
            message = f"An interrupted run of '{name}' left {size} KiB of vectors; the next run reuses them"
            findings.append(
                note("journal", message, str(path), repair=f"recto index PATH --collection {name}")
            )
    yield from findings or [ok("No interrupted work")]
