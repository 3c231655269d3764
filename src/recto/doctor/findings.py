"""What an examination finds: how bad it is, what shows it, and the command that repairs it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from recto.errors import ErrorKind, RectoError


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
