"""Checks of what is installed and configured: settings, home, packages, model."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path

from recto.doctor.findings import Finding, error, note, ok, warning
from recto.doctor.patient import Patient
from recto.errors import ErrorKind
from recto.settings import BUILT_IN_MODEL, CLOUD_VARIABLES, find_dotenv, load_settings, read_dotenv

_LITTLE = 256 << 20  # bytes
_TOO_LITTLE = 32 << 20
_PACKAGES = ("qdrant-edge-py", "onnxruntime", "tokenizers", "numpy", "markdown-it-py", "click")
_EXTRAS = {"cloud": ("cohere", "qdrant-client"), "crawl": ("httpcore", "selectolax"), "serve": ("fastapi", "uvicorn"), "mcp": ("mcp",)}


def configuration(patient: Patient) -> Iterator[Finding]:
    """Read the settings, and say which set-up they choose and why."""
    dotenv = find_dotenv(patient.directory)
    evidence = [f".env: {dotenv}" if dotenv else ".env: none found"]
    values = {**read_dotenv(patient.directory), **patient.environment}
    set_here = sorted(name for name, value in values.items() if value.strip() and name.startswith(("RECTO_", "QDRANT_", "COHERE_", "COLL")))
    evidence.append(f"set: {', '.join(set_here) or 'nothing'}")
    settings = patient.settings = load_settings(patient.environment, patient.directory)
    parts = f"{settings.embedder} embedder ({settings.model}), {settings.store} store"
    yield ok("configuration", f"{parts}, because {_reason(values)}", *evidence)


def home(patient: Patient) -> Iterator[Finding]:
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
        yield error("home", "full", f"The disk of {place} is full: {room}", repair=repair, kind=ErrorKind.STORAGE)
    elif free < _LITTLE:
        yield warning("home", "little_space", f"There is little room in {place}: {room}", repair=repair)
    elif not place.exists():
        yield note("home", "not_yet", f"{place} does not exist yet; the first index makes it")
    else:
        yield ok("home", f"{place} can be written, {room}")


def packages(patient: Patient) -> Iterator[Finding]:
    """Check that what the set-up needs is installed."""
    found = {name: _version(name) for name in _PACKAGES}
    missing = [name for name, version in found.items() if not version]
    extras = [extra for extra, names in _EXTRAS.items() if all(map(_version, names))]
    evidence = [f"{name} {version}" for name, version in found.items() if version]
    evidence += [f"{name} {version}" for names in _EXTRAS.values() for name in names if (version := _version(name))]
    if missing:
        yield error(
            "packages",
            "missing",
            f"Not installed: {', '.join(missing)}",
            *evidence,
            repair="pip install --force-reinstall recto",
            kind=ErrorKind.CONFIGURATION,
        )
    settings = patient.settings
    if settings and "cloud" not in extras and (settings.embedder == "cohere" or settings.store == "server"):
        yield error(
            "packages",
            "missing_extra",
            "The configured set-up needs the extra `cloud`",
            *evidence,
            repair="pip install 'recto[cloud]'",
            kind=ErrorKind.CONFIGURATION,
        )
    if not missing:
        from recto import __version__

        yield ok("packages", f"Recto {__version__}, extras: {', '.join(extras) or 'none'}", *evidence)


def model(patient: Patient) -> Iterator[Finding]:
    """Check the local model's file against its hash, and that it can be loaded."""
    settings = patient.settings
    if settings is None:
        return
    from recto.wiring import open_embedder

    embedder = open_embedder(settings, patient.told.append)
    if settings.embedder == "cohere":  # it is asked with the other service
        patient.embedder = embedder
        return
    evidence = []
    if settings.model in (BUILT_IN_MODEL, f"ibm-granite/{BUILT_IN_MODEL}"):
        from recto.embedders.pack import INSTALL, SHA256, find_pack
        from recto.filehash import sha256

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
