"""What the checks share: they fill it in one after the other; what one could not open, the next ones do without."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from shlex import quote

from recto.errors import ErrorKind, RectoError
from recto.indexing.planner import Plan
from recto.protocols import Embedder, Index, Source, Store
from recto.settings import QUERY_COLLECTION, SAMPLE_COLLECTION, Settings


class Severity(StrEnum):
    """How bad a finding is: an error makes answers wrong or impossible, a warning worse than they could be."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """One result of a check; `name` tells apart what a check may find, `kind` is set for errors."""

    check: str
    name: str
    severity: Severity
    message: str
    evidence: tuple[str, ...] = ()
    repair: str = ""
    kind: ErrorKind | None = None


def ok(check: str, message: str, *evidence: str) -> Finding:
    """All is well."""
    return Finding(check, "ok", Severity.OK, message, evidence)


def note(check: str, name: str, message: str, *evidence: str, repair: str = "") -> Finding:
    """Return something to know that harms nobody."""
    return Finding(check, name, Severity.NOTE, message, evidence, repair)


def warning(check: str, name: str, message: str, *evidence: str, repair: str) -> Finding:
    """Return something that makes answers worse."""
    return Finding(check, name, Severity.WARNING, message, evidence, repair)


def error(check: str, name: str, message: str, *evidence: str, repair: str, kind: ErrorKind) -> Finding:
    """Return something that makes answers wrong or impossible."""
    return Finding(check, name, Severity.ERROR, message, evidence, repair, kind)


def from_error(check: str, failure: RectoError) -> Finding:
    """Make a finding of what a part of Recto complains about."""
    return error(check, failure.kind.value, failure.message, repair=failure.hint, kind=failure.kind)


@dataclass(slots=True)
class DoctorContext:
    """The parts of one set-up, as far as they could be opened."""

    environment: Mapping[str, str]
    directory: Path | None
    asked: str | None
    everything: bool = False
    settings: Settings | None = None
    embedder: Embedder | None = None
    store: Store | None = None
    index: Index | None = None
    source: Source | None = None
    plan: Plan | None = None
    told: list[str] = field(default_factory=list)

    @property
    def collection(self) -> str:
        """The name that is examined."""
        return self.asked or (
            self.settings.collection_or(QUERY_COLLECTION) if self.settings else QUERY_COLLECTION
        )

    def index_command(self, *, rebuild: bool = False) -> str:
        """Return the command that makes the index again; with `rebuild`, all of it, whatever seems unchanged."""
        info = self.index.info if self.index else None
        more = " --rebuild" if rebuild else ""
        if info is not None and info.collection == SAMPLE_COLLECTION:
            return f"recto index --sample{more}"
        source = quote(info.fingerprint.source) if info is not None and info.fingerprint else "PATH"
        return f"recto index {source} --collection {info.collection if info else self.collection}{more}"
