"""The findings of the doctor's checks, and the context that the checks share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from recto.errors import ErrorKind, RectoError
from recto.indexing.planner import Plan
from recto.protocols import Embedder, Index, Source, Store
from recto.settings import Settings, index_command


class Severity(StrEnum):
    """How bad a finding is: an error breaks search, a warning makes it worse, a note is harmless."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"


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
    return Finding("", "ok", Severity.OK, message, evidence)


def note(name: str, message: str, *evidence: str, repair: str = "") -> Finding:
    """Return a harmless finding."""
    return Finding("", name, Severity.NOTE, message, evidence, repair)


def warning(name: str, message: str, *evidence: str, repair: str) -> Finding:
    """Return a finding that makes search worse."""
    return Finding("", name, Severity.WARNING, message, evidence, repair)


def error(
    name: str, message: str, *evidence: str, repair: str, kind: ErrorKind = ErrorKind.CONFIGURATION
) -> Finding:
    """Return a finding that breaks search."""
    return Finding("", name, Severity.ERROR, message, evidence, repair, kind)


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
    def name(self) -> str:
        """The name of the collection itself, if an alias was given."""
        return self.index.info.collection if self.index else self.collection

    def index_command(self, *, rebuild: bool = False) -> str:
        """Return the command that indexes the book again; with `rebuild`, from scratch."""
        if self.name in self.writers:
            return "Wait until the run has finished, then run `recto doctor` again."
        recorded = self.index.info.fingerprint if self.index else None
        return index_command(self.name, recorded.source if recorded else "", rebuild=rebuild)
