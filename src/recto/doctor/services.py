"""Checks of the services: whether they can be reached, take the key, and are recent enough."""

from __future__ import annotations

from collections.abc import Iterator

from recto.doctor.findings import Finding, from_error, note, ok, warning
from recto.doctor.patient import Patient
from recto.errors import RectoError

_METADATA_SINCE = (1, 16)


def cohere(patient: Patient) -> Iterator[Finding]:
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


def engine(patient: Patient) -> Iterator[Finding]:
    """Open the store; ask a server for its version and, with the key, for its collections."""
    if patient.settings is None:
        return
    from recto.wiring import open_store

    store = open_store(patient.settings, patient.told.append)
    yield from (note("engine", "told", line.removeprefix("[WARNING] ")) for line in patient.told)
    patient.told.clear()
    if patient.settings.store == "edge":
        from recto.stores.edge.engine import engine_version

        names = store.collections()
        patient.store = store
        yield ok("engine", f"{engine_version()}, {len(names)} collection{'' if len(names) == 1 else 's'}", *names)
        return
    yield from _server(patient, store)


def _server(patient: Patient, store: object) -> Iterator[Finding]:
    from recto.stores.server.store import ServerStore

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
